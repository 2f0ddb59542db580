"""What `pfb clean` takes on workers of this machine, iteration by iteration; the benchmarks of scale run it."""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import synthetic
from distributed import Client
from layouts import cluster, incoming

from pfb.config import Clean
from pfb.graph.primal_dual import ITERATIONS
from pfb.io.simulated_set import Simulation
from pfb.pipeline import clean
from pfb.pipeline.budget import budget
from pfb.pipeline.forecast import forecast
from pfb.pipeline.imaging import plan
from pfb.pipeline.planning import Plan
from pfb.pipeline.reporting import Silent

OBSERVATION = Simulation(**{**vars(synthetic.OBSERVATION), "nant": 8, "nchan": 18, "scans": 1, "scan_length": 5.0})
"""Few samples: what is measured are images."""

Row = tuple[str, int, str]
"""Name, default and help of an option that takes a whole number."""


def parser(description: str | None, rows: Sequence[Row]) -> argparse.ArgumentParser:
    """Return the options that all have: a folder, whole numbers of their own, and the memory that may be used."""
    out = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    folder = Path(__file__).parent / "out"
    out.add_argument("--folder", type=Path, default=folder, metavar="DIR", help="where everything goes (default: benchmarks/out)")
    for name, default, text in rows:
        out.add_argument(f"--{name}", type=int, default=default, metavar="N", help=f"{text} (default: {default})")
    there = psutil.virtual_memory().available / 2**30
    out.add_argument("--memory", type=float, default=there, metavar="GIB", help="that may be used (default: what is free)")
    return out


def numbers(text: str) -> list[int]:
    """Read numbers between commas."""
    return [int(word) for word in text.split(",")]


BASES = ("self", *(f"db{i}" for i in range(1, 9)))
CELL = 2.0
MOST = OBSERVATION.nchan - 2
"""Bands at most: all samples of the first and the last channel are flagged."""


@dataclass(frozen=True)
class Case:
    """A run, for its size."""

    nband: int
    npix: int
    nbasis: int = 4
    nworker: int = 2
    nthread: int = 1
    """Of each worker."""
    pd_maxit: int = 2 * ITERATIONS
    """Iterations of a cycle; the second of two cycles is measured."""

    def config(self, output: str, *arguments: str) -> Clean:
        """Return the options of `pfb clean`."""
        options = dict(
            npix=str(self.npix), cell=CELL, chan=f"1~{MOST}", nband=self.nband, bases=",".join(BASES[: self.nbasis]), niter=2,
            pd_maxit=self.pd_maxit, pd_tol=0.0, tol=0.0, cg_maxit=1, checkpoint=0, wait_workers=60.0,
        )  # fmt: skip
        return synthetic.configure(arguments, output, options)

    def planned(self, path: str) -> Plan:
        """Return the plan of the run."""
        return plan((path,), self.config("none"), Silent())[1]


@dataclass(frozen=True)
class Measured:
    """What a run took, and what was foretold; an iteration is one of the second cycle."""

    case: Case
    tasks: float
    """Of an iteration."""
    driver: float
    """CPU seconds of the scheduler and of the client, of an iteration."""
    cpu: float
    """The same with the workers."""
    moved: float
    """Bytes between workers, of an iteration."""
    peak: int
    """Bytes of resident memory of a worker at most, in the whole run."""
    between: float
    """Seconds from the last task of an iteration to the first of the next, where a graph ends; the median."""
    within: float
    """The same where none ends."""
    told_tasks: int
    told_moved: int
    told_cpu: float
    told_peak: int

    @property
    def overhead(self) -> float:
        """Share of scheduler and client."""
        return self.driver / self.cpu


class Watch(Silent):
    """A reporter that measures the primal-dual iterations of the last cycle."""

    def __init__(self, client: Client, workers: Sequence[int]) -> None:
        self._client, self._workers = client, [psutil.Process(pid) for pid in workers]
        self.driver = self.working = self.moved = 0.0
        self.keys: list[tuple[Any, float, float]] = []

    @contextmanager
    def stage(self, name: str, total: int) -> Iterator[Callable[[int], None]]:
        """Measure a stage if it is the right one."""
        if name != "primal-dual":
            yield lambda done: None
            return
        began, moved, working, driver = time.time(), self._moved(), self._working(), time.process_time()
        yield lambda done: None
        self.driver = time.process_time() - driver
        self.working, self.moved = self._working() - working, self._moved() - moved
        self.keys = [
            (record["key"], span["start"], span["stop"])
            for record in self._client.get_task_stream()
            for span in record["startstops"]
            if span["action"] == "compute" and span["start"] >= began
        ]

    def _moved(self) -> float:
        return float(sum(self._client.run(incoming).values()))

    def _working(self) -> float:
        return float(sum(sum(process.cpu_times()[:2]) for process in self._workers))


def simulate(folder: Path) -> str:
    """Make the set, unless it is there; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    return str(synthetic.simulate(folder, OBSERVATION, Silent()))


def measure(case: Case, path: str, folder: Path) -> Measured:
    """Run a case on workers of its own."""
    planned, config = case.planned(path), case.config("none")
    told = forecast(planned, config, case.nworker, case.nthread)
    memory = budget(planned, config, case.nworker, case.nthread).worker
    with cluster(case.nworker, case.nthread) as client:
        address = client.scheduler_info()["address"]
        pids = list(client.run(os.getpid).values())
        client.get_task_stream(count=1)  # from now on the scheduler remembers tasks
        watch = Watch(client, pids)
        clean.run((path,), case.config(str(folder / "scale"), "--scheduler", address), watch)
        peak = max(client.run(highest).values())
    tasks, n = len(watch.keys), case.pd_maxit
    between, within = gaps(watch.keys)
    return Measured(
        case, tasks / n, watch.driver / n, (watch.driver + watch.working) / n, watch.moved / n, peak, between, within,
        told.tasks, told.moved, told.cpu.iteration, memory,
    )  # fmt: skip


def highest() -> int:
    """Return the highest resident memory that this process has had, in bytes."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return 1024 * int(line.split()[1])


def gaps(keys: Sequence[tuple[Any, float, float]]) -> tuple[float, float]:
    """Return the median seconds between two iterations where a graph ends, and where none does.

    Parameters
    ----------
    keys
        Key, start and stop of every task.
    """
    first: dict[int, float] = defaultdict(lambda: float("inf"))
    last: dict[int, float] = defaultdict(float)
    for key, start, stop in keys:
        if number := iteration_of(key):  # zero is what they start from
            first[number], last[number] = min(first[number], start), max(last[number], stop)
    ends: dict[bool, list[float]] = {True: [], False: []}
    numbers = sorted(first)
    for before, after in pairwise(numbers):
        ends[(before - 1) // ITERATIONS != (after - 1) // ITERATIONS].append(first[after] - last[before])
    return statistics.median(ends[True] or [0.0]), statistics.median(ends[False] or [0.0])


def iteration_of(key: Any) -> int | None:
    """Return the number of the iteration that a key belongs to, counted from one."""
    text = key if isinstance(key, str) else str(key[0])
    numbers = [word[2:] for word in text.split("-") if word.startswith("it") and word[2:].isdigit()]
    return int(numbers[0]) if numbers else None
