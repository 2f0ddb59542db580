"""Graphs of the parts of a major cycle, against the solvers called one after the other."""

from __future__ import annotations

import io
from collections import Counter

import dask
import numpy as np
import pytest

from pfb.graph import deconvolution, primal_dual
from pfb.graph.blocks import Blocks, add_pairs
from pfb.graph.deconvolution import Pursuit
from pfb.graph.names import STAGES, Names, stage_of, token
from pfb.graph.primal_dual import Data
from pfb.graph.tasks import value
from pfb.kernels.cleaning import find_points, point_fluxes
from pfb.operators.regularisers import JointPrior, importance
from pfb.operators.wavelets import Dictionary
from pfb.solvers.conjugate_gradient import conjugate_gradient
from pfb.solvers.primal_dual import Steps
from pfb.solvers.reweighting import l1_weight
from pfb.testing import refuse
from tests.graph.problems import Careful, draw, make_hessian

SHAPE, NBAND = (12, 9), 3
DICTIONARY = Dictionary(SHAPE, ("self", "db1", "db2"), 2)
TOTAL, GAMMA = 7.0, 0.8


@pytest.fixture
def names(request):
    return Names(token(request.node.nodeid))


class Inputs:
    """Images of all bands and their keys in a graph."""

    def __init__(self, names):
        self.graph = {}
        self.hessians = [make_hessian(SHAPE, v) for v in range(NBAND)]
        self.models, self.updates, self.residuals, self.before, self.slopes = (
            [draw(SHAPE, seed, v) for v in range(NBAND)] for seed in (4, 5, 6, 7, 8)
        )
        self.keys = {
            what: [value(self.graph, names.within(what).key(stage, v), data) for v, data in enumerate(arrays)]
            for what, stage, arrays in (
                ("hessian", "hessian", self.hessians), ("model", "model", self.models), ("cg", "cg", self.updates),
                ("residual", "residual", self.residuals), ("before", "model", self.before), ("slope", "slope", self.slopes),
            )
        }  # fmt: skip
        self.ngiven = len(self.graph)


@pytest.fixture
def inputs(names):
    return Inputs(names.within("inputs"))


def solver_of(names, blocks, prior):
    return primal_dual.PrimalDual(names, blocks, DICTIONARY, prior, Steps(1.0, 0.0), radius=0.1, gamma=GAMMA)


def data_of(keys, weights=None):
    """The resident data of a minimisation; nothing here steps."""
    return Data(keys["hessian"], keys["before"], keys["slope"], (), weights)


def numbered(keys):
    """The keys of the only product, by the number of their plane."""
    return dict(enumerate(keys))


def run(engine, inputs, keys):
    engine.run(inputs.graph, keys)
    return engine.fetch(keys)


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
def test_updates_solve_every_band(warm, inputs, names, engine):
    keys = inputs.keys
    start = keys["cg"] if warm else None
    made = deconvolution.updates(inputs.graph, names, keys["hessian"], keys["residual"], start, [TOTAL] * NBAND, 1e-8, 300)
    assert len(inputs.graph) == inputs.ngiven + NBAND
    for v, update in enumerate(run(engine, inputs, made)):
        x0 = inputs.updates[v] if warm else None
        expected = conjugate_gradient(inputs.hessians[v].dot, inputs.residuals[v] / TOTAL, x0=x0, tol=1e-8, maxit=300).x
        np.testing.assert_array_equal(update, expected)
        np.testing.assert_allclose(inputs.hessians[v].dot(update), inputs.residuals[v] / TOTAL, atol=1e-6)


def test_updates_keep_the_limits(inputs, names, engine):
    keys = inputs.keys
    made = deconvolution.updates(inputs.graph, names, keys["hessian"], keys["residual"], None, [TOTAL] * NBAND, 1e-12, 2)
    expected = conjugate_gradient(inputs.hessians[1].dot, inputs.residuals[1] / TOTAL, tol=1e-12, maxit=2).x
    np.testing.assert_array_equal(run(engine, inputs, made)[1], expected)


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_the_first_model_has_the_points_of_the_mfs_image_with_the_fluxes_of_the_bands(positive, masked, names, engine, rng):
    graph, gain = {}, deconvolution.GAIN
    psfs = [0.02 * rng.standard_normal((24, 19)) for _ in range(NBAND)]
    dirty = [0.05 * rng.standard_normal(SHAPE) for _ in range(NBAND)]
    for v in range(NBAND):
        psfs[v][12, 9] = 2.0 + v
        dirty[v][4, 3], dirty[v][8, 7], dirty[v][10, 1] = 10.0 + v, -8.0 * v, 60.0 - 40 * v
    mask = rng.random(SHAPE) < 0.8
    mask[4, 3], mask[8, 7], mask[10, 1] = True, True, False
    keys = [{v: value(graph, names.within(what).key(what, v), data) for v, data in enumerate(arrays)}
            for what, arrays in (("grid", dirty), ("psf", psfs))]  # fmt: skip
    given = value(graph, names.key("mask"), mask) if masked else None
    pixels, models = deconvolution.pursue(graph, names, *keys, given, Pursuit(TOTAL, 0.2, positive))
    assert list(models) == list(range(NBAND))
    engine.run(graph, [pixels, *models.values()])
    found, *models = engine.fetch([pixels, *models.values()])

    image, psf = (add_pairs(arrays) / TOTAL for arrays in (dirty, psfs))
    expected = find_points(
        image, psf, gain=gain, depth=0.2, maxit=1000, mask=mask if masked else None, positive=positive
    )
    assert len(expected) > 2
    np.testing.assert_array_equal(found, expected)
    for v, model in enumerate(models):
        fluxes = np.zeros(SHAPE)
        for pixel, flux in zip(found, point_fluxes(dirty[v], psfs[v], found, gain), strict=True):
            fluxes[tuple(pixel)] += flux
        np.testing.assert_allclose(model, np.maximum(fluxes, 0) if positive else fluxes, rtol=0, atol=1e-15)
        assert not masked or (model[~mask] == 0).all()
    assert (np.array(models) < 0).any() == (not positive)


