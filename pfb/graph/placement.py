"""Which worker a task runs on: that of its band, so that a band's data stay where they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pfb.graph.names import stage_of

ON_WORKER = ("l21-norm",)
"""Stages whose last index is a worker; that of all others is a band, or a block of bands."""


@dataclass(frozen=True)
class Placement:
    """Maps keys to addresses of workers; the scheduler calls it for every key, so it must never raise.

    Parameters
    ----------
    workers : tuple of str
        Addresses of the workers; an empty one stands for a worker that is gone.
    nblock : int
        Bands, or blocks of bands, that the last index of a key counts.
    """

    workers: tuple[str, ...]
    nblock: int

    def __call__(self, key: Any) -> list[str]:
        """Return the worker that a key belongs on; none if it may run anywhere."""
        n = len(self.workers)
        if not n or not isinstance(key, tuple) or len(key) < 2 or not isinstance(key[-1], int):
            return []
        slot = key[-1] if stage_of(key) in ON_WORKER else key[-1] * n // max(self.nblock, 1)
        address = self.workers[slot % n]
        return [address] if address else []
