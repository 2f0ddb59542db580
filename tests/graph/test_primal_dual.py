"""The primal-dual graph: the bits of the loop in one process, however it is cut, gated, and small."""

from __future__ import annotations

import io
import pickle
from collections import Counter
from dataclasses import replace

import dask
import numpy as np
import pytest

from pfb.graph.blocks import Blocks
from pfb.graph.engine import ThreadEngine
from pfb.graph.grain import Grain
from pfb.graph.names import STAGES, Names, stage_of, token
from pfb.graph.primal_dual import Data, PrimalDual
from pfb.graph.tasks import dependencies
from pfb.operators.constraints import Constraint
from pfb.operators.hessian import PsfHessian
from pfb.operators.preconditioner import Preconditioner
from pfb.operators.regularisers import JointPrior
from pfb.operators.wavelets import Dictionary
from pfb.solvers.primal_dual import step_sizes
from pfb.testing import refuse
from tests.graph.problems import (
    Careful,
    Problem,
    assert_same,
    build,
    collect,
    finish,
    keys_of,
    make_hessian,
    make_mask,
    make_slope,
    make_weight,
    run,
)

MAXIT = 20
"""Some more iterations than any of the problems below needs."""

CONSTRAINTS = {
    "none": dict(positivity="none"),
    "clip": dict(positivity="clip"),
    "joint": dict(positivity="joint"),
    "mask": dict(positivity="none", masked=True),
    "mask-clip": dict(positivity="clip", masked=True),
    "mask-joint": dict(positivity="joint", masked=True),
}
constraints = pytest.mark.parametrize("constraint", CONSTRAINTS.values(), ids=CONSTRAINTS)


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


def iterated(problem, engine, solver, cuts):
    """Run blocks of iterations and bring here what they end at."""
    return collect(engine, solver, run(problem, engine, solver, cuts), cuts[-1])


@constraints
def test_the_problem_is_not_trivial(constraint, eager):
    """The gate shuts on the way, pixels are outside of the constraint, and part of the dual is on its ball."""
    problem = Problem(**constraint)
    found, free = eager(problem), eager(Problem(positivity="none"))
    assert found.gate.done
    assert 4 < found.gate.iterations < MAXIT - 2
    assert free.models.min() < -0.05
    if problem.constraint.active:
        assert 0.05 < np.mean(found.models != found.x) < 0.6
        assert 0.05 < np.mean(found.bounds != 0) < 0.6
    norm = np.sqrt((found.dual**2).sum(axis=1))
    assert 0.05 < np.mean(norm > 0.999 * problem.radius) < 0.9


@constraints
@pytest.mark.parametrize("basis_chunk", [1, 2, 3])
@pytest.mark.parametrize(("band_chunk", "nworker"), [(1, 1), (1, 2), (1, 3), (1, 5), (2, 1), (2, 2), (4, 2), (5, 1), (5, 3)])
def test_same_bits_as_the_loop_for_all_chunks_and_workers(constraint, basis_chunk, band_chunk, nworker, engine, eager):
    problem = Problem(**constraint)
    solver = problem.solver(nworker, band_chunk=band_chunk, basis_chunk=basis_chunk)
    assert_same(iterated(problem, engine, solver, [6]), eager(problem, 6))


@constraints
@pytest.mark.parametrize("prior", ["l21", "mean21"])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_same_bits_as_the_loop_for_all_options(constraint, prior, weighted, engine, eager):
    problem = Problem(prior=prior, weighted=weighted, **constraint)
    found = iterated(problem, engine, problem.solver(2, band_chunk=2, basis_chunk=2, tile=50), [MAXIT])
    assert_same(found, eager(problem))
    assert found.gate.done


@pytest.mark.parametrize("tile", [1, 17, 10_000])
def test_tiles_of_any_size_give_the_same_bits(tile, engine, eager):
    problem = Problem(nband=3, shape=(4, 3), weighted=True, bases=("self", "db1"))
    assert_same(iterated(problem, engine, problem.solver(2, tile=tile), [4]), eager(problem, 4))


@constraints
@pytest.mark.parametrize("nband", [1, 2, 4, 7])
def test_any_number_of_bands_gives_the_same_bits(nband, constraint, engine, eager):
    problem = Problem(nband=nband, prior="mean21", **constraint)
    solver = problem.solver(3, band_chunk=min(2, nband), basis_chunk=3)
    assert_same(iterated(problem, engine, solver, [6]), eager(problem, 6))


