"""The engine on worker processes: the same bits as on threads, bands that stay where they are, and no lineage behind them."""

from __future__ import annotations

import operator
import os
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import dask
import ducc0
import numpy as np
import pytest
from distributed import Client, LocalCluster

from pfb.config import Resources
from pfb.errors import InputError
from pfb.graph import parking as module
from pfb.graph.cluster import CONFIG, FILES_KEPT, ClusterEngine
from pfb.graph.names import Names, token
from pfb.graph.parking import park, resume
from pfb.graph.tasks import add, ref
from pfb.pipeline.reporting import Silent
from pfb.pipeline.session import open_engine
from tests.graph.problems import Problem, assert_same, collect, finish, keys_of, run

pytestmark = pytest.mark.cluster

NAMES = Names(token("cluster"))


@contextmanager
def started(nworker, nthread):
    """Start a cluster as `open_engine` does, with a dashboard that nobody looks at."""
    with (
        dask.config.set(CONFIG),
        LocalCluster(n_workers=nworker, threads_per_worker=nthread, dashboard_address="127.0.0.1:0", memory_limit=0) as cluster,
    ):
        yield cluster


@pytest.fixture(scope="module")
def two_threads():
    with started(1, 2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def two_workers():
    with started(2, 1) as cluster:
        yield cluster


@contextmanager
def joined(cluster, nblock, parking):
    with Client(cluster, set_as_default=False) as client:
        engine = ClusterEngine(client, nblock, str(parking))
        yield engine
        engine.close()


@pytest.fixture
def engine(two_workers, tmp_path):
    """On two workers, for four bands."""
    with joined(two_workers, 4, tmp_path) as engine:
        yield engine


@pytest.mark.parametrize("shape", ["two_threads", "two_workers"])
@pytest.mark.parametrize(
    "constraint", [dict(positivity="none"), dict(positivity="joint", masked=True)], ids=["none", "mask-joint"]
)
def test_same_bits_as_in_one_process(shape, constraint, request, tmp_path):
    """The loop is what threads are compared with elsewhere. Blocks are cut as a pipeline cuts them."""
    problem = Problem(nband=4, prior="mean21", weighted=True, tol=0.06, **constraint)
    with joined(request.getfixturevalue(shape), 4, tmp_path) as engine:
        assert (engine.nworker, engine.nthread) == {"two_threads": (1, 2), "two_workers": (2, 2)}[shape]
        solver = problem.solver(engine.nworker, tile=100)
        found = collect(engine, solver, run(problem, engine, solver, [4, 5, 15]), 15)
    assert_same(found, problem.eager(15))
    assert found.gate.done
    assert 5 < found.gate.iterations < 15


def homes(engine, keys):
    """Addresses of the workers that hold results."""
    held = engine.client.who_has([engine._futures[key] for key in keys])
    return [held[key] for key in keys]


def addresses(engine):
    """Addresses of the workers in the order of their names."""
    workers = engine.client.scheduler_info(n_workers=-1)["workers"]
    return sorted(workers, key=lambda address: workers[address]["name"])


def test_everything_of_a_band_is_on_its_worker_and_nowhere_else(engine):
    problem = Problem(nband=4, positivity="joint")
    solver = problem.solver(engine.nworker)
    data = run(problem, engine, solver, [6])
    models = finish(engine, solver, data, 6)
    first, second = addresses(engine)
    home = [(first,), (first,), (second,), (second,)]
    for keys in (data.hessians, data.before, data.slopes, data.preconditioners, solver.primal(6), solver.bounds(6), models):
        assert homes(engine, keys) == home
    assert [homes(engine, row) for row in solver.dual(6)] == [home] * 3


def received(engine):
    """Bytes that each worker has received from others so far."""
    return engine.client.run(lambda dask_worker: sum(t["total"] for t in dask_worker.transfer_incoming_log))


@pytest.mark.parametrize("positivity", ["none", "clip", "joint"])
def test_only_sums_over_frequency_and_signs_travel(positivity, engine):
    """Per iteration and basis one sum goes to the worker that makes the factor, and the factor to the other worker.

    If positivity is joint, every worker needs to know where the bands of the other one are negative.
    """
    problem = Problem(shape=(64, 60), nband=4, tol=0.0, positivity=positivity)
    solver = problem.solver(engine.nworker)
    data = run(problem, engine, solver, [1])
    engine.fetch([solver.gate(1)])
    before = sum(received(engine).values())
    graph = {}
    solver.iterations(graph, data, 1, 6)
    engine.run(graph, solver.state(6))
    travelled = sum(received(engine).values()) - before
    nbasis, ncoefficient = problem.dictionary.codomain
    expected = 5 * 2 * nbasis * ncoefficient * 8
    if positivity == "joint":
        expected += 5 * problem.nband * 64 * 60
    # Gates and changes are some hundred bytes each.
    assert expected <= travelled < expected + 5 * 20_000
    assert expected > 8 * 5 * 20_000


def scheduler_tasks(engine, expected):
    """Count the tasks that the scheduler remembers; it has some seconds to forget all but the expected ones."""
    for _ in range(100):
        count = engine.client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))
        if count == expected:
            break
        time.sleep(0.05)
    return count


