"""Image to samples and back in single precision, planned once: for the many products with one Hessian."""

from __future__ import annotations

import threading

import ducc0
import numpy as np

from pfb.kernels import wterm
from pfb.kernels.sampling import Sampling
from pfb.types import Complex, Real


class Transform:
    """The non-uniform Fourier transform of an image at fixed samples.

    Parameters
    ----------
    sampling : Sampling
        The samples.
    epsilon : float
        Accuracy of the transforms.
    nthreads : int
        Threads of each transform.
    """

    def __init__(self, sampling: Sampling, epsilon: float, nthreads: int) -> None:
        self._sampling = sampling
        self._lock = threading.Lock()  # a plan serves one thread at a time
        self._plan = ducc0.nufft.plan(
            nu2u=True, coord=sampling.coord.reshape(-1, 2), grid_shape=sampling.decimation.shape, epsilon=epsilon,
            nthreads=nthreads, periodicity=1.0, fft_order=False,
        )  # fmt: skip

    def predict(self, image: Real) -> Complex:
        """Return the visibilities, (sample,) complex64, of an image in Jy per pixel, (nx, ny) float32."""
        decimation, cell, term, places, _ = self._sampling
        vis = np.zeros(places.size, np.complex64)
        image = decimation.dot(image)
        for pair in range(term.npair):
            grid = wterm.modulate(image, term, pair, cell)
            with self._lock:
                points = self._plan.u2nu(grid=grid, forward=True).reshape(2, -1)
            wterm.collect(points, places, term, pair, vis)
        return vis

    def grid(self, vis: Complex) -> Real:
        """Return the image, (nx, ny) float32, of visibilities that already have their weights: the adjoint of `predict`."""
        decimation, cell, term, places, _ = self._sampling
        image = np.zeros(decimation.shape, np.float32)
        points = np.empty((2, places.size), np.complex64)
        for pair in range(term.npair):
            wterm.spread(vis, places, term, pair, points)
            with self._lock:
                grid = self._plan.nu2u(points=points.reshape(-1), forward=False)
            wterm.demodulate(grid, term, pair, cell, image)
        return decimation.hdot(image)
