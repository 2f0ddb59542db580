"""Graphs from the pieces of a measurement set to weights, dirty images, PSFs and Hessians, band by band."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pfb.graph.blocks import reduce_bands
from pfb.graph.names import Names
from pfb.graph.tasks import Graph, Key, add, ref, refs, unchanged
from pfb.kernels import samples, weighting
from pfb.operators.hessian import PsfHessian
from pfb.operators.measurement import Gridder, effective_frequency, wsum
from pfb.operators.preconditioner import Preconditioner
from pfb.solvers.power import spectral_norm, start_vector
from pfb.types import Real, Visibilities

Loader = Callable[[], Visibilities]
Band = tuple[Visibilities, ...]


@dataclass(frozen=True)
class Weighting:
    """How imaging weights follow from natural ones.

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
    """

    scheme: str
    robust: float
    counts: tuple[int, int]
    cell: float


def load(graph: Graph, names: Names, loaders: Sequence[Sequence[Sequence[Loader]]], clip: float) -> list[Key]:
    """Read the samples of every band.

    Parameters
    ----------
    graph : Graph
        Receives the tasks.
    loaders
        ``[band][window][piece]``: callables without arguments that return Visibilities, small when pickled.
    clip : float
        Fraction of a band's strongest samples that is dropped.

    Returns
    -------
    list of Key
        A tuple of Visibilities per band, one per window.
    """
    keys = []
    for v, windows in enumerate(loaders):
        joined = []
        for w, pieces in enumerate(windows):
            read = [add(graph, names.key("read", w, p, v), call, piece) for p, piece in enumerate(pieces)]
            joined.append(add(graph, names.key("read", w, v), samples.concatenate, refs(read)))
        keys.append(add(graph, names.key("band", v), samples.clip_strongest, refs(joined), clip))
    return keys


def weigh(graph: Graph, names: Names, bands: list[Key], weighting: Weighting) -> list[Key]:
    """Turn natural weights into imaging weights; the counts are pooled over all bands."""
    if weighting.scheme == "natural":
        return [add(graph, names.key("weigh", v), unchanged, ref(key)) for v, key in enumerate(bands)]
    counts = [add(graph, names.key("counts", v), _count, ref(key), weighting) for v, key in enumerate(bands)]
    total = reduce_bands(graph, lambda i: names.key("counts", 0, i), counts, np.add)
    return [add(graph, names.key("weigh", v), _weigh, ref(key), ref(total), weighting) for v, key in enumerate(bands)]


def sums(graph: Graph, names: Names, bands: list[Key]) -> list[Key]:
    """Return keys of (sum of weights, effective frequency) of every band."""
    return [add(graph, names.key("statistics", v), _sums, ref(key)) for v, key in enumerate(bands)]


def dirty(graph: Graph, names: Names, bands: list[Key], gridder: Gridder) -> list[Key]:
    """Grid the dirty images, raw."""
    return [add(graph, names.key("grid", v), gridder.dirty, ref(key)) for v, key in enumerate(bands)]


def psf(graph: Graph, names: Names, bands: list[Key], gridder: Gridder, shape: tuple[int, int]) -> list[Key]:
    """Grid the PSFs, raw, on a grid of `shape`."""
    return [add(graph, names.key("psf", v), gridder.psf, ref(key), shape) for v, key in enumerate(bands)]


def residual(graph: Graph, names: Names, bands: Sequence[Key], models: Sequence[Key], gridder: Gridder) -> list[Key]:
    """Grid the data less the model, exactly: through visibilities, never through the PSF."""
    return [
        add(graph, names.key("residual", v), gridder.residual, ref(band), ref(model))
        for v, (band, model) in enumerate(zip(bands, models, strict=True))
    ]


def hessians(
    graph: Graph, names: Names, psfs: list[Key], shape: tuple[int, int], total: float, eta: float, nthreads: int
) -> tuple[list[Key], list[Key]]:
    """Make the approximate Hessian of every band, and estimate its norm.

    Parameters
    ----------
    psfs : list of Key
        Raw PSFs.
    shape : (int, int)
        Size of the images.
    total : float
        Sum of the weights of all bands.
    eta : float
        Added to the diagonal.
    nthreads : int
        Threads of each convolution.

    Returns
    -------
    hessians, norms : list of Key
    """
    made = [add(graph, names.key("hessian", v), _hessian, ref(key), shape, total, eta, nthreads) for v, key in enumerate(psfs)]
    norms = [add(graph, names.key("power", v), _norm, ref(key)) for v, key in enumerate(made)]
    return made, norms


def preconditioners(graph: Graph, names: Names, hessians: Sequence[Key], gamma: float, shift: float) -> list[Key]:
    """Make the preconditioner of the primal-dual iteration of every band, see `Preconditioner`."""
    return [
        add(graph, names.key("precondition", v), Preconditioner, ref(hessian), gamma, shift)
        for v, hessian in enumerate(hessians)
    ]


def mfs(graph: Graph, names: Names, images: list[Key], total: float) -> Key:
    """Add the raw images of all bands and divide by the sum of all weights."""
    summed = reduce_bands(graph, lambda i: names.key("mfs", 0, i), images, np.add)
    return add(graph, names.key("mfs", 0), np.divide, ref(summed), total)


def call(function: Callable[..., Any], *args: Any) -> Any:
    """Call a picklable callable."""
    return function(*args)


def _count(band: Band, weighting_: Weighting) -> Real:
    shape = weighting_.counts
    parts = [weighting.count(p.uvw, p.freq, p.weight, shape, weighting_.cell) for p in band]
    return np.sum(parts, axis=0) if parts else np.zeros((shape[0], shape[1] // 2 + 1))


def _weigh(band: Band, counts: Real, scheme: Weighting) -> Band:
    out = []
    for part in band:
        density = weighting.density(part.uvw, part.freq, counts, scheme.counts, scheme.cell)
        if scheme.scheme == "uniform":
            weight = weighting.uniform(part.weight, density)
        else:
            weight = weighting.briggs(part.weight, density, counts, scheme.robust)
        out.append(part._replace(weight=weight))
    return tuple(out)


def _sums(band: Band) -> tuple[float, float]:
    return wsum(band), effective_frequency(band)


def _hessian(psf_: Real, shape: tuple[int, int], total: float, eta: float, nthreads: int) -> PsfHessian:
    return PsfHessian(psf_, shape, total, eta=eta, nthreads=nthreads)


def _norm(hessian: PsfHessian) -> float:
    return spectral_norm(hessian.dot, start_vector(hessian.domain, hessian.dtype))