@pytest.mark.parametrize("constraint", [CONSTRAINTS["none"], CONSTRAINTS["mask-joint"]], ids=["none", "mask-joint"])
@pytest.mark.parametrize("cuts", [[20], [1, 2, 20], [10, 20], [7, 8, 9, 20], [3, 11, 12, 20]], ids=str)
def test_any_cut_into_blocks_of_iterations_gives_the_same_bits(cuts, constraint, engine, eager):
    problem = Problem(**constraint)
    assert_same(iterated(problem, engine, problem.solver(2), cuts), eager(problem))


@constraints
@pytest.mark.parametrize(("nworker", "lanes", "owners"), [(2, 1, ()), (2, 2, ()), (3, 2, (2, 0, 0, 1, 2)), (5, 1, ())], ids=str)
@pytest.mark.parametrize("cuts", [[6], [1, 4, 6]], ids=str)
def test_what_a_worker_does_in_one_task_gives_the_same_bits(constraint, nworker, lanes, owners, cuts, engine, eager):
    problem = Problem(prior="mean21", weighted=True, **constraint)
    solver = replace(problem.solver(nworker, tile=100), grain=Grain.WORKER, lanes=lanes, owners=owners)
    assert_same(iterated(problem, engine, solver, cuts), eager(problem, 6))


@constraints
@pytest.mark.parametrize("cuts", [[MAXIT], [1, 5, MAXIT]], ids=str)
def test_iterations_in_one_task_give_the_same_bits(constraint, cuts, engine, eager):
    """The gate shuts within a task."""
    problem = Problem(**constraint)
    solver = replace(problem.solver(2, band_chunk=5), grain=Grain.BLOCK)
    found = iterated(problem, engine, solver, cuts)
    assert_same(found, eager(problem))
    assert found.gate.done


@pytest.mark.parametrize(
    ("grain", "lanes", "expected"),
    [
        # Ascend, factors and descend of both workers, what goes from one to the other, changes, gate.
        (Grain.WORKER, 1, [2, 2, 2, 2, 2, 1]),
        # Two lanes of each worker before and after the sums of its bands, which are apart.
        (Grain.WORKER, 2, [4, 2 + 2, 2, 4, 4, 1]),
    ],
)
def test_coarse_tasks_are_few(grain, lanes, expected):
    solver, data = sized((16, 12), constraint=Constraint())
    solver = replace(solver, grain=grain, lanes=lanes)
    ten, twenty = (len(iterations(solver, data, 0, n)) for n in (10, 20))
    assert twenty - ten == 10 * sum(expected)
    fine = replace(solver, grain=Grain.STEP)
    assert len(iterations(fine, data, 0, 20)) - len(iterations(fine, data, 0, 10)) > 7 * (twenty - ten)


def test_iterations_are_one_task_and_what_takes_its_results():
    solver, data = sized((16, 12), constraint=JOINT, band_chunk=8)
    solver = replace(solver, grain=Grain.BLOCK)
    graph = iterations(solver, data, 10, 20)
    assert len(graph) == 1 + len(solver.state(20))
    assert dependencies(graph) == {*keys_of(data), *solver.state(10)}
    assert {key[-1] for key in graph if stage_of(key) != "converged"} == {0}, "something is not on the first worker"


def test_coarse_tasks_are_where_their_bands_are():
    solver, data = sized((16, 12), nworker=3)
    solver = replace(solver, grain=Grain.WORKER, owners=(0, 0, 2, 2, 1, 1, 0, 2))
    for key, task in iterations(solver, data, 0, 4).items():
        if stage_of(key) in ("ascend", "descend"):
            home = solver.owners[key[-1]]
            data_of = [k for k in task.dependencies if stage_of(k) in ("hessian", "precondition", "model", "slope")]
            assert {solver.owners[k[-1]] for k in data_of} <= {home}
    assert {key[-1] for key in iterations(solver, data, 0, 1) if stage_of(key) == "l21-norm"} == {0, 1, 2}


def test_a_block_may_start_after_the_gate_has_shut(engine, eager):
    problem = Problem()
    found = iterated(problem, engine, problem.solver(), [18, 19])
    assert found.gate.iterations < 18
    assert_same(found, eager(problem))


# From one minimisation to the next.


