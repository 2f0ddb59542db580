"""Tasks that keep visibilities on disk: to read a set once only, or to hold no more of a band than a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pfb.io import visibility_store
from pfb.io.visibility_store import Part
from pfb.kernels.samples import Streamed, mean_frequencies
from pfb.pipeline.loading import Loader
from pfb.types import Real, Visibilities


@dataclass(frozen=True, eq=False)
class Kept:
    """Does what a loader does, but only once: visibilities that are in the folder already are read from there."""

    loader: Loader
    folder: str

    def __call__(self) -> tuple[tuple[Visibilities, ...], ...]:
        """Return the visibilities of each product."""
        maker = self.loader.maker()
        there = visibility_store.describe(self.folder, maker)
        if there is not None:
            read = [visibility_store.read(self.folder, maker, i) for i in range(len(there))]
            parts = [(own.product, part) for own, part in zip(there, read, strict=True) if part is not None]
            if len(parts) == len(there):
                return tuple(_shared([part for number, part in parts if number == s], parts) for s in self._products)
        made = self.loader()
        visibility_store.save(self.folder, maker, made)
        return made

    @property
    def _products(self) -> range:
        return range(len(self.loader.products))


def _shared(own: Sequence[Visibilities], every: Sequence[tuple[int, Visibilities]]) -> tuple[Visibilities, ...]:
    """Let products whose coordinates are the same share them."""
    first = [next(p.uvw for _, p in every if np.array_equal(p.uvw, part.uvw)) for part in own]
    return tuple(part._replace(uvw=uvw) for part, uvw in zip(own, first, strict=True))


@dataclass(frozen=True, eq=False)
class Stored:
    """A piece that is in the folder."""

    kept: Kept
    parts: Sequence[Part]


@dataclass(frozen=True, eq=False)
class Deferred:
    """Brings the visibilities of a loader to the folder, and returns what is there in their place."""

    kept: Kept

    def __call__(self) -> Stored:
        """Say what is there."""
        loader, folder = self.kept.loader, self.kept.folder
        there = visibility_store.describe(folder, loader.maker())
        return Stored(self.kept, visibility_store.save(folder, loader.maker(), loader()) if there is None else there)


@dataclass(frozen=True, eq=False)
class Batch:
    """Fetches consecutive parts of pieces that have the same channels; one that is damaged or gone is made again."""

    parts: tuple[tuple[Kept, int, int], ...]
    """Where each is from, its place there, and its rows."""
    freq: Real
    """(chan,) Hz, those of the whole window."""
    window: int

    def __call__(self) -> Visibilities:
        """Return them as one."""
        rows = np.cumsum([0, *(rows for *_, rows in self.parts)])
        shape = int(rows[-1]), self.freq.size
        whole = Visibilities(np.empty((shape[0], 3)), self.freq, np.empty(shape, complex), np.empty(shape), self.window)
        for (kept, index, _), first, last in zip(self.parts, rows[:-1], rows[1:], strict=True):
            part = visibility_store.read(kept.folder, kept.loader.maker(), index)
            if part is None:
                made = kept.loader()
                visibility_store.save(kept.folder, kept.loader.maker(), made)
                part = [own for parts in made for own in parts][index]
            whole.uvw[first:last], whole.vis[first:last], whole.weight[first:last] = part.uvw, part.vis, part.weight
        return whole


@dataclass(frozen=True)
class Joiner:
    """Makes a streamed window of its pieces, in batches of about so many samples."""

    samples: int

    def __call__(self, pieces: Sequence[Stored]) -> tuple[Streamed, ...]:
        """Divide the parts of each product among batches; those that differ in their number of channels follow each other."""
        alike: list[dict[int, list[tuple[Stored, int]]]] = [{} for _ in pieces[0].kept.loader.products]
        for piece in pieces:
            for index, part in enumerate(piece.parts):
                alike[part.product].setdefault(part.freq.size, []).append((piece, index))
        return tuple(Streamed([b for size in sorted(own, reverse=True) for b in self._batches(own[size])]) for own in alike)

    def _batches(self, found: Sequence[tuple[Stored, int]]) -> list[Batch]:
        parts = [piece.parts[index] for piece, index in found]
        freq = mean_frequencies([part.freq for part in parts], [part.weight for part in parts])
        batches: list[list[tuple[Kept, int, int]]] = [[]]
        held = 0
        for (piece, index), part in zip(found, parts, strict=True):
            size = part.rows * freq.size
            if batches[-1] and held + size > self.samples:
                batches.append([])
                held = 0
            batches[-1].append((piece.kept, index, part.rows))
            held += size
        return [Batch(tuple(own), freq, parts[0].window) for own in batches]
