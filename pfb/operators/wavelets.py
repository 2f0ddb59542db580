"""The SARA dictionary: an image in several orthonormal wavelet bases at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from pfb.errors import InputError, ShapeError
from pfb.kernels import wavelets
from pfb.types import Real


class Dictionary:
    r"""Decompose an image in several bases, :math:`\Psi^H x`, and add them up again, :math:`\Psi a`.

    :math:`\Psi \Psi^H` is `nbasis` times the identity for any image size, so the squared norm of
    the operator is the number of its bases.

    Parameters
    ----------
    shape : (int, int)
        Size of the images, any.
    bases : tuple of str
        ``self`` (the pixels) and ``db1`` ... ``db8``.
    nlevels : int
        Levels of the wavelet decompositions.
    dtype
        float32 or float64.
    size : int, optional
        Length of the coefficient axis, at least that of the largest basis (the default). Bases
        with fewer coefficients are padded with zeros.

    Attributes
    ----------
    domain, codomain : tuple of int
        ``(nx, ny)`` and ``(nbasis, size)``.
    norm_squared : float
        :math:`\lVert\Psi\rVert^2`, the number of bases.

    Raises
    ------
    InputError
        If a basis is unknown or named twice.
    """

    def __init__(
        self, shape: tuple[int, int], bases: tuple[str, ...], nlevels: int, dtype: Any = np.float64, size: int | None = None
    ) -> None:
        unknown = [name for name in bases if name not in wavelets.NAMES]
        if unknown or not bases or len(set(bases)) < len(bases):
            raise InputError(f"bases are {', '.join(bases) or 'none'} but must be different ones of {', '.join(wavelets.NAMES)}")
        largest = max(wavelets.ncoefficient(shape, name, nlevels) for name in bases)
        if size is not None and size < largest:
            raise ShapeError(f"the coefficient axis has length {size} but the bases {bases} need {largest}")
        self.bases = bases
        self.nlevels = nlevels
        self.domain = shape
        self.codomain: tuple[int, ...] = (len(bases), size or largest)
        self.dtype = np.dtype(dtype)
        self.norm_squared = float(len(bases))

    def subset(self, first: int, last: int) -> Dictionary:
        """Return the dictionary of the bases `first` to `last` - 1, with the same coefficient axis."""
        return Dictionary(self.domain, self.bases[first:last], self.nlevels, self.dtype, self.codomain[1])

    def dot(self, x: Real, out: Real | None = None) -> Real:
        """Decompose an image: (nx, ny) to (nbasis, size), into `out` if it is given."""
        if x.shape != self.domain:
            raise ShapeError(f"the dictionary takes an image of shape {self.domain}, got {x.shape}")
        out = np.empty(self.codomain, x.dtype) if out is None else out
        for name, row in zip(self.bases, out, strict=True):
            wavelets.analyse(x, name, self.nlevels, row)
        return out

    def hdot(self, a: Real) -> Real:
        """Add up the images of all bases: (nbasis, size) to (nx, ny).

        One after the other, in their order, each while it is made: no basis has an image of its own.
        """
        if a.shape != self.codomain:
            raise ShapeError(f"the dictionary takes coefficients of shape {self.codomain}, got {a.shape}")
        out = np.zeros(self.domain, a.dtype)
        for name, row in zip(self.bases, a, strict=True):
            wavelets.synthesise(row, name, self.nlevels, out)
        return out
