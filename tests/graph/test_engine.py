"""The engine of threads: what stays resident, what is told, what goes wrong."""

from __future__ import annotations

import operator
import threading
import weakref

import numpy as np
import pytest

from pfb.graph.engine import ThreadEngine
from pfb.graph.tasks import add, ref, refs, value


@pytest.fixture
def engine():
    engine = ThreadEngine(2)
    yield engine
    engine.close()


def chain(n=4):
    """Keys ("k", 0) ... where each is one more than the one before."""
    graph = {}
    value(graph, ("k", 0), 0)
    for i in range(1, n):
        add(graph, ("k", i), operator.add, ref(("k", i - 1)), 1)
    return graph


def test_it_says_what_it_has(engine):
    assert engine.nworker == 1
    assert engine.nthread == 2


def test_kept_results_stay_and_others_do_not(engine):
    engine.run(chain(), [("k", 3), ("k", 1)])
    assert engine.fetch([("k", 1), ("k", 3)]) == [1, 3]
    with pytest.raises(KeyError):
        engine.fetch([("k", 2)])


def test_a_later_graph_refers_to_what_is_resident(engine):
    engine.run(chain(), [("k", 3)])
    later = {}
    add(later, ("sum", 0), operator.add, ref(("k", 3)), 10)
    add(later, ("list", 0), sum, refs([("k", 3), ("sum", 0)]))
    before = dict(later)
    engine.submit(later, [("list", 0), ("sum", 0)])
    assert engine.fetch([("sum", 0), ("list", 0)]) == [13, 16]
    assert later == before


def test_a_resident_key_may_be_kept_again(engine):
    engine.run(chain(), [("k", 3)])
    later = {}
    add(later, ("sum", 0), operator.add, ref(("k", 3)), 10)
    engine.run(later, [("sum", 0), ("k", 3)])
    assert engine.fetch([("k", 3)]) == [3]


def test_what_is_dropped_is_gone(engine):
    engine.run(chain(), [("k", 2), ("k", 3)])
    engine.drop([("k", 3), ("never", 0)])
    assert engine.fetch([("k", 2)]) == [2]
    with pytest.raises(KeyError):
        engine.fetch([("k", 3)])
    later = {}
    add(later, ("x", 0), abs, ref(("k", 3)))
    with pytest.raises(KeyError):
        engine.run(later, [("x", 0)])


def test_what_is_released_is_gone_once_the_graph_has_it(engine):
    engine.run(chain(), [("k", 1), ("k", 2), ("k", 3)])
    later = {}
    add(later, ("sum", 0), operator.add, ref(("k", 3)), ref(("k", 2)))
    engine.submit(later, [("sum", 0)], [("k", 3), ("k", 1), ("never", 0)])
    assert engine.fetch([("sum", 0), ("k", 2)]) == [5, 2]
    for key in (("k", 3), ("k", 1)):  # read by the graph or not
        with pytest.raises(KeyError):
            engine.fetch([key])


class Big:
    """Something whose end can be watched."""


@pytest.mark.parametrize("released", [True, False])
def test_memory_of_what_is_released_is_free_before_the_graph_has_ended(engine, released):
    alive = weakref.WeakSet()

    def make():
        big = Big()
        alive.add(big)
        return big

    first, graph = {}, {}
    add(first, ("big", 0), make)
    engine.run(first, [("big", 0)])
    add(graph, ("id", 0), id, ref(("big", 0)))
    for i in range(5):
        add(graph, ("id", i + 1), abs, ref(("id", i)))
    add(graph, ("count", 0), lambda _: len(alive), ref(("id", 5)))
    engine.submit(graph, [("count", 0)], [("big", 0)] if released else [])
    assert engine.fetch([("count", 0)]) == [0 if released else 1]


def test_memory_of_what_is_dropped_or_not_kept_is_free(engine):
    alive = weakref.WeakSet()

    def make():
        big = Big()
        alive.add(big)
        return big

    graph = {}
    add(graph, ("big", 0), make)
    add(graph, ("big", 1), make)
    add(graph, ("id", 0), id, ref(("big", 0)))
    engine.run(graph, [("id", 0), ("big", 1)])
    assert len(alive) == 1
    engine.drop([("big", 1)])
    assert not alive


def test_progress_counts_the_kept_results(engine):
    told = []
    engine.run(chain(6), [("k", 5), ("k", 2), ("k", 4)], told.append)
    assert sum(told) == 3


def test_progress_comes_while_the_work_goes_on(engine):
    """The last task waits until somebody has been told of the first."""
    heard = threading.Event()
    graph = {}
    add(graph, ("first", 0), abs, -1)
    add(graph, ("last", 0), lambda _: heard.wait(10), ref(("first", 0)))
    engine.run(graph, [("first", 0), ("last", 0)], lambda done: heard.set())
    assert engine.fetch([("last", 0)]) == [True]


def test_tasks_run_at_the_same_time(engine):
    """Each waits for the other."""
    barrier = threading.Barrier(2, timeout=10)
    graph = {}
    for i in range(2):
        add(graph, ("wait", i), barrier.wait)
    engine.run(graph, list(graph))
    assert sorted(engine.fetch(list(graph))) == [0, 1]


def test_a_failure_comes_to_the_caller_and_leaves_the_engine_usable(engine):
    def fail(_):
        raise FloatingPointError("the fourteenth task")

    graph = chain()
    add(graph, ("bad", 0), fail, ref(("k", 3)))
    with pytest.raises(FloatingPointError, match="the fourteenth task"):
        engine.run(graph, [("k", 1), ("bad", 0)])
    with pytest.raises(KeyError):
        engine.fetch([("bad", 0)])
    engine.run(chain(), [("k", 3)])
    assert engine.fetch([("k", 3)]) == [3]


def test_arrays_are_not_copied(engine):
    array = np.arange(3)
    graph = {}
    add(graph, ("a", 0), lambda: array)
    engine.run(graph, [("a", 0)])
    assert engine.fetch([("a", 0)])[0] is array


def test_results_have_no_ties_to_cut(engine):
    engine.run(chain(), [("k", 1), ("k", 3)])
    assert engine.detach([("k", 3), ("k", 1)]) == [("k", 3), ("k", 1)]
    assert engine.fetch([("k", 3)]) == [3]


def test_closed_it_holds_nothing():
    engine = ThreadEngine(1)
    engine.run(chain(), [("k", 3)])
    engine.close()
    with pytest.raises(KeyError):
        engine.fetch([("k", 3)])
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("pfb")]