@constraints
def test_duals_from_before_are_taken_up(constraint, engine):
    """Ten iterations, and from there the loop and the graph again: both start without extrapolation."""
    problem = Problem(tol=0.0, **constraint)
    first, second = problem.solver(2, basis_chunk=2), problem.solver(2, cycle=1, basis_chunk=2)
    data = run(problem, engine, first, [10])
    graph = {}
    second.start(graph, finish(engine, first, data, 10), first.dual(10), first.bounds(10))
    second.iterations(graph, data, 0, 5)
    engine.run(graph, second.state(5))
    found = collect(engine, second, data, 5)

    before = problem.eager(10)
    assert_same(found, problem.eager(5, start=before))
    # They matter: without one of them the same five iterations end elsewhere.
    for forgotten in ("dual", "bounds") if problem.constraint.active else ("dual",):
        without = problem.eager(5, start=before._replace(**{forgotten: 0 * getattr(before, forgotten)}))
        assert np.abs(found.x - without.x).max() > 1e-4


@constraints
def test_a_solution_stays_where_it_is_if_its_duals_are_known(constraint, engine):
    problem = Problem(tol=1e-5, **constraint)
    first = problem.solver(basis_chunk=4)
    data = run(problem, engine, first, [120])
    models, dual, bounds = finish(engine, first, data, 120), first.dual(120), first.bounds(120)

    def change(cycle, *duals):
        """Relative change of the images by one more iteration from the solution."""
        graph, second = {}, problem.solver(cycle=cycle, basis_chunk=4)
        second.start(graph, models, *duals)
        second.iterations(graph, data, 0, 1)
        engine.run(graph, [second.gate(1)])
        return engine.fetch([second.gate(1)])[0].primal

    assert engine.fetch([first.gate(120)])[0].done
    assert change(1, dual, bounds) < 1e-4
    assert change(2, None, bounds) > 1e-3
    if problem.constraint.active:
        assert change(3, dual, None) > 1e-2


@pytest.mark.parametrize("prior", ["l21", "mean21"])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("chunks", [{}, dict(band_chunk=2, basis_chunk=2, tile=50), dict(band_chunk=8, basis_chunk=4)], ids=str)
def test_the_first_guess_of_the_dual_is_the_projection_of_the_slopes(prior, weighted, chunks, engine):
    problem = Problem(prior=prior, weighted=weighted)
    solver, graph = problem.solver(2, **chunks), {}
    data = problem.data(graph, solver)
    made = solver.guess(graph, list(data.slopes), data.weights)
    solver.iterations(graph, data, 0, 1)  # their names do not collide
    solver.start(graph, list(data.before), made)
    engine.run(graph, [key for row in made + solver.dual(0) for key in row])
    found, start = (
        np.concatenate([np.concatenate(engine.fetch(row), axis=1) for row in rows]) for rows in (made, solver.dual(0))
    )

    slopes = [make_slope(problem.shape, v, problem.gamma) for v in range(problem.nband)]
    v = np.stack([problem.dictionary.dot(slope) for slope in slopes], axis=1) / 3
    weight = make_weight(problem.dictionary.codomain, 0, 3) if weighted else None
    expected = v - JointPrior(prior, problem.nband, weight).prox(v, problem.radius)
    np.testing.assert_allclose(found, expected, atol=1e-15)
    np.testing.assert_array_equal(start, found)
    assert np.abs(found - v).max() > 0.01  # most of it is beyond the ball


@constraints
def test_finish_gives_the_images_of_single_bands(constraint, engine, eager):
    problem = Problem(**constraint)
    solver = problem.solver(2, band_chunk=2)
    models = finish(engine, solver, run(problem, engine, solver, [6]), 6)
    np.testing.assert_array_equal(engine.fetch(models), eager(problem, 6).models)
    assert [key[-1] for key in models] == [0, 1, 2, 3, 4]


# The optimum.


@constraints
def test_the_models_lie_in_the_constraint(constraint, engine):
    problem = Problem(**constraint)
    models = iterated(problem, engine, problem.solver(2, band_chunk=2), [3]).models
    if problem.masked:
        outside = ~make_mask(problem.shape)
        assert not models[:, outside].any()
        assert models[:, ~outside].any()
    if problem.positivity != "none":
        assert models.min() == 0
        assert models.max() > 1
    if problem.positivity == "joint":
        np.testing.assert_array_equal((models == 0).any(axis=0), (models == 0).all(axis=0))


