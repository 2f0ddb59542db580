"""What ``--profile`` records of a run: every stage, the memory, and dask's report."""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

from distributed import performance_report
from distributed.diagnostics import MemorySampler

from pfb.config import Image
from pfb.graph.cluster import ClusterEngine
from pfb.graph.engine import Engine
from pfb.graph.monitor import ClusterMonitor
from pfb.graph.phases import ClusterPhases, Phase, ThreadPhases
from pfb.io.staging import staged
from pfb.pipeline.profile_files import Sample, draw_memory, draw_threads, ordered, shares, write_memory, write_phases
from pfb.pipeline.reporting import Reporter

INTERVAL = 0.25
"""Seconds between two looks at the memory."""

REPORT = "report.html"


def folders(config: Image) -> list[Path]:
    """Return the folder that a profile goes into; none if there shall be none."""
    return [Path(f"{config.output}-profile")] if config.profile else []


@contextmanager
def profiled(config: Image, engine: Engine, report: Reporter) -> Iterator[None]:
    """Record what happens inside, and write it to ``PREFIX-profile`` at the end, after an error too.

    Parameters
    ----------
    config : Image
        Options; without `profile` nothing is recorded.
    engine : Engine
        What the run runs on. It must be there still when the block ends.
    report : Reporter
        Gets a table of the stages; and a warning if a file cannot be made, since an image must not be lost for it.
    """
    if not config.profile:
        yield
        return
    (folder,) = folders(config)
    recorder: Recorder = ClusterRecorder(engine) if isinstance(engine, ClusterEngine) else ThreadRecorder(engine)
    try:
        yield
    finally:
        try:
            write(recorder, engine, folder, config.overwrite, report)
        except Exception as error:
            report.warning(f"the profile could not be written to {folder} ({told(error)}): free its place and run again")


class Recorder(Protocol):
    """Records a run from the moment it is made to `stop`."""

    def stop(self) -> tuple[list[Sample], list[Phase]]:
        """Record no more; returns memory and stages. What is missing is named in `failed`."""
        ...

    def report(self, path: Path) -> None:
        """Write dask's report; call it once."""
        ...

    failed: dict[str, Exception]


def write(recorder: Recorder, engine: Engine, folder: Path, overwrite: bool, report: Reporter) -> None:
    """Write the files of a profile; each that cannot be made is named in a warning, and the others are there.

    Raises
    ------
    InputError
        If the folder exists and may not be replaced.
    """
    samples, phases = recorder.stop()
    phases, marks, failed = ordered(phases), list(engine.monitor.marks), recorder.failed
    with staged(folder, overwrite) as made:
        made.mkdir()
        attempt(failed, REPORT, lambda: recorder.report(made / REPORT))
        attempt(failed, "memory.csv", lambda: write_memory(made / "memory.csv", samples, marks))
        attempt(failed, "memory.png", lambda: draw_memory(made / "memory.png", samples, marks))
        attempt(failed, "phases.csv and phases.md", lambda: write_phases(made, phases))
    for name, error in failed.items():
        report.warning(f"the profile has no {name} ({told(error)}); its other files are in {folder}")
    report.summary(f"profile in {folder}", shares(phases))


def attempt(failed: dict[str, Exception], name: str, act: Callable[[], None]) -> None:
    """Do one part, and remember its error: a broken cluster must not cost the parts that need none."""
    try:
        act()
    except Exception as error:
        failed[name] = error


def told(error: Exception) -> str:
    """Say what went wrong in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


class ThreadRecorder:
    """Records a run on the threads of this process."""

    def __init__(self, engine: Engine) -> None:
        self.failed: dict[str, Exception] = {}
        self._phases = ThreadPhases(engine.monitor)
        self._phases.register()
        self._began = time.time()
        self._sampler = Sampler()

    def report(self, path: Path) -> None:
        """Draw the tasks, the memory and the seconds of every stage."""
        draw_threads(path, self._phases.tasks, self._phases.phases(), self._sampler.samples, self._began)

    def stop(self) -> tuple[list[Sample], list[Phase]]:
        """Stop the sampling."""
        self._phases.unregister()
        return self._sampler.stop(), self._phases.phases()


class Sampler:
    """Looks at the memory of this process and at its CPU time, from a thread of its own, from when it is made until `stop`."""

    def __init__(self) -> None:
        self.samples = [sample()]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="pfb-sampler", daemon=True)
        self._thread.start()

    def stop(self) -> list[Sample]:
        """Take the last sample."""
        self._over.set()
        self._thread.join()
        self.samples.append(sample())
        return self.samples

    def _sample(self) -> None:
        while not self._over.wait(INTERVAL):
            self.samples.append(sample())


def sample() -> Sample:
    """Return the resident memory of this process, as Linux tells it, and the CPU seconds that it has had."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return Sample(time.time(), pages * resource.getpagesize(), sum(os.times()[:2]))


class ClusterRecorder:
    """Records a run on the workers of a cluster; its scheduler does the recording."""

    def __init__(self, engine: ClusterEngine) -> None:
        assert isinstance(engine.monitor, ClusterMonitor)
        self.failed: dict[str, Exception] = {}
        self._client = engine.client
        self._phases = ClusterPhases(engine.client, engine.monitor)
        self._memory = MemorySampler()
        self._sampling = ExitStack()
        self._sampling.enter_context(self._memory.sample("workers", client=engine.client, interval=INTERVAL))
        # mode: the file must show something where there is no network.
        self._report = performance_report(filename="", mode="inline")
        attempt(self.failed, REPORT, self._begin)

    def _begin(self) -> None:
        with self._client.as_current():
            self._report.__enter__()

    def report(self, path: Path) -> None:
        """Let the scheduler draw its report, if it could begin one."""
        if REPORT in self.failed:
            return
        self._report.filename = str(path)
        with self._client.as_current():
            self._report.__exit__(None, None, None)

    def stop(self) -> tuple[list[Sample], list[Phase]]:
        """Fetch what the scheduler has recorded."""
        phases: list[Phase] = []
        attempt(self.failed, "memory of the workers", self._sampling.close)
        attempt(self.failed, "times of the stages", lambda: phases.extend(self._phases.collect()))
        return [Sample(at, size, None) for at, size in self._memory.samples.get("workers", ())], phases


