"""Coarse graphs: the same calls in fewer tasks."""

from __future__ import annotations

import gc
import operator
import pickle
import weakref

import numpy as np
import pytest

from pfb.graph.coarsening import Cut, Part, Together, coarsen, unpacked
from pfb.graph.engine import ThreadEngine
from pfb.graph.names import Names, iteration_of, stage_of, token
from pfb.graph.tasks import add, dependencies, ref, refs

NAMES = Names(token("coarse"))


@pytest.fixture
def engine():
    engine = ThreadEngine(2)
    yield engine
    engine.close()


def ladder(graph, n=6):
    """Two rows of sums, each of which needs the one before of both rows; the first ones need two keys from outside."""
    rows = [[("a", v) for v in range(2)]]
    for i in range(n):
        rows.append([add(graph, NAMES.key("grad", i, v), operator.add, ref(rows[-1][v]), ref(rows[-1][1 - v])) for v in range(2)])
    return rows


@pytest.mark.parametrize("size", [1, 2, 3, 6])
@pytest.mark.parametrize("apart", [False, True], ids=["one home", "two homes"])
def test_results_are_those_of_the_fine_graph(size, apart, engine):
    """Parts of `size` rungs; of both rows, or of one each, which need each other then only where parts end."""
    graph = {}
    rows = ladder(graph)
    single = size == 1 and apart  # with longer parts the rows would need each other mutually

    def part_of(key):
        return (key[1] // size, key[2] if single else 0)

    def make(part):
        return Part(NAMES.key("iterate", *part), part[1])

    keep = {*rows[6], rows[3][0]}
    coarse, held = coarsen(graph, Cut(part_of, make, lambda key, n: NAMES.key("pick", n, key[-1])), keep)
    unpacked(coarse, held, keep)
    assert dependencies(coarse) == {("a", 0), ("a", 1)}
    assert set(rows[6]) <= set(coarse)
    assert rows[3][0] in coarse
    assert rows[3][1] not in coarse
    start = {}
    for v, key in enumerate(rows[0]):
        add(start, key, float, v + 1)
    engine.run(start, rows[0])
    engine.run(graph, rows[6])
    expected = engine.fetch(rows[6])
    engine.run(coarse, [*rows[6], rows[3][0]])
    assert engine.fetch(rows[6]) == expected == [96.0, 96.0]
    assert engine.fetch([rows[3][0]]) == [12.0]


def test_only_what_is_needed_travels():
    graph = {}
    made = [add(graph, NAMES.key("cg", i, 0), float, i) for i in range(4)]
    add(graph, NAMES.key("mfs", 0, 1), sum, refs(made[1:3]))
    add(graph, NAMES.key("mfs", 1, 1), sum, refs(made))
    add(graph, NAMES.key("mfs", 2, 0), sum, refs(made[:2]))

    def picked(*kept):
        """Names of the tasks that pick, when these results are wanted."""
        inner = {key: task for key, task in graph.items() if key in (*made, *kept)}
        cut = Cut(
            lambda key: (stage_of(key), key[1] * (stage_of(key) == "mfs"), key[-1]),
            lambda part: Part(NAMES.key("iterate", len(part[0]), *part[1:]), part[-1]),
            lambda key, n: NAMES.key("pick", n, key[-1]),
        )
        coarse, _ = coarsen(inner, cut, kept)
        return [key for key in coarse if stage_of(key) == "pick"]

    some, all_, here = NAMES.key("mfs", 0, 1), NAMES.key("mfs", 1, 1), NAMES.key("mfs", 2, 0)
    assert picked(some) == [], "nobody else needs anything, so that is all that there is"
    assert picked(all_) == []
    assert picked(here) == []
    assert picked(all_, here) == [], "the neighbour takes what it needs from all"
    assert len(picked(some, here)) == len(picked(some, all_)) == 1


@pytest.mark.parametrize("between", [1, 2, 3])
def test_graphs_hand_bundles_on(between, engine):
    """Three of them; a result that the second one does not make but reads is handed on by what reads it."""
    graph = {}
    rows = ladder(graph)
    cut = Cut(lambda key: key[1], lambda part: Part(NAMES.key("iterate", part, 0), 0), lambda key, n: key)
    start = {}
    for v, key in enumerate(rows[0]):
        add(start, key, float, v + 1)
    engine.run(start, rows[0])
    engine.run(graph, rows[6] + rows[between])
    expected, first = engine.fetch(rows[6]), engine.fetch(rows[between])
    engine.drop(rows[6] + rows[between])
    held = {}
    for low, high in ((0, between), (between, 4), (4, 6)):
        part = {key: task for key, task in graph.items() if low <= key[1] < high}
        keep = {*rows[high], *(rows[between] if high == 4 else [])}
        coarse, new = coarsen(part, cut, keep, held)
        assert dependencies(coarse) <= (set(held) or set(rows[0]))
        assert not set(coarse) & set(graph), "nothing has a key of its own"
        engine.run(coarse, list(new))
        held = new
        if high == 4:
            again = {}
            unpacked(again, held, rows[between])
            engine.run(again, rows[between])
            assert engine.fetch(rows[between]) == first
    last = {}
    unpacked(last, held, rows[6])
    assert set(last) == set(rows[6])
    engine.run(last, rows[6])
    assert engine.fetch(rows[6]) == expected


def test_a_bundle_holds_little_else():
    """Of two results that are kept the earlier one is handed on by the part that makes the later one, if that reads it."""
    graph = {}
    first = add(graph, NAMES.key("cg", 0), float, 1)
    add(graph, NAMES.key("cg", 1), abs, ref(first))
    second = add(graph, NAMES.key("mfs", 0), operator.add, ref(first), ref(NAMES.key("cg", 1)))

    def bundles(homes):
        cut = Cut(lambda key: stage_of(key), lambda part: Part(NAMES.key("iterate", len(part)), homes[part]), lambda key, n: key)
        return list(coarsen(graph, cut, {first, second})[1].values())

    assert bundles(dict(cg=0, mfs=0)) == [[first, second]]
    assert bundles(dict(cg=0, mfs=1)) == [[first, NAMES.key("cg", 1)], [second]], "it would lie elsewhere"


class Heavy:
    """Something whose end can be seen."""


HEAVY = []


def make_heavy():
    made = Heavy()
    HEAVY.append(weakref.ref(made))
    return made


def alive(*_):
    gc.collect()
    return sum(reference() is not None for reference in HEAVY)


def test_results_are_let_go_after_their_last_use():
    HEAVY.clear()
    graph = {}
    key = add(graph, NAMES.key("cg", 0), make_heavy)
    for i in range(1, 4):
        key = add(graph, NAMES.key("cg", i), replace_heavy, ref(key))
    counted = add(graph, NAMES.key("mfs"), alive, ref(key))
    assert Together(graph, [counted], [])() == [1]


def replace_heavy(_):
    return make_heavy()


def test_it_travels():
    graph = {}
    key = add(graph, NAMES.key("cg", 0), np.add, ref(("a", 0)), 2.0)
    function = pickle.loads(pickle.dumps(Together(graph, [key], [(("a", 0),)])))
    assert function(3.0) == [5.0]


def test_the_iteration_of_a_key():
    assert iteration_of(NAMES.key("dual-change", 1, 2, iteration=12)) == 12
    for key in (NAMES.key("dual", 1), ("it3",), ("a-itx-b", 0)):
        with pytest.raises(KeyError, match="does not belong to an iteration"):
            iteration_of(key)
