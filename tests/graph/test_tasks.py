"""The vocabulary of raw graphs: that dask runs it, sees its dependencies and pickles it small."""

from __future__ import annotations

import operator
import pickle

import dask
import numpy as np
import pytest

from pfb.graph.tasks import Graph, add, dependencies, ref, refs, value


def total(parts, offset=0):
    assert isinstance(parts, list)
    return sum(parts) + offset


def small():
    graph: Graph = {}
    a = value(graph, ("a", 0), 3)
    b = add(graph, ("b", 0), operator.mul, ref(a), 5)
    add(graph, ("c", 0), total, refs([a, b, ("outside", 1)]), 100)
    return graph


def test_dask_runs_it():
    graph = small()
    value(graph, ("outside", 1), 1000)
    assert dask.get(graph, [("c", 0), ("b", 0)]) == (1118, 15)
    assert dask.threaded.get(graph, ("c", 0)) == 1118


def test_dependencies_are_what_is_not_inside():
    graph = small()
    assert dependencies(graph) == {("outside", 1)}
    value(graph, ("outside", 1), 1)
    assert dependencies(graph) == set()
    assert dependencies({}) == set()


def test_add_returns_the_key():
    graph: Graph = {}
    assert add(graph, ("x", 1), abs, -1) == ("x", 1)
    assert value(graph, ("y", 2), None) == ("y", 2)
    assert set(graph) == {("x", 1), ("y", 2)}


@pytest.mark.parametrize("argument", [None, (1, 2), ((0, 1), 2), (("b", 0), 3), "b", {"b": 0}, slice(3), [1, 2]], ids=str)
def test_plain_arguments_arrive_as_they_are(argument):
    """Tuples and strings are not taken for keys."""
    graph: Graph = {}
    value(graph, ("b", 0), "wrong")
    add(graph, ("x", 0), pair, argument, ref(("b", 0)))
    assert dask.get(graph, ("x", 0)) == (argument, "wrong")


def pair(a, b):
    return a, b


@pytest.mark.parametrize("data", [None, 0, (1, 2), ("b", 0), [("b", 0)], "b"], ids=str)
def test_a_value_arrives_as_it_is(data):
    graph: Graph = {}
    value(graph, ("b", 0), "wrong")
    value(graph, ("v", 0), data)
    add(graph, ("x", 0), pair, ref(("v", 0)), ref(("b", 0)))
    assert dask.get(graph, ("x", 0)) == (data, "wrong")


def test_an_empty_list_of_references_is_an_empty_list():
    graph: Graph = {}
    add(graph, ("x", 0), total, refs([]), 7)
    assert dask.get(graph, ("x", 0)) == 7


def test_references_survive_pickling():
    graph = pickle.loads(pickle.dumps(small()))
    value(graph, ("outside", 1), 1)
    assert dask.get(graph, ("c", 0)) == 119


def test_nothing_runs_while_a_graph_is_built():
    def fail(*_):
        raise AssertionError("it ran")

    graph: Graph = {}
    add(graph, ("x", 0), fail, np.zeros(3))
    assert dependencies(graph) == set()
