"""What every stage of a run took: tasks, seconds, bytes."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from dask.callbacks import Callback
from dask.utils import key_split
from distributed import Client, SchedulerPlugin

from pfb.graph.engine import Once
from pfb.graph.monitor import ClusterMonitor, Monitor
from pfb.graph.tasks import Key


class Phase(NamedTuple):
    """One stage of `pfb.graph.names` in one major cycle; all workers together."""

    cycle: int | None
    """None before the first cycle and after the last."""
    stage: str
    tasks: int
    compute: float
    """Seconds that its tasks ran."""
    cpu: float | None
    """Seconds of these that the thread of the task computed itself; the threads of libraries are not in it. None if unknown."""
    transfer: float
    """Seconds in which what its tasks need came from other workers; transfers at the same time count each."""
    transferred: int
    """Bytes of that."""
    other: float
    """Seconds that its tasks waited for a thread, were unpacked or read from disk by dask."""


class TaskTime(NamedTuple):
    """When a task ran on which thread, in seconds of `time.time`."""

    stage: str
    start: float
    stop: float
    thread: int


TASKS_KEPT = 100_000
"""Tasks that are drawn, the last ones; dask's own report has as many."""


class ThreadPhases(Callback):
    """Measures the graphs that run on the threads of this process while it is registered.

    Unlike dask's own profiler it holds on to no task, and so to no array.
    """

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(pretask=self._begin, posttask=self._end)
        self._monitor = monitor
        self._began: dict[Key, float] = {}
        self._count: dict[tuple[int | None, str], list[float]] = defaultdict(lambda: [0, 0.0])
        self.tasks: deque[TaskTime] = deque(maxlen=TASKS_KEPT)

    def phases(self) -> list[Phase]:
        """Return what has been measured so far."""
        return [Phase(*where, int(n), seconds, None, 0.0, 0, 0.0) for where, (n, seconds) in self._count.items()]

    def _begin(self, key: Key, graph: Any, state: Any) -> None:
        if not isinstance(getattr(graph[key], "func", None), Once):  # what hands over a result is no task of the graph
            self._began[key] = time.time()

    def _end(self, key: Key, result: Any, graph: Any, state: Any, thread: int) -> None:
        start = self._began.pop(key, None)
        if start is None:
            return
        task = TaskTime(key_split(key), start, time.time(), thread)
        self.tasks.append(task)
        counted = self._count[self._monitor.cycle, task.stage]
        counted[0] += 1
        counted[1] += task.stop - task.start


class Transfers(SchedulerPlugin):
    """Counts the bytes that tasks have sent for from other workers; dask itself knows the seconds only.

    Parameters
    ----------
    run : str
        The run, see `ClusterMonitor`.
    """

    def __init__(self, run: str) -> None:
        self.name = f"pfb-transfers-{run}"
        self.counts: dict[tuple[str, str], int] = defaultdict(int)
        self._sent: dict[Key, set[str]] = {}

    async def start(self, scheduler: Any) -> None:
        """Remember whose tasks they are."""
        self._scheduler = scheduler

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Count what a task will need that its worker does not have and is not being sent already."""
        if start == "memory":
            self._sent.pop(key, None)
        if finish != "processing":
            return
        task = self._scheduler.tasks[key]
        for needed in task.dependencies:
            sent = self._sent.setdefault(needed.key, set())
            if task.processing_on not in (needed.who_has or ()) and task.processing_on.address not in sent:
                sent.add(task.processing_on.address)
                self.counts[task.group.span_id, task.prefix.name] += needed.get_nbytes()


class ClusterPhases:
    """Measures a run on a cluster, from its beginning to `collect`.

    Parameters
    ----------
    client : Client
        A connected client.
    monitor : ClusterMonitor
        That of the run.
    """

    def __init__(self, client: Client, monitor: ClusterMonitor) -> None:
        self._client, self._run = client, monitor.run
        self._plugin = Transfers(monitor.run)
        client.register_plugin(self._plugin)

    def collect(self) -> list[Phase]:
        """Return what has been measured, and measure no more."""
        # Workers tell CPU seconds with their heartbeats, the last of which may be some seconds old.
        self._client.run(beat)
        found: list[Phase] = self._client.run_on_scheduler(collected, self._run, self._plugin.name)
        self._client.unregister_scheduler_plugin(self._plugin.name)
        return found


async def beat(dask_worker: Any) -> None:
    """Send the heartbeat of a worker now."""
    await dask_worker.heartbeat()


def collected(run: str, plugin: str, dask_scheduler: Any) -> list[Phase]:
    """Read, on the scheduler, what its spans and the plugin know of a run."""
    counts = dask_scheduler.plugins[plugin].counts
    sums: dict[tuple[int | None, str], Phase] = {}
    for found, cycle in spans_of(dask_scheduler, run):
        seconds = own_seconds(found)
        for group in found.groups:
            stage = group.prefix.name
            durations = group.all_durations
            # What is known of a span and a stage as a whole goes with the first of its groups.
            activities = seconds.pop(stage, {})
            cpu = activities.pop("thread-cpu", 0.0)
            activities.pop("thread-noncpu", None)  # the rest of `compute`
            made = Phase(
                cycle, stage, sum(group.states.values()), durations["compute"], cpu, durations["transfer"],
                counts.pop((found.id, stage), 0), sum(activities.values()),
            )  # fmt: skip
            before = sums.get((cycle, stage), Phase(cycle, stage, 0, 0.0, 0.0, 0.0, 0, 0.0))
            sums[cycle, stage] = Phase(cycle, stage, *(a + b for a, b in zip(before[2:], made[2:], strict=True)))  # type: ignore
    return list(sums.values())


def spans_of(scheduler: Any, run: str) -> Iterator[tuple[Any, int | None]]:
    """Yield the spans of a run, in the order in which they were opened, with their major cycles."""
    root = scheduler.extensions["spans"].spans.get(run)
    for found in root.traverse_spans() if root else ():
        cycles = [int(tag.removeprefix("cycle ")) for tag in found.name if tag.startswith("cycle ")]
        yield found, cycles[0] if cycles else None


def own_seconds(found: Any) -> dict[str, dict[str, float]]:
    """Return the seconds of each activity of each stage in a span, those of spans within it left out."""
    out: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for part, sign in [(found, 1), *((child, -1) for child in found.children)]:
        for (context, stage, activity, unit), value in part.cumulative_worker_metrics.items():
            if context == "execute" and unit == "seconds" and stage != "N/A":
                out[stage][activity] += sign * value
    return out


def stage_seconds(scheduler: Any, run: str) -> dict[str, float]:
    """Return, on the scheduler, the compute seconds of every stage of a run so far."""
    out: dict[str, float] = defaultdict(float)
    for found, _ in spans_of(scheduler, run):
        for group in found.groups:
            out[group.prefix.name] += group.all_durations["compute"]
    return dict(out)
