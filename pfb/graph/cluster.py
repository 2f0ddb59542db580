"""An engine on the workers of a dask cluster."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import dask
import numpy as np
from distributed import Client, Future, WorkerPlugin, as_completed, wait

from pfb.errors import PfbError
from pfb.graph.engine import Advance
from pfb.graph.names import Names, token
from pfb.graph.placement import Placement
from pfb.graph.tasks import Graph, Key, add, ref
from pfb.kernels.threads import set_thread_budget

CONFIG = {
    # Pinned tasks must not be stolen, and state that is spilled would make every iteration a disk access.
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.allowed-failures": 10,
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": 0.9,
    "distributed.worker.memory.terminate": False,
    "distributed.worker.memory.transfer": 0.3,
    "distributed.admin.large-graph-warning-threshold": "50MB",
}
"""dask's configuration for a cluster that `pfb` starts."""


class ThreadBudget(WorkerPlugin):
    """Gives the libraries of a worker as many threads as the worker has.

    A nanny starts its worker with ``OMP_NUM_THREADS=1``, which would leave ducc0 with one thread
    however many it is asked for.
    """

    name = "pfb-thread-budget"

    def setup(self, worker: Any) -> None:
        """Set the budget when the worker starts, or when the plugin reaches it."""
        set_thread_budget(worker.state.nthreads)


class ClusterEngine:
    """Runs graphs on dask workers; results are futures, and nothing large comes to this process.

    Parameters
    ----------
    client : Client
        A connected client.
    nblock : int
        Bands, or blocks of bands, that are spread over the workers.
    parking : str
        Folder that all workers see, where detached results are written in case a worker is lost.
    close : callable, optional
        Stops the cluster, if it is ours to stop.
    """

    def __init__(self, client: Client, nblock: int, parking: str, close: Any = None) -> None:
        client.register_plugin(ThreadBudget())
        workers = client.scheduler_info(n_workers=-1)["workers"]
        if not workers:
            raise PfbError(
                f"the scheduler at {client.scheduler.address} has no workers: start some with 'dask worker' and run again"
            )
        names = sorted((str(w["name"]) for w in workers.values()), key=lambda name: (len(name), name))
        self.nworker = len(names)
        self.nthread = sum(w["nthreads"] for w in workers.values())
        self.client = client
        self._placement = Placement(tuple(names), nblock)
        self._parking = parking
        self._close = close
        self._futures: dict[Key, Future] = {}
        self._detached = 0

    def submit(self, graph: Graph, keep: Iterable[Key]) -> None:
        """Send the graph to the scheduler, pinned to the workers of its bands."""
        keep = list(keep)
        # Loose: a band moves on when its worker is gone, instead of waiting for ever.
        with dask.annotate(workers=self._placement, allow_other_workers=True):
            futures = self.client.get(graph, keep, sync=False)
        self._futures.update(zip(keep, futures, strict=True))

    def run(self, graph: Graph, keep: Iterable[Key], advance: Advance | None = None) -> None:
        """Send the graph and wait for the results of `keep`."""
        keep = list(keep)
        self.submit(graph, keep)
        for future in as_completed([self._futures[key] for key in keep], raise_errors=False):
            if future.status == "error":
                future.result()
            if advance is not None:
                advance(1)

    def fetch(self, keys: Iterable[Key]) -> list[Any]:
        """Gather results from the workers."""
        return list(self.client.gather([self._futures[key] for key in keys]))

    def drop(self, keys: Iterable[Key]) -> None:
        """Release futures."""
        for key in keys:
            future = self._futures.pop(key, None)
            if future is not None:
                future.release()

    def detach(self, keys: list[Key]) -> list[Key]:
        """Park results in their workers' memory and on disk, and pick them up under new keys.

        As long as a result refers to the graph that made it the scheduler keeps every task of
        that graph; a run of many cycles would fill its memory.
        """
        self._detached += 1
        graph: Graph = {}
        parked: list[Key] = []
        resumed: dict[Key, tuple[str, int]] = {}
        for key in keys:
            names = Names(token(key[0], self._detached))
            place = (str(Path(self._parking, "-".join(map(str, key)) + ".npy")), self._detached)
            parked.append(add(graph, names.key("park", *key[1:]), park, ref(key), *place))
            resumed[names.key("resume", *key[1:])] = place
        self.run(graph, parked)
        self.drop(parked + keys)
        again: Graph = {}
        for name, place in resumed.items():
            add(again, name, resume, *place)
        self.submit(again, list(resumed))
        wait([self._futures[name] for name in resumed])
        return list(resumed)

    def close(self) -> None:
        """Release everything and disconnect; stop the cluster if it is ours."""
        self.drop(list(self._futures))
        self.client.close()
        if self._close is not None:
            self._close()


_PARKED: dict[str, tuple[int, Any]] = {}
_LOCK = threading.Lock()


def park(array: Any, path: str, generation: int) -> str:
    """Keep an array in this process and on disk; returns the path.

    The file is written beside and renamed, so that it is whole or not there. Arrays that were
    parked two generations ago have been picked up and are forgotten.
    """
    partial = f"{path}.{os.getpid()}"
    with open(partial, "wb") as file:
        np.save(file, array)
    os.replace(partial, path)
    with _LOCK:
        for old in [name for name, (age, _) in _PARKED.items() if age < generation - 1]:
            del _PARKED[old]
        _PARKED[path] = (generation, array)
    return path


def resume(path: str, generation: int) -> Any:
    """Return a parked array, from the memory of this process if it is there."""
    with _LOCK:
        parked = _PARKED.get(path)
    if parked is not None and parked[0] == generation:
        return parked[1]
    return np.load(path)
