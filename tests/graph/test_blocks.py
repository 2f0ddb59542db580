"""Blocks, and the tree that sums over bands are taken along."""

from __future__ import annotations

import dask
import numpy as np
import pytest

from pfb.errors import InputError
from pfb.graph.blocks import Blocks, add_nested, add_pairs, bands_of_a_block, branches, laid_out, ranges, reduce_bands, relaid
from pfb.graph.names import Names, token
from pfb.graph.tasks import add, value
from pfb.kernels.prox import l21_statistic, split

NLEAVES = [1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 33]


@pytest.mark.parametrize(
    ("n", "chunk", "expected"),
    [(5, 2, ((0, 2), (2, 4), (4, 5))), (4, 4, ((0, 4),)), (3, 8, ((0, 3),)), (1, 1, ((0, 1),)), (0, 2, ())],
)
def test_ranges(n, chunk, expected):
    assert ranges(n, chunk) == expected


def test_blocks_cut_every_axis():
    blocks = Blocks(5, 3, 100, band_chunk=2, basis_chunk=2, tile=30)
    assert blocks.bands == ((0, 2), (2, 4), (4, 5))
    assert blocks.bases == ((0, 2), (2, 3))
    assert blocks.tiles == ((0, 30), (30, 60), (60, 90), (90, 100))


def test_by_default_a_block_is_a_band_and_a_basis():
    blocks = Blocks(3, 2, 100)
    assert blocks.bands == ((0, 1), (1, 2), (2, 3))
    assert blocks.bases == ((0, 1), (1, 2))
    assert blocks.tiles == ((0, 100),)


@pytest.mark.parametrize("chunk", [1, 2, 4, 5, 6, 8, 100])
def test_chunks_of_powers_of_two_or_of_everything_are_possible(chunk):
    Blocks(5, 5, 10, band_chunk=chunk, basis_chunk=chunk)


@pytest.mark.parametrize(
    ("chunks", "message"),
    [
        (dict(band_chunk=3), "a block has 3 bands but must have a power of two or all 8"),
        (dict(band_chunk=0), "a block has 0 bands"),
        (dict(band_chunk=-1), "a block has -1 bands"),
        (dict(basis_chunk=5), "a block has 5 bases but must have a power of two or all 7"),
        (dict(basis_chunk=0), "a block has 0 bases"),
        (dict(tile=-1), "a tile has -1 coefficients"),
    ],
)
def test_other_chunks_are_refused(chunks, message):
    with pytest.raises(InputError, match=message):
        Blocks(8, 7, 100, **chunks)


@pytest.mark.parametrize(
    ("nbasis", "nworker", "nthread", "together"),
    [(4, 1, 1, True), (4, 1, 2, True), (4, 1, 4, True), (9, 1, 4, False), (7, 1, 4, True),
     (4, 1, 8, False), (5, 1, 4, False), (3, 1, 2, False),
     (1, 1, 2, False), (4, 2, 2, False), (9, 3, 3, False)],
)  # fmt: skip
def test_bands_are_together_on_one_worker_whose_threads_have_bases_enough(nbasis, nworker, nthread, together):
    assert bands_of_a_block(6, nbasis, nworker, nthread) == (6 if together else 1)
    assert bands_of_a_block(1, nbasis, nworker, nthread) == 1


