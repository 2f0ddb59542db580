"""Graphs from visibilities to weights, images and Hessians, against the same operators called one after the other."""

from __future__ import annotations

import io
from collections import Counter
from functools import partial

import dask
import numpy as np
import pytest

from pfb.graph import imaging
from pfb.graph.blocks import add_pairs
from pfb.graph.imaging import MARGIN, Weighting
from pfb.graph.names import STAGES, Names, stage_of, token
from pfb.graph.tasks import value
from pfb.kernels import samples, weighting
from pfb.operators.hessian import PsfHessian, VisibilityHessian
from pfb.operators.measurement import Gridder
from pfb.operators.preconditioner import Preconditioner
from pfb.solvers.lanczos import largest_eigenvalue, start_vector
from pfb.testing import refuse
from pfb.types import Beam, Visibilities
from tests.graph.problems import Careful

SHAPE, PSF_SHAPE, CELL = (20, 18), (36, 32), 2e-4
GRIDDER = Gridder(SHAPE, CELL, epsilon=1e-9)
NAMES = Names(token("imaging"))


def piece(seed, nrow, freq, weight=1.0):
    """Read some rows; every sixth sample is flagged."""
    rng = np.random.default_rng(seed)
    freq = np.array(freq)
    uvw = rng.uniform(-1, 1, (nrow, 3)) * [300, 300, 20]
    vis = rng.standard_normal((nrow, freq.size, 2)) @ [1, 1j]
    weights = weight * rng.uniform(0.5, 2, vis.shape) * (rng.random(vis.shape) > 1 / 6)
    return Visibilities(uvw, freq, np.where(weights > 0, vis, 0), weights)


LOW, HIGH = (1.0e9, 1.1e9, 1.2e9), (1.15e9, 1.3e9)
def pieces_of(*arguments):
    """What loaders return: for each product, here one, the parts of a piece."""
    return ((piece(*arguments),),)


LOADERS = [  # [band][window][piece]
    [[partial(pieces_of, 1, 30, LOW), partial(pieces_of, 2, 11, LOW)], [partial(pieces_of, 3, 25, HIGH)]],
    [[partial(pieces_of, 4, 40, (1.4e9,))]],
    [[partial(pieces_of, 5, 20, LOW, 0.0)]],  # all flagged
    [],  # no window at all
    [[partial(pieces_of, 6, 30, HIGH, 3.0)], [partial(pieces_of, 7, 30, HIGH)], [partial(pieces_of, 8, 5, LOW)]],
]
CLIP = 0.05


def eager_bands(clip=CLIP):
    return [
        samples.clip_strongest([samples.concatenate([part for load in pieces for part in load()[0]]) for pieces in windows], clip)
        for windows in LOADERS
    ]


def scheme(name, **options):
    return Weighting(scheme=name, robust=0.3, counts=weighting.counts_shape(SHAPE), cell=CELL, **options)


