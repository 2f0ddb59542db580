"""Graphs of robust weights, against the kernels called one after the other."""

from collections import Counter
from functools import partial

import dask
import numpy as np
import pytest

from pfb.graph import robust as builders
from pfb.graph.names import Names, stage_of, token
from pfb.graph.tasks import value
from pfb.kernels import robust
from pfb.kernels.samples import Streamed
from pfb.operators.measurement import Gridder
from pfb.testing import refuse
from pfb.types import Visibilities

GRIDDER = Gridder((20, 17), 2e-4, epsilon=1e-9)
NAMES = Names(token("robust"))


def part(rng, nrow, nchan):
    uvw = rng.uniform(-300, 300, (nrow, 3)) * [1, 1, 0.1]
    weight = rng.uniform(0.5, 2, (nrow, nchan)) * (rng.random((nrow, nchan)) > 0.2)
    vis = (rng.standard_normal((2, nrow, nchan)) * 10 ** rng.uniform(0, 3, (nrow, nchan))).T @ [1, 1j]
    return Visibilities(uvw, 1e9 + 1e8 * np.arange(nchan), np.where(weight > 0, vis.T, 0), weight)


@pytest.fixture
def bands(rng):
    return [(part(rng, 30, 3), part(rng, 5, 1)), (), (part(rng, 20, 2)._replace(weight=np.zeros((20, 2))),)]


@pytest.fixture
def models(rng):
    return list(rng.random((3, *GRIDDER.shape)).astype("f4"))


@pytest.mark.parametrize("nu", [None, 2.0])
def test_weights_are_multiplied_by_the_factors(nu, engine, bands, models):
    names = NAMES.within(nu)
    graph = {}
    natural = [value(graph, names.key("band", v), band) for v, band in enumerate(bands)]
    halves = [tuple(p._replace(weight=p.weight / 2) for p in band) for band in bands]
    keys = [value(graph, names.key("model", v), model) for v, model in enumerate(models)]
    weighed = [value(graph, names.key("grid", v), band) for v, band in enumerate(halves)]
    with dask.config.set(scheduler=refuse):
        factors, judged = builders.factors(graph, names, natural, keys, GRIDDER, nu)
        scaled = builders.scaled(graph, names, weighed, factors)
    assert Counter(map(stage_of, graph)) == {"band": 3, "model": 3, "grid": 3, "factor": 3 * 3, "weigh": 3}
    engine.run(graph, scaled + judged)
    for band, half, found, said, model in zip(bands, halves, engine.fetch(scaled), engine.fetch(judged), models, strict=True):
        q = [p.weight * np.abs(p.vis - predict(p, model)) ** 2 for p in band]
        fit = robust.fit([x[p.weight > 0] for x, p in zip(q, band, strict=True)], nu)
        assert said.fit == pytest.approx(fit, rel=1e-10)
        assert len(found) == len(half)
        low = total = 0
        for before, after, x in zip(half, found, q, strict=True):
            factor = robust.factor(x, fit)
            np.testing.assert_allclose(after.weight, before.weight * factor, rtol=1e-7)
            assert after.vis is before.vis
            low += int(((factor <= 0.5) & (before.weight > 0)).sum())
            total += int((before.weight > 0).sum())
        assert said.halved == pytest.approx(low / max(total, 1))
    assert engine.fetch(judged)[0].halved > 0.2


def predict(p, model):
    """Predict with an explicit sum over the pixels."""
    l = -(np.arange(20) - 10)[:, None] * 2e-4
    m = (np.arange(17) - 8)[None] * 2e-4
    out = np.zeros(p.vis.shape, complex)
    for r, c in np.ndindex(out.shape):
        u, v, w = p.uvw[r] * p.freq[c] / 299792458.0
        phase = u * l + v * m + w * (np.sqrt(1 - l**2 - m**2) - 1)
        out[r, c] = (model * np.exp(2j * np.pi * phase)).sum() if p.weight[r, c] > 0 else p.vis[r, c]
    return out


def test_a_streamed_band_has_the_same_weights(engine, bands, models):
    """With so few samples all are looked at."""
    streams = [Streamed([partial(tuple.__getitem__, band, i) for i in range(len(band))]) for band in bands]
    found = []
    for name, given in (("held", bands), ("streamed", streams)):
        names, graph = NAMES.within(name), {}
        natural = [value(graph, names.key("band", v), band) for v, band in enumerate(given)]
        keys = [value(graph, names.key("model", v), model) for v, model in enumerate(models)]
        factors, judged = builders.factors(graph, names, natural, keys, GRIDDER, None)
        scaled = builders.scaled(graph, names, natural, factors)
        engine.run(graph, scaled + judged)
        found.append((engine.fetch(scaled), engine.fetch(judged)))
    for one, other, a, b in zip(found[0][0], found[1][0], found[0][1], found[1][1], strict=True):
        assert isinstance(other, Streamed)
        assert b.fit == pytest.approx(a.fit, rel=1e-9)
        assert b.halved == pytest.approx(a.halved)
        for p, q in zip(one, other, strict=True):
            np.testing.assert_allclose(q.weight, p.weight, rtol=1e-9)
