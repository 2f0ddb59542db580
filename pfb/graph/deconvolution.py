"""Graphs of the first model and of the parts of a major cycle: slope, weights of the prior, objective, statistics, update."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    total: float, tol: float, maxit: int, dtype: Any = np.float64,
) -> list[Key]:  # fmt: skip
    """Solve H update = residual in every band by conjugate gradients.

    Parameters
    ----------
    residuals : sequence of Key
        Raw residuals.
    start : sequence of Key, optional
        Updates to start from; zero by default.
    total : float
        Sum of the weights of all bands.
    tol, maxit
        Limits of the conjugate gradients.
    dtype
        Their precision.
    """
    keys = []
    for v, (hessian, residual) in enumerate(zip(hessians, residuals, strict=True)):
        x0 = None if start is None else ref(start[v])
        keys.append(add(graph, names.key("cg", v), _solve, ref(hessian), ref(residual), x0, total, tol, maxit, dtype))
    return keys


GAIN = 0.1
"""Fraction of a peak that is subtracted at once from what the first model is made of."""

SUBTRACTIONS = 1000
"""At most, for the first model."""


def pursue(
    graph: Graph, names: Names, dirty: Sequence[Key], psfs: Sequence[Key], mask: Key | None, *,
    total: float, depth: float, positive: bool, dtype: Any = np.float64,
) -> tuple[Key, list[Key]]:  # fmt: skip
    """Make the first model: point sources found in the MFS image, with the flux that each band has there.

    Parameters
    ----------
    dirty, psfs : sequence of Key
        Raw images.
    mask : Key, optional
        Where there may be sources.
    total : float
        Sum of the weights of all bands.
    depth : float
        Down to this fraction of the peak of the MFS image.
    positive : bool
        The model must not be negative.
    dtype
        Of the model.

    Returns
    -------
    Key, list of Key
        The pixels found, and the model of every band; see `pfb.kernels.cleaning`.
    """
    image, psf = (mfs(graph, names.within("pursue", i), list(keys), total) for i, keys in enumerate((dirty, psfs)))
    find = partial(find_points, gain=GAIN, depth=depth, maxit=SUBTRACTIONS, positive=positive)
    pixels = add(graph, names.key("pursue"), _find, find, ref(image), ref(psf), None if mask is None else ref(mask))
    model = partial(_model, dtype, gain=GAIN, positive=positive)
    models = [
        add(graph, names.key("model", v), call, model, ref(own), ref(psf_), ref(pixels))
        for v, (own, psf_) in enumerate(zip(dirty, psfs, strict=True))
    ]
    return pixels, models


def slopes(graph: Graph, names: Names, residuals: Sequence[Key], total: float, dtype: Any = np.float64) -> list[Key]:
    """Return the steepest descent of the data term at the present model of every band: residual / total, in Jy/beam."""
    return [add(graph, names.key("slope", v), _slope, ref(key), total, dtype) for v, key in enumerate(residuals)]


def weights(
    graph: Graph, names: Names, blocks: Blocks, dictionary: Dictionary, models: Sequence[Key], scale: float, alpha: float
) -> list[Key]:
    """Weights of the prior from the coefficients of the mean model, per block of bases; see `l1_weight`."""
    mean_model = _mean(graph, names, 1, models)
    each = importance(dictionary.bases)
    return [
        add(
            graph, names.key("reweight", b), l1_weight,
            dictionary.subset(*bases), ref(mean_model), scale, alpha, each[slice(*bases)],
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


def changes(graph: Graph, names: Names, new: Sequence[Key], old: Sequence[Key]) -> list[Key]:
    """Squared norms of the change of every band's model."""
    return [add(graph, names.key("change", v), change, ref(a), ref(b)) for v, (a, b) in enumerate(zip(new, old, strict=True))]


def statistics(graph: Graph, names: Names, residuals: Sequence[Key], total: float) -> tuple[Key, Key]:
    """Rms and peak of the MFS residual, and the image itself, which stays where it is made."""
    image = mfs(graph, names, list(residuals), total)
    return add(graph, names.key("statistics"), _statistics, ref(image)), image


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


def _mean(graph: Graph, names: Names, index: int, images: Sequence[Key]) -> Key:
    total = reduce_bands(graph, lambda i: names.key("mfs", index, i), list(images), np.add)
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
