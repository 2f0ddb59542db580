"""Graphs of the first model and of the parts of a major cycle: slope, weights of the prior, objective, statistics, update."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from pfb.graph.blocks import Blocks, reduce_bands
from pfb.graph.imaging import call, mfs
from pfb.graph.names import Names
from pfb.graph.primal_dual import Data, PrimalDual
from pfb.graph.tasks import Graph, Key, add, ref, refs
from pfb.kernels.cleaning import Pixels, find_points, point_model
from pfb.operators.hessian import PsfHessian
from pfb.operators.regularisers import JointPrior, importance
from pfb.operators.wavelets import Dictionary
from pfb.solvers.conjugate_gradient import conjugate_gradient
from pfb.solvers.major_cycle import Statistics
from pfb.solvers.primal_dual import change, decompose
from pfb.solvers.reweighting import l1_weight
from pfb.types import LinearOperator, Real


def updates(
    graph: Graph, names: Names, hessians: Sequence[Key], residuals: Sequence[Key], start: Sequence[Key] | None,
    totals: Sequence[float], tol: float, maxit: int, dtype: Any = np.float64,
) -> list[Key]:  # fmt: skip
    """Solve H update = residual in every plane by conjugate gradients.

    Parameters
    ----------
    residuals : sequence of Key
        Raw residuals.
    start : sequence of Key, optional
        Updates to start from; zero by default.
    totals : sequence of float
        What the data term of each plane is divided by.
    tol, maxit
        Limits of the conjugate gradients.
    dtype
        Their precision.
    """
    keys = []
    for v, (hessian, residual, total) in enumerate(zip(hessians, residuals, totals, strict=True)):
        x0 = None if start is None else ref(start[v])
        keys.append(add(graph, names.key("cg", v), _solve, ref(hessian), ref(residual), x0, total, tol, maxit, dtype))
    return keys


GAIN = 0.1
"""Fraction of a peak that is subtracted at once from what the first model is made of."""

SUBTRACTIONS = 1000
"""At most, for the first model."""


@dataclass(frozen=True)
class Pursuit:
    """How the first model of a Stokes product is found.

    Parameters
    ----------
    total : float
        Sum of the weights of all bands of the product.
    depth : float
        Down to this fraction of the peak of its MFS image.
    positive : bool
        The model must not be negative.
    dtype
        Of the model.
    product : int
        Its number, for the names.
    """

    total: float
    depth: float
    positive: bool = False
    dtype: Any = np.float64
    product: int = 0


def pursue(
    graph: Graph, names: Names, dirty: Mapping[int, Key], psfs: Mapping[int, Key], mask: Key | None, how: Pursuit
) -> tuple[Key, dict[int, Key]]:
    """Make the first model of a product: point sources found in its MFS image, with the flux that each band has there.

    Parameters
    ----------
    dirty, psfs : mapping
        Keys of the raw images, by the number of their plane.
    mask : Key, optional
        Where there may be sources.
    how : Pursuit
        The product.

    Returns
    -------
    Key, dict
        The pixels found, and the model of every plane; see `pfb.kernels.cleaning`.
    """
    image, psf = (
        mfs(graph, names.within("pursue", i), keys, how.total, how.product) for i, keys in enumerate((dirty, psfs))
    )
    find = partial(find_points, gain=GAIN, depth=how.depth, maxit=SUBTRACTIONS, positive=how.positive)
    key = names.key("pursue", how.product, min(dirty)) if how.product else names.key("pursue")
    pixels = add(graph, key, _find, find, ref(image), ref(psf), None if mask is None else ref(mask))
    model = partial(_model, how.dtype, gain=GAIN, positive=how.positive)
    models = {
        v: add(graph, names.key("model", v), call, model, ref(own), ref(psfs[v]), ref(pixels)) for v, own in dirty.items()
    }
    return pixels, models


def empty(graph: Graph, names: Names, nplane: int, shape: tuple[int, int], dtype: Any = np.float64) -> list[Key]:
    """Return keys of models that are zero everywhere."""
    return [add(graph, names.key("model", v), np.zeros, shape, dtype) for v in range(nplane)]


def slopes(
    graph: Graph, names: Names, residuals: Sequence[Key], totals: Sequence[float], dtype: Any = np.float64
) -> list[Key]:
    """Return the steepest descent of the data term at the present model of every plane: residual / total, in Jy/beam."""
    return [
        add(graph, names.key("slope", v), _slope, ref(key), total, dtype)
        for v, (key, total) in enumerate(zip(residuals, totals, strict=True))
    ]


def slopes_of(graph: Graph, names: Names, residuals: Mapping[int, Key], total: float, dtype: Any) -> list[Key]:
    """Return the residuals of the planes of a product, whose weights come to `total`, in Jy/beam."""
    return [add(graph, names.key("slope", v), _slope, ref(key), total, dtype) for v, key in residuals.items()]


def weights(
    graph: Graph, names: Names, blocks: Blocks, dictionary: Dictionary, models: Sequence[Mapping[int, Key]],
    scales: Sequence[float], alpha: float,
) -> list[Key]:  # fmt: skip
    """Weights of the prior from the coefficients of the mean model of each product, per block of bases; see `l1_weight`.

    Parameters
    ----------
    models : sequence of mappings
        For each product the keys of its models, by the number of their plane.
    scales : sequence of float
        For each product what its coefficients are measured in.
    """
    means = [_mean(graph, names, 1 + i, own) for i, own in enumerate(models)]
    each = importance(dictionary.bases)
    return [
        add(
            graph, names.key("reweight", b), l1_weight,
            dictionary.subset(*bases), refs(means), tuple(scales), alpha, each[slice(*bases)],
        )
        for b, bases in enumerate(blocks.bases)
    ]  # fmt: skip


def objective(graph: Graph, solver: PrimalDual, data: Data, models: Sequence[Key]) -> tuple[list[Key], list[Key]]:
    """Evaluate what a solver minimises: keys of the data terms per band, less their value before, and of g per block of bases."""
    own = partial(_data_term, gamma=solver.gamma)
    terms = [
        add(graph, solver.names.key("objective", 0, *solver.place(v)), call, own, ref(h), ref(model), ref(old), ref(slope))
        for v, (h, model, old, slope) in enumerate(zip(data.hessians, models, data.before, data.slopes, strict=True))
    ]
    values = []
    for b, bases in enumerate(solver.blocks.bases):
        weight = None if data.weights is None else ref(data.weights[b])
        key = solver.names.key("objective", 1, b)
        values.append(add(graph, key, _prior_term, solver.dictionary.subset(*bases), solver.prior, refs(list(models)), weight))
    return terms, values


def data_terms(
    graph: Graph, names: Names, hessians: Sequence[Key], models: Sequence[Key], before: Sequence[Key], slopes: Sequence[Key]
) -> list[Key]:
    """Evaluate the data terms of all bands, less their values before."""
    return [
        add(graph, names.key("objective", 0, v), _data_term, ref(h), ref(model), ref(old), ref(slope), 1.0)
        for v, (h, model, old, slope) in enumerate(zip(hessians, models, before, slopes, strict=True))
    ]


def changes(graph: Graph, names: Names, new: Sequence[Key], old: Sequence[Key]) -> list[Key]:
    """Squared norms of the change of every band's model."""
    return [add(graph, names.key("change", v), change, ref(a), ref(b)) for v, (a, b) in enumerate(zip(new, old, strict=True))]


