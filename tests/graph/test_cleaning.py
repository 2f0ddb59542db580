"""Graphs of minor cycles: lazy, of the expected size, and the same as the kernels called one after the other."""

from __future__ import annotations

import dask
import numpy as np
import pytest

from pfb.errors import PfbError
from pfb.graph import cleaning, minor, mopping, nnls
from pfb.graph.minor import Settings
from pfb.graph.names import Names, stage_of, token
from pfb.graph.tasks import value
from pfb.kernels.cleaning import hogbom
from pfb.kernels.noise import local_rms, robust_rms
from pfb.kernels.scales import smooth
from pfb.operators.constraints import Constraint
from pfb.operators.hessian import PsfHessian
from pfb.solvers.projected_gradient import solve
from pfb.testing import refuse
from tests.graph.problems import make_hessian

SHAPE, NBAND, TOTAL = (20, 17), 2, 3.0
SETTINGS = Settings(
    gain=0.2, major_gain=0.7, sigma=None, threshold=0.01, box=None, positivity="none", freq=(1e9, 2e9), terms=None
)  # fmt: skip


@pytest.fixture
def names(request):
    return Names(token(request.node.nodeid))


def sky(rng):
    """Raw PSFs, symmetric, and the residuals of two points in Jy/beam."""
    psfs = []
    for v in range(NBAND):
        half = 0.04 * rng.standard_normal((40, 34))
        psf = half + np.roll(half[::-1, ::-1], (1, 1), axis=(0, 1))
        psf[20, 17] = 1
        psfs.append(psf * (1.0 + v))
    model = np.zeros((NBAND, *SHAPE))
    model[:, 6, 9], model[:, 14, 4] = (1.0, 2.0), (-0.5, -0.25)
    slopes = [PsfHessian(p, SHAPE, TOTAL, signed=True).dot(m) for p, m in zip(psfs, model, strict=True)]
    return psfs, model, slopes


def given(graph, names, stage, arrays):
    return [value(graph, names.within("given").key(stage, v), array) for v, array in enumerate(arrays)]


def cycles(make, graph, state, rounds, most=10_000):
    """Add some rounds; returns the keys of the last state and of what was told."""
    sought, told, survey = make.look(graph, 0, state, None, None)
    first, news = sought, [told]
    for i in range(rounds):
        state, _ = make.clean(graph, i, state, survey, sought, most)
        sought, told, _ = make.look(graph, i + 1, state, survey, first)
        news.append(told)
    return state, news


def test_all_together_is_hogbom(names, rng):
    psfs, _, slopes = sky(rng)
    graph = {}
    raw = given(graph, names, "psf", psfs)
    stacked = cleaning.stack(graph, names, dict(enumerate(raw)), TOTAL)
    make = cleaning.Together(cleaning.Cycle(names, SETTINGS, None, (0, 1)), stacked)
    before = given(graph, names, "model", np.ones((NBAND, *SHAPE)))
    state, news = cycles(make, graph, make.begin(graph, given(graph, names, "slope", slopes), before), 1)
    models = make.end(graph, state, before)
    found, told = dask.get(graph, [models, news])

    left, psf = np.stack(slopes), np.stack(psfs) / TOTAL
    level = 0.3 * np.abs(left.sum(axis=0)).max()
    pixels, fluxes = hogbom(left, psf, np.ones(SHAPE), SETTINGS.rule(psf[:, 20, 17]), floor=level, maxit=10_000)
    expected = np.ones((NBAND, *SHAPE))
    for pixel, flux in zip(pixels, fluxes, strict=True):
        expected[:, pixel[0], pixel[1]] += flux
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert told[0].level == pytest.approx(level)
    assert told[1].peak <= level
    assert not told[0].deepest


