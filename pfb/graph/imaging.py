"""Graphs from the pieces of a measurement set to weights, dirty images, PSFs and Hessians, band by band."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from pfb.graph.blocks import reduce_bands
from pfb.graph.names import Names
from pfb.graph.tasks import Graph, Key, add, ref, refs
from pfb.kernels import samples, weighting
from pfb.kernels.samples import Band
from pfb.operators.hessian import PsfHessian, VisibilityHessian
from pfb.operators.measurement import Gridder
from pfb.operators.preconditioner import Preconditioner
from pfb.operators.primary_beam import Screened
from pfb.solvers.lanczos import largest_eigenvalue, start_vector
from pfb.types import Beam, LinearOperator, Real, Visibilities

Loader = Callable[[], Any]
Join = Callable[[Sequence[Any]], Sequence[Band]]

MARGIN = 1.03
"""On the scale of a preconditioner, since the Lanczos method approaches it from below."""


@dataclass(frozen=True, kw_only=True)
class Weighting:
    """How imaging weights follow from natural ones: counted, summed over boxes, floored, divided by, tapered, in this order.

    Parameters
    ----------
    scheme : str
        ``natural``, ``uniform`` or ``briggs``.
    robust : float
        Briggs' parameter.
    counts : (int, int)
        Size of the grid of counts.
    cell : float
        Pixel size of the image in radians.
    box, floor
        As of `pfb.kernels.weighting.densities`.
    per_band : bool
        Every band has counts of its own; else they are pooled over all bands.
    taper : Beam, optional
        What the image is smoothed with.
    inner : Beam, optional
        What the image is smoothed with before it is subtracted from itself.
    """

    scheme: str
    robust: float
    counts: tuple[int, int]
    cell: float
    box: int = 0
    floor: float = 0.0
    per_band: bool = False
    taper: Beam | None = None
    inner: Beam | None = None


class Sums(NamedTuple):
    """What the weights of a plane come to."""

    wsum: float
    """Sum of the imaging weights."""
    freq: float
    """Mean frequency in Hz, weighted with them; NaN without data."""
    natural: float
    """Sum of the natural weights."""


def load(
    graph: Graph, names: Names, loaders: Sequence[Sequence[Sequence[Loader]]], clip: float, nproduct: int = 1,
    join: Join = samples.join,
) -> list[Key]:  # fmt: skip
    """Read the samples of every plane, a Stokes product in a band; a piece is read once for all products of its band.

    Parameters
    ----------
    graph : Graph
        Receives the tasks.
    loaders
        ``[band][window][piece]``: callables without arguments, small when pickled. They return the parts of a piece for each
        product, or what `join` takes in their place.
    clip : float
        Fraction of a plane's strongest samples that is dropped.
    nproduct : int
        Stokes products.
    join : callable
        Makes the samples of a window, for each product, out of its pieces.

    Returns
    -------
    list of Key
        The samples of every plane; the planes of a band follow each other.
    """
    keys = []
    for v, windows in enumerate(loaders):
        first = v * nproduct
        joined = []
        for w, pieces in enumerate(windows):
            read = [add(graph, names.key("read", w, p, first), call, piece) for p, piece in enumerate(pieces)]
            joined.append(add(graph, names.key("read", w, first), join, refs(read)))
        for s in range(nproduct):
            keys.append(add(graph, names.key("band", first + s), _plane, refs(joined), s, clip))
    return keys


def weigh(graph: Graph, names: Names, bands: list[Key], weighting: Weighting, nproduct: int = 1) -> list[Key]:
    """Turn natural weights into imaging weights; the products of a band are weighed with the same density."""
    if weighting.scheme == "natural":
        density: list[Key | None] = [None] * len(bands)
    else:
        density = [*_density(graph, names, bands, weighting, nproduct)]
    return [
        add(graph, names.key("weigh", v), _weigh, ref(key), None if own is None else ref(own), weighting)
        for v, (key, own) in enumerate(zip(bands, density, strict=True))
    ]


def _density(graph: Graph, names: Names, bands: list[Key], weighting: Weighting, nproduct: int) -> list[Key]:
    """Return the key of the density that every plane is divided by."""
    counts = [add(graph, names.key("counts", v), _count, ref(key), weighting) for v, key in enumerate(bands)]
    together = nproduct if weighting.per_band else len(bands)
    keys = []
    for first in range(0, len(bands), together):
        own = counts[first : first + together]
        total = reduce_bands(graph, partial(_sum_of_counts, names, first), own, np.add)
        keys += [add(graph, names.key("density", first), _densities, ref(total), weighting)] * len(own)
    return keys


def _sum_of_counts(names: Names, first: int, index: int) -> Key:
    return names.key("counts", 0, first + index)


def sums(graph: Graph, names: Names, natural: list[Key], weighed: list[Key]) -> list[Key]:
    """Return keys of the `Sums` of every plane."""
    return [
        add(graph, names.key("statistics", v), _sums, ref(before), ref(key))
        for v, (before, key) in enumerate(zip(natural, weighed, strict=True))
    ]


def dirty(graph: Graph, names: Names, bands: list[Key], gridder: Gridder) -> list[Key]:
    """Grid the dirty images, raw."""
    return [add(graph, names.key("grid", v), gridder.dirty, ref(key)) for v, key in enumerate(bands)]


def psf(graph: Graph, names: Names, bands: list[Key], gridder: Gridder, shape: tuple[int, int]) -> list[Key]:
    """Grid the PSFs, raw, on a grid of `shape`."""
    return [add(graph, names.key("psf", v), gridder.psf, ref(key), shape) for v, key in enumerate(bands)]


def residual(
    graph: Graph, names: Names, bands: Sequence[Key], models: Sequence[Key], gridder: Gridder
) -> tuple[list[Key], list[Key]]:
    """Grid the data less the model, exactly: through visibilities, never through the PSF.

    Returns
    -------
    images, spreads : list of Key
        See `pfb.operators.measurement.Residual`.
    """
    images, spreads = [], []
    for v, (band, model) in enumerate(zip(bands, models, strict=True)):
        both = add(graph, names.key("subtract", v), gridder.residual, ref(band), ref(model))
        images.append(add(graph, names.key("residual", v), getattr, ref(both), "image"))
        spreads.append(add(graph, names.key("variance", v), getattr, ref(both), "spread"))
    return images, spreads


def hessians(
    graph: Graph, names: Names, bands: Sequence[Key], gridder: Gridder, totals: Sequence[float], eta: float
) -> list[Key]:
    """Make the Hessian of every plane from its weights.

    Parameters
    ----------
    bands : sequence of Key
        Visibilities.
    gridder : Gridder
        The image grid.
    totals : sequence of float
        What the data term of each plane is divided by; with one product the sum of the weights of all bands.
    eta : float
        Added to the diagonal.
    """
    return [
        add(graph, names.key("hessian", v), _hessian, ref(key), gridder, total, eta)
        for v, (key, total) in enumerate(zip(bands, totals, strict=True))
    ]


def convolutions(
    graph: Graph, names: Names, psfs: Sequence[Key], shape: tuple[int, int], totals: Sequence[float], eta: float, nthreads: int,
    dtype: Any = np.float64,
) -> list[Key]:  # fmt: skip
    """Make the convolution with its PSF of every plane, which approximates the Hessian at little cost.

    Parameters
    ----------
    psfs : sequence of Key
        Raw PSFs.
    shape : (int, int)
        Size of the images.
    totals, eta
        As for `hessians`.
    nthreads : int
        Threads of each convolution.
    dtype
        Their precision.
    """
    make = partial(PsfHessian, eta=eta, nthreads=nthreads, dtype=dtype)
    return [
        add(graph, names.key("convolution", v), call, make, ref(key), shape, total)
        for v, (key, total) in enumerate(zip(psfs, totals, strict=True))
    ]


def preconditioners(
    graph: Graph, names: Names, convolutions: Sequence[Key], hessians: Sequence[Key], gamma: float, shift: float,
    screens: Sequence[Key] | None = None,
) -> list[Key]:  # fmt: skip
    """Make the preconditioner of the primal-dual iteration of every band, see `Preconditioner`.

    Where the Hessians are seen through `screens`, images that multiply by more than one, the steps are that much shorter.
    """
    return [
        add(
            graph, names.key("precondition", v), _preconditioner,
            ref(convolution), ref(hessian), gamma, shift, None if screens is None else ref(screens[v]),
        )
        for v, (convolution, hessian) in enumerate(zip(convolutions, hessians, strict=True))
    ]  # fmt: skip


def mfs(graph: Graph, names: Names, images: Mapping[int, Key], total: float, product: int = 0) -> Key:
    """Add the raw images of all bands of a product and divide by the sum of its weights.

    Parameters
    ----------
    images : mapping
        Their keys, by the number of their plane.
    total : float
        Sum of the weights.
    product : int
        Number of the product, for the names.
    """
    places = list(images)
    summed = reduce_bands(graph, lambda i: names.key("mfs", 0, places[i]), list(images.values()), np.add)
    return add(graph, names.key("mfs", product, places[0]) if product else names.key("mfs", 0), np.divide, ref(summed), total)


def call(function: Callable[..., Any], *args: Any) -> Any:
    """Call a picklable callable."""
    return function(*args)


def _plane(windows: Sequence[Sequence[Band]], product: int, clip: float) -> Band:
    return samples.clip_strongest(samples.chain([products[product] for products in windows]), clip)


def _count(band: Band, weighting_: Weighting) -> Real:
    shape = weighting_.counts
    total = np.zeros((shape[0], shape[1] // 2 + 1))
    for part in band:
        total += weighting.count(part.uvw, part.freq, part.weight, shape, weighting_.cell)
    return total


def _densities(counts: Real, scheme: Weighting) -> weighting.Density:
    return weighting.densities(counts, scheme.box, scheme.floor)


def _weigh(band: Band, density: weighting.Density | None, scheme: Weighting) -> Band:
    return samples.each(band, partial(_weighed, density=density, scheme=scheme))


def _weighed(part: Visibilities, density: weighting.Density | None, scheme: Weighting) -> Visibilities:
    return part._replace(weight=_weight(part, density, scheme))


def _weight(part: Visibilities, density: weighting.Density | None, scheme: Weighting) -> Real:
    weight = part.weight
    if density is not None:
        own = weighting.density(part.uvw, part.freq, density.grid, scheme.counts, scheme.cell)
        if scheme.scheme == "uniform":
            weight = weighting.uniform(weight, own)
        else:
            weight = weighting.briggs(weight, own, density.mean, scheme.robust)
    if scheme.taper is not None:
        weight = weight * weighting.taper(part.uvw, part.freq, scheme.taper)
    if scheme.inner is not None:
        weight = weight * (1 - weighting.taper(part.uvw, part.freq, scheme.inner))
    return weight


def _sums(natural: Band, band: Band) -> Sums:
    total = moment = before = 0.0
    for part, own in zip(natural, band, strict=True):
        weight = own.weight.sum(axis=0)
        total += float(own.weight.sum())
        moment += float((weight * own.freq).sum())
        before += float(part.weight.sum())
    return Sums(total, moment / total if total else float("nan"), before)


def _hessian(band: Band, gridder: Gridder, total: float, eta: float) -> VisibilityHessian:
    return VisibilityHessian(band, gridder, total, eta=eta)


def _preconditioner(
    convolution: PsfHessian, hessian: LinearOperator, gamma: float, shift: float, screen: Real | None = None
) -> LinearOperator:
    """Scale the preconditioner so that the iteration converges: every eigenvalue of T (H / (2 gamma) + s) is below one."""

    def make(scale: float) -> LinearOperator:
        plain = Preconditioner(convolution, gamma, shift, scale)
        return plain if screen is None else Screened(plain, 1 / np.maximum(screen, 1))

    start = start_vector(hessian.domain).astype(np.float32)
    largest = largest_eigenvalue(make(1.0).dot, lambda x: hessian.dot(x) / (2 * gamma) + shift * x, start)
    return make(MARGIN * largest)
