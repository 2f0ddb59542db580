r"""The operators of the solver on dask arrays, for scripts and notebooks.

Cubes are (band, x, y), coefficients (basis, band, coefficient); only bands, bases and tiles of
coefficients are cut. Nothing is computed here, no array is hashed, and the results do not depend on
the chunks to the bit if these are powers of two or whole axes.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

import dask.array as da
import numpy as np
from dask.highlevelgraph import HighLevelGraph

from pfb.errors import InputError, ShapeError
from pfb.graph.blocks import Blocks, Range, add_pairs
from pfb.graph.iteration import statistic
from pfb.graph.names import Names, token
from pfb.graph.tasks import Graph, add, ref, refs
from pfb.operators.regularisers import JointPrior
from pfb.operators.wavelets import Dictionary
from pfb.solvers import primal_dual
from pfb.types import Real


def named_array(array: Any, chunks: Any, name: str) -> da.Array:
    """Make a dask array of one in memory, under a given name.

    Parameters
    ----------
    array
        Anything with a shape and a dtype that can be sliced.
    chunks
        As for `dask.array.from_array`.
    name : str
        First part of its keys. Arrays of other contents must have other names: the contents are not looked at.

    Raises
    ------
    InputError
        If there is no name.
    """
    return da.from_array(array, chunks=chunks, name=_require_name(name))


def psi_dot(x: da.Array, dictionary: Dictionary, *, basis_chunk: int = 1, name: str) -> da.Array:
    r"""Decompose the images of all bands, :math:`\Psi^H x`.

    Parameters
    ----------
    x : (nband, nx, ny) dask array of float
        Images, each in one chunk.
    dictionary : Dictionary
        The bases.
    basis_chunk : int
        Bases of a block: a power of two, or all of them.
    name : str
        Name of the data; together with the parameters it makes that of the array.

    Returns
    -------
    (nbasis, nband, ncoefficient) dask array
        In the precision of x, one task per block of bases and bands.

    Raises
    ------
    InputError
        If the images do not fit the dictionary, or blocks of so many bases are not possible.
    """
    if x.ndim != 3 or x.shape[1:] != dictionary.domain:
        raise ShapeError(f"the dictionary takes images of shape {dictionary.domain}, got an array of shape {x.shape}")
    _require_whole(x, {1: "x", 2: "y"})
    nbasis, ncoefficient = dictionary.codomain
    bases = Blocks(x.shape[0], nbasis, ncoefficient, x.shape[0], basis_chunk).bases
    made = _name("psi-dot", name, x, _identity(dictionary), basis_chunk)
    graph: Graph = {}
    for b, part in enumerate(bases):
        subset = dictionary.subset(*part)
        for v in range(x.numblocks[0]):
            add(graph, (made, b, v, 0), analyse, ref((x.name, v, 0, 0)), subset)
    return _array(graph, made, x, (tuple(last - first for first, last in bases), x.chunks[0], (ncoefficient,)))


def psi_hdot(a: da.Array, dictionary: Dictionary, *, name: str) -> da.Array:
    r"""Add up the images of all bases, :math:`\Psi a`: the adjoint of `psi_dot`.

    Parameters
    ----------
    a : (nbasis, nband, ncoefficient) dask array of float
        Coefficients, in one chunk along their own axis.
    dictionary : Dictionary
        The bases.
    name : str
        Name of the data; together with the parameters it makes that of the array.

    Returns
    -------
    (nband, nx, ny) dask array
        In the precision of a; one task per block of bases and bands and, if there are several blocks of
        bases, one per block of bands that adds them.

    Raises
    ------
    ShapeError
        If the coefficients do not fit the dictionary.
    """
    if a.ndim != 3 or (a.shape[0], a.shape[2]) != dictionary.codomain:
        nbasis, ncoefficient = dictionary.codomain
        raise ShapeError(f"the dictionary takes coefficients of shape {(nbasis, 'band', ncoefficient)}, got {a.shape}")
    _require_whole(a, {2: "coefficient"})
    made = _name("psi-hdot", name, a, _identity(dictionary))
    subsets = [dictionary.subset(*part) for part in _ranges(a.chunks[0])]
    graph: Graph = {}
    for v in range(a.numblocks[1]):
        coefficients = [ref((a.name, b, v, 0)) for b in range(len(subsets))]
        if len(subsets) == 1:
            add(graph, (made, v, 0, 0), synthesise, coefficients[0], subsets[0])
            continue
        images = [
            add(graph, (made, b, v), synthesise, block, subset)
            for b, (block, subset) in enumerate(zip(coefficients, subsets, strict=True))
        ]
        add(graph, (made, v, 0, 0), add_pairs, refs(images))
    return _array(graph, made, a, (a.chunks[1], *((n,) for n in dictionary.domain)))


def l21_norm(a: da.Array, *, tile: int = 0, name: str) -> da.Array:
    """Take the norm over the bands of every coefficient; its sum is the `l21` prior.

    Parameters
    ----------
    a : (nbasis, nband, ncoefficient) dask array of float
        Coefficients, in one chunk along their own axis.
    tile : int
        Coefficients of one task; all by default (0).
    name : str
        Name of the data; together with the parameters it makes that of the array.

    Returns
    -------
    (nbasis, ncoefficient) dask array
        In the precision of a, one task per block of bases and tile.

    Raises
    ------
    InputError
        If the coefficients are cut, or tiles of that size are not possible.
    """
    if a.ndim != 3:
        raise ShapeError(f"coefficients have the axes basis, band and coefficient, got an array of shape {a.shape}")
    _require_whole(a, {2: "coefficient"})
    nbasis, nband, ncoefficient = a.shape
    tiles = Blocks(nband, nbasis, ncoefficient, nband, nbasis, tile).tiles
    made = _name("l21-norm", name, a, tile)
    graph: Graph = {}
    for b in range(a.numblocks[0]):
        bands = refs([(a.name, b, v, 0) for v in range(a.numblocks[1])])
        for t, part in enumerate(tiles):
            add(graph, (made, b, t), norm, JointPrior("l21", nband), bands, part)
    return _array(graph, made, a, (a.chunks[0], tuple(last - first for first, last in tiles)))


def analyse(images: Any, dictionary: Dictionary) -> Real:
    """Decompose the images of a block, (bands, nx, ny) to (bases, bands, coefficients)."""
    return primal_dual.decompose(images, dictionary, images.dtype)


def synthesise(coefficients: Real, dictionary: Dictionary) -> Real:
    """Add up the images of a block, (bases, bands, coefficients) to (bands, nx, ny)."""
    return np.stack(primal_dual.synthesise(coefficients, dictionary))


def norm(prior: JointPrior, blocks: list[Real], tile: Range) -> Real:
    """Return the norm over the bands of all blocks, of a tile of coefficients."""
    return np.sqrt(statistic(prior, blocks, tile, 0)[0])


def _array(graph: Graph, name: str, source: da.Array, chunks: tuple[tuple[int, ...], ...]) -> da.Array:
    layer: Any = graph
    sources: Any = [source]  # dask's arrays do not match the protocol that dask asks for here
    whole = HighLevelGraph.from_collections(name, layer, dependencies=sources)
    return da.Array(whole, name, chunks, meta=np.empty((0,) * len(chunks), source.dtype))


def _name(stage: str, name: str, source: da.Array, *parameters: Any) -> str:
    """Return the first part of the keys, which holds all that the result depends on."""
    return Names(token(_require_name(name), source.name, source.chunks, *parameters)).key(stage)[0]


def _identity(dictionary: Dictionary) -> tuple[Any, ...]:
    return dictionary.domain, dictionary.bases, dictionary.nlevels, dictionary.codomain


def _ranges(sizes: tuple[int, ...]) -> list[Range]:
    return list(pairwise(accumulate(sizes, initial=0)))


def _require_name(name: str) -> str:
    if not name:
        raise InputError("an array has no name: give one that its contents have alone, e.g. that of their file")
    return name


def _require_whole(array: da.Array, axes: dict[int, str]) -> None:
    for axis, what in axes.items():
        if array.numblocks[axis] > 1:
            raise ShapeError(
                f"the array is cut into {array.numblocks[axis]} chunks along {what} but must be one: "
                f"rechunk it with .rechunk({{{axis}: -1}})"
            )