@pytest.mark.parametrize("widths", [(0.0,), (0.0, 3.0)])
def test_rounds_find_the_sky(names, rng, widths):
    psfs, model, slopes = sky(rng)
    settings = Settings(**{**vars(SETTINGS), "widths": widths, "major_gain": 0.99, "bias": 0.5})
    graph = {}
    raw = given(graph, names, "psf", psfs)
    spots = cleaning.spots(graph, names, dict(enumerate(raw)), TOTAL, (40,) * len(widths), settings)
    hessians = given(graph, names, "convolution", [PsfHessian(p, SHAPE, TOTAL, signed=True) for p in psfs])
    make = cleaning.Rounds(cleaning.Cycle(names, settings, None, (0, 1)), spots, hessians)
    keys, zeros = given(graph, names, "slope", slopes), given(graph, names, "model", np.zeros((NBAND, *SHAPE)))
    state, news = cycles(make, graph, make.begin(graph, keys, zeros), 12 if len(widths) == 1 else 40)
    left, found, told = dask.get(graph, [state[:NBAND], make.end(graph, state, zeros), news])
    np.testing.assert_allclose(found, model, atol=0.04)
    for v in range(NBAND):  # what is left is what the model leaves
        np.testing.assert_allclose(left[v], slopes[v] - hessian_of(psfs[v]).dot(found[v]), atol=1e-9)
    assert told[-1].peak < 0.05 * told[0].peak
    assert len({news.level for news in told}) == 1


def hessian_of(psf):
    return PsfHessian(psf, SHAPE, TOTAL, signed=True)


def test_a_point_becomes_the_very_psf(rng):
    psf = sky(rng)[0][1]
    point = np.zeros(SHAPE)
    point[4, 11] = 1
    expected = psf[20 - 4 : 40 - 4, 17 - 11 : 34 - 11] / TOTAL
    np.testing.assert_allclose(hessian_of(psf).dot(point), expected, atol=1e-12)


def test_the_middle_of_a_psf_seen_by_a_scale(rng):
    psf = sky(rng)[0][0]
    settings = Settings(**{**vars(SETTINGS), "widths": (0.0, 3.0)})
    looks = minor.look(psf, TOTAL, (5, 40), settings)
    np.testing.assert_allclose(looks[0], psf[15:26, 12:23] / TOTAL)
    wide = smooth(smooth(psf / TOTAL, [3.0])[0], [3.0])[0]
    np.testing.assert_allclose(looks[1], wide[1:40, 1:34])
    spots = minor.join([looks, looks], psf / psf[20, 17])
    outside = np.abs(psf / psf[20, 17])
    outside[15:26, 12:23] = 0
    assert spots.beyond == outside.max()
    np.testing.assert_allclose(spots.peaks(1), [wide[20, 17]] * 2)


def test_the_noise_is_that_of_the_masks(rng):
    image = rng.standard_normal((40, 30))
    image[:20] *= 4
    mask = rng.random(image.shape) < 0.9
    survey = minor.survey(image, mask, Settings(**{**vars(SETTINGS), "sigma": 3.0}))
    assert survey.stop == pytest.approx(3 * robust_rms(image))
    np.testing.assert_array_equal(survey.prefer, mask)
    noise = local_rms(image, 12.0)
    local = minor.survey(image, None, Settings(**{**vars(SETTINGS), "sigma": 3.0, "box": 12.0}))
    assert local.stop == pytest.approx(3 * noise.min())
    np.testing.assert_allclose(local.prefer, noise.min() / noise, rtol=1e-6)
    assert minor.survey(image, None, SETTINGS).stop == 0.01
    with pytest.raises(PfbError, match="no finite pixel"):
        minor.survey(np.full((4, 4), np.nan), None, Settings(**{**vars(SETTINGS), "sigma": 3.0}))


def test_too_many_pixels_are_thinned(rng, monkeypatch):
    monkeypatch.setattr(minor, "ACTIVE", 7)
    image = rng.standard_normal(SHAPE)
    sought = minor.seek(image, minor.survey(image, None, SETTINGS), None, SETTINGS, None)
    brightest = np.sort(np.abs(image).ravel())
    assert sought.floor == brightest[-8]
    assert len(sought.pixels) == 7
    assert np.abs(image[tuple(sought.pixels.T)]).min() == brightest[-7]


def test_what_lies_outside_of_a_new_mask_goes(names, rng):
    psfs, model, slopes = sky(rng)
    graph, mask = {}, np.ones(SHAPE, bool)
    mask[10:] = False
    hessians = given(graph, names, "convolution", [hessian_of(p) for p in psfs])
    where = value(graph, names.key("mask", 0), mask)
    make = cleaning.Rounds(cleaning.Cycle(names, SETTINGS, where, (0, 1)), names.key("psf", 9), hessians)
    state = make.trim(graph, [*given(graph, names, "slope", slopes), *given(graph, names, "model", model)])
    left, found = dask.get(graph, [state[:NBAND], state[NBAND:]])
    for v in range(NBAND):
        np.testing.assert_array_equal(found[v], np.where(mask, model[v], 0))
        np.testing.assert_allclose(left[v], slopes[v] + hessian_of(psfs[v]).dot(model[v] - found[v]), atol=1e-12)


