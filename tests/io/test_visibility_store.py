"""Visibilities on disk: what is written is read, and nothing else is ever trusted."""

import json
import shutil

import numpy as np
import pytest

from pfb.errors import PfbError
from pfb.io import visibility_store
from pfb.io.visibility_store import Part, describe, read, save, survey
from pfb.types import Visibilities

MAKER = {"path": "/data/a.ms", "stamp": 3, "channels": ((0, 4),), "freq": np.array([1.0e9, 1.1e9]), "averaging": None, "first": 0}


def visibilities(rng, rows, nchan, window=0):
    shape = rows, nchan
    vis = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    return Visibilities(rng.standard_normal((rows, 3)), 1e9 + np.arange(nchan) / 3, vis, rng.uniform(0, 2, shape), window)


@pytest.fixture
def parts(rng):
    return visibilities(rng, 30, 5, 2), visibilities(rng, 7, 2, 2), visibilities(rng, 0, 1)


def entry(folder):
    (path,) = folder.glob("*.zarr")
    return path


def assert_equal(one, other):
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)
        assert np.asarray(a).dtype == np.asarray(b).dtype


def test_what_is_written_is_read(tmp_path, parts):
    told = save(tmp_path, MAKER, [parts[:2], parts[2:]])
    for i, part in enumerate(parts):
        assert_equal(read(tmp_path, MAKER, i), part)
    found = describe(tmp_path, MAKER)
    assert [a.product for a in told] == [b.product for b in found] == [0, 0, 1]
    for a, b, part in zip(told, found, parts, strict=True):
        assert (a.rows, a.window) == (b.rows, b.window) == (len(part.uvw), part.window)
        for own in (a, b, Part.of(part)):
            np.testing.assert_array_equal(own.freq, part.freq)
            np.testing.assert_array_equal(own.weight, part.weight.sum(axis=0))
    assert read(tmp_path, MAKER, 3) is None


def test_it_is_smaller_on_disk_where_visibilities_were_in_single_precision(tmp_path, rng):
    part = visibilities(rng, 2000, 8)
    rounded = part._replace(vis=part.vis.astype(np.complex64).astype(complex), weight=part.weight.astype("f4").astype(float))
    save(tmp_path, MAKER, [[rounded]])
    assert sum(f.stat().st_size for f in entry(tmp_path).rglob("*") if f.is_file()) < 0.65 * 24 * part.vis.size


CHANGES = [{"stamp": 4}, {"averaging": {"time": 8.0}}, {"freq": np.array([1e9, 1.2e9])}, {"new": 1}]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_another_maker_finds_nothing(tmp_path, parts, change):
    save(tmp_path, MAKER, [parts[:2], parts[2:]])
    other = MAKER | change
    assert describe(tmp_path, other) is None
    assert read(tmp_path, other, 0) is None
    assert survey(tmp_path, [other]) == (0, sorted(change))
    assert survey(tmp_path, [MAKER, other]) == (1, [])


def test_a_cache_of_other_sets_or_none_has_nothing_to_say(tmp_path, parts):
    assert survey(tmp_path / "nowhere", [MAKER]) == (0, [])
    save(tmp_path, MAKER | {"path": "/data/b.ms"}, [parts])
    assert survey(tmp_path, [MAKER]) == (0, [])
    assert survey(tmp_path, []) == (0, [])


def truncate(path):
    chunk = max((f for f in path.rglob("c/*/*") if f.is_file()), key=lambda f: f.stat().st_size)
    chunk.write_bytes(chunk.read_bytes()[:-9])


def flip(path):
    chunk = max((f for f in path.rglob("c/*/*") if f.is_file()), key=lambda f: f.stat().st_size)
    data = bytearray(chunk.read_bytes())
    data[len(data) // 2] ^= 1
    chunk.write_bytes(data)


def lose_a_chunk(path):
    shutil.rmtree(path / "vis0" / "c")


def lose_an_array(path):
    shutil.rmtree(path / "weight0")


def other_attributes(path):
    text = json.loads((path / "zarr.json").read_text())
    text["attributes"]["parts"][0]["rows"] = 29
    (path / "zarr.json").write_text(json.dumps(text))


def other_kind(path):
    text = json.loads((path / "zarr.json").read_text())
    text["attributes"]["kind"] = "something else"
    (path / "zarr.json").write_text(json.dumps(text))


def no_json(path):
    (path / "zarr.json").write_text("{")


def swapped(path):
    shutil.rmtree(path / "weight0")
    shutil.copytree(path / "weight1", path / "weight0")


def nothing_in_it(path):
    shutil.rmtree(path)
    path.mkdir()


@pytest.mark.parametrize(
    "damage",
    [truncate, flip, lose_a_chunk, lose_an_array, other_attributes, other_kind, no_json, swapped, nothing_in_it],
    ids=lambda f: f.__name__,
)
def test_what_is_damaged_or_foreign_is_as_good_as_not_there_and_can_be_replaced(tmp_path, parts, damage):
    save(tmp_path, MAKER, [parts[:2], parts[2:]])
    damage(entry(tmp_path))
    assert read(tmp_path, MAKER, 0) is None
    save(tmp_path, MAKER, [parts[:2], parts[2:]])
    assert_equal(read(tmp_path, MAKER, 0), parts[0])


def test_an_entry_that_was_not_finished_is_not_there(tmp_path, parts, monkeypatch):
    honest, count = visibility_store._write, 0

    def fail(*args):
        nonlocal count
        count += 1
        if count == 6:
            raise OSError("no space left on device")
        honest(*args)

    monkeypatch.setattr(visibility_store, "_write", fail)
    with pytest.raises(PfbError, match=r"no space left on device.*make room there, or name another folder"):
        save(tmp_path, MAKER, [parts[:2], parts[2:]])
    assert list(tmp_path.iterdir()) == []
    assert describe(tmp_path, MAKER) is None
