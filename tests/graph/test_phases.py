"""What every stage took: the counts are those of the graphs, the bytes those that workers received."""

from __future__ import annotations

import operator
import time
import weakref
from collections import Counter
from contextlib import nullcontext

import numpy as np
import pytest
from dask.utils import key_split
from distributed import Client, LocalCluster

from pfb.graph.cluster import ClusterEngine
from pfb.graph.engine import ThreadEngine
from pfb.graph.names import STAGES, Names, token
from pfb.graph.phases import ClusterPhases, ThreadPhases
from pfb.graph.tasks import add, ref, refs
from tests.graph.problems import Problem, keys_of

NAMES = Names(token("phases"))
NAP = 0.05


def nap(*_):
    time.sleep(NAP)


def spin(*_):
    """Compute for a while."""
    end = time.thread_time() + NAP
    while time.thread_time() < end:
        pass


def sized(n):
    return np.ones(n)


@pytest.fixture
def threads():
    engine = ThreadEngine(2)
    phases = ThreadPhases(engine.monitor)
    phases.register()
    yield engine, phases
    phases.unregister()
    engine.close()


@pytest.fixture(scope="module")
def cluster():
    settings = dict(
        processes=False, memory_limit=0, host="127.0.0.1", protocol="tcp",
        dashboard_address="127.0.0.1:0", scheduler_kwargs={"dashboard": False},
    )  # fmt: skip
    with LocalCluster(n_workers=2, threads_per_worker=1, **settings) as made:
        yield made


@pytest.fixture
def workers(cluster, tmp_path):
    with Client(cluster, set_as_default=False) as client:
        engine = ClusterEngine(client, 4, str(tmp_path))
        phases = ClusterPhases(client, engine.monitor)
        yield engine, phases
        engine.close()


def iterate(engine, iterations=3):
    """Run some iterations of a real problem as two cycles; returns the tasks of each cycle and stage."""
    problem = Problem(nband=4, tol=0.0)
    expected = Counter()

    def submit(graph, keep):
        expected.update((engine.monitor.cycle, key_split(key)) for key in graph)
        engine.run(graph, keep)

    for cycle in range(2):
        solver = problem.solver(engine.nworker, cycle=cycle)
        engine.monitor.begin(cycle)
        graph = {}
        data = problem.data(graph, solver)
        submit(graph, keys_of(data))
        with engine.monitor.stage("primal-dual"):
            graph = {}
            solver.start(graph, list(data.before), None)
            solver.iterations(graph, data, 0, iterations)
            submit(graph, solver.state(iterations))
        engine.drop(keys_of(data) + solver.state(iterations))
    engine.monitor.begin(None)
    return expected


def wait_for(condition):
    end = time.monotonic() + 10
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    assert condition()


def counted(phases):
    return {(p.cycle, p.stage): p.tasks for p in phases}


def test_on_threads_the_tasks_are_those_of_the_graphs(threads):
    engine, phases = threads
    expected = iterate(engine)
    for cycle in range(2):  # the first gate is a value, no task
        expected[cycle, "converged"] -= 1
    assert counted(phases.phases()) == dict(expected)
    assert {stage for _, stage in expected} <= set(STAGES)


def test_on_a_cluster_the_tasks_are_those_of_the_graphs(cluster, workers):
    engine, phases = workers
    expected = iterate(engine)
    wait_for(lambda: not cluster.scheduler.tasks)  # what was forgotten counts too
    found = phases.collect()
    assert counted(found) == dict(expected)
    assert {stage for _, stage in expected} <= set(STAGES)
    assert all(p.compute >= 0 and p.other >= 0 for p in found)


def napping(engine):
    """Run tasks that sleep and tasks that compute, four of each in a cycle and outside of it, half of them in a stage."""
    for cycle in (None, 5):
        engine.monitor.begin(cycle)
        for part in range(2):
            graph, names = {}, NAMES.within(cycle, part, engine.monitor.marks[0].time)
            for v in (0, 3):
                add(graph, names.key("cg", v), nap, v)
                add(graph, names.key("grad", v), spin, v)
            with engine.monitor.stage("update") if part else nullcontext():
                engine.run(graph, list(graph))