@pytest.mark.parametrize("positivity", ["clip", "joint"])
def test_least_squares_are_those_of_one_process(names, rng, positivity):
    hessians = [make_hessian(SHAPE, v) for v in range(NBAND)]
    before, slopes = rng.random((2, NBAND, *SHAPE))
    slopes = slopes - 0.4
    constraint, graph = Constraint(positivity), {}
    keys = [given(graph, names, stage, own) for stage, own in (("hessian", hessians), ("slope", slopes), ("model", before))]
    norms = nnls.norms(graph, names, keys[0])
    problem = nnls.Problem(names, constraint, keys[0], norms, keys[1], keys[2], None, "II")
    points = problem.iterations(graph, problem.begin(graph), 0, 5)
    found, bounds = dask.get(graph, [problem.end(graph, points), norms])
    if positivity == "clip":
        for v in range(NBAND):
            expected = solve(hessians[v], before[v], slopes[v], lambda x: np.maximum(x, 0), bounds[v], 5)
            np.testing.assert_allclose(found[v], expected, rtol=1e-12, atol=1e-14)
    else:
        assert ((found[0] == 0) == (found[1] == 0)).all()
        assert (np.stack(found) >= 0).all()


def test_a_mop_solves_for_the_support(rng):
    hessian = make_hessian((5, 4), 0)
    model = np.where(rng.random((5, 4)) < 0.5, rng.random((5, 4)), 0)
    slope = rng.standard_normal((5, 4))
    matrix = np.stack([hessian.dot(e.reshape(5, 4)).ravel() for e in np.eye(20)])
    used = np.flatnonzero(model)
    expected = model.ravel().copy()
    expected[used] += np.linalg.solve(matrix[np.ix_(used, used)], slope.ravel()[used])
    found = mopping.mop(hessian, model, slope, False, 1e-12, 500)
    np.testing.assert_allclose(found.ravel(), expected, atol=1e-8)
    np.testing.assert_array_equal(mopping.mop(hessian, model, slope, True, 1e-12, 500), np.maximum(found, 0))


def test_graphs_are_lazy_and_of_the_expected_size(names):
    graph = {}
    own = names.within("given")
    slopes, models, hessians, psfs = ([own.key(s, v) for v in range(4)] for s in ("slope", "model", "convolution", "psf"))
    with dask.config.set(scheduler=refuse):
        spots = cleaning.spots(graph, names, dict(enumerate(psfs)), TOTAL, (9,), SETTINGS)
        before = len(graph)
        make = cleaning.Rounds(cleaning.Cycle(names, SETTINGS, None, (0, 1, 2, 3)), spots, hessians)
        state, _ = cycles(make, graph, make.begin(graph, slopes, models), 1)
    # Two looks: three sums, what is sought and told; one survey; four bands of four tasks; what was found and its number.
    assert len(graph) - before == 2 * 5 + 1 + 4 * 4 + 2
    assert {stage_of(key) for key in graph} <= {"mfs", "psf", "survey", "seek", "gather", "pursue", "spread", "subtract", "model"}
    assert len(state) == 8


def test_a_scale_is_judged_by_the_root_of_its_peak(rng):
    psfs, _, slopes = sky(rng)
    settings = Settings(**{**vars(SETTINGS), "widths": (0.0, 3.0)})
    looks = [minor.look(psf, TOTAL, (40, 40), settings) for psf in psfs]
    spots = minor.join(looks, sum(psfs) / TOTAL)
    image = smooth(sum(slopes), [4.0])[0]
    survey = minor.survey(image, None, settings)
    heights = []
    for s, seen in enumerate(smooth(image, settings.widths)):
        peak = sum(own[s][own[s].shape[0] // 2, own[s].shape[1] // 2] for own in looks)
        inner = slice(None) if s == 0 else slice(2, -2)
        heights.append(np.abs(seen[inner, inner]).max() / np.sqrt(peak))
    sought = minor.seek(image, survey, spots, settings, None)
    assert sought.told.peak == pytest.approx(max(heights), rel=1e-6)
    assert sought.told.scale == int(np.argmax(heights)) == 1