def test_slopes_are_the_residuals_in_jy_per_beam(inputs, names, engine):
    made = deconvolution.slopes(inputs.graph, names, inputs.keys["residual"], [TOTAL] * NBAND)
    assert len(inputs.graph) == inputs.ngiven + NBAND
    for v, slope in enumerate(run(engine, inputs, made)):
        np.testing.assert_array_equal(slope, inputs.residuals[v] / TOTAL)


@pytest.mark.parametrize("basis_chunk", [1, 2, 3])
def test_weights_of_the_prior_are_those_of_the_mean_model(basis_chunk, inputs, names, engine):
    blocks = Blocks(NBAND, *DICTIONARY.codomain, basis_chunk=basis_chunk)
    made = deconvolution.weights(inputs.graph, names, blocks, DICTIONARY, [numbered(inputs.keys["model"])], [0.4], 1.5)
    assert len(inputs.graph) == inputs.ngiven + NBAND + len(blocks.bases)
    found = np.concatenate(run(engine, inputs, made))
    mean = add_pairs(inputs.models) / NBAND
    np.testing.assert_array_equal(found, l1_weight(DICTIONARY, [mean], [0.4], 1.5, importance(DICTIONARY.bases)))
    np.testing.assert_allclose(mean, np.mean(inputs.models, axis=0), atol=1e-15)


@pytest.mark.parametrize("prior", ["l21", "mean21"])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("basis_chunk", [1, 2, 3])
def test_the_objective_is_what_is_minimised(prior, weighted, basis_chunk, inputs, names, engine, rng):
    blocks = Blocks(NBAND, *DICTIONARY.codomain, basis_chunk=basis_chunk)
    weight = rng.uniform(0, 2, DICTIONARY.codomain)
    keys = weights = None
    if weighted:
        weights = weight
        keys = [value(inputs.graph, names.key("reweight", b), weight[slice(*part)]) for b, part in enumerate(blocks.bases)]
    before = len(inputs.graph)
    solver = solver_of(names, blocks, JointPrior(prior, NBAND))
    terms, values = deconvolution.objective(inputs.graph, solver, data_of(inputs.keys, keys), inputs.keys["model"])
    assert len(inputs.graph) - before == NBAND + len(blocks.bases)
    found = run(engine, inputs, terms + values)
    for v, term in enumerate(found[:NBAND]):
        d = inputs.models[v] - inputs.before[v]
        assert term == pytest.approx(
            0.5 / GAMMA * (d * inputs.hessians[v].dot(d)).sum() - (d * inputs.slopes[v]).sum(), rel=1e-12
        )
    coefficients = np.stack([DICTIONARY.dot(model) for model in inputs.models], axis=1)
    expected = JointPrior(prior, NBAND, weights).value(coefficients)
    assert sum(found[NBAND:]) == pytest.approx(expected, rel=1e-13)


def test_the_primal_dual_iteration_descends_along_the_gradient_of_the_objective(inputs, names, engine):
    """By differences: the data term is a square, so that central ones are exact."""
    shifted = [[value(inputs.graph, names.key("primal", side, v), model + sign * 0.5 * direction)
                for v, (model, direction) in enumerate(zip(inputs.models, inputs.updates, strict=True))]
               for side, sign in enumerate((1, -1))]  # fmt: skip
    terms = []
    for side, models in enumerate(shifted):
        solver = solver_of(names.within(side), Blocks(NBAND, *DICTIONARY.codomain), JointPrior("l21", NBAND))
        made, _ = deconvolution.objective(inputs.graph, solver, data_of(inputs.keys), models)
        terms.append(np.array(run(engine, inputs, made)))
    parts = zip(inputs.hessians, inputs.models, inputs.before, inputs.slopes, strict=True)
    gradient = [primal_dual.gradient(*part, GAMMA) for part in parts]
    expected = [np.vdot(g, direction) for g, direction in zip(gradient, inputs.updates, strict=True)]
    np.testing.assert_allclose(terms[0] - terms[1], expected, rtol=1e-10)