def eager_weights(bands, s):
    """Weights from counts that are pooled over all bands, or not."""
    zero = np.zeros((s.counts[0], s.counts[1] // 2 + 1))
    counts = [sum((weighting.count(p.uvw, p.freq, p.weight, s.counts, CELL) for p in band), start=zero) for band in bands]
    pooled = add_pairs(counts)
    out = []
    for band, own in zip(bands, counts, strict=True):
        dense = weighting.densities(own if s.per_band else pooled, s.box, s.floor)
        parts = []
        for p in band:
            density = weighting.density(p.uvw, p.freq, dense.grid, s.counts, CELL)
            weight = {
                "natural": p.weight,
                "uniform": weighting.uniform(p.weight, density),
                "briggs": weighting.briggs(p.weight, density, dense.mean, s.robust),
            }[s.scheme]
            if s.taper:
                weight = weight * weighting.taper(p.uvw, p.freq, s.taper)
            if s.inner:
                weight = weight * (1 - weighting.taper(p.uvw, p.freq, s.inner))
            parts.append(p._replace(weight=weight))
        out.append(tuple(parts))
    return out


def assert_bands_equal(found, expected):
    assert [len(band) for band in found] == [len(band) for band in expected]
    for a, b in zip(found, expected, strict=True):
        for p, q in zip(a, b, strict=True):
            for field in Visibilities._fields:
                np.testing.assert_array_equal(getattr(p, field), getattr(q, field))


@pytest.fixture(scope="module")
def weighed(engine):
    """Keys of the bands with Briggs' weights, resident, and the bands themselves."""
    graph = {}
    keys = imaging.weigh(graph, NAMES, imaging.load(graph, NAMES, LOADERS, CLIP), scheme("briggs"))
    engine.run(graph, keys)
    return keys, eager_weights(eager_bands(), scheme("briggs"))


def test_bands_are_read_joined_and_clipped(engine):
    graph = {}
    keys = imaging.load(graph, NAMES.within("load"), LOADERS, CLIP)
    engine.run(graph, keys)
    found, expected = engine.fetch(keys), eager_bands()
    assert_bands_equal(found, expected)
    assert [[p.vis.shape for p in band] for band in found] == [
        [(41, 3), (25, 2)], [(40, 1)], [(20, 3)], [], [(30, 2), (30, 2), (5, 3)]
    ]  # fmt: skip
    assert sum(map(np.count_nonzero, (p.weight for band in found for p in band))) > 250
    # One task per piece, window and band.
    assert Counter(map(stage_of, graph)) == {"read": 8 + 7, "band": 5}


SCHEMES = {
    "natural": (scheme("natural"), 0),
    "uniform": (scheme("uniform"), 5 + 4 + 1),  # counts, their sums over bands, and the density
    "briggs": (scheme("briggs"), 5 + 4 + 1),
    "per band": (scheme("uniform", per_band=True, floor=0.9), 5 + 5),
    "super-uniform": (scheme("briggs", box=2), 5 + 4 + 1),
    "tapered": (scheme("natural", taper=Beam(4e-4, 3e-4, 0.3), inner=Beam(5e-3, 5e-3, 0.0)), 0),
    "all": (scheme("briggs", box=1, floor=0.9, per_band=True, taper=Beam(4e-4, 3e-4, 0.3), inner=Beam(5e-3, 5e-3, 0.0)), 5 + 5),
}


@pytest.mark.parametrize("name", SCHEMES)
def test_weights_equal_the_kernels(name, engine):
    names, graph = NAMES.within(name), {}
    chosen, tasks = SCHEMES[name]
    loaded = imaging.load(graph, names, LOADERS, CLIP)
    before = len(graph)
    keys = imaging.weigh(graph, names, loaded, chosen)
    sums = imaging.sums(graph, names, loaded, keys)
    assert len(graph) - before == tasks + 2 * 5
    engine.run(graph, keys + sums)
    expected = eager_weights(eager_bands(), chosen)
    assert_bands_equal(engine.fetch(keys), expected)

    for found, band, natural in zip(engine.fetch(sums), expected, eager_bands(), strict=True):
        weights, before = (np.concatenate([p.weight.ravel() for p in b]) if b else np.zeros(1) for b in (band, natural))
        at = np.concatenate([np.broadcast_to(p.freq, p.weight.shape).ravel() for p in band]) if band else np.zeros(1)
        assert found.wsum == pytest.approx(weights.sum(), rel=1e-13)
        assert found.natural == pytest.approx(before.sum(), rel=1e-13)
        if found.wsum:
            assert found.freq == pytest.approx((weights * at).sum() / weights.sum(), rel=1e-13)
        else:
            assert np.isnan(found.freq)
    assert [band.wsum > 0 for band in engine.fetch(sums)] == [True, True, False, False, True]


def test_counts_are_pooled_over_the_bands(weighed):
    """Alone, a band has other weights."""
    _, pooled = weighed
    alone = eager_weights([eager_bands()[0]], scheme("briggs"))[0]
    assert np.abs(alone[0].weight - pooled[0][0].weight).max() > 0.01


def test_images_equal_the_operators(weighed, engine):
    keys, bands = weighed
    names, graph = NAMES.within("images"), {}
    dirty = imaging.dirty(graph, names, keys, GRIDDER)
    psf = imaging.psf(graph, names, keys, GRIDDER, PSF_SHAPE)
    models = [value(graph, names.key("model", v), model(v)) for v in range(5)]
    residual, spreads = imaging.residual(graph, names, keys, models, GRIDDER)
    assert Counter(map(stage_of, graph)) == {"grid": 5, "psf": 5, "subtract": 5, "residual": 5, "variance": 5, "model": 5}
    engine.run(graph, dirty + psf + residual + spreads)
    for found, make in (
        (dirty, lambda v: GRIDDER.dirty(bands[v])),
        (psf, lambda v: GRIDDER.psf(bands[v], PSF_SHAPE)),
        (residual, lambda v: GRIDDER.residual(bands[v], model(v)).image),
    ):
        for v, image in enumerate(engine.fetch(found)):
            np.testing.assert_array_equal(image, make(v))
            assert image.any() == (v not in (2, 3))
    for v, spread in enumerate(engine.fetch(spreads)):
        variance, power = GRIDDER.residual(bands[v], model(v)).spread
        assert spread.variance == variance
        np.testing.assert_array_equal(spread.power, power)
    # The model is subtracted.
    assert all(np.abs(a - b).max() > 1 for a, b in zip(*(engine.fetch([k[0], k[1]]) for k in (dirty, residual)), strict=True))


def model(v):
    return np.random.default_rng(40 + v).uniform(0, 1, SHAPE)


TOTAL, ETA, GAMMA, SHIFT = 100.0, 1e-3, 0.9, 0.03


@pytest.fixture(scope="module")
def operators(weighed, engine):
    """Hessians, convolutions and preconditioners of all bands from one graph, and how many tasks that has."""
    keys, _ = weighed
    names, graph = NAMES.within("operators"), {}
    hessians = imaging.hessians(graph, names, keys, GRIDDER, [TOTAL] * len(keys), ETA)
    psfs = imaging.psf(graph, names, keys, GRIDDER, PSF_SHAPE)
    convolutions = imaging.convolutions(graph, names, psfs, SHAPE, [TOTAL] * len(keys), ETA, 1)
    preconditioners = imaging.preconditioners(graph, names, convolutions, hessians, GAMMA, SHIFT)
    engine.run(graph, hessians + convolutions + preconditioners)
    made = [engine.fetch(found) for found in (hessians, convolutions, preconditioners)]
    return [*made, Counter(map(stage_of, graph))]


def test_operators_are_one_task_per_band(operators):
    assert operators[-1] == {"hessian": 5, "psf": 5, "convolution": 5, "precondition": 5}


def test_hessians_go_through_the_visibilities_of_their_band(operators, weighed):
    for v, (hessian, band) in enumerate(zip(operators[0], weighed[1], strict=True)):
        assert isinstance(hessian, VisibilityHessian)
        expected = VisibilityHessian(band, GRIDDER, TOTAL, eta=ETA).dot(model(v))
        np.testing.assert_array_equal(hessian.dot(model(v)), expected)
        assert (np.abs(expected).max() > 0.01) == (v not in (2, 3))


def test_hessians_have_the_scale_of_the_slopes(operators, weighed):
    """What a model takes from the residual, over the sum of the weights, is what its Hessian makes of it."""
    for v, (hessian, band) in enumerate(zip(operators[0], weighed[1], strict=True)):
        taken = GRIDDER.dirty(band) - GRIDDER.residual(band, model(v)).image
        np.testing.assert_allclose(hessian.dot(model(v)), taken / TOTAL + ETA * model(v), rtol=1e-3, atol=2e-3)


def test_convolutions_are_those_with_the_psf(operators, weighed):
    for v, (convolution, band) in enumerate(zip(operators[1], weighed[1], strict=True)):
        expected = PsfHessian(GRIDDER.psf(band, PSF_SHAPE), SHAPE, TOTAL, eta=ETA).dot(model(v))
        np.testing.assert_array_equal(convolution.dot(model(v)), expected)
        assert (np.abs(expected).max() > 0.01) == (v not in (2, 3))


def test_preconditioners_are_scaled_by_the_largest_eigenvalue_and_a_margin(operators):
    for v, (hessian, convolution, preconditioner) in enumerate(zip(*operators[:3], strict=True)):
        scale = largest_eigenvalue(
            Preconditioner(convolution, GAMMA, SHIFT).dot,
            lambda x, h=hessian: h.dot(x) / (2 * GAMMA) + SHIFT * x,
            start_vector(SHAPE).astype("f4"),
        )
        expected = Preconditioner(convolution, GAMMA, SHIFT, MARGIN * scale)
        np.testing.assert_array_equal(preconditioner.dot(model(v)), expected.dot(model(v)))


def dense(operator):
    """The matrix of an operator on images."""
    units = np.eye(SHAPE[0] * SHAPE[1]).reshape(-1, *SHAPE)
    return np.array([operator.dot(unit).ravel() for unit in units]).T


@pytest.mark.parametrize("v", [1, 2, 4])  # there are no data in 2
def test_preconditioners_satisfy_the_bound_and_waste_no_more_than_the_margin(v, operators):
    """All eigenvalues of T (H / (2 gamma) + s) are below one."""
    hessian, _, preconditioner = (found[v] for found in operators[:3])
    product = dense(preconditioner) @ (dense(hessian) / (2 * GAMMA) + SHIFT * np.eye(SHAPE[0] * SHAPE[1]))
    largest = np.linalg.eigvals(product).real.max()
    # The estimate is never above the eigenvalue but for rounding in single precision.
    assert (1 - 1e-5) / MARGIN < largest < 1


@pytest.mark.parametrize("nband", [1, 2, 5])
def test_the_mfs_image_is_the_sum_over_bands(nband, engine):
    names, graph = NAMES.within("mfs", nband), {}
    images = [value(graph, names.key("grid", v), model(v)) for v in range(nband)]
    key = imaging.mfs(graph, names, dict(enumerate(images)), 3.0)
    assert len(graph) == nband + (nband - 1) + 1
    engine.run(graph, [key])
    found = engine.fetch([key])[0]
    np.testing.assert_array_equal(found, add_pairs([model(v) for v in range(nband)]) / 3)
    np.testing.assert_allclose(found, sum(model(v) for v in range(nband)) / 3, rtol=1e-14)


def everything(loaders=LOADERS):
    """All of the imaging in one graph."""
    graph = {}
    loaded = imaging.load(graph, NAMES, loaders, CLIP)
    bands = imaging.weigh(graph, NAMES, loaded, scheme("briggs"))
    imaging.sums(graph, NAMES, loaded, bands)
    dirty = imaging.dirty(graph, NAMES, bands, GRIDDER)
    psf = imaging.psf(graph, NAMES, bands, GRIDDER, PSF_SHAPE)
    hessians = imaging.hessians(graph, NAMES, bands, GRIDDER, [1.0] * len(bands), 1e-3)
    convolutions = imaging.convolutions(graph, NAMES, psf, SHAPE, [1.0] * len(psf), 1e-3, 1)
    imaging.preconditioners(graph, NAMES, convolutions, hessians, 0.9, 0.3)
    imaging.residual(graph, NAMES, bands, [NAMES.key("model", v) for v in range(len(bands))], GRIDDER)
    imaging.mfs(graph, NAMES, dict(enumerate(dirty)), 1.0)
    return graph


def test_keys_are_named_after_stages_and_do_not_collide():
    graph = everything()
    found = Counter(map(stage_of, graph))
    assert set(found) <= set(STAGES)
    assert found == {
        "read": 15, "band": 5, "counts": 5 + 4, "density": 1, "weigh": 5, "statistics": 5, "grid": 5, "psf": 5, "hessian": 5,
        "convolution": 5, "precondition": 5, "subtract": 5, "residual": 5, "variance": 5, "mfs": 4 + 1,
    }  # fmt: skip


def test_no_array_is_in_the_graph():
    Careful(io.BytesIO()).dump(everything())


def test_building_reads_and_computes_nothing():
    def fail():
        raise AssertionError("it was read")

    with dask.config.set(scheduler=refuse):
        everything([[[fail]], [[fail, fail]]])