@pytest.mark.parametrize("name", ["none", "clip", "mask", "mask-clip"])  # where C is convex there is one optimum
def test_the_optimum_does_not_depend_on_the_preconditioner(name, engine):
    """A number in its place, the largest step that surely converges, leads there too, only later."""
    problem = Problem(tol=1e-7, **CONSTRAINTS[name])
    lipschitz = max(make_hessian(problem.shape, v).bound for v in range(problem.nband)) / problem.gamma
    expected = problem.eager(2000, tau=1 / (lipschitz / 2 + problem.shift))
    found = iterated(problem, engine, problem.solver(band_chunk=8, basis_chunk=4), [600])
    assert found.gate.done
    assert found.gate.iterations < expected.gate.iterations < 2000
    np.testing.assert_allclose(found.models, expected.models, atol=1e-3)
    np.testing.assert_allclose(found.x, found.models, atol=1e-4)


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

    for owner, name in (
        (Dictionary, "dot"), (Dictionary, "hdot"), (JointPrior, "project"),
        (PsfHessian, "dot"), (Preconditioner, "dot"), (Constraint, "polar"),
    ):  # fmt: skip
        count(owner, name)
    return counter


@constraints
def test_iterations_behind_the_gate_call_nothing(constraint, eager, calls):
    problem = Problem(**constraint)
    niter = eager(problem).gate.iterations
    calls.clear()
    engine = ThreadEngine(1)
    run(problem, engine, problem.solver(basis_chunk=2), [12, MAXIT])
    engine.close()
    nband, nblock = problem.nband, 2
    expected = dict.fromkeys(("Dictionary.dot", "Dictionary.hdot", "JointPrior.project"), niter * nband * nblock)
    # Every slope takes one call of a Hessian.
    expected |= {"PsfHessian.dot": (niter + 1) * nband, "Preconditioner.dot": niter * nband}
    if problem.constraint.active:
        expected["Constraint.polar"] = niter * nband
    assert calls == expected


@constraints
def test_states_pass_a_shut_gate_as_they_are(constraint, engine):
    problem = Problem(**constraint)
    solver = problem.solver()
    graphs, _ = build(problem, solver, [MAXIT])
    keys = [[*solver.primal(k), *solver.dual(k)[0], *solver.bounds(k)] for k in (MAXIT - 1, MAXIT)]
    assert len(keys[0]) == (15 if problem.constraint.active else 10)
    engine.run(graphs[0], keys[0] + keys[1])
    early, late = map(engine.fetch, keys)
    assert all(isinstance(a, np.ndarray) and a is b for a, b in zip(early, late, strict=True))


def test_transients_behind_the_gate_are_nothing(engine):
    problem = Problem(positivity="joint")
    solver = problem.solver(2)
    graphs, _ = build(problem, solver, [MAXIT])
    transient = {"extrapolate", "psi-dot", "branch-norm", "l21-norm", "psi-hdot", "press", "negative", "grad", "change"}
    last = [key for key in graphs[0] if stage_of(key) in transient and f"-it{MAXIT:05d}-" in key[0]]
    assert {stage_of(key) for key in last} == transient
    engine.run(graphs[0], last)
    assert set(engine.fetch(last)) == {None}


def test_the_gate_knows_the_change_of_the_dual_at_the_end_of_a_block(engine, eager):
    problem = Problem(tol=0.0)
    solver = problem.solver()
    (first, second), _ = build(problem, solver, [4, 8])
    gates = [solver.gate(k) for k in (3, 4, 6, 8)]
    engine.run(first | second, gates)
    at_4, at_8 = (eager(problem, k).gate.dual for k in (4, 8))
    assert [gate.dual for gate in engine.fetch(gates)] == pytest.approx([np.inf, at_4, at_4, at_8], rel=1e-13)


# Size, names, laziness.


JOINT = Constraint("joint", masked=True)