@pytest.mark.parametrize("kind", ["threads", "workers"])
def test_seconds_are_those_of_the_tasks(kind, request):
    engine, phases = request.getfixturevalue(kind)
    began = time.perf_counter()
    napping(engine)
    wall = time.perf_counter() - began
    found = phases.phases() if kind == "threads" else phases.collect()
    assert sorted(((p.cycle, p.stage, p.tasks) for p in found), key=str) == [(c, s, 4) for c in (5, None) for s in ("cg", "grad")]
    for phase in found:
        assert 4 * NAP <= phase.compute
        assert (phase.transfer, phase.transferred) == (0.0, 0)
        if kind == "threads":
            assert phase.cpu is None
        elif phase.stage == "cg":
            assert phase.cpu < 0.5 * NAP
        else:
            assert 4 * NAP <= phase.cpu <= phase.compute
    # However busy the machine is: two threads cannot be in tasks for longer.
    assert sum(phase.compute for phase in found) <= 2 * wall


def busy(cluster):
    """Seconds that the threads of the workers have been in tasks, as each worker counts them itself."""
    return sum(
        value
        for worker in cluster.workers.values()
        for key, value in worker.digests_total.items()
        if key[0] == "execute" and key[-2] in ("thread-cpu", "thread-noncpu")
    )


def test_compute_seconds_are_the_busy_time_of_the_workers(cluster, workers):
    engine, phases = workers
    before = busy(cluster)
    iterate(engine)
    napping(engine)
    found = phases.collect()
    # Each of some hundred tasks is timed twice, a few lines of code apart.
    assert sum(p.compute for p in found) == pytest.approx(busy(cluster) - before, rel=0.05)


def received(engine):
    return sum(engine.client.run(lambda dask_worker: sum(t["total"] for t in dask_worker.transfer_incoming_log)).values())


def test_bytes_are_those_that_workers_received(workers):
    """An array that two tasks of a worker need is sent once; and where it is it need not be sent."""
    engine, phases = workers
    before = received(engine)
    graph = {}
    made = [add(graph, NAMES.within("sent").key("psi-dot", v), sized, 1000 * (v + 1)) for v in range(4)]
    engine.monitor.begin(2)
    engine.run(graph, made)
    graph = {}
    names = NAMES.within("sent")
    sums = [add(graph, names.key("l21-norm", i, v), operator.length_hint, refs(made)) for i in range(2) for v in (0, 1)]
    own = add(graph, names.key("dual", 0), np.sum, ref(made[0]))
    engine.run(graph, [*sums, own])
    travelled = received(engine) - before
    found = {p.stage: p for p in phases.collect()}
    assert found["l21-norm"].transferred == travelled
    # Both workers need what the other has: 10 000 numbers in all, and some bytes for each array.
    assert 80_000 <= travelled < 81_000
    assert found["l21-norm"].transfer > 0
    assert found["psi-dot"].transferred == found["dual"].transferred == 0


def test_nothing_is_left_on_the_scheduler(cluster, workers):
    engine, phases = workers
    names = set(cluster.scheduler.plugins)
    phases.collect()
    assert {name for name in names if name.startswith("pfb-transfers")}
    assert not [name for name in cluster.scheduler.plugins if name == f"pfb-transfers-{engine.monitor.run}"]


def test_runs_are_kept_apart(cluster, workers, tmp_path):
    _, phases = workers
    with Client(cluster, set_as_default=False) as client:
        other = ClusterEngine(client, 4, str(tmp_path))
        graph = {}
        key = add(graph, NAMES.within("other").key("psf", 0), abs, -1)
        other.run(graph, [key])
        other.close()
    assert phases.collect() == []


def test_nobody_holds_on_to_arrays(threads):
    """dask's profilers keep every task, and with it every array that is handed to one."""
    engine, phases = threads
    graph = {}
    key = add(graph, NAMES.key("psf", 0), sized, 100)
    engine.run(graph, [key])
    alive = weakref.ref(engine.fetch([key])[0])
    later = {}
    total = add(later, NAMES.key("mfs", 0), np.sum, ref(key))
    engine.submit(later, [total], release=[key])
    assert engine.fetch([total]) == [100]
    assert alive() is None
    assert counted(phases.phases()) == {(None, "psf"): 1, (None, "mfs"): 1}


def fail():
    raise FloatingPointError("no")


def test_a_task_that_fails_is_no_task_done(threads):
    engine, phases = threads
    graph = {}
    good = add(graph, NAMES.key("cg", 0), abs, 1)
    bad = add(graph, NAMES.key("cg", 1), fail)
    with pytest.raises(FloatingPointError):
        engine.run(graph, [good, bad])
    assert counted(phases.phases()).get((None, "cg"), 0) <= 1
