"""The primal-dual graph: the bits of the loop in one process, however it is cut, gated, and small."""

from __future__ import annotations

import io
import pickle
from collections import Counter
from dataclasses import replace

import dask
import numpy as np
import pytest

from pfb.graph import imaging
from pfb.graph.blocks import Blocks
from pfb.graph.engine import ThreadEngine
from pfb.graph.names import STAGES, Names, stage_of, token
from pfb.graph.primal_dual import Data, PrimalDual
from pfb.graph.tasks import dependencies
from pfb.operators.hessian import PsfHessian
from pfb.operators.preconditioner import Preconditioner
from pfb.operators.regularisers import JointPrior
from pfb.operators.wavelets import Dictionary
from pfb.solvers import primal_dual
from pfb.solvers.primal_dual import Gate, Steps, step_sizes
from pfb.testing import refuse
from tests.graph.problems import Careful, Found, Problem, build, collect, make_hessian, make_target, run

MAXIT = 20
"""Some more iterations than any of the problems below needs."""


@pytest.fixture(scope="module")
def engine():
    engine = ThreadEngine(2)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def eager():
    """Solutions of problems in one process, each found once."""
    found = {}

    def solve(problem, maxit=MAXIT):
        key = problem, maxit
        if key not in found:
            found[key] = problem.eager(maxit)
        return found[key]

    return solve


def assert_same(found, expected):
    np.testing.assert_array_equal(found.x, expected.x)
    np.testing.assert_array_equal(found.dual, expected.dual)
    assert found.gate[:3] == expected.gate[:3]


def test_the_problem_is_not_trivial(eager):
    """The gate shuts on the way, pixels are clipped and masked, and part of the dual is on its ball."""
    problem = Problem(weighted=True, masked=True)
    found, free = eager(problem), eager(Problem(positivity="none"))
    assert found.gate.done
    assert 4 < found.gate.iterations < MAXIT - 4
    assert free.x.min() < -0.05
    assert 0.15 < np.mean(found.x == 0) < 0.5
    norm = np.sqrt((free.dual**2).sum(axis=1))
    assert 0.05 < np.mean(norm > 0.999 * problem.radius) < 0.9


@pytest.mark.parametrize("prior", ["l21", "mean21"])
@pytest.mark.parametrize("basis_chunk", [1, 2, 3])
@pytest.mark.parametrize(("band_chunk", "nworker"), [(1, 1), (1, 2), (1, 3), (1, 5), (2, 1), (2, 2), (4, 2), (5, 1), (5, 3)])
def test_same_bits_as_the_loop_for_all_chunks_and_workers(prior, basis_chunk, band_chunk, nworker, engine, eager):
    problem = Problem(prior=prior)
    solver = problem.solver(nworker, band_chunk=band_chunk, basis_chunk=basis_chunk)
    run(problem, engine, solver, [10])
    assert_same(collect(engine, solver, 10), eager(problem, 10))


@pytest.mark.parametrize("prior", ["l21", "mean21"])
@pytest.mark.parametrize("positivity", ["none", "clip", "joint"])
@pytest.mark.parametrize(("weighted", "masked"), [(False, False), (True, False), (False, True), (True, True)])
def test_same_bits_as_the_loop_for_all_options(prior, positivity, weighted, masked, engine, eager):
    problem = Problem(prior=prior, positivity=positivity, weighted=weighted, masked=masked)
    solver = problem.solver(2, band_chunk=2, basis_chunk=2, tile=50)
    run(problem, engine, solver, [MAXIT])
    found = collect(engine, solver, MAXIT)
    assert_same(found, eager(problem))
    assert found.gate.done


@pytest.mark.parametrize("tile", [1, 17, 10_000])
def test_tiles_of_any_size_give_the_same_bits(tile, engine, eager):
    problem = Problem(nband=3, shape=(4, 3), weighted=True, bases=("self", "db1"))
    solver = problem.solver(2, tile=tile)
    run(problem, engine, solver, [4])
    assert_same(collect(engine, solver, 4), eager(problem, 4))


