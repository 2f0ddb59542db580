"""Visibilities in a folder: one zarr group for each piece of a set, named by what made it.

An entry is complete or not there (see `pfb.io.staging`). It is used if all that made it is the same, down to the time at which
the set was last written; its chunks carry check sums. What cannot be read whole is as good as not there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.codecs import BloscCodec, Crc32cCodec

from pfb.errors import InputError, PfbError
from pfb.io.staging import staged
from pfb.types import Real, Visibilities

KIND, SCHEMA = "pfb visibilities", 1
ARRAYS = {"uvw": ("row", "axis"), "freq": ("chan",), "vis": ("row", "chan"), "weight": ("row", "chan")}
"""Arrays of a part and their axes."""


@dataclass(frozen=True, eq=False)
class Part:
    """What is known of the visibilities of a part of an entry without reading them."""

    rows: int
    freq: Real
    """(chan,) Hz."""
    weight: Real
    """(chan,) sums of the weights."""
    window: int
    product: int
    """Place of its Stokes product among those of the entry."""

    @classmethod
    def of(cls, part: Visibilities, product: int = 0) -> Part:
        """Describe visibilities."""
        return cls(len(part.uvw), part.freq, part.weight.sum(axis=0), part.window, product)


def save(folder: str | Path, maker: Mapping[str, Any], products: Sequence[Sequence[Visibilities]]) -> list[Part]:
    """Write the parts of a piece, for each Stokes product, and say what they are; an entry that is there is replaced.

    Parameters
    ----------
    folder
        Exists; other processes may write to it too.
    maker
        What made them: names, numbers and lists.
    products
        Visibilities with natural weights.

    Raises
    ------
    PfbError
        If they cannot be written.
    """
    final = _place(folder, maker)
    parts = [part for own in products for part in own]
    described = [Part.of(part, product) for product, own in enumerate(products) for part in own]
    try:
        with staged(final, overwrite=True) as path:
            told = {"kind": KIND, "schema": SCHEMA, "maker": _plain(maker), "parts": list(map(_attributes, described))}
            group = zarr.create_group(path, zarr_format=3, attributes=told)
            for i, part in enumerate(parts):
                for name, dims in ARRAYS.items():
                    _write(group, f"{name}{i}", dims, getattr(part, name))
    except (OSError, InputError) as error:
        if _load_attributes(final, maker) is None:  # else somebody else has just written the same
            raise PfbError(
                f"visibilities cannot be written to {folder} ({error}); make room there, or name another folder (--cache)"
            ) from error
    return described


def describe(folder: str | Path, maker: Mapping[str, Any]) -> list[Part] | None:
    """Say what the parts of an entry are; None if it is not there or not what its maker says."""
    attributes = _load_attributes(_place(folder, maker), maker)
    try:
        return None if attributes is None else [_part(own) for own in attributes["parts"]]
    except (KeyError, TypeError, ValueError):
        return None


def read(folder: str | Path, maker: Mapping[str, Any], index: int) -> Visibilities | None:
    """Read a part of an entry; None if it is not there, damaged or not what its maker says."""
    described = describe(folder, maker)
    if described is None or index >= len(described):
        return None
    own = described[index]
    try:
        group = zarr.open_group(_place(folder, maker), mode="r", zarr_format=3, use_consolidated=False)
        uvw, freq, vis, weight = (_read(group, f"{name}{index}") for name in ARRAYS)
    except (OSError, KeyError, TypeError, ValueError, RuntimeError):
        return None
    shape = own.rows, own.freq.size
    right = uvw.shape == (own.rows, 3) and vis.shape == weight.shape == shape and np.array_equal(freq, own.freq)
    right = right and vis.dtype == np.complex128 and uvw.dtype == weight.dtype == freq.dtype == np.float64
    return Visibilities(uvw, freq, vis, weight, own.window) if right else None


def survey(folder: str | Path, makers: Sequence[Mapping[str, Any]]) -> tuple[int, list[str]]:
    """Say how many entries are there, and, if none is, in what those of the same set differ from the first.

    Parameters
    ----------
    folder
        May not exist.
    makers
        What makes each entry that is needed.

    Returns
    -------
    int
        Entries that are there.
    list of str
        Keys in which the nearest entry of the same set differs; empty if there is none.
    """
    found = sum(describe(folder, maker) is not None for maker in makers)
    if found or not makers:
        return found, []
    wanted = _plain(makers[0])
    others = [_any_maker(path) for path in sorted(Path(folder).glob("*.zarr"))]
    differing = [
        sorted(key for key in {*wanted, *other} if wanted.get(key) != other.get(key) and key not in ("first", "last"))
        for other in others
        if other is not None and other.get("path") == wanted.get("path")
    ]
    return 0, min(differing, key=len, default=[])


def _place(folder: str | Path, maker: Mapping[str, Any]) -> Path:
    text = json.dumps([KIND, SCHEMA, _plain(maker)], sort_keys=True)
    return Path(folder) / f"{sha256(text.encode()).hexdigest()[:32]}.zarr"


def _plain(value: Any) -> Any:
    """Return what JSON gives back for a value."""
    if isinstance(value, Mapping):
        return {str(key): _plain(own) for key, own in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, tuple | list):
        return [_plain(own) for own in value]
    if isinstance(value, slice):
        return [value.start, value.stop, value.step]
    return value.item() if isinstance(value, np.generic) else value


def _attributes(part: Part) -> dict[str, Any]:
    return asdict(part) | {"freq": part.freq.tolist(), "weight": part.weight.tolist()}


def _part(attributes: Mapping[str, Any]) -> Part:
    freq, weight = (np.array(attributes[name], np.float64) for name in ("freq", "weight"))
    if freq.ndim != 1 or freq.shape != weight.shape:
        raise ValueError("frequencies and weights differ in number")
    return Part(int(attributes["rows"]), freq, weight, int(attributes["window"]), int(attributes["product"]))


def _load_attributes(path: Path, maker: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the attributes of an entry if it is ours and this maker's."""
    found = _any_attributes(path)
    if found is None or found.get("maker") != _plain(maker) or not isinstance(found.get("parts"), list):
        return None
    return found


def _any_maker(path: Path) -> dict[str, Any] | None:
    found = _any_attributes(path)
    maker = None if found is None else found.get("maker")
    return maker if isinstance(maker, dict) else None


def _any_attributes(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads((path / "zarr.json").read_text())["attributes"]
        return found if found["kind"] == KIND and found["schema"] == SCHEMA else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(group: zarr.Group, name: str, dims: tuple[str, ...], values: NDArray[Any]) -> None:
    if not values.size:  # zarr has no chunks of no size
        group.create_array(name, shape=values.shape, dtype=values.dtype, chunks=tuple(max(n, 1) for n in values.shape))
        return
    codecs = BloscCodec(cname="lz4", clevel=1, shuffle="bitshuffle", typesize=8), Crc32cCodec()
    group.create_array(
        name, data=np.ascontiguousarray(values), chunks=values.shape, compressors=codecs, dimension_names=dims,
    )  # fmt: skip


def _read(group: zarr.Group, name: str) -> NDArray[Any]:
    array = group[name]
    if not isinstance(array, zarr.Array):
        raise TypeError(f"{name} is no array")
    # A chunk that is not there would be read as zeros.
    if array.nchunks_initialized < array.nchunks:
        raise ValueError(f"{name} lacks chunks")
    return np.asarray(array[...])
