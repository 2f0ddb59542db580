"""Where graphs run and what stays resident there: the threads of this process, or the workers of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import dask.threaded
from dask.callbacks import Callback

from pfb.graph.monitor import Monitor
from pfb.graph.tasks import Graph, Key, add, dependencies, value

Advance = Callable[[int], None]


class Engine(Protocol):
    """Runs graphs whose results stay resident under their keys until they are dropped."""

    nworker: int
    """Workers that bands are spread over."""
    nthread: int
    """Threads of all workers together."""
    memory: int
    """Bytes that each worker may use, by its own settings; 0 if they do not say."""
    overhead: float
    """Seconds that a task costs beside its work (docs/decisions.md)."""
    owners: tuple[int, ...]
    """Number of the worker of every band; empty if there is one worker for all of them."""
    monitor: Monitor
    """Is told where the run stands."""

    def refresh(self) -> bool:
        """Take note of workers that have come or gone; returns whether bands have other owners now."""
        ...

    def narrow(self, bands: Sequence[int]) -> None:
        """Leave out all but these bands: the last index of a key counts them from now on."""
        ...

    def submit(self, graph: Graph, keep: Iterable[Key], release: Iterable[Key] = ()) -> None:
        """Start a graph, which may refer to resident keys; the results of `keep` become resident.

        What `release` names is resident no longer, and its memory is free as soon as the graph needs it no more.
        """
        ...

    def run(self, graph: Graph, keep: Iterable[Key], advance: Advance | None = None) -> None:
        """Like `submit`, but wait for the results; `advance` is told how many have come since."""
        ...

    def fetch(self, keys: Iterable[Key]) -> list[Any]:
        """Bring resident results to the caller: numbers and small arrays only."""
        ...

    def drop(self, keys: Iterable[Key]) -> None:
        """Forget resident results; keys that are not resident are ignored."""
        ...

    def detach(self, keys: list[Key]) -> list[Key]:
        """Cut resident results off from the graphs that made them; returns the keys they have from now on."""
        ...

    def close(self) -> None:
        """Stop what the engine started."""
        ...


class Once:
    """Gives a result away, so that no graph holds it longer than the tasks that read it."""

    def __init__(self, result: Any) -> None:
        self._result = [result]

    def __call__(self) -> Any:
        """Give it, once."""
        return self._result.pop()


class ThreadEngine:
    """Runs graphs on the threads of this process.

    Parameters
    ----------
    nthread : int
        Threads.
    """

    nworker = 1
    memory = 0
    overhead = 1.4e-4
    owners: tuple[int, ...] = ()

    def __init__(self, nthread: int) -> None:
        self.nthread = nthread
        self._pool = ThreadPoolExecutor(nthread, thread_name_prefix="pfb")
        self._resident: dict[Key, Any] = {}
        self.monitor = Monitor()

    def refresh(self) -> bool:
        """There are no others."""
        return False

    def narrow(self, bands: Sequence[int]) -> None:
        """All are here."""

    def submit(self, graph: Graph, keep: Iterable[Key], release: Iterable[Key] = ()) -> None:
        """Run the graph; there is nobody else to run it meanwhile."""
        self._run(graph, list(keep), set(release), None)

    def run(self, graph: Graph, keep: Iterable[Key], advance: Advance | None = None) -> None:
        """Run the graph and keep the results of `keep`."""
        self._run(graph, list(keep), set(), advance)

    def _run(self, graph: Graph, keep: list[Key], release: set[Key], advance: Advance | None) -> None:
        whole = dict(graph)
        for key in dependencies(graph):
            if key in release:
                add(whole, key, Once(self._resident.pop(key)))
            else:
                value(whole, key, self._resident[key])
        self.drop(release)
        wanted = set(keep)

        def posttask(key: Key, *_: Any) -> None:
            if advance is not None and key in wanted:
                advance(1)

        with Callback(posttask=posttask):
            results = dask.threaded.get(whole, keep, pool=self._pool, num_workers=self.nthread)
        self._resident.update(zip(keep, results, strict=True))

    def fetch(self, keys: Iterable[Key]) -> list[Any]:
        """Return resident results."""
        return [self._resident[key] for key in keys]

    def drop(self, keys: Iterable[Key]) -> None:
        """Forget resident results."""
        for key in keys:
            self._resident.pop(key, None)

    def detach(self, keys: list[Key]) -> list[Key]:
        """Results of finished graphs have no ties here."""
        return keys

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown()
        self._resident.clear()