@pytest.mark.parametrize("nband", [1, 2, 4, 7])
def test_any_number_of_bands_gives_the_same_bits(nband, engine, eager):
    problem = Problem(nband=nband, prior="mean21")
    solver = problem.solver(3, band_chunk=min(2, nband), basis_chunk=3)
    run(problem, engine, solver, [6])
    assert_same(collect(engine, solver, 6), eager(problem, 6))


@pytest.mark.parametrize("cuts", [[20], [1, 2, 20], [10, 20], [7, 8, 9, 20], [3, 11, 12, 20]], ids=str)
def test_any_cut_into_blocks_of_iterations_gives_the_same_bits(cuts, engine, eager):
    problem = Problem()
    solver = problem.solver(2)
    run(problem, engine, solver, cuts)
    assert_same(collect(engine, solver, cuts[-1]), eager(problem))


def test_a_block_may_start_after_the_gate_has_shut(engine, eager):
    problem = Problem()
    solver = problem.solver()
    run(problem, engine, solver, [15, 16])
    assert_same(collect(engine, solver, 16), eager(problem))


def test_a_dual_from_before_is_taken_up(engine):
    """Ten iterations, and from there the loop and the graph again: both start without extrapolation."""
    problem = replace(Problem(), tol=0.0)
    first, second = problem.solver(2, basis_chunk=2), problem.solver(2, cycle=1, basis_chunk=2)
    data = run(problem, engine, first, [10])
    graph = {}
    models = first.finish(graph, 10)
    engine.run(graph, models)
    graph = {}
    second.start(graph, models, first.dual(10))
    second.iterations(graph, data, 0, 5)
    engine.run(graph, second.state(5))
    found = collect(engine, second, 5)

    before = problem.eager(10)
    expected = problem.eager(5, start=before)
    assert_same(found, expected)
    # The dual matters: without it the same five iterations end elsewhere.
    without = problem.eager(5, start=before._replace(dual=0 * before.dual))
    assert np.abs(found.x - without.x).max() > 1e-4


def test_finish_gives_the_images_of_single_bands(engine, eager):
    problem = Problem()
    solver = problem.solver(2, band_chunk=2)
    run(problem, engine, solver, [6])
    graph = {}
    models = solver.finish(graph, 6)
    engine.run(graph, models)
    np.testing.assert_array_equal(engine.fetch(models), eager(problem, 6).x)
    assert [key[-1] for key in models] == [0, 1, 2, 3, 4]


# Preconditioned: an operator in place of tau, for images without a constraint.

SHIFT = 0.6


def preconditioned(problem, **options):
    solver = problem.solver(**options)
    return replace(solver, steps=Steps(tau=float("nan"), sigma=SHIFT / solver.dictionary.norm_squared))


def run_preconditioned(problem, engine, solver, last):
    graph = {}
    data, start = problem.data(graph, solver)
    made = imaging.preconditioners(graph, solver.names.within("data"), data.hessians, problem.gamma, SHIFT)
    solver.start(graph, start, None)
    solver.iterations(graph, replace(data, preconditioners=made), 0, last)
    engine.run(graph, solver.state(last))
    return collect(engine, solver, last)