def owners(nleaf):
    """Every kind of owner: one, two and more in runs, all different, and runs that no tree would make."""
    yield from (lambda i, n=n: i * n // nleaf for n in range(1, nleaf + 3))
    yield lambda i: i % 2
    yield lambda i: i // 3


def leaves_of(nest):
    return [nest] if isinstance(nest, int) else leaves_of(nest[0]) + leaves_of(nest[1])


@pytest.mark.parametrize("nleaf", NLEAVES)
def test_branches_cover_the_leaves_once_and_have_one_owner(nleaf):
    for owner in owners(nleaf):
        parts, nest = branches(nleaf, owner)
        assert [i for first, last in parts for i in range(first, last)] == list(range(nleaf))
        assert all(len({owner(i) for i in range(*part)}) == 1 for part in parts)
        assert leaves_of(nest) == list(range(len(parts)))


def test_a_single_owner_has_a_single_branch():
    assert branches(13, lambda i: 0) == ([(0, 13)], 0)


def rounded(rng, n):
    """Terms whose sum depends on the order in its last bits."""
    terms = list(rng.standard_normal((n, 50)) * 10.0 ** rng.integers(-3, 4, (n, 1)))
    assert n < 3 or any(sum(terms) != sum(terms[::-1]))
    return terms


def tree(terms):
    """The definition of the fixed tree: the first 2**k of n terms, the rest, and the sum of both."""
    if len(terms) == 1:
        return terms[0]
    k = max(k for k in range(10) if 2**k < len(terms))
    return tree(terms[: 2**k]) + tree(terms[2**k :])


@pytest.mark.parametrize("nleaf", NLEAVES)
def test_sums_along_branches_are_those_of_the_tree_to_the_bit(nleaf, rng):
    terms = rounded(rng, nleaf)
    expected = tree(terms)
    np.testing.assert_array_equal(add_pairs(terms), expected)
    for owner in owners(nleaf):
        parts, nest = branches(nleaf, owner)
        sums = [add_pairs(terms[first:last]) for first, last in parts]
        np.testing.assert_array_equal(add_nested(sums, nest), expected)


@pytest.mark.parametrize("nleaf", NLEAVES)
@pytest.mark.parametrize("chunk", [1, 2, 4, 8, 64])
def test_blocks_are_branches_of_the_tree_of_bands(nleaf, chunk, rng):
    """So the sum over blocks, themselves summed along the tree, has the bits of the sum over bands."""
    terms = rounded(rng, nleaf)
    blocks = Blocks(nleaf, 1, 50, band_chunk=chunk)
    sums = [tree(terms[first:last]) for first, last in blocks.bands]
    np.testing.assert_array_equal(add_pairs(sums), tree(terms))


@pytest.mark.parametrize("nleaf", NLEAVES)
def test_the_kernels_sum_along_the_same_tree(nleaf, rng):
    terms = rounded(rng, nleaf)
    found = l21_statistic(np.array(terms)[:, None])[0, 0]
    np.testing.assert_array_equal(found, tree([np.square(term) for term in terms]))


def test_split_is_the_largest_power_of_two_below():
    assert [split(n) for n in (2, 3, 4, 5, 8, 9, 16, 17)] == [1, 2, 2, 4, 4, 8, 8, 16]


def test_adding_changes_nothing(rng):
    terms = rounded(rng, 7)
    before = [term.copy() for term in terms]
    add_pairs(terms)
    parts, nest = branches(7, lambda i: i)
    add_nested(terms, nest)
    np.testing.assert_array_equal(terms, before)
    assert len(parts) == 7


@pytest.mark.parametrize("nleaf", NLEAVES)
def test_a_reduction_of_tasks_is_the_tree_to_the_bit(nleaf, rng):
    terms = rounded(rng, nleaf)
    graph = {}
    leaves = [value(graph, ("leaf", v), term) for v, term in enumerate(terms)]
    root = reduce_bands(graph, lambda i: ("sum", i), leaves, np.add)
    assert len(graph) == nleaf + nleaf - 1  # no two sums have the same key
    assert all(0 < key[1] < nleaf for key in graph if key[0] == "sum")
    np.testing.assert_array_equal(dask.get(graph, root), tree(terms))


def test_a_reduction_of_one_band_is_that_band():
    graph = {}
    assert reduce_bands(graph, lambda i: ("sum", i), [("leaf", 0)], np.add) == ("leaf", 0)
    assert not graph


@pytest.mark.parametrize(
    ("ncoefficient", "nworker", "ntile"),
    [(1000, 1, 1), (1000, 4, 1), (1000, 5, 2), (1000, 16, 4), (1 << 26, 2, 4), ((1 << 26) + 1, 2, 5)],
)
def test_every_worker_has_a_sum_to_make_and_room_for_it(ncoefficient, nworker, ntile):
    blocks = laid_out(8, (4, ncoefficient), nworker, 8)
    assert len(blocks.tiles) == ntile
    assert blocks.tiles[0][0] == 0
    assert blocks.tiles[-1][1] == ncoefficient
    assert max(last - first for first, last in blocks.tiles) <= 1 << 24


@pytest.mark.parametrize("basis_chunks", [(1, 1), (2, 1), (1, 5), (2, 4)])
@pytest.mark.parametrize("band_chunks", [(1, 6), (6, 1), (2, 4), (1, 2), (6, 6)])
def test_a_dual_is_cut_into_other_blocks(basis_chunks, band_chunks, rng):
    whole = rng.standard_normal((5, 6, 7))
    old, new = (
        Blocks(6, 5, 7, band_chunk=band, basis_chunk=basis) for band, basis in zip(band_chunks, basis_chunks, strict=True)
    )
    names, graph, given = Names(token("old")), {}, {}
    dual = [
        [add(given, names.key("dual", b, v), np.array, whole[slice(*bases), slice(*bands)]) for v, bands in enumerate(old.bands)]
        for b, bases in enumerate(old.bases)
    ]
    rows = relaid(graph, lambda b, v: names.within("new").key("dual", b, v), old, dual, new)
    if (old.bases, old.bands) == (new.bases, new.bands):
        assert rows is dual
        assert not graph
        return
    flat = [key for row in rows for key in row]
    found = dict(zip(flat, dask.threaded.get({**given, **graph}, flat), strict=True))
    for row, bases in zip(rows, new.bases, strict=True):
        for key, bands in zip(row, new.bands, strict=True):
            np.testing.assert_array_equal(found[key], whole[slice(*bases), slice(*bands)])
