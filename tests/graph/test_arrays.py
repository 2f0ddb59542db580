"""The dask arrays of the operators: lazy, of the operators' values for any chunks, of the expected size and names."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pytest
from dask.utils import key_split

from pfb.errors import InputError, ShapeError
from pfb.graph.arrays import l21_norm, named_array, psi_dot, psi_hdot
from pfb.graph.names import STAGES
from pfb.operators.regularisers import JointPrior
from pfb.operators.wavelets import Dictionary
from pfb.testing import refuse

SHAPE, NBAND = (12, 9), 5
DICTIONARY = Dictionary(SHAPE, ("self", "db1", "db2"), 2)
SIZE = DICTIONARY.codomain[1]
BAND_CHUNKS = [1, 2, 4, NBAND, (2, 2, 1)]


@pytest.fixture
def cube(rng):
    return rng.standard_normal((NBAND, *SHAPE))


@pytest.fixture
def coefficients(rng):
    return rng.standard_normal((3, NBAND, SIZE))


def lazy(array, *chunks):
    return named_array(array, chunks + array.shape[len(chunks) :], "data")


def analysed(cube):
    return np.stack([DICTIONARY.dot(image) for image in cube], axis=1)


@pytest.mark.parametrize("band_chunk", BAND_CHUNKS, ids=str)
@pytest.mark.parametrize("basis_chunk", [1, 2, 3])
def test_analysis_equals_the_operator(band_chunk, basis_chunk, cube):
    with dask.config.set(scheduler=refuse):
        x = lazy(cube, band_chunk)
        a = psi_dot(x, DICTIONARY, basis_chunk=basis_chunk, name="run")
    assert a.shape == (3, NBAND, SIZE)
    assert a.chunks == ({1: (1, 1, 1), 2: (2, 1), 3: (3,)}[basis_chunk], x.chunks[0], (SIZE,))
    np.testing.assert_array_equal(a.compute(scheduler="sync"), analysed(cube))
    assert len(a.dask.layers[a.name]) == a.numblocks[0] * a.numblocks[1]


@pytest.mark.parametrize("band_chunk", BAND_CHUNKS, ids=str)
@pytest.mark.parametrize("basis_chunk", [1, 2, 3])
def test_synthesis_equals_the_operator(band_chunk, basis_chunk, coefficients):
    with dask.config.set(scheduler=refuse):
        a = lazy(coefficients, basis_chunk, band_chunk)
        x = psi_hdot(a, DICTIONARY, name="run")
    assert x.shape == (NBAND, *SHAPE)
    assert x.chunks == (a.chunks[1], (SHAPE[0],), (SHAPE[1],))
    expected = [DICTIONARY.hdot(coefficients[:, v]) for v in range(NBAND)]
    np.testing.assert_array_equal(x.compute(scheduler="sync"), expected)
    nb, nv = a.numblocks[:2]
    assert len(x.dask.layers[x.name]) == (nb * nv + nv if nb > 1 else nv)


@pytest.mark.parametrize("band_chunk", BAND_CHUNKS, ids=str)
@pytest.mark.parametrize("basis_chunk", [1, 2, 3])
@pytest.mark.parametrize("tile", [0, 1000, 50, 7])
def test_the_norm_equals_its_definition(band_chunk, basis_chunk, tile, coefficients):
    with dask.config.set(scheduler=refuse):
        a = lazy(coefficients, basis_chunk, band_chunk)
        norm = l21_norm(a, tile=tile, name="run")
    assert norm.shape == (3, SIZE)
    # One task per block of bases and tile, whatever the bands.
    ntile = -(-SIZE // (tile or SIZE))
    assert len(norm.dask.layers[norm.name]) == a.numblocks[0] * ntile == np.prod(norm.numblocks)
    found = norm.compute(scheduler="sync")
    np.testing.assert_allclose(found, np.linalg.norm(coefficients, axis=1), rtol=1e-14)
    np.testing.assert_array_equal(found, l21_norm(lazy(coefficients), name="run").compute(scheduler="sync"))
    assert found.sum() == pytest.approx(JointPrior("l21", NBAND).value(coefficients), rel=1e-13)


def test_chunks_that_are_no_branches_differ_by_rounding_only(coefficients):
    a = lazy(coefficients, 2, (3, 2))
    norm, image = (f.compute(scheduler="sync") for f in (l21_norm(a, name="run"), psi_hdot(a, DICTIONARY, name="run")))
    np.testing.assert_allclose(norm, np.linalg.norm(coefficients, axis=1), rtol=1e-14)
    np.testing.assert_array_equal(image, [DICTIONARY.hdot(coefficients[:, v]) for v in range(NBAND)])


def test_there_and_back_is_the_number_of_bases(cube):
    x = lazy(cube, 2)
    back = psi_hdot(psi_dot(x, DICTIONARY, basis_chunk=2, name="run"), DICTIONARY, name="run")
    np.testing.assert_allclose((back / 3).compute(scheduler="threads"), cube, atol=1e-14)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_precision_is_kept_and_announced(dtype, cube):
    x = lazy(cube.astype(dtype), 2)
    a = psi_dot(x, DICTIONARY, name="run")
    for array in (a, psi_hdot(a, DICTIONARY, name="run"), l21_norm(a, name="run")):
        assert array.dtype == array._meta.dtype == array.compute(scheduler="sync").dtype == dtype
        assert isinstance(array._meta, np.ndarray)
        assert array._meta.shape == (0,) * array.ndim


def arrays(name="run", data="data", dictionary=DICTIONARY, basis_chunk=1, band_chunk=1, tile=0):
    x = named_array(np.zeros((NBAND, *SHAPE)), (band_chunk, *SHAPE), data)
    a = psi_dot(x, dictionary, basis_chunk=basis_chunk, name=name)
    return [a, psi_hdot(a, dictionary, name=name), l21_norm(a, tile=tile, name=name)]


def test_keys_begin_with_the_words_of_the_solver():
    for array, stage in zip(arrays(), ("psi-dot", "psi-hdot", "l21-norm"), strict=True):
        assert stage in STAGES
        assert {key_split(key) for key in array.dask.layers[array.name]} == {stage}


def test_the_same_inputs_have_the_same_keys():
    assert [a.name for a in arrays()] == [a.name for a in arrays()]
    assert all(set(a.dask.to_dict()) == set(b.dask.to_dict()) for a, b in zip(arrays(), arrays(), strict=True))


@pytest.mark.parametrize(
    "other",
    [
        dict(name="other"),
        dict(data="other"),
        dict(basis_chunk=2),
        dict(band_chunk=2),
        dict(dictionary=Dictionary(SHAPE, ("self", "db1", "db3"), 2)),
        dict(dictionary=Dictionary(SHAPE, ("self", "db2", "db1"), 2)),
        dict(dictionary=Dictionary(SHAPE, ("self", "db1", "db2"), 3)),
        dict(dictionary=Dictionary(SHAPE, ("self", "db1", "db2"), 2, size=SIZE + 1)),
    ],
    ids=lambda other: f"{next(iter(other))}",
)
def test_other_inputs_have_other_keys(other):
    mine, theirs = ({array.name for array in arrays(**options)} for options in ({}, other))
    assert len(mine | theirs) == 6


def test_tiles_have_names_of_their_own():
    assert len({arrays(tile=tile)[2].name for tile in (0, 5, 50)}) == 3


@pytest.mark.parametrize("chunks", [(1, *SHAPE), (2, 5, 9), -1], ids=str)
def test_a_named_array_is_not_hashed(chunks, cube, monkeypatch):
    """Hashing 1 GiB takes 0.6 s; the second name is that under which dask holds the array itself."""
    for module in ("dask.array.core", "dask.base"):
        monkeypatch.setattr(f"{module}.tokenize", refuse)
    x = named_array(cube, chunks, "cube-of-a-file")
    assert x.name == "cube-of-a-file"
    monkeypatch.undo()
    assert {key[0] if isinstance(key, tuple) else key for key in x.dask.to_dict()} <= {x.name, f"original-{x.name}"}
    np.testing.assert_array_equal(x.compute(scheduler="sync"), cube)


def test_no_operator_hashes_anything(cube, monkeypatch):
    x = lazy(cube, 1)
    for module in ("dask.array.core", "dask.base", "dask.tokenize"):
        monkeypatch.setattr(f"{module}.tokenize", refuse)
    a = psi_dot(x, DICTIONARY, name="run")
    psi_hdot(a, DICTIONARY, name="run")
    l21_norm(a, name="run")


@pytest.mark.parametrize("name", ["", None])
def test_a_name_must_be_given(name, cube):
    x = lazy(cube, 1)
    a = psi_dot(x, DICTIONARY, name="run")
    for make in (
        lambda: named_array(cube, -1, name),
        lambda: psi_dot(x, DICTIONARY, name=name),
        lambda: psi_hdot(a, DICTIONARY, name=name),
        lambda: l21_norm(a, name=name),
    ):
        with pytest.raises(InputError, match="has no name: give one"):
            make()


def test_shapes_must_fit(cube, coefficients):
    with pytest.raises(ShapeError, match=r"takes images of shape \(12, 9\), got an array of shape \(5, 9, 12\)"):
        psi_dot(lazy(cube.transpose(0, 2, 1)), DICTIONARY, name="run")
    with pytest.raises(ShapeError, match=r"got an array of shape \(12, 9\)"):
        psi_dot(lazy(cube[0]), DICTIONARY, name="run")
    with pytest.raises(ShapeError, match=rf"coefficients of shape \(3, 'band', {SIZE}\), got \(2, 5, {SIZE}\)"):
        psi_hdot(lazy(coefficients[:2]), DICTIONARY, name="run")
    with pytest.raises(ShapeError, match="have the axes basis, band and coefficient"):
        l21_norm(lazy(coefficients[0]), name="run")


def test_images_and_coefficients_must_be_whole(cube, coefficients):
    with pytest.raises(ShapeError, match=r"2 chunks along y but must be one: rechunk it with .rechunk\(\{2: -1\}\)"):
        psi_dot(named_array(cube, (1, 12, 5), "data"), DICTIONARY, name="run")
    a = named_array(coefficients, (1, 1, 100), "data")
    for make in (lambda: psi_hdot(a, DICTIONARY, name="run"), lambda: l21_norm(a, name="run")):
        with pytest.raises(ShapeError, match="3 chunks along coefficient"):
            make()


def test_blocks_must_be_possible(cube, coefficients):
    with pytest.raises(InputError, match="a block has 0 bases"):
        psi_dot(lazy(cube), DICTIONARY, basis_chunk=0, name="run")
    with pytest.raises(InputError, match="a tile has -1 coefficients"):
        l21_norm(lazy(coefficients), tile=-1, name="run")


def test_they_are_ordinary_dask_arrays(cube):
    """Functions of dask, its optimisation and its threads included."""
    x = lazy(cube, 2)
    a = psi_dot(x, DICTIONARY, name="run")
    soft = da.sign(a) * da.maximum(abs(a) - 0.1, 0)
    image = psi_hdot(soft, DICTIONARY, name="run").mean(axis=0)[2:5]
    b = analysed(cube)
    b = np.sign(b) * np.maximum(abs(b) - 0.1, 0)
    expected = np.mean([DICTIONARY.hdot(b[:, v]) for v in range(NBAND)], axis=0)[2:5]
    np.testing.assert_allclose(image.compute(scheduler="threads"), expected, atol=1e-14)
