"""Key names: what the dashboard shows, what identifies a run."""

from __future__ import annotations

import pickle

import pytest
from dask.utils import key_split

from pfb.graph.names import STAGES, Names, stage_of, token


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("iteration", [None, 0, 7, 99_999, 100_000])
def test_dask_sees_the_words_of_the_stage(stage, iteration):
    """Its colours, progress bars and durations go by this prefix, so a stage must not be cut or lengthened."""
    for seed in range(5):
        key = Names(token(seed)).key(stage, 3, 1, iteration=iteration)
        assert key_split(key) == stage == stage_of(key)


def test_a_key_is_a_name_and_an_index():
    key = Names("0123456789abcdef" * 2).key("psi-dot", 2, 5, iteration=12)
    assert key == ("psi-dot-it00012-0123456789abcdef0123456789abcdef", 2, 5)
    assert Names("0" * 32).key("statistics") == ("statistics-" + "0" * 32,)


def test_a_group_is_a_stage_of_an_iteration():
    """Blocks share a name, iterations do not: else the groups of the scheduler would depend on each other in a circle."""
    names = Names(token("run"))
    group = {names.key("dual", b, v, iteration=3)[0] for b in range(3) for v in range(4)}
    assert len(group) == 1
    assert group.isdisjoint({names.key("dual", 0, 0, iteration=4)[0], names.key("dual", 0, 0)[0]})


def test_stages_are_different():
    assert len(set(STAGES)) == len(STAGES)


def test_an_unknown_stage_is_refused():
    with pytest.raises(KeyError, match="'solve' is not in STAGES"):
        Names(token()).key("solve", 1)


@pytest.mark.parametrize("key", [("psi", 1), ("", 0), ("a-b-c", 2), ("sum-1234", 0), ("it00003-abc", 0), "text", (3, 4)])
def test_the_stage_of_a_foreign_key_is_no_error(key):
    assert stage_of(key) not in STAGES


def test_tokens_are_hexadecimal_and_repeat():
    first = token("a.ms", 3, 1e-7, None)
    assert first == token("a.ms", 3, 1e-7, None)
    assert len(first) == 32
    assert set(first) <= set("0123456789abcdef")


def test_tokens_of_other_parts_differ():
    parts = [(), ("a",), ("b",), ("a", "b"), ("ab",), ("a|b",), ("a", ""), ("1",), (1,), (1.5,), (None,), (("a", "b"),)]
    assert len({token(*p) for p in parts}) == len(parts)


def test_parts_of_a_run_have_names_of_their_own():
    names = Names(token("run"))
    parts = [names, names.within("cycle", 0), names.within("cycle", 1), names.within("cycle", 1).within("cycle", 0)]
    assert len({part.key("grid", 0) for part in parts}) == 4
    assert names.within("cycle", 1) == Names(token("run")).within("cycle", 1)
    assert Names(token("other")).within("cycle", 1) != names.within("cycle", 1)


def test_names_travel():
    names = Names(token("run"))
    assert pickle.loads(pickle.dumps(names)) == names
