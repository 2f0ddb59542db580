"""An engine on the workers of a dask cluster."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import dask
import numpy as np
from distributed import Client, Future, WorkerPlugin, as_completed, wait

from pfb.errors import PfbError
from pfb.graph.engine import Advance
from pfb.graph.monitor import ClusterMonitor, Monitor
from pfb.graph.names import Names, token
from pfb.graph.placement import Placement
from pfb.graph.tasks import Graph, Key, add, ref
from pfb.kernels.memory import keep_freed_memory
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

FILES_KEPT = 3
"""Detachments that the files of dropped results outlast: a major cycle has as many, and what it makes but does not
detach (targets, weights of the prior) may have to be made again from what it dropped."""


class ThreadBudget(WorkerPlugin):
    """Gives the libraries of a worker as many threads as the worker has, and lets it keep its memory.

    A nanny starts its worker with ``OMP_NUM_THREADS=1``, which would leave ducc0 with one thread
    however many it is asked for.
    """

    name = "pfb-thread-budget"

    def setup(self, worker: Any) -> None:
        """Set both when the worker starts, or when the plugin reaches it."""
        set_thread_budget(worker.state.nthreads)
        keep_freed_memory()


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

    Raises
    ------
    PfbError
        If the cluster has no workers.
    """

    def __init__(self, client: Client, nblock: int, parking: str) -> None:
        client.register_plugin(ThreadBudget())
        info = client.scheduler_info(n_workers=-1)
        workers = list(info["workers"].values())
        if not workers:
            raise PfbError(f"the scheduler at {info['address']} has no workers: start some with 'dask worker' and run again")
        self.nworker = len(workers)
        self.nthread = sum(w["nthreads"] for w in workers)
        self.memory = min(int(w["memory_limit"]) for w in workers)
        self.client = client
        self.monitor: Monitor = ClusterMonitor(client)
        self._names = sorted((w["name"] for w in workers), key=lambda name: (len(str(name)), str(name)))
        self._nblock = nblock
        self._parking = parking
        self._futures: dict[Key, Future] = {}
        self._detached = 0
        self._files: dict[Key, str] = {}
        self._unneeded = deque[list[str]]([[]])

    def submit(self, graph: Graph, keep: Iterable[Key], release: Iterable[Key] = ()) -> None:
        """Send the graph to the scheduler, pinned to the workers of its bands."""
        keep = list(keep)
        # Loose: a band moves on when its worker is gone, instead of waiting for ever.
        with dask.annotate(workers=self._place(), allow_other_workers=True, **self.monitor.annotations()):
            futures = self.client.get(graph, keep, sync=False)
        self._futures.update(zip(keep, futures, strict=True))
        self.drop(release)  # the scheduler keeps what the graph still needs

    def _place(self) -> Placement:
        """Return where keys belong now: a worker that was restarted has its name still, but another address.

        Names themselves are no use to the scheduler: it takes those of a LocalCluster, which are
        numbers, for names of hosts.
        """
        workers = self.client.scheduler_info(n_workers=-1)["workers"]
        address = {w["name"]: a for a, w in workers.items()}
        return Placement(tuple(address.get(name, "") for name in self._names), self._nblock)

    def run(self, graph: Graph, keep: Iterable[Key], advance: Advance | None = None) -> None:
        """Send the graph and wait for the results of `keep`."""
        keep = list(keep)
        self.submit(graph, keep)
        for future in as_completed([self._futures[key] for key in keep], loop=self.client.loop, raise_errors=False):
            if future.status != "finished":
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
            if key in self._files:
                self._unneeded[-1].append(self._files.pop(key))

    def detach(self, keys: list[Key]) -> list[Key]:
        """Park results in their workers' memory and on disk, and pick them up under new keys.

        As long as a result refers to the graph that made it the scheduler keeps every task of
        that graph; a run of many cycles would fill its memory.
        """
        self._detached += 1
        self._unneeded.append([])
        graph: Graph = {}
        again: Graph = {}
        parked: list[Key] = []
        resumed: dict[Key, str] = {}
        for key in keys:
            names = Names(token(key[0], self._detached))
            path = str(Path(self._parking, "-".join(map(str, key)) + f"-{self._detached}.npy"))
            parked.append(add(graph, names.key("park", *key[1:]), park, ref(key), path, self._detached))
            resumed[add(again, names.key("resume", *key[1:]), resume, path)] = path
        self.run(graph, parked)
        self.drop(parked + keys)
        self.submit(again, list(resumed))
        self._files |= resumed
        # `wait` asks for the current client; ours is not made the default, for that would change dask's scheduler too.
        with self.client.as_current():
            wait([self._futures[name] for name in resumed])
        if len(self._unneeded) > FILES_KEPT:
            for path in self._unneeded.popleft():
                Path(path).unlink(missing_ok=True)
        return list(resumed)

    def close(self) -> None:
        """Release everything and disconnect."""
        self.drop(list(self._futures))
        self.client.close()


_PARKED: dict[str, tuple[int, Any]] = {}
"""What this process holds until it is picked up: the generation and the array, by path."""
_LOCK = threading.Lock()


def park(array: Any, path: str, generation: int) -> str:
    """Keep an array in this process and on disk; returns the path.

    The file is written beside and renamed, so that it is whole or not there. Arrays that were
    parked two generations ago were picked up elsewhere and are forgotten.
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


def resume(path: str) -> Any:
    """Pick up a parked array, from the memory of this process if it is there."""
    with _LOCK:
        parked = _PARKED.pop(path, None)
    return np.load(path) if parked is None else parked[1]
