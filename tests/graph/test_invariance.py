"""What must not change the bits of a minimisation: owners of bands, the order of tasks, tiles. And what may, by how much."""

from __future__ import annotations

from dataclasses import replace

import dask.local
import numpy as np
import pytest

from pfb.graph.engine import ThreadEngine
from pfb.graph.grain import Grain
from tests.graph.problems import Problem, assert_same, build, collect, keys_of, run

RICH = dict(prior="mean21", weighted=True, masked=True, positivity="joint")
NITER = 6


@pytest.fixture(scope="module")
def eager():
    """The loop in one process."""
    return Problem(**RICH).eager(NITER)


def shuffled(graph, rng):
    """The same tasks in another order."""
    keys = list(graph)
    return {keys[i]: graph[keys[i]] for i in rng.permutation(len(keys))}


@pytest.mark.parametrize("grain", [Grain.STEP, Grain.WORKER], ids=str)
@pytest.mark.parametrize("nworker", [2, 3, 4])
@pytest.mark.parametrize("seed", range(5))
def test_any_owners_of_the_bands_give_the_same_bits(nworker, seed, grain, engine, eager):
    """Also where neighbours have different ones, and where some worker has none."""
    problem = Problem(**RICH)
    owners = tuple(map(int, np.random.default_rng(seed).integers(nworker, size=problem.nband)))
    solver = replace(problem.solver(nworker, tile=100), owners=owners, grain=grain, lanes=1 + seed % 2)
    assert_same(collect(engine, solver, run(problem, engine, solver, [NITER]), NITER), eager)


@pytest.mark.parametrize("prior", ["l21", "mean21"])
@pytest.mark.parametrize("positivity", ["clip", "joint"])
@pytest.mark.parametrize("grain", [Grain.STEP, Grain.WORKER, Grain.BLOCK], ids=str)
def test_stokes_products_on_any_workers_have_the_bits_of_the_loop(prior, positivity, grain, engine):
    """Three products, of which one has a band less, and only I is positive."""
    problem = Problem(**RICH | dict(prior=prior, positivity=positivity, nband=7, products="IQUIQUI"))
    expected = problem.eager(NITER)
    assert (expected.models[[0, 3, 6]] >= 0).all()
    assert (expected.models[[1, 2, 4, 5]] < 0).any(axis=(1, 2)).all()
    cases = [(3, dict(tile=100), (0, 0, 1, 2, 1, 0, 2))]
    if grain is not Grain.WORKER:  # which has the bands apart
        cases += [(1, dict(band_chunk=7), ()), (2, dict(band_chunk=2), ())]
    for nworker, chunks, owners in cases:
        solver = replace(problem.solver(nworker, **chunks), owners=owners, grain=grain, lanes=2)
        assert_same(collect(engine, solver, run(problem, engine, solver, [2, NITER]), NITER), expected)


@pytest.mark.parametrize("owners", [(0,) * 5, (3,) * 5, (0, 1, 0, 1, 0), (3, 0, 0, 3, 1)], ids=str)
def test_one_owner_or_alternating_ones_give_the_same_bits(owners, engine, eager):
    problem = Problem(**RICH)
    solver = replace(problem.solver(4), owners=owners)
    assert_same(collect(engine, solver, run(problem, engine, solver, [2, NITER]), NITER), eager)


@pytest.mark.parametrize("nthread", [1, 2, 3, 5])
@pytest.mark.parametrize("chunks", [dict(tile=37), dict(band_chunk=5, basis_chunk=2)], ids=str)
def test_tasks_in_any_order_give_the_same_bits(nthread, chunks, eager, monkeypatch):
    """Of the graph as it is made, and of their execution among those that are ready: no task changes what it reads."""
    rng = np.random.default_rng(nthread)

    def order(graph, **_):
        return dict(zip(graph, rng.permutation(len(graph)).tolist(), strict=True))

    monkeypatch.setattr(dask.local, "order", order)
    problem = Problem(**RICH)
    solver = problem.solver(2, **chunks)
    graphs, data = build(problem, solver, [3, NITER])
    engine = ThreadEngine(nthread)
    for graph, last in zip(graphs, (3, NITER), strict=True):
        engine.run(shuffled(graph, rng), solver.state(last) + (keys_of(data) if last == 3 else []))
    found = collect(engine, solver, data, NITER)
    engine.close()
    assert_same(found, eager)


FOUR = dict(bases=("self", "db1", "db2", "db3"), **RICH)


@pytest.mark.parametrize("basis_chunk", [1, 2, 4])
def test_only_blocks_of_more_than_two_bases_change_the_last_bits(basis_chunk, engine):
    """Two are added the same way in a block as along the tree; of four the sum is ((a + b) + c) + d in a block."""
    problem = Problem(**FOUR)
    found = []
    for chunk in (1, basis_chunk):
        solver = problem.solver(2, basis_chunk=chunk)
        graphs, _ = build(problem, solver, [1])
        images = [key for key in graphs[0] if key[0].startswith("psi-hdot")]
        engine.run(graphs[0], images)
        blocks = [engine.fetch([key for key in images if key[-1] == v]) for v in range(problem.nband)]
        assert [len(own) for own in blocks] == [4 // chunk] * problem.nband
        found.append(np.array([add_up([image for (image,) in own]) for own in blocks]))
    expected, other = found
    if basis_chunk < 4:
        np.testing.assert_array_equal(other, expected)
    else:
        assert (other != expected).any()
        np.testing.assert_allclose(other, expected, rtol=0, atol=1e-15 * np.abs(expected).max())


def add_up(images):
    """Along the tree, of one, two or four."""
    return images[0] if len(images) == 1 else add_up(images[: len(images) // 2]) + add_up(images[len(images) // 2 :])
