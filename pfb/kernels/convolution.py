"""Zero-padded FFT convolution of one image with a kernel given by its transfer function."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ducc0
import numpy as np
from numpy.typing import NDArray

from pfb.errors import ShapeError
from pfb.types import Complex, Real

ROWS, COLUMNS = 8, 32
"""Of the spectrum that a thread works on at once, both ways: so few that they stay in its cache."""


def transfer(kernel: Real, nthreads: int = 1) -> Complex:
    """Fourier transform a kernel whose origin is at pixel ``(nx // 2, ny // 2)``.

    Parameters
    ----------
    kernel : (px, py) float
        Kernel; its size is that of the padded grid on which `convolve` works.

    Returns
    -------
    (px, py // 2 + 1) complex
    """
    # The origin sits at n // 2 for odd n too, so ifftshift, not fftshift.
    return ducc0.fft.r2c(np.fft.ifftshift(kernel), axes=(0, 1), nthreads=nthreads)


def neighbourhood_maximum(transfer: Real, padded: tuple[int, int]) -> Real:
    """Return the largest value among every cell of a transfer function and its eight neighbours.

    Parameters
    ----------
    transfer : (px, py // 2 + 1) float
        Half of an even function of the spatial frequency, such as the modulus of a `transfer`.
    padded : (int, int)
        ``(px, py)``.

    Returns
    -------
    (px, py // 2 + 1) float
    """
    half = transfer.shape[1]
    # The neighbours beyond either end of the half that is stored are columns of it, at opposite x frequencies.
    beyond = [1 % padded[1], padded[1] - half]
    left, right = (np.roll(transfer[::-1, column], 1)[:, None] for column in (min(c, half - 1) for c in beyond))
    wide = np.concatenate([left, transfer, right], axis=1)
    columns = np.maximum(np.maximum(wide[:, :-2], wide[:, 1:-1]), wide[:, 2:])
    return np.maximum(np.maximum(np.roll(columns, 1, axis=0), columns), np.roll(columns, -1, axis=0))


def convolve(image: Real, transfer: NDArray[Any], padded: tuple[int, int], nthreads: int = 1) -> Real:
    r"""Convolve an image, :math:`y = C F^{-1} \hat k F C^T x`; C crops the padded grid to its lower corner.

    The rows of zeros that the padding adds are never transformed, and of the result only the rows that are returned. A few
    rows or columns are padded, transformed and cropped at a time, so that the padded image is never whole.

    Parameters
    ----------
    image : (nx, ny) float
        Image; it is not changed.
    transfer : (px, py // 2 + 1) float or complex
        Transfer function of the kernel. A real one makes the operator self-adjoint.
    padded : (int, int)
        Size ``(px, py)`` of the grid; ``2 n - 1`` or more makes the convolution linear over
        the whole image, less lets the far ends of the kernel wrap around.
    nthreads : int
        Threads of the transforms; 0 takes all that ducc0 has. The result is the same for any number.

    Returns
    -------
    (nx, ny) float
        In the precision of the image.

    Raises
    ------
    ShapeError
        If the grid is smaller than the image or the transfer function is not of its size.
    """
    nx, ny = image.shape
    px, py = padded
    if px < nx or py < ny or transfer.shape != (px, py // 2 + 1):
        raise ShapeError(
            f"an image of shape {image.shape} and a transfer function of shape {transfer.shape} do not fit "
            f"a grid of {padded}: it must hold the image and have a transfer function of {(px, py // 2 + 1)}"
        )
    spectrum = np.empty((nx, transfer.shape[1]), np.result_type(image.dtype, np.complex64))
    share = nthreads or ducc0.misc.thread_pool_size()
    rows = np.zeros((ROWS * share, py), image.dtype)
    for part, wide in _parts(spectrum, rows, 0):
        wide[:, :ny] = image[part]
        ducc0.fft.r2c(wide, axes=(1,), nthreads=nthreads, out=spectrum[part])
    columns = np.empty((px, COLUMNS * share), spectrum.dtype)
    for part, high in _parts(spectrum, columns, 1):
        high[:nx], high[nx:] = spectrum[part], 0
        ducc0.fft.c2c(high, axes=(0,), nthreads=nthreads, out=high)
        high *= transfer[part]
        ducc0.fft.c2c(high, axes=(0,), forward=False, inorm=2, nthreads=nthreads, out=high)
        spectrum[part] = high[:nx]
    out = np.empty_like(image, order="C")
    for part, wide in _parts(spectrum, rows, 0):
        ducc0.fft.c2r(spectrum[part], axes=(1,), forward=False, inorm=2, lastsize=py, nthreads=nthreads, out=wide)
        out[part] = wide[:, :ny]
    return out


def _parts(spectrum: Complex, work: NDArray[Any], axis: int) -> Iterator[tuple[tuple[slice, ...], NDArray[Any]]]:
    """Cut a spectrum along an axis into parts that fit the work space; yields where a part is, and its share of the space."""
    for first in range(0, spectrum.shape[axis], work.shape[axis]):
        part = slice(first, min(first + work.shape[axis], spectrum.shape[axis]))
        width = slice(part.stop - part.start)
        whole = slice(None)
        yield ((part, whole), work[width]) if axis == 0 else ((whole, part), work[:, width])