def preconditioned_loop(problem, maxit):
    """The iteration of `solve` with x - T (...) for x - tau (...)."""
    bands, dictionary, g = range(problem.nband), problem.dictionary, JointPrior(problem.prior, problem.nband)
    hessians, targets = ([make(problem.shape, v) for v in bands] for make in (make_hessian, make_target))
    operators = [Preconditioner(h, problem.gamma, SHIFT) for h in hessians]
    x = previous = [np.zeros(problem.shape) for _ in bands]
    dual, gate = np.zeros((dictionary.codomain[0], problem.nband, dictionary.codomain[1])), Gate()
    while not gate.done and gate.iterations < maxit:
        v = primal_dual.ascend(dual, x, previous, dictionary, SHIFT / dictionary.norm_squared)
        dual = g.project(v, g.factor(g.statistic(v), problem.radius))
        images = primal_dual.synthesise(dual, dictionary)
        slopes = [h.dot(a - t) / problem.gamma for h, a, t in zip(hessians, x, targets, strict=True)]
        new = [a - t.dot(s + i) for a, t, s, i in zip(x, operators, slopes, images, strict=True)]
        gate = primal_dual.advance(gate, [primal_dual.change(a, b) for a, b in zip(new, x, strict=True)], [], problem.tol)
        previous, x = x, new
    return Found(np.array(x), dual, gate)


@pytest.mark.parametrize("prior", ["l21", "mean21"])
@pytest.mark.parametrize(
    "options", [{}, dict(nworker=2, tile=50), dict(band_chunk=2, basis_chunk=2, nworker=3), dict(band_chunk=5)], ids=str
)
def test_preconditioned_it_has_the_bits_of_its_loop(prior, options, engine):
    problem = Problem(prior=prior, positivity="none", tol=2.5e-2)
    found = run_preconditioned(problem, engine, preconditioned(problem, **options), 12)
    assert_same(found, preconditioned_loop(problem, 12))
    assert found.gate.done


def test_preconditioned_it_comes_to_the_same_optimum(engine):
    problem = Problem(positivity="none", tol=1e-7)
    expected = problem.eager(2000)
    found = run_preconditioned(problem, engine, preconditioned(problem, band_chunk=8, basis_chunk=4), 400)
    assert found.gate.done
    assert found.gate.iterations < expected.gate.iterations / 4
    np.testing.assert_allclose(found.x, expected.x, atol=5e-4)
    assert np.abs(found.x).max() > 1


# The gate.


@pytest.fixture
def calls(monkeypatch):
    """Count the calls of the operators."""
    counter = Counter()

    def count(owner, name):
        honest = getattr(owner, name)

        def counting(*args, **options):
            counter[f"{owner.__name__}.{name}"] += 1
            return honest(*args, **options)

        monkeypatch.setattr(owner, name, counting)

    for owner, name in ((Dictionary, "dot"), (Dictionary, "hdot"), (PsfHessian, "dot"), (JointPrior, "project")):
        count(owner, name)
    return counter


def test_iterations_behind_the_gate_call_nothing(eager, calls):
    problem = Problem()
    niter = eager(problem).gate.iterations
    calls.clear()
    engine = ThreadEngine(1)
    solver = problem.solver(basis_chunk=2)
    run(problem, engine, solver, [12, MAXIT])
    engine.close()
    nband, nblock = problem.nband, 2
    per_iteration = dict.fromkeys(("Dictionary.dot", "Dictionary.hdot", "JointPrior.project"), nband * nblock)
    assert calls == {what: niter * n for what, n in (per_iteration | {"PsfHessian.dot": nband}).items()}


def test_states_pass_a_shut_gate_as_they_are(engine):
    problem = Problem()
    solver = problem.solver()
    graphs, _ = build(problem, solver, [MAXIT])
    keep = solver.state(MAXIT - 3) + solver.state(MAXIT)
    engine.run(graphs[0], keep)
    early, late = (engine.fetch(solver.primal(k) + solver.dual(k)[0]) for k in (MAXIT - 3, MAXIT))
    assert all(a is b for a, b in zip(early, late, strict=True))


def test_transients_behind_the_gate_are_nothing(engine):
    problem = Problem(positivity="joint")
    solver = problem.solver(2)
    graphs, _ = build(problem, solver, [MAXIT])
    transient = {"psi-dot", "branch-norm", "l21-norm", "psi-hdot", "grad", "negative", "change"}
    last = [key for key in graphs[0] if stage_of(key) in transient and f"-it{MAXIT:05d}-" in key[0]]
    assert {stage_of(key) for key in last} == transient
    engine.run(graphs[0], last)
    assert set(engine.fetch(last)) == {None}


