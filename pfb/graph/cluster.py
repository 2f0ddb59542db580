"""An engine on the workers of a dask cluster."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
from dask.highlevelgraph import HighLevelGraph
from distributed import Client, Future, KilledWorker, SchedulerPlugin, WorkerPlugin
from distributed.client import FuturesCancelledError
from distributed.comm import CommClosedError

from pfb.errors import PfbError
from pfb.graph.engine import Advance
from pfb.graph.monitor import ClusterMonitor, Monitor
from pfb.graph.names import Names, stage_of, token
from pfb.graph.parking import park, resume
from pfb.graph.placement import Placement, settle, spread
from pfb.graph.stall import PATIENCE, Watch
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
    # Scheduler and workers look fifty times a second, otherwise, whether their loop is late: 1 % of a core each, for a warning.
    "distributed.admin.tick.interval": "500ms",
    "distributed.worker.profile.interval": "100ms",
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


class Unbinding(SchedulerPlugin):
    """Frees tasks from a worker that is gone.

    The scheduler gives them to another one if there is one, but not if another one comes later: they would wait for ever.
    """

    name = "pfb-unbinding"
    idempotent = True

    def remove_worker(self, scheduler: Any, worker: str, **_: Any) -> None:
        """Let what was bound to a lost worker run anywhere."""
        for task in scheduler.tasks.values():
            if task.loose_restrictions and worker in (task.worker_restrictions or ()):
                task.worker_restrictions = set()


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
    warn : callable, optional
        Is told why nothing has been done for long.
    patience : float
        Seconds without any worker after which a run is given up.

    Raises
    ------
    PfbError
        If the cluster has no workers; from all methods that wait, if it has none for too long, if its scheduler is gone,
        or if a task has taken too many workers with it.
    """

    overhead = 1.5e-3

    def __init__(
        self, client: Client, nblock: int, parking: str,
        *, warn: Callable[[str], None] = lambda text: None, patience: float = PATIENCE,
    ) -> None:  # fmt: skip
        client.register_plugin(ThreadBudget())
        client.register_plugin(Unbinding())
        self.client = client
        self.monitor: Monitor = ClusterMonitor(client)
        self._nblock = nblock
        self._parking = parking
        self._watch = Watch(client, warn, patience)
        self._names: list[Any] = []
        self._missing: set[Any] = set()
        self.owners: tuple[int, ...] = ()
        self._futures: dict[Key, Future] = {}
        self._detached = 0
        self._files: dict[Key, str] = {}
        self._unneeded = deque[list[str]]([[]])
        self._address = client.scheduler_info()["address"]
        if not self._workers():
            raise PfbError(f"the scheduler at {self._address} has no workers: start some with 'dask worker' and run again")
        self.refresh()

    def _workers(self) -> dict[Any, Any]:
        """Return what the scheduler knows of its workers, by their names: one that was restarted has another address."""
        workers = self.client.scheduler_info(n_workers=-1)["workers"]
        return {w["name"]: {"address": address, **w} for address, w in workers.items()}

    def refresh(self) -> bool:
        """Take up workers that have come, and give up those that were gone the last time already and have not come back."""
        there = self._workers()
        gone = {name for name in self._names if name not in there}
        names = [name for name in self._names if name not in gone & self._missing]
        self._missing = gone
        names += sorted((name for name in there if name not in names), key=lambda name: (len(str(name)), str(name)))
        changed = names != self._names
        if changed:
            if self._names:
                homes = settle([self._names[i] for i in self.owners], names)
                self.owners = tuple(map(names.index, homes))
            else:
                self.owners = spread(self._nblock, len(names))
            self._names = names
        self.nworker = len(names)
        self.nthread = sum(w["nthreads"] for w in there.values())
        self.memory = min((int(w["memory_limit"]) for w in there.values()), default=0)
        return changed

    def narrow(self, bands: Sequence[int]) -> None:
        """Leave out all but these bands; they keep their workers."""
        self.owners = tuple(self.owners[band] for band in bands)

    def submit(self, graph: Graph, keep: Iterable[Key], release: Iterable[Key] = ()) -> None:
        """Send the graph to the scheduler, pinned to the workers of its bands."""
        keep = list(keep)
        # Of a plain dictionary the client would make a digest, which takes a while; our keys are names enough.
        layer: Mapping[Any, Any] = graph
        whole = HighLevelGraph.from_collections("pfb", layer)
        # Loose: a band moves on when its worker is gone, instead of waiting for ever.
        with dask.annotate(workers=self._place(), allow_other_workers=True, **self.monitor.annotations()):
            futures = self.client.get(whole, keep, sync=False)
        self._futures.update(zip(keep, futures, strict=True))
        self.drop(release)  # the scheduler keeps what the graph still needs

    def _place(self) -> Placement:
        """Return where keys belong now.

        Names themselves are no use to the scheduler: it takes those of a LocalCluster, which are
        numbers, for names of hosts.
        """
        there = self._workers()
        return Placement(tuple(there[name]["address"] if name in there else "" for name in self._names), self.owners)

    def run(self, graph: Graph, keep: Iterable[Key], advance: Advance | None = None) -> None:
        """Send the graph and wait for the results of `keep`."""
        keep = list(keep)
        with self._explained():
            self.submit(graph, keep)
            self._watch.wait([self._futures[key] for key in keep], advance)

    def fetch(self, keys: Iterable[Key]) -> list[Any]:
        """Gather results from the workers."""
        futures = [self._futures[key] for key in keys]
        with self._explained():
            self._watch.wait(futures, None)
            return list(self.client.gather(futures))

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn what dask says of a lost scheduler or of lost workers into one sentence."""
        try:
            yield
        except KilledWorker as error:
            task = stage_of(error.task) if isinstance(error.task, tuple) else str(error.task)
            raise PfbError(
                f"{error.allowed_failures + 1} workers died while they ran {task}, most likely for want of memory: "
                "give them more, spread the bands over more of them, or make the image smaller (--npix)"
            ) from error
        except (FuturesCancelledError, CommClosedError) as error:
            raise PfbError(
                f"the scheduler at {self._address} is gone ({type(error).__name__}): start one, and run again"
            ) from error

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
        self.run(again, list(resumed))
        self._files |= resumed
        if len(self._unneeded) > FILES_KEPT:
            for path in self._unneeded.popleft():
                Path(path).unlink(missing_ok=True)
        return list(resumed)

    def close(self) -> None:
        """Release everything and disconnect."""
        self.drop(list(self._futures))
        self.client.close()
