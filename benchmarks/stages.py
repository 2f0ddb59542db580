"""What every stage of a command costs: seconds, CPU seconds and the highest memory."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pfb.pipeline.reporting import Reporter, Silent

INTERVAL = 0.02
"""Seconds between two looks at the memory; a peak that is shorter may be missed."""

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK = 1 / os.sysconf("SC_CLK_TCK")
MIB = 2**20


@dataclass
class Stage:
    """The sum over all times that a stage was run."""

    times: int = 0
    seconds: float = 0.0
    cpu: float = 0.0
    """Seconds of all threads of all processes."""
    peak: int = 0
    """Bytes of resident memory of all processes."""


class Recorder:
    """A reporter that measures the stages and passes everything on; use it as a context.

    This process and those that it starts are measured, not workers of a scheduler that ran before.

    Parameters
    ----------
    inner : Reporter, optional
        Is told everything.

    Attributes
    ----------
    stages : dict of str to Stage
        In the order of their first run.
    total : Stage
        The whole context.
    rows, warnings : list
        What the command reported.
    """

    def __init__(self, inner: Reporter | None = None) -> None:
        self.inner: Reporter = inner or Silent()
        self.stages: dict[str, Stage] = {}
        self.total = Stage()
        self.rows: list[dict[str, float | int | str]] = []
        self.warnings: list[str] = []
        self._meter = Meter()

    def __enter__(self) -> Recorder:
        self._meter.start()
        self._whole = self._measured(self.total)
        self._whole.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._whole.__exit__(None, None, None)
        self._meter.stop()

    @contextmanager
    def stage(self, name: str, total: int) -> Iterator[Callable[[int], None]]:
        """Measure a stage."""
        with self._measured(self.stages.setdefault(name, Stage())), self.inner.stage(name, total) as advance:
            yield advance

    def message(self, text: str) -> None:
        """Pass a sentence on."""
        self.inner.message(text)

    def warning(self, text: str) -> None:
        """Note a warning and pass it on."""
        self.warnings.append(text)
        self.inner.warning(text)

    def row(self, values: Mapping[str, float | int | str]) -> None:
        """Note a line of the table and pass it on."""
        self.rows.append(dict(values))
        self.inner.row(values)

    def summary(self, title: str, values: Mapping[str, str]) -> None:
        """Pass the summary on."""
        self.inner.summary(title, values)

    @contextmanager
    def _measured(self, stage: Stage) -> Iterator[None]:
        with self._meter.watch() as watch:
            began = time.monotonic()
            try:
                yield
            finally:
                stage.seconds += time.monotonic() - began
        stage.times += 1
        stage.cpu += watch.cpu
        stage.peak = max(stage.peak, watch.peak)


@dataclass(eq=False)
class Watch:
    """What a `Meter` saw since the watch began."""

    began: float
    cpu: float = 0.0
    peak: int = 0


class Meter:
    """Looks at the CPU time and the memory of this process and its descendants, in a thread of its own."""

    def __init__(self) -> None:
        self._cpu: dict[int, float] = {}  # a process that has ended keeps what it used
        self._watches: list[Watch] = []
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="meter", daemon=True)

    def start(self) -> None:
        """Start to look."""
        self._look()
        self._thread.start()

    def stop(self) -> None:
        """Look no longer."""
        self._stopped.set()
        self._thread.join()

    @contextmanager
    def watch(self) -> Iterator[Watch]:
        """Yield a `Watch`, complete when the block ends; watches may contain each other."""
        watch = Watch(self._look())
        self._watches.append(watch)
        self._look()
        try:
            yield watch
        finally:
            watch.cpu = self._look() - watch.began
            self._watches.remove(watch)

    def _run(self) -> None:
        while not self._stopped.wait(INTERVAL):
            self._look()

    def _look(self) -> float:
        """Note the memory; return the CPU seconds so far."""
        with self._lock:
            memory = 0
            for pid in family(os.getpid()):
                try:
                    memory += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
                    # The name of the program, in brackets, may contain anything.
                    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                except OSError:  # it has just ended
                    continue
                self._cpu[pid] = (int(fields[11]) + int(fields[12])) * _TICK
            for watch in self._watches:
                watch.peak = max(watch.peak, memory)
            return sum(self._cpu.values())


def family(pid: int) -> list[int]:
    """Return a process and all its descendants."""
    out = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*"):
        try:
            children = (task / "children").read_text().split()
        except OSError:  # the thread has just ended
            continue
        for child in children:
            out += family(int(child))
    return out


def markdown(recorder: Recorder) -> str:
    """Return the table of all stages; what no stage covers (planning, starting workers, statistics) is ``other``."""
    covered = recorder.stages.values()
    total = recorder.total
    other = Stage(0, total.seconds - sum(s.seconds for s in covered), total.cpu - sum(s.cpu for s in covered))
    rows = [*recorder.stages.items(), ("other", other), ("total", total)]
    lines = ["| stage | times | seconds | CPU seconds | peak MiB |", "|---|---:|---:|---:|---:|"]
    for name, s in rows:
        times, peak = s.times or "", f"{s.peak / MIB:.0f}" if s.peak else ""
        lines.append(f"| {name} | {times} | {s.seconds:.2f} | {s.cpu:.2f} | {peak} |")
    return "\n".join(lines)
