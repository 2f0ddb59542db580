"""Image to samples and back in single precision, planned once: for the many products with one Hessian."""

from __future__ import annotations

import threading

import ducc0
import numpy as np

from pfb.kernels import wterm
from pfb.types import Complex, Real


class Transform:
    r"""The non-uniform Fourier transform of an image at fixed samples, with the w-term as a `WTerm`.

    Signs are those of `pfb.kernels.gridding`, whose transforms this approximates.

    Parameters
    ----------
    uvw : (3, sample) float64
        Coordinates in wavelengths, w >= 0.
    shape : (int, int)
        Size of the image, any.
    cell : float
        Pixel size in radians.
    epsilon : float
        Accuracy of the transforms.
    w_accuracy : float or None
        Of the w-term, see `wterm.factorise`; None leaves it out.
    nthreads : int
        Threads of each transform.
    """

    def __init__(
        self, uvw: Real, shape: tuple[int, int], cell: float, epsilon: float, w_accuracy: float | None, nthreads: int
    ) -> None:
        self.shape, self.cell, self.nsample = shape, cell, uvw.shape[1]
        w = np.zeros(self.nsample) if w_accuracy is None else uvw[2]
        self.term = wterm.factorise((float(w.min()), float(w.max())), wterm.deepest(shape, cell), w_accuracy or 1.0)
        self._places = self.term.places(w)
        # Coordinates of x = 0, 1, ... run against l; the second half of them is opposite to the first.
        coord = np.empty((2, self.nsample, 2), np.float32)
        coord[0, :, 0], coord[0, :, 1] = uvw[0] * cell, uvw[1] * -cell
        np.negative(coord[0], out=coord[1])
        self._lock = threading.Lock()  # a plan serves one thread at a time
        self._plan = ducc0.nufft.plan(
            nu2u=True, coord=coord.reshape(-1, 2), grid_shape=shape, epsilon=epsilon, nthreads=nthreads, periodicity=1.0,
            fft_order=False,
        )  # fmt: skip

    def predict(self, image: Real) -> Complex:
        """Return the visibilities, (sample,) complex64, of an image in Jy per pixel, (nx, ny) float32."""
        vis = np.zeros(self.nsample, np.complex64)
        for pair in range(self.term.npair):
            grid = wterm.modulate(image, self.term, pair, self.cell)
            with self._lock:
                points = self._plan.u2nu(grid=grid, forward=True).reshape(2, -1)
            wterm.collect(points, self._places, self.term, pair, vis)
        return vis

    def grid(self, vis: Complex) -> Real:
        """Return the image, (nx, ny) float32, of visibilities that already have their weights: the adjoint of `predict`."""
        image = np.zeros(self.shape, np.float32)
        points = np.empty((2, self.nsample), np.complex64)
        for pair in range(self.term.npair):
            wterm.spread(vis, self._places, self.term, pair, points)
            with self._lock:
                grid = self._plan.nu2u(points=points.reshape(-1), forward=False)
            wterm.demodulate(grid, self.term, pair, self.cell, image)
        return image
