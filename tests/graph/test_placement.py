"""Placement: on the worker of a band, for every key there is, and without ever raising."""

from __future__ import annotations

import pickle
from collections import Counter

import pytest

from pfb.graph.names import STAGES, Names, stage_of, token
from pfb.graph.placement import ON_WORKER, Placement, settle, spread

NAMES = Names(token("run"))
WORKERS = tuple(f"tcp://10.0.0.{i}:4000" for i in range(5))


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("nworker", [1, 2, 5])
@pytest.mark.parametrize("nblock", [1, 2, 8])
def test_every_key_has_one_worker(stage, nworker, nblock):
    place = Placement(WORKERS[:nworker], spread(nblock, nworker))
    for index in [(0,), (nblock - 1,), (3, nblock - 1), (0, 1, 0), (nblock + 5,), (10**9,)]:
        assert place(NAMES.key(stage, *index)) in [[worker] for worker in place.workers]
        assert len(place(NAMES.key(stage, *index, iteration=4))) == 1


@pytest.mark.parametrize("nworker", [1, 2, 3, 5])
@pytest.mark.parametrize("nblock", [1, 2, 5, 8, 13])
def test_bands_are_spread_evenly_in_runs(nworker, nblock):
    place = Placement(WORKERS[:nworker], spread(nblock, nworker))
    owners = [place.workers.index(place(NAMES.key("grid", v))[0]) for v in range(nblock)]
    assert owners == sorted(owners)
    shares = [Counter(owners)[i] for i in range(nworker)]
    assert max(shares) - min(shares) <= 1  # also with more workers than bands


def test_all_stages_of_a_band_are_on_its_worker():
    place = Placement(WORKERS, spread(8, 5))
    for v in range(8):
        home = place(NAMES.key("grid", v))
        for stage in set(STAGES) - set(ON_WORKER):
            assert place(NAMES.key(stage, v)) == place(NAMES.key(stage, 2, v, iteration=7)) == home
        assert place(NAMES.within("cycle", 3).key("residual", v)) == home


def test_sums_over_frequency_go_to_the_worker_they_name():
    place = Placement(WORKERS, spread(2, 5))
    for slot in range(5):
        assert place(NAMES.key("l21-norm", 1, 0, slot, iteration=2)) == [WORKERS[slot]]


@pytest.mark.parametrize(
    "key",
    ["text", ("text",), ("text", 1), ("", 1), (), 3, None, ("psi-dot", 1.5), ("a", "b"), (1, 2), ("x-y", None), (("n",), 1)],
)
def test_foreign_keys_raise_nothing(key):
    """An exception on the scheduler would fail the whole graph."""
    for place in (Placement(WORKERS, spread(4, 5)), Placement((), (0, 0)), Placement(WORKERS, ())):
        assert place(key) == [] or place(key)[0] in WORKERS


def test_keys_without_a_band_run_anywhere():
    place = Placement(WORKERS, spread(4, 5))
    assert place(NAMES.key("statistics")) == []
    assert place(NAMES.key("converged", iteration=3)) == []


def test_a_worker_that_is_gone_binds_nothing():
    place = Placement(("", WORKERS[1]), (0, 1))
    assert place(NAMES.key("grid", 0)) == []
    assert place(NAMES.key("grid", 1)) == [WORKERS[1]]


def test_it_travels_to_the_scheduler():
    place = Placement(WORKERS, spread(8, 5))
    assert pickle.loads(pickle.dumps(place)) == place
    assert stage_of(NAMES.key("l21-norm", 0, 0, 0, iteration=1)) in ON_WORKER


@pytest.mark.parametrize("nblock", [1, 2, 7, 8])
@pytest.mark.parametrize("after", ["abc", "a", "abcde", "bc", "xyz", "bcx"])
def test_only_blocks_that_must_move_do(nblock, after):
    before = [tuple("abc")[i] for i in spread(nblock, 3)]
    found = settle(before, list(after))
    count = Counter(found)
    loads = [count[worker] for worker in after]
    assert sum(loads) == nblock
    assert max(loads) - min(loads) <= 1
    # As many stay as any even division allows.
    share, extra = divmod(nblock, len(after))
    had = sorted((Counter(before)[worker] for worker in after), reverse=True)
    most = sum(min(n, share + (i < extra)) for i, n in enumerate(had))
    assert sum(old == new for old, new in zip(before, found, strict=True)) == most


def test_nothing_moves_when_nothing_changes():
    before = [tuple("abc")[i] for i in spread(8, 3)]
    assert settle(before, list("abc")) == before
    assert settle([0, 0, 1, 2], [0, 1, 2]) == [0, 0, 1, 2]  # as a LocalCluster names its workers