def test_detached_results_keep_their_bits_their_worker_and_no_lineage(engine, tmp_path):
    """Six rounds of four tasks per band that each go on from the round before."""
    state = [NAMES.key("model", v) for v in range(4)]
    graph = {}
    for v, key in enumerate(state):
        add(graph, key, np.full, 1000, float(v))
    engine.run(graph, state)
    counts, files = [], []
    for cycle in range(6):
        names, graph, last = NAMES.within(cycle), {}, []
        for v, key in enumerate(state):
            for stage in ("cg", "slope", "primal", "model"):
                key = add(graph, names.key(stage, v), operator.add, ref(key), 1.0)
            last.append(key)
        engine.run(graph, last)
        engine.drop(state)
        state = engine.detach(last)
        counts.append(scheduler_tasks(engine, len(state)))
        files.append(len(list(tmp_path.iterdir())))
    assert counts == [len(state)] * 6
    assert files == [4 * min(cycle + 1, FILES_KEPT) for cycle in range(6)]
    for v, array in enumerate(engine.fetch(state)):
        np.testing.assert_array_equal(array, np.full(1000, v + 24.0))
    first, second = addresses(engine)
    assert homes(engine, state) == [(first,), (first,), (second,), (second,)]
    assert not set(last) & set(state)
    with pytest.raises(KeyError):
        engine.fetch(last)


@pytest.mark.parametrize("positivity", ["none", "clip"])
def test_a_detached_solution_starts_the_next_one(positivity, engine):
    """As between major cycles: the bits are those of the loop."""
    problem = Problem(nband=4, positivity=positivity)
    first, second = (problem.solver(engine.nworker, cycle=cycle) for cycle in range(2))
    data = run(problem, engine, first, [5])
    models, bounds = finish(engine, first, data, 5), first.bounds(5)
    dual = [key for row in first.dual(5) for key in row]
    engine.drop({*first.state(5)} - {*dual, *bounds})
    moved = engine.detach(models + dual + bounds)
    models, dual, bounds = moved[:4], [moved[4 + 4 * b : 8 + 4 * b] for b in range(3)], moved[16:]
    assert len(bounds) == (4 if problem.constraint.active else 0)
    expected = len(moved) + len(keys_of(data))
    assert scheduler_tasks(engine, expected) == expected
    graph = {}
    second.start(graph, models, dual, bounds)
    second.iterations(graph, data, 0, 5)
    engine.run(graph, second.state(5))
    assert_same(collect(engine, second, data, 5), problem.eager(5, start=problem.eager(5)))


def test_progress_is_told(engine):
    told = []
    graph = {}
    keys = [add(graph, NAMES.key("grid", v), abs, -v) for v in range(7)]
    engine.run(graph, keys, told.append)
    assert sum(told) == 7
    assert engine.fetch(keys) == list(range(7))


def fail(_):
    raise FloatingPointError("the fourteenth task")


def test_a_failure_comes_to_the_caller_and_leaves_the_engine_usable(engine):
    graph = {}
    good = add(graph, NAMES.key("cg", 0), abs, -1)
    bad = add(graph, NAMES.key("cg", 1), fail, ref(good))
    after = add(graph, NAMES.key("cg", 2), abs, ref(bad))
    with pytest.raises(FloatingPointError, match="the fourteenth task"):
        engine.run(graph, [good, after])
    engine.drop([good, after])
    graph = {}
    key = add(graph, NAMES.key("psf", 0), abs, -5)
    engine.run(graph, [key])
    assert engine.fetch([key]) == [5]


def test_what_is_dropped_is_forgotten(engine):
    graph = {}
    keys = [add(graph, NAMES.key("grid", v), np.zeros, 10) for v in range(4)]
    engine.run(graph, keys)
    assert scheduler_tasks(engine, 4) == 4
    engine.drop(keys[1:] + [NAMES.key("mfs", 0)])
    assert scheduler_tasks(engine, 1) == 1
    engine.drop(keys)
    assert scheduler_tasks(engine, 0) == 0


def die(path):
    """End this process, once."""
    if not os.path.exists(path):
        Path(path).touch()
        os._exit(1)
    return 1.0


@pytest.fixture
def lost(tmp_path):
    """An engine on two workers of its own, one of which is about to end."""
    with started(2, 1) as cluster, joined(cluster, 4, tmp_path / "parking") as engine:
        (tmp_path / "parking").mkdir(exist_ok=True)
        yield engine