def sized(shape, nband=8, nworker=2, constraint=JOINT, **chunks):
    """A solver for images of any size and the keys of its data; nothing is made."""
    dictionary = Dictionary(shape, ("self", "db1", "db2", "db3", "db4"), 3)
    blocks = Blocks(nband, *dictionary.codomain, **chunks)
    names = Names(token("sized"))
    steps = step_sizes(1.0, dictionary.norm_squared, constraint.active)
    prior = JointPrior("mean21", nband)
    solver = PrimalDual(names, blocks, dictionary, prior, steps, 0.1, constraint=constraint, nworker=nworker)
    bands = ([names.key(stage, v) for v in range(nband)] for stage in ("hessian", "model", "slope", "precondition"))
    mask = names.key("mask") if constraint.masked else None
    return solver, Data(*bands, [names.key("reweight", b) for b in range(len(blocks.bases))], mask)


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
        solver = problem.solver(2, **chunks)
        graphs, data = build(problem, solver, [5, 10])
        solver.finish(graphs[-1], 10, data.mask)
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
@constraints
def test_number_of_tasks(nworker, nbranch, chunks, constraint):
    what = Constraint(constraint["positivity"], constraint.get("masked", False))
    solver, data = sized((16, 12), nworker=nworker, constraint=what, **chunks)
    nb, nv = -(-5 // chunks.get("basis_chunk", 1)), -(-8 // chunks.get("band_chunk", 1))
    nt = -(-solver.blocks.ncoefficient // chunks.get("tile", solver.blocks.ncoefficient))
    # dual, psi-hdot; extrapolate, grad, primal, change; converged.
    expected = 2 * nb * nv + 4 * 8 + 1
    if nv > 1:  # psi-dot; branch-norm, l21-norm
        expected += nb * nv + nb * nt * (nbranch + 1)
    # press, positivity; negative.
    expected += what.active * 2 * 8 + what.joint * 8
    assert len(iterations(solver, data, 0, 1)) == expected + nb * nv  # dual-change, once per block of iterations
    assert len(iterations(solver, data, 5, 15)) == 10 * expected + nb * nv
    graph = {}
    solver.finish(graph, 15, data.mask)
    assert len(graph) == 8 + what.joint * 8


def test_every_key_is_named_after_its_stage_and_iteration():
    solver, data = sized((16, 12))
    graph = iterations(solver, data, 3, 5)
    found = Counter(stage_of(key) for key in graph)
    assert set(found) == {
        "extrapolate", "psi-dot", "branch-norm", "l21-norm", "dual", "dual-change", "psi-hdot", "press", "negative", "positivity",
        "grad", "primal", "change", "converged",
    }  # fmt: skip
    assert set(found) <= set(STAGES)
    assert {key[0].split("-it")[1].split("-")[0] for key in graph} == {"00004", "00005"}


@pytest.mark.parametrize("constraint", [Constraint(), Constraint("clip"), JOINT], ids=str)
def test_the_dual_of_the_constraint_is_part_of_the_state_if_there_is_one(constraint):
    solver, _ = sized((16, 12), constraint=constraint, band_chunk=2)
    for k in (0, 3):
        found = Counter(map(stage_of, solver.state(k)))
        assert found["positivity"] == len(solver.bounds(k)) == (8 if constraint.active else 0)
        assert found["primal"] == (8 if k == 0 else 16)
        assert found["dual"] == 4 * 5
        assert found["converged"] == 1


@pytest.mark.parametrize("constraint", [Constraint(), Constraint("clip"), JOINT], ids=str)
def test_a_block_reads_what_the_one_before_leaves(constraint):
    solver, data = sized((16, 12), constraint=constraint)
    given = set(keys_of(data))
    graph = iterations(solver, data, 10, 20)
    assert dependencies(graph) == given | set(solver.state(10))
    assert set(solver.state(20)) <= set(graph)
    # The very first one needs no image before the first.
    assert dependencies(iterations(solver, data, 0, 10)) == given | set(solver.state(0))


def test_start_needs_images_and_perhaps_duals():
    solver, data = sized((16, 12), band_chunk=4, basis_chunk=2)
    graph = {}
    solver.start(graph, list(data.before), None)
    assert set(graph) == set(solver.state(0))
    assert dependencies(graph) == set(data.before)
    graph = {}
    other = replace(solver, names=solver.names.within("other"))
    solver.start(graph, list(data.before), other.dual(7), other.bounds(7))
    assert dependencies(graph) == {*data.before, *(key for row in other.dual(7) for key in row), *other.bounds(7)}


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
        if stage_of(key) not in ("converged", "l21-norm", "branch-norm"):
            of_all = ("converged", "l21-norm", "reweight", "mask", "negative")
            of_band = {dep[-1] for dep in task.dependencies if stage_of(dep) not in of_all}
            assert of_band == {key[-1]}