def test_the_gate_knows_the_change_of_the_dual_at_the_end_of_a_block(engine, eager):
    problem = replace(Problem(), tol=0.0)
    solver = problem.solver()
    (first, second), _ = build(problem, solver, [4, 8])
    gates = [solver.gate(k) for k in (3, 4, 6, 8)]
    engine.run(first | second, gates)
    at_4, at_8 = (eager(problem, k).gate.dual for k in (4, 8))
    assert [gate.dual for gate in engine.fetch(gates)] == pytest.approx([np.inf, at_4, at_4, at_8], rel=1e-13)


# Size, names, laziness.


def sized(shape, nband=8, nworker=2, **chunks):
    """A solver for images of any size and the keys of its data; nothing is made."""
    dictionary = Dictionary(shape, ("self", "db1", "db2", "db3", "db4"), 3)
    blocks = Blocks(nband, *dictionary.codomain, **chunks)
    names = Names(token("sized"))
    solver = PrimalDual(
        names, blocks, dictionary, JointPrior("mean21", nband), step_sizes(1.0, dictionary.norm_squared), 0.1, nworker=nworker
    )
    hessians, targets = ([names.key(stage, v) for v in range(nband)] for stage in ("hessian", "target"))
    return solver, Data(hessians, targets, [names.key("reweight", b) for b in range(len(blocks.bases))], names.key("mask"))


def iterations(solver, data, first=0, last=10):
    graph = {}
    solver.iterations(graph, data, first, last)
    return graph


def test_ten_iterations_are_small_whatever_the_size_of_the_images():
    graphs = [iterations(*sized((n, n))) for n in (64, 8192)]
    sizes = [len(pickle.dumps(graph)) for graph in graphs]
    assert max(sizes) < 1_000_000
    assert max(sizes) / len(graphs[0]) < 400
    assert abs(sizes[1] - sizes[0]) < 1000  # larger numbers take some bytes more
    # What travels to a worker is single tasks.
    assert max(len(pickle.dumps(task)) for task in graphs[1].values()) < 4000


def test_no_array_is_in_the_graph():
    problem = Problem(weighted=True, masked=True, positivity="joint")
    for chunks in ({}, dict(band_chunk=2, basis_chunk=2, tile=30)):
        graphs, _ = build(problem, problem.solver(2, **chunks), [5, 10])
        Careful(io.BytesIO()).dump(graphs)
    with pytest.raises(AssertionError, match="an array of shape"):
        Careful(io.BytesIO()).dump({"a": [np.zeros(3)]})