def test_changes_are_squared_norms(inputs, names, engine):
    made = deconvolution.changes(inputs.graph, names, inputs.keys["model"], inputs.keys["residual"])
    for v, change in enumerate(run(engine, inputs, made)):
        a, b = inputs.models[v], inputs.residuals[v]
        assert change == pytest.approx((((a - b) ** 2).sum(), (a**2).sum()), rel=1e-13)


def test_statistics_are_of_the_mfs_residual(inputs, names, engine):
    inputs.graph[inputs.keys["residual"][0]].value[3, 4] = -1000.0  # the peak may be negative
    key, mean = deconvolution.statistics(inputs.graph, names, numbered(inputs.keys["residual"]), TOTAL)
    found, its_image = run(engine, inputs, [key, mean])
    image = sum(inputs.residuals) / TOTAL
    np.testing.assert_allclose(its_image, image, rtol=1e-13)
    assert found.rms == pytest.approx(np.sqrt((image**2).mean()), rel=1e-13)
    assert found.peak == pytest.approx(-image[3, 4], rel=1e-13)
    assert found.peak > 100
    assert len(key) == 1  # it may run anywhere


@pytest.mark.parametrize(
    ("at", "weights"),
    [
        (0.5, (1, 0, 0)),  # before the first
        (1.0, (1, 0, 0)),
        (1.25, (0.75, 0.25, 0)),
        (2.0, (0, 1, 0)),
        (3.5, (0, 0.25, 0.75)),
        (4.0, (0, 0, 1)),
        (9.0, (0, 0, 1)),  # beyond the last
    ],
)
def test_interpolation_is_linear_and_constant_at_the_ends(at, weights, inputs, names, engine):
    key = deconvolution.interpolate(inputs.graph, names, inputs.keys["model"], [1.0, 2.0, 4.0], at, 7)
    assert key[1:] == (7,)
    expected = np.tensordot(weights, inputs.models, axes=1)
    np.testing.assert_allclose(run(engine, inputs, [key])[0], expected, rtol=1e-15, atol=1e-15)


def test_interpolation_from_one_band(inputs, names, engine):
    keys = [
        deconvolution.interpolate(inputs.graph, names, inputs.keys["model"][:1], [2.0], at, i)
        for i, at in enumerate((1.0, 2.0, 3.0))
    ]
    for image in run(engine, inputs, keys):
        np.testing.assert_array_equal(image, inputs.models[0])


def test_the_dual_of_a_band_joins_its_blocks(inputs, names, engine, rng):
    dual = rng.standard_normal((3, 4, 10))
    blocks = [value(inputs.graph, names.key("dual", b, 1), part) for b, part in enumerate((dual[:2, 2:], dual[2:, 2:]))]
    key = deconvolution.dual_of_band(inputs.graph, names, blocks, 3, 1)
    np.testing.assert_array_equal(run(engine, inputs, [key])[0], dual[:, 3])


def cycle(nband=4):
    """All parts of a major cycle, of keys that stand for images of any size, in one graph."""
    names, graph = Names(token("cycle")), {}
    hessians, models, residuals, before = ([names.within("given").key(s, v) for v in range(nband)]
                                           for s in ("hessian", "model", "residual", "cg"))  # fmt: skip
    blocks = Blocks(nband, *DICTIONARY.codomain)
    deconvolution.updates(graph, names, hessians, residuals, before, [TOTAL] * nband, 1e-3, 10)
    slopes = deconvolution.slopes(graph, names, residuals, [TOTAL] * nband)
    weights = deconvolution.weights(graph, names, blocks, DICTIONARY, [numbered(models)], [0.1], 2.0)
    data = Data(hessians, before, slopes, (), weights)
    deconvolution.objective(graph, solver_of(names, blocks, JointPrior("l21", nband)), data, models)
    deconvolution.changes(graph, names, models, before)
    deconvolution.statistics(graph, names, numbered(residuals), TOTAL)
    psfs = numbered([names.within("given").key("psf", v) for v in range(4)])
    deconvolution.pursue(graph, names.within("first"), numbered(residuals), psfs, None, Pursuit(TOTAL, 0.1))
    deconvolution.interpolate(graph, names, models, [1.0, 2.0, 3.0, 4.0], 2.5, 5)
    deconvolution.dual_of_band(graph, names, [names.within("given").key("dual", b, 0) for b in range(3)], 0, 0)
    return graph


def test_keys_are_named_after_stages_and_do_not_collide():
    found = Counter(map(stage_of, cycle()))
    assert set(found) <= set(STAGES)
    assert found == {
        "cg": 4, "slope": 4, "mfs": 4 * 4, "pursue": 1, "model": 4, "reweight": 3, "objective": 4 + 3, "change": 4,
        "statistics": 1, "interpolate": 1, "dual": 1,
    }  # fmt: skip


def test_no_array_is_in_the_graph():
    Careful(io.BytesIO()).dump(cycle())


def test_building_computes_nothing(monkeypatch):
    monkeypatch.setattr(Dictionary, "dot", refuse)
    with dask.config.set(scheduler=refuse):
        cycle()
