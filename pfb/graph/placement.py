"""Which worker a task runs on: that of its band, so that a band's data stay where they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pfb.graph.names import stage_of

Name = str | int

ON_WORKER = ("l21-norm",)
"""Stages whose last index is a worker; that of all others is a band, or a block of bands."""


@dataclass(frozen=True)
class Placement:
    """Maps keys to addresses of workers; the scheduler calls it for every key, so it must never raise.

    Parameters
    ----------
    workers : tuple of str
        Addresses of the workers; an empty one stands for a worker that is gone.
    homes : tuple of int
        Number of the worker of every band, or block of bands, that the last index of a key counts.
    """

    workers: tuple[str, ...]
    homes: tuple[int, ...]

    def __call__(self, key: Any) -> list[str]:
        """Return the worker that a key belongs on; none if it may run anywhere."""
        if not self.workers or not isinstance(key, tuple) or len(key) < 2 or not isinstance(key[-1], int):
            return []
        slot = key[-1]
        if stage_of(key) not in ON_WORKER:
            slot = self.homes[slot % len(self.homes)] if self.homes else 0
        address = self.workers[slot % len(self.workers)]
        return [address] if address else []


def spread(nblock: int, nworker: int) -> tuple[int, ...]:
    """Deal blocks of bands to workers in runs, as evenly as can be; returns the worker of every block."""
    return tuple(v * nworker // nblock for v in range(nblock))


def settle(homes: Sequence[Name], workers: Sequence[Name]) -> list[Name]:
    """Deal blocks anew after workers have come or gone; only blocks that must move do.

    Parameters
    ----------
    homes : sequence of str or int
        Name of the worker that every block has had.
    workers : sequence of str or int
        Those that are there now; one at least.

    Returns
    -------
    list of str or int
        The worker of every block: no worker has two blocks more than another one.
    """
    share, extra = divmod(len(homes), len(workers))
    load = dict.fromkeys(workers, 0)

    def takes(worker: Name) -> bool:
        nonlocal extra
        if load[worker] > share or (load[worker] == share and not extra):
            return False
        extra -= load[worker] == share
        load[worker] += 1
        return True

    kept = [home if home in load and takes(home) else None for home in homes]
    return [next(filter(takes, workers)) if home is None else home for home in kept]
