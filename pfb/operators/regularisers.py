"""Regularisers of wavelet coefficients, joint over frequency; immutable, reweighting makes a new one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pfb.errors import InputError
from pfb.kernels import prox as kernels
from pfb.types import Real

PRIORS = ("l21", "mean21")

CHUNK = 1 << 15
"""Coefficients of a pass over all bands: few enough for the cache, many enough for what a call costs."""


def importance(bases: Sequence[str]) -> tuple[float, ...]:
    """Return the weight of every basis in the prior: the pixels weigh as much as all wavelets together, which weigh 1 each.

    Wavelets call a point source that lies between pixels less sparse than a blob of the same flux; the pixels have to
    hold out against all of them.
    """
    return tuple(max(len(bases) - 1.0, 1.0) if name == "self" else 1.0 for name in bases)


@dataclass(frozen=True, eq=False)
class JointPrior:
    r"""A norm of the coefficients a (basis, band, coefficient) that couples the bands.

    * ``l21``: :math:`g(a) = \sum w \lVert a \rVert_2`, the norm over the bands;
    * ``mean21``: :math:`g(a) = \sum w (|m| + \lVert d \rVert_2)` with
      :math:`m = \sum_b a_b / \sqrt{n}` and d the deviation from the mean over the bands.

    With several Stokes products a band is any plane, a product in a band; m and d are then those of each product, and
    :math:`|m|` is the norm over the products.

    Parameters
    ----------
    name : str
        ``l21`` or ``mean21``.
    nband : int
        Bands that it couples; those without data are left out by the caller.
    weight : (nbasis, ncoefficient) float, optional
        w; 1 by default.
    products : tuple of int
        Number of the Stokes product of every band; all are of one by default.

    Raises
    ------
    InputError
        If the name is unknown.
    """

    name: str
    nband: int
    weight: Real | None = None
    products: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.name not in PRIORS:
            raise InputError(f"prior {self.name!r} is unknown; choose from {', '.join(PRIORS)}")

    def reweighted(self, weight: Real) -> JointPrior:
        """Return the same prior with other weights."""
        return replace(self, weight=weight)

    @property
    def nproduct(self) -> int:
        """How many products it takes means of: several for `mean21` only."""
        return len(set(self.products)) if self.name == "mean21" and self.products else 1

    @property
    def nstatistic(self) -> int:
        """Sums over the bands that it is made of."""
        return 1 + self.nproduct if self.name == "mean21" else 1

    def statistic(self, blocks: Sequence[Real], part: slice = slice(None), first: int = 0) -> Real:
        """Sum over the bands of all blocks, (nbasis, bands, n) each, to (nstatistic, nbasis, n), which may be added up.

        `part` selects coefficients; `first` is the number of the first of these bands among all.
        """
        bands = [block[:, band, part] for block in blocks for band in range(block.shape[1])]
        if self.nproduct > 1:
            return kernels.product_statistic(bands, self.products[first : first + len(bands)], self.nproduct)
        return _STATISTICS[self.name](bands)

    def factor(self, statistic: Real, radius: Real | float) -> Real:
        """Return what `project` needs, from the statistic of all bands and the radius lambda w of the dual ball."""
        if self.name == "l21":
            return kernels.l21_factor(statistic, radius)
        if self.nproduct > 1:
            return kernels.product_factor(statistic, radius, self._counts)
        return kernels.mean21_factor(statistic, radius, self.nband)

    def factors(self, blocks: Sequence[Real], tau: float, part: tuple[int, int]) -> Real:
        """Return what `project` needs for a range of the coefficients, in one pass over them that stays in the cache.

        Parameters
        ----------
        blocks : sequence of (nbasis, bands, ncoefficient) float
            All bands, in blocks that are branches of the fixed binary tree.
        tau : float
            lambda.
        part : (int, int)
            First and last + 1 coefficient.

        Returns
        -------
        (nstatistic, nbasis, last - first) float
        """
        first, last = part
        out = np.empty((self.nstatistic, len(blocks[0]), last - first), blocks[0].dtype)
        for start in range(first, last, CHUNK):
            stop = min(start + CHUNK, last)
            chunk = slice(start, stop)
            out[..., start - first : stop - first] = self.factor(self.statistic(blocks, chunk), self.radius(tau, chunk))
        return out

    def ascend(self, dual: Real, coefficients: Real, sigma: float) -> None:
        r"""Overwrite the coefficients a with :math:`v + \sigma a`, the dual before its projection; of any of the bands."""
        kernels.ascend(dual, coefficients, sigma)

    def renew(self, dual: Real, coefficients: Real, sigma: float, tau: float) -> None:
        r"""Overwrite the coefficients a with :math:`P(v + \sigma a)`, v being the dual, in one pass that stays in the cache.

        Where a whole chunk is inside of the ball, nothing more is done to it.

        Parameters
        ----------
        dual : (nbasis, nband, ncoefficient) float
            Of all bands.
        coefficients : (nbasis, nband, ncoefficient) float
            Of the extrapolated images.
        sigma : float
            Step of the dual.
        tau : float
            lambda.
        """
        for start in range(0, dual.shape[-1], CHUNK):
            chunk = slice(start, start + CHUNK)
            v = coefficients[..., chunk]
            kernels.ascend(dual[..., chunk], v, sigma)
            statistic, radius = self.statistic([v]), self.radius(tau, chunk)
            if not kernels.inside(statistic, radius):
                kernels.project(v, self.factor(statistic, radius), out=v, products=self._products_of(0, v))

    def radius(self, tau: float, part: slice = slice(None)) -> Real | float:
        """Return tau w, of the coefficients of `part`."""
        return tau if self.weight is None else tau * self.weight[:, part]

    def project(self, v: Real, factor: Real, first: int = 0) -> Real:
        """Map (nbasis, bands, n) onto the dual ball, for bands from `first` on."""
        return kernels.project(v, factor, products=self._products_of(first, v))

    def prox(self, v: Real, tau: float) -> Real:
        """Return the proximal map of tau g at v, (nbasis, nband, n), by Moreau's identity."""
        return v - self.project(v, self.factor(self.statistic([v]), self.radius(tau)))

    def value(self, a: Real) -> float:
        """Return g(a) of the coefficients of all bands, (nbasis, nband, n)."""
        starts = range(0, a.shape[-1], CHUNK)
        return float(sum(self._norm(a[..., start : start + CHUNK], slice(start, start + CHUNK)).sum() for start in starts))

    def _norm(self, a: Real, part: slice) -> Real:
        """The weighted norms over the bands, (nbasis, n), of a part of the coefficients."""
        sums = self.statistic([a])
        if self.name == "l21":
            norm = np.sqrt(sums[0])
        else:
            # Not from the sum of the squares: that would leave small deviations half their digits.
            means = [total / count for total, count in zip(sums[:-1], self._counts, strict=True)]
            deviation = a - np.stack([means[s] for s in self.products or (0,) * self.nband], axis=1)
            parts = [total / np.sqrt(count) for total, count in zip(sums[:-1], self._counts, strict=True)]
            common = np.abs(parts[0]) if len(parts) == 1 else np.sqrt(sum(np.square(own) for own in parts))
            norm = common + np.sqrt(kernels.l21_statistic(deviation.swapaxes(0, 1))[0])
        return norm if self.weight is None else norm * self.weight[:, part]

    @property
    def _counts(self) -> list[int]:
        """Bands of each product."""
        return [self.products.count(s) for s in range(self.nproduct)] if self.nproduct > 1 else [self.nband]

    def _products_of(self, first: int, v: Real) -> tuple[int, ...]:
        return self.products[first : first + v.shape[1]] if self.nproduct > 1 else ()


_STATISTICS: dict[str, Callable[[Sequence[Real]], Real]] = {
    "l21": kernels.l21_statistic,
    "mean21": kernels.mean21_statistic,
}