def statistics(graph: Graph, names: Names, residuals: Mapping[int, Key], total: float, product: int = 0) -> tuple[Key, Key]:
    """Rms and peak of the MFS residual of a product, and the image itself, which stays where it is made; see `mfs`."""
    image = mfs(graph, names, residuals, total, product)
    key = names.key("statistics", product, min(residuals)) if product else names.key("statistics")
    return add(graph, key, _statistics, ref(image)), image


def interpolate(graph: Graph, names: Names, models: Sequence[Key], freq: Sequence[float], at: float, index: int) -> Key:
    """Interpolate the model of a band without data linearly in frequency between its neighbours that have some.

    Parameters
    ----------
    models : sequence of Key
        Models of the bands with data.
    freq : sequence of float
        Their frequencies in Hz, ascending.
    at : float
        Frequency of the band in Hz; beyond the ends the nearest model is taken.
    index : int
        Number of the band.
    """
    right = int(np.searchsorted(freq, at))
    if right in (0, len(freq)):
        return add(graph, names.key("interpolate", index), _mix, ref(models[min(right, len(freq) - 1)]), None, 0.0)
    fraction = (at - freq[right - 1]) / (freq[right] - freq[right - 1])
    return add(graph, names.key("interpolate", index), _mix, ref(models[right - 1]), ref(models[right]), fraction)


def dual_of_band(graph: Graph, names: Names, rows: list[Key], band: int, index: int) -> Key:
    """Join the blocks of bases of one band's dual, where they are; `index` is its place in its block of bands."""
    return add(graph, names.key("dual", band, int(rows[0][-1])), _join, refs(rows), index)


def _find(find: Callable[..., Pixels], image: Real, psf: Real, mask: Any) -> Pixels:
    return find(image, psf, mask=mask)


def _model(dtype: Any, image: Real, psf: Real, pixels: Pixels, **options: Any) -> Real:
    return point_model(image, psf, pixels, **options).astype(dtype, copy=False)


def _slope(residual: Real, total: float, dtype: Any) -> Real:
    return (residual / total).astype(dtype, copy=False)


def _join(blocks: list[Real], index: int) -> Real:
    return np.concatenate([block[:, index] for block in blocks])


def _mean(graph: Graph, names: Names, index: int, images: Mapping[int, Key]) -> Key:
    places = list(images)
    total = reduce_bands(graph, lambda i: names.key("mfs", index, places[i]), list(images.values()), np.add)
    return add(graph, names.key("mfs", index), np.divide, ref(total), len(images))


def _solve(hessian: PsfHessian, residual: Real, x0: Real | None, total: float, tol: float, maxit: int, dtype: Any) -> Real:
    right = _slope(residual, total, dtype)
    return conjugate_gradient(hessian.dot, right, x0=x0, tol=tol, maxit=maxit).x


def _data_term(hessian: LinearOperator, model: Real, before: Real, slope: Real, gamma: float) -> float:
    difference = model - before
    return float(np.vdot(difference, hessian.dot(difference))) / (2 * gamma) - float(np.vdot(difference, slope))


def _prior_term(dictionary: Dictionary, prior: JointPrior, models: list[Real], weight: Real | None) -> float:
    coefficients = decompose(models, dictionary, models[0].dtype)
    return (prior if weight is None else prior.reweighted(weight)).value(coefficients)


def _statistics(image: Real) -> Statistics:
    return Statistics(float(np.sqrt(np.mean(np.square(image)))), float(np.abs(image).max()))


def _mix(left: Real, right: Any, fraction: float) -> Real:
    return left if right is None else (1 - fraction) * left + fraction * right