def test_a_lost_worker_changes_nothing(lost, tmp_path):
    """What it held is read from where it was parked, or made again; its successor takes its bands up."""
    problem = Problem(nband=4, masked=True)
    solver = problem.solver(lost.nworker)
    graph = {}
    data = problem.data(graph, solver)
    lost.run(graph, keys_of(data))
    models = lost.detach(list(data.before))
    data = replace(data, before=models)
    before = addresses(lost)
    graph = {}
    solver.start(graph, models, None)
    solver.iterations(graph, data, 0, 3)
    lost.submit(graph, solver.state(3))
    graph = {}
    key = add(graph, NAMES.key("cg", 3), die, str(tmp_path / "died"))
    lost.run(graph, [key])
    lost.client.wait_for_workers(2, timeout=30)
    graph = {}
    solver.iterations(graph, data, 3, 6)
    lost.run(graph, solver.state(6))
    assert_same(collect(lost, solver, data, 6), problem.eager(6))
    first, second = addresses(lost)
    assert first == before[0]
    assert second != before[1]
    graph = {}
    keys = [add(graph, NAMES.key("psf", v), np.zeros, 10) for v in range(4)]
    lost.run(graph, keys)
    assert homes(lost, keys) == [(first,), (first,), (second,), (second,)]


# Parking, in this process.


@pytest.fixture
def parked(monkeypatch):
    monkeypatch.setattr(module, "_PARKED", {})
    return module._PARKED


def test_a_parked_array_is_picked_up_without_a_copy_and_once(parked, tmp_path, rng):
    array, path = rng.standard_normal((3, 4)), str(tmp_path / "a.npy")
    assert park(array, path, 1) == path
    assert resume(path) is array
    assert not parked
    again = resume(path)  # as on another worker, or once more after a loss
    assert again is not array
    np.testing.assert_array_equal(again, array)
    assert [p.name for p in tmp_path.iterdir()] == ["a.npy"]


def test_what_nobody_picks_up_is_let_go(parked, tmp_path):
    for generation in range(1, 5):
        park(np.zeros(3), str(tmp_path / f"{generation}.npy"), generation)
    assert sorted(parked) == [str(tmp_path / f"{generation}.npy") for generation in (3, 4)]


# Opening.


def pool():
    return ducc0.misc.thread_pool_size()


def configured():
    return {name: dask.config.get(name) for name in CONFIG}


def test_a_started_worker_has_the_threads_that_it_should(tmp_path):
    """Its nanny starts it with OMP_NUM_THREADS=1, which leaves ducc0 one thread if nobody objects."""
    with open_engine(Resources(workers=1, threads_per_worker=4), 2, tmp_path, Silent()) as engine:
        assert (engine.nworker, engine.nthread) == (1, 4)
        found = engine.client.run(lambda: (os.environ["OMP_NUM_THREADS"], pool()))
        assert list(found.values()) == [("1", 4)]
        address = addresses(engine)[0]
        # No stealing, no spilling: the configuration reaches scheduler and workers.
        for settings in (engine.client.run(configured)[address], engine.client.run_on_scheduler(configured)):
            assert settings == CONFIG
            assert not settings["distributed.scheduler.work-stealing"]
            assert not settings["distributed.worker.memory.spill"]
        # From within a task too.
        graph = {}
        key = add(graph, NAMES.key("grid", 0), pool)
        engine.run(graph, [key])
        assert engine.fetch([key]) == [4]
        cluster = engine.client.cluster
    assert cluster.status.name == "closed"


def test_a_running_cluster_is_joined_by_its_address_and_left_running(two_workers, tmp_path):
    for seed in range(2):
        with open_engine(Resources(scheduler=two_workers.scheduler_address), 4, tmp_path, Silent()) as engine:
            assert (engine.nworker, engine.nthread) == (2, 2)
            graph = {}
            key = add(graph, NAMES.within(seed).key("grid", 3), np.full, 3, 7.0)
            engine.run(graph, [key])
            np.testing.assert_array_equal(engine.fetch([key]), [[7.0] * 3])
            assert homes(engine, [key]) == [(addresses(engine)[1],)]
            assert set(engine.client.run(pool).values()) == {1}
    assert len(two_workers.scheduler_info["workers"]) == 2


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:9", "127.0.0.1:9", "nonsense://x:1", "no-such-host.invalid:8786", "words"])
def test_a_wrong_address_is_refused_soon(address, tmp_path):
    began = time.monotonic()
    with (
        pytest.raises(InputError, match=r"there is no dask scheduler at .* start one with 'dask scheduler'"),
        open_engine(Resources(scheduler=address), 4, tmp_path, Silent()),
    ):
        pass
    assert time.monotonic() - began < 5
