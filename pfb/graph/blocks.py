"""How cubes and coefficients are cut into blocks, and along which tree sums over bands are taken."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from pfb.errors import InputError
from pfb.graph.tasks import Graph, Key, List, add, ref
from pfb.kernels.prox import split

Range = tuple[int, int]


@cache
def ranges(n: int, chunk: int) -> tuple[Range, ...]:
    """Cut 0 ... n - 1 into runs of `chunk`, the last one shorter."""
    return tuple((first, min(first + chunk, n)) for first in range(0, n, chunk))


@dataclass(frozen=True)
class Blocks:
    """Blocks of the solver's arrays.

    Parameters
    ----------
    nband, nbasis, ncoefficient : int
        Sizes of the axes.
    band_chunk : int
        Bands of a block: a power of two, or all of them. With all bands in a block the sums over
        frequency are local to a task, and images travel instead of coefficients.
    basis_chunk : int
        Bases of a block: a power of two, or all of them. The images of a block's bases are added in their order, those of
        blocks along a tree, so that this, and this alone, changes last bits.
    tile : int
        Coefficients of one task of the sum over bands; all by default (0).

    Raises
    ------
    InputError
        If a chunk is not possible.
    """

    nband: int
    nbasis: int
    ncoefficient: int
    band_chunk: int = 1
    basis_chunk: int = 1
    tile: int = 0

    def __post_init__(self) -> None:
        # Only then is every block of bands a whole branch of the fixed binary tree, whatever the chunk.
        for what, n, chunk in (("bands", self.nband, self.band_chunk), ("bases", self.nbasis, self.basis_chunk)):
            if chunk < 1 or (chunk < n and chunk & (chunk - 1)):
                raise InputError(f"a block has {chunk} {what} but must have a power of two or all {n}")
        if self.tile < 0:
            raise InputError(f"a tile has {self.tile} coefficients but must have 1 or more, or 0 for all of them")

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Bands, bases and coefficients."""
        return self.nband, self.nbasis, self.ncoefficient

    @property
    def bands(self) -> tuple[Range, ...]:
        """First and last + 1 band of every block."""
        return ranges(self.nband, self.band_chunk)

    @property
    def bases(self) -> tuple[Range, ...]:
        """First and last + 1 basis of every block."""
        return ranges(self.nbasis, self.basis_chunk)

    @property
    def tiles(self) -> tuple[Range, ...]:
        """First and last + 1 coefficient of every tile."""
        return ranges(self.ncoefficient, self.tile or self.ncoefficient)


def flat(rows: Iterable[Sequence[Key]]) -> list[Key]:
    """Return the keys of blocks, ``[basis block][band block]``, in one list, row after row."""
    return [key for row in rows for key in row]


def rows_of(keys: Sequence[Key], width: int) -> list[list[Key]]:
    """Undo `flat`: rows of so many keys each."""
    return [list(keys[i : i + width]) for i in range(0, len(keys), width)]


APART = 1.25
"""What an iteration costs with blocks of single bands over what it costs with a block of all bands (docs/decisions.md)."""