@pytest.mark.parametrize(
    ("nworker", "nbranch", "chunks"),
    [
        (1, 0, {}),
        (2, 2, {}),  # of 8 bands in two halves
        (4, 4, {}),
        (8, 8, {}),
        (3, 5, {}),  # bands 0-2, 3-5, 6-7: the tree has no branch of three
        (3, 3, dict(band_chunk=2)),  # blocks 0-1, 2, 3
        (2, 0, dict(band_chunk=8, basis_chunk=2)),
        (2, 2, dict(basis_chunk=5, tile=50)),
    ],
)
@pytest.mark.parametrize("joint", [False, True], ids=["clip", "joint"])
def test_number_of_tasks(nworker, nbranch, chunks, joint):
    solver, data = sized((16, 12), nworker=nworker, **chunks)
    solver = replace(solver, positivity="joint" if joint else "clip")
    nb, nv = -(-5 // chunks.get("basis_chunk", 1)), -(-8 // chunks.get("band_chunk", 1))
    nt = -(-solver.blocks.ncoefficient // chunks.get("tile", solver.blocks.ncoefficient))
    # psi-dot, dual, psi-hdot; branch-norm, l21-norm; grad, primal, change; converged; and what joint positivity adds.
    expected = 3 * nb * nv + nb * nt * (nbranch + 1) + 3 * nv + 1 + joint * 2 * nv
    assert len(iterations(solver, data, 0, 1)) == expected + nb * nv  # dual-change, once per block of iterations
    assert len(iterations(solver, data, 5, 15)) == 10 * expected + nb * nv


def test_every_key_is_named_after_its_stage_and_iteration():
    solver, data = sized((16, 12))
    graph = iterations(replace(solver, positivity="joint"), data, 3, 5)
    found = Counter(stage_of(key) for key in graph)
    assert set(found) == {
        "psi-dot", "branch-norm", "l21-norm", "dual", "dual-change", "psi-hdot", "grad", "primal", "negative",
        "positivity", "change", "converged",
    }  # fmt: skip
    assert set(found) <= set(STAGES)
    assert {key[0].split("-it")[1].split("-")[0] for key in graph} == {"00004", "00005"}


def test_a_block_reads_what_the_one_before_leaves():
    solver, data = sized((16, 12))
    given = {*data.hessians, *data.targets, *data.weights, data.mask}
    graph = iterations(solver, data, 10, 20)
    assert dependencies(graph) == given | set(solver.state(10))
    assert set(solver.state(20)) <= set(graph)
    # The very first one needs no image before the first.
    assert dependencies(iterations(solver, data, 0, 10)) == given | set(solver.state(0))


def test_start_needs_images_and_perhaps_a_dual():
    solver, data = sized((16, 12), band_chunk=4, basis_chunk=2)
    graph = {}
    solver.start(graph, list(data.targets), None)
    assert set(graph) == set(solver.state(0))
    assert dependencies(graph) == set(data.targets)
    graph = {}
    other = replace(solver, names=solver.names.within("other"))
    solver.start(graph, list(data.targets), other.dual(7))
    assert dependencies(graph) == {*data.targets, *(key for row in other.dual(7) for key in row)}


def test_minimisations_do_not_share_names():
    (solver, data), graphs = sized((16, 12)), []
    for cycle in range(3):
        graphs.append(iterations(replace(solver, names=solver.names.within("cycle", cycle)), data))
    assert len(set().union(*graphs)) == sum(map(len, graphs))


def test_blocks_of_iterations_do_not_share_tasks():
    solver, data = sized((16, 12))
    assert not set(iterations(solver, data, 0, 10)) & set(iterations(solver, data, 10, 20))


def test_building_computes_nothing(calls):
    problem = Problem(weighted=True, masked=True)
    solver = problem.solver(2)
    calls.clear()
    with dask.config.set(scheduler=refuse):
        build(problem, solver, [10, 20])
    assert not calls


@pytest.mark.parametrize(("nworker", "tile"), [(2, 0), (5, 0), (2, 50), (3, 50)])
def test_sums_over_frequency_are_spread_over_the_workers(nworker, tile):
    solver, data = sized((16, 12), nworker=nworker, tile=tile)
    slots = Counter(key[-1] for key in iterations(solver, data, 0, 1) if stage_of(key) == "l21-norm")
    assert set(slots) == set(range(nworker))
    assert max(slots.values()) - min(slots.values()) <= 1


def test_every_task_of_a_band_is_counted_by_its_band():
    """So that a placement by the last index keeps all tasks of a band on one worker."""
    solver, data = sized((16, 12))
    graph = iterations(solver, data, 0, 1)
    for key, task in graph.items():
        if stage_of(key) in ("psi-dot", "grad", "primal", "psi-hdot", "dual", "change"):
            of_band = {dep[-1] for dep in task.dependencies if stage_of(dep) not in ("converged", "l21-norm", "reweight", "mask")}
            assert of_band == {key[-1]}
