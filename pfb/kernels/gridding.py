r"""Visibilities of one band to an image and back, by w-gridding (Arras et al. 2021, A&A 646, A58).

The signs are those of `docs/conventions.md`: a source at direction cosines l (East) and m (North)
has visibilities :math:`S e^{+2\pi i\nu/c\,(ul + vm + w(n-1))}` and lies at pixel
``(nx // 2 - l / cell, ny // 2 + m / cell)``.
"""

from __future__ import annotations

from typing import Any

import ducc0
import numpy as np

from pfb.types import Complex, Real

SMALLEST_CURVED_FIELD = 1e-6
"""Width of a field in radians below which n - 1 is lost to rounding and ducc0 returns NaN."""


def good_even(n: int) -> int:
    """Return the smallest even size >= `n` whose Fourier transform is fast."""
    size = ducc0.fft.good_size(max((n + 1) // 2, 1), True)
    return 2 * size


def grid(
    uvw: Real,
    freq: Real,
    vis: Complex,
    weight: Real,
    *,
    shape: tuple[int, int],
    cell: float,
    epsilon: float = 1e-7,
    wgridding: bool = True,
    nthreads: int = 1,
) -> Real:
    r"""Grid weighted visibilities of one band onto the sky: the adjoint of `degrid`.

    .. math::
        I_{lm} = \sum_{r\nu} w_{r\nu} \,\Re\left[ V_{r\nu}\,
        e^{-2\pi i \frac{\nu}{c}(u_r l + v_r m + w_r(n - 1))} \right]

    Parameters
    ----------
    uvw : (row, 3) float64
        Baseline coordinates in metres.
    freq : (chan,) float64
        Channel centres in Hz, ascending.
    vis : (row, chan) complex64 or complex128
        Visibilities in Jy. Their precision decides that of the image.
    weight : (row, chan) float
        Imaging weights, zero where a sample is flagged.
    shape : (int, int)
        Image size ``(nx, ny)``, any size: an odd or slow one is gridded on the next good
        even size and cropped.
    cell : float
        Pixel size in radians.
    epsilon : float
        Accuracy relative to the direct sum.
    wgridding : bool
        Account for the w-term.
    nthreads : int
        Threads used inside this call; with more than one the last bits of the image vary.

    Returns
    -------
    (nx, ny) float
        Image in Jy, *not* divided by the sum of the weights, so that images may be added.
    """
    if not weight.any():
        return np.zeros(shape, vis.real.dtype)
    even = good_even(shape[0]), good_even(shape[1])
    image = ducc0.wgridder.vis2dirty(
        uvw=uvw, freq=freq, vis=vis, wgt=weight.astype(vis.real.dtype, copy=False), npix_x=even[0], npix_y=even[1],
        **_options(even, cell, epsilon, wgridding, nthreads),
    )  # fmt: skip
    return np.ascontiguousarray(image[_centre(shape, even)])


def degrid(
    uvw: Real,
    freq: Real,
    image: Real,
    *,
    weight: Real | None = None,
    centre: tuple[float, float] = (0.0, 0.0),
    cell: float,
    epsilon: float = 1e-7,
    wgridding: bool = True,
    nthreads: int = 1,
) -> Complex:
    r"""Predict the visibilities of an image.

    .. math::
        V_{r\nu} = \sum_{lm} I_{lm}\, e^{+2\pi i \frac{\nu}{c}(u_r l + v_r m + w_r(n - 1))}

    Parameters
    ----------
    uvw, freq, cell, epsilon, wgridding, nthreads
        As for `grid`.
    image : (nx, ny) float32 or float64
        Sky in Jy per pixel, constant over the channels.
    weight : (row, chan) float, optional
        Samples of weight zero are not predicted but left zero.
    centre : (float, float)
        Direction cosines l and m of pixel ``(nx // 2, ny // 2)``, in radians.

    Returns
    -------
    (row, chan) complex
        Visibilities in Jy, not weighted, in the precision of the image.
    """
    even = good_even(image.shape[0]), good_even(image.shape[1])
    if even != image.shape:
        padded = np.zeros(even, image.dtype)
        padded[_centre(image.shape, even)] = image
        image = padded
    mask = None if weight is None else (weight != 0).view(np.uint8)
    # Its x runs against l, and so does its y against m when v is flipped.
    return ducc0.wgridder.dirty2vis(
        uvw=uvw, freq=freq, dirty=image, mask=mask, center_x=-centre[0], center_y=-centre[1],
        **_options(even, cell, epsilon, wgridding, nthreads),
    )  # fmt: skip


def grid_psf(uvw: Real, freq: Real, weight: Real, **options: Any) -> Real:
    """Grid the response to a source of 1 Jy at the phase centre.

    Parameters
    ----------
    uvw, freq, weight
        As for `grid`, in float64.
    options
        Keywords of `grid`.

    Returns
    -------
    (nx, ny) float64
        Its value at ``(nx // 2, ny // 2)`` is the sum of the weights.
    """
    return grid(uvw, freq, np.ones(weight.shape, np.complex128), weight, **options)


def _centre(shape: tuple[int, ...], even: tuple[int, int]) -> tuple[slice, slice]:
    """Where an image lies in a larger one when their pixels ``n // 2`` coincide."""
    first = [m // 2 - n // 2 for n, m in zip(shape, even, strict=True)]
    return slice(first[0], first[0] + shape[0]), slice(first[1], first[1] + shape[1])


def _options(shape: tuple[int, int], cell: float, epsilon: float, wgridding: bool, nthreads: int) -> dict[str, Any]:
    curved = wgridding and max(shape) * cell > SMALLEST_CURVED_FIELD
    return dict(
        pixsize_x=cell, pixsize_y=cell, epsilon=epsilon, do_wgridding=curved, nthreads=nthreads,
        flip_u=False, flip_v=True, flip_w=False, divide_by_n=False, sigma_min=1.1, sigma_max=2.6,
    )  # fmt: skip