def bands_of_a_block(nband: int, nbasis: int, nworker: int, nthread: int) -> int:
    """Return the band chunk of the dual that takes the least time, with a block for every basis.

    With all bands in a block no coefficient leaves its task, and every one is read and written once. But they have to be
    on one worker, and its threads share the bases: with more of them than bases some have nothing to do.

    Parameters
    ----------
    nband, nbasis : int
        Sizes of the axes.
    nworker, nthread : int
        Workers that the bands are spread over, and their threads together.
    """
    rounds = -(-nbasis // nthread) * nthread / nbasis
    return nband if nworker == 1 and rounds <= APART else 1


LARGEST_TILE = 1 << 24
"""Coefficients: what a sum over bands holds of every worker at a time."""


def laid_out(nband: int, codomain: tuple[int, ...], nworker: int, nthread: int, *, together: bool = False) -> Blocks:
    """Return the blocks of a dual whose dictionary has that codomain.

    Parameters
    ----------
    nband, codomain
        Bands, and (bases, coefficients).
    nworker, nthread : int
        As of `bands_of_a_block`.
    together : bool
        All bands are on one worker, though there are others.

    Returns
    -------
    Blocks
        With tiles so small that every worker has a sum over bands to make, and memory for it.
    """
    nbasis, ncoefficient = codomain
    chunk = nband if together else bands_of_a_block(nband, nbasis, nworker, nthread)
    if chunk == nband:
        return Blocks(nband, nbasis, ncoefficient, band_chunk=chunk)
    ntile = max(-(-nworker // nbasis), -(-ncoefficient // LARGEST_TILE))
    return Blocks(nband, nbasis, ncoefficient, band_chunk=chunk, tile=-(-ncoefficient // ntile) if ntile > 1 else 0)


def relaid(graph: Graph, key: Callable[[int, int], Key], old: Blocks, dual: list[list[Key]], new: Blocks) -> list[list[Key]]:
    """Cut a dual into other blocks.

    Parameters
    ----------
    graph : Graph
        Receives the tasks, if there are any.
    key
        Makes the key of a block from its numbers, that of the bands last.
    old, new : Blocks
        How it is cut, and how it shall be; of the same sizes.
    dual : list of list of Key
        ``[basis block][band block]``, arrays (bases, bands, ncoefficient).

    Returns
    -------
    list of list of Key
        The same of the new blocks; what it was where nothing changes.
    """
    if (old.bases, old.bands) == (new.bases, new.bands):
        return dual
    rows = []
    for b, bases in enumerate(new.bases):
        row = []
        for v, bands in enumerate(new.bands):
            pieces = [
                List(*(List(ref(dual[i][j]), of, own) for j, own in _within(old.bands, bands)))
                for i, of in _within(old.bases, bases)
            ]
            row.append(add(graph, key(b, v), _assemble, List(*pieces)))
        rows.append(row)
    return rows


def _within(runs: tuple[Range, ...], wanted: Range) -> list[tuple[int, slice]]:
    """Return the runs that a wanted one has members of, and which of each run's members these are."""
    shared = [(i, max(first, wanted[0]), min(last, wanted[1]), first) for i, (first, last) in enumerate(runs)]
    return [(i, slice(low - first, high - first)) for i, low, high, first in shared if low < high]


def _assemble(pieces: list[list[tuple[Any, slice, slice]]]) -> Any:
    return np.concatenate([np.concatenate([array[i, j] for array, i, j in row], axis=1) for row in pieces])


Nest = int | tuple["Nest", "Nest"]


def branches(nleaf: int, owner: Callable[[int], int]) -> tuple[list[Range], Nest]:
    """Cut the fixed binary tree over `nleaf` leaves into branches that have one owner each.

    The tree depends on the number of leaves only, so the rounding of a sum along it is that of
    every machine and every number of workers.

    Parameters
    ----------
    nleaf : int
        Leaves, e.g. blocks of bands.
    owner
        Owner of a leaf; neighbours tend to have the same.

    Returns
    -------
    branches : list of (int, int)
        First and last + 1 leaf of every branch.
    nest
        How the branches' sums are added: pairs of pairs of their numbers.
    """
    out: list[Range] = []

    def visit(first: int, last: int) -> Nest:
        if len({owner(i) for i in range(first, last)}) == 1:
            out.append((first, last))
            return len(out) - 1
        middle = first + split(last - first)
        return visit(first, middle), visit(middle, last)

    nest = visit(0, nleaf)
    return out, nest


def add_pairs(parts: Sequence[Any]) -> Any:
    """Add the parts along the fixed binary tree, without changing them."""
    if len(parts) == 1:
        return parts[0]
    middle = split(len(parts))
    return add_pairs(parts[:middle]) + add_pairs(parts[middle:])


def add_nested(parts: Sequence[Any], nest: Nest) -> Any:
    """Add the results of branches along their nest."""
    if isinstance(nest, int):
        return parts[nest]
    return add_nested(parts, nest[0]) + add_nested(parts, nest[1])


def reduce_bands(graph: Graph, key: Callable[[int], Key], keys: list[Key], function: Callable[..., Any]) -> Key:
    """Combine one result per band in pairs along the fixed binary tree.

    Parameters
    ----------
    graph : Graph
        Receives the tasks.
    key
        Makes the key of a sum from its number, which is that of a band.
    keys : list of Key
        Leaves, in the order of their bands.
    function
        Takes two results and returns their sum; it must not change them.

    Returns
    -------
    Key
        The root; the leaf itself if there is one only.
    """

    def visit(first: int, last: int) -> Key:
        if last - first == 1:
            return keys[first]
        middle = first + split(last - first)
        # No other sum of the tree divides there, so its number is its own.
        return add(graph, key(middle), function, ref(visit(first, middle)), ref(visit(middle, last)))

    return visit(0, len(keys))
