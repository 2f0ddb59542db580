"""When a run of `pfb clean` is saved, what of it, and how it goes on from there."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from pfb import __version__
from pfb.config import Clean
from pfb.errors import InputError
from pfb.graph.blocks import Blocks
from pfb.graph.engine import Engine
from pfb.graph.names import Names
from pfb.graph.parking import read_array, write_array
from pfb.graph.tasks import Graph, Key, add, ref
from pfb.io.checkpoint import Checkpoints
from pfb.pipeline.reporting import Reporter
from pfb.solvers.major_cycle import Cycle, Progress, Statistics
from pfb.solvers.primal_dual import Gate

SHARE = 0.02
"""Of the time that a run may spend on its checkpoints, unless it is told how often to write them."""

MAY_CHANGE = (
    "output", "overwrite", "quiet", "resume", "checkpoint", "niter", "tol",
    "workers", "threads_per_worker", "scheduler", "min_workers", "wait_workers",
    "cluster", "cluster_options", "profile", "restoring_beam", "common_beam", "cache", "stream",
)  # fmt: skip
"""Options that a run may be gone on with other than it was begun; all others decide what the next iteration does."""

REWEIGHTING = "reweighting"
"""Name of the models that weights were renewed with."""


@dataclass(frozen=True)
class Saved:
    """A checkpoint that was read: what is known, and where the arrays are."""

    progress: Progress
    gate: Gate
    """Of the cycle that is under way; no iterations if none is."""
    blocks: Blocks
    """How the dual is cut."""
    files: dict[str, list[str]]
    """Paths of the arrays of every kind, by plane or by block; an empty list if there are none."""

    def describe(self) -> str:
        """Say where the run goes on."""
        done, more = len(self.progress.history), self.gate.iterations
        cycles = f"{done} major cycle{'s' * (done != 1)}"
        return f"{cycles} and {more} iterations of the next" if more else cycles

    def load(self, graph: Graph, names: Names) -> dict[str, list[Key]]:
        """Add tasks that read the arrays; returns their keys. What is in one file has one key.

        What weights were renewed with is left out: it is needed before all others, see `pfb.pipeline.robust`.
        """
        found: dict[str, Key] = {}
        wanted = {kind: files for kind, files in self.files.items() if kind != REWEIGHTING}
        for i, (kind, files) in enumerate(wanted.items()):
            for index, path in enumerate(files):
                if path not in found:
                    # Blocks of the dual are counted band by band, basis by basis.
                    own = index % len(self.blocks.bands) if kind == "dual" else index
                    found[path] = add(graph, names.key("resume", i, index, own), read_array, path)
        return {kind: [found[path] for path in files] for kind, files in wanted.items()}


class Safety:
    """Writes checkpoints when they are due, and knows whether the run shall stop.

    Parameters
    ----------
    sets : sequence of str
        Measurement sets of the run.
    config : Clean
        Its options.
    report : Reporter
        Is told where the run goes on, and when it is asked to end.

    Raises
    ------
    InputError
        If there is a checkpoint that is neither to be gone on from nor to be replaced, or that is of another run.
    """

    def __init__(self, sets: Sequence[str], config: Clean, report: Reporter) -> None:
        self.checkpoints = Checkpoints(checkpoint_path(config))
        self.identity = identity_of(sets, config)
        self.every = config.checkpoint
        self.report = report
        self.stopping: Callable[[], bool] = lambda: False
        self._at, self._when, self._cost = -1, monotonic(), 0.0
        self.saved = self._open(config)

    def _open(self, config: Clean) -> Saved | None:
        path, there = self.checkpoints.path, self.checkpoints.exists()
        if there and config.resume:
            saved = self._load()
            self.report.message(f"going on from {path}, after {saved.describe()}")
            return saved
        if there and not config.overwrite:
            raise InputError(
                f"{path} is the checkpoint of a run that has not ended: "
                "go on from it with --resume, or start anew with --overwrite"
            )
        if config.resume:
            self.report.message(f"there is no checkpoint {path}: the run starts from its beginning")
        return None

    def due(self, iterations: int) -> bool:
        """Return whether to save a run that has done so many iterations."""
        new = iterations - self._at
        if new <= 0 or self.every == 0:
            return False
        if self.stopping():
            return True
        return new >= self.every if self.every else monotonic() - self._when >= self._cost / SHARE

    def save(
        self, engine: Engine, names: Names, iterations: int,
        progress: Progress, gate: Gate, blocks: Blocks, arrays: Mapping[str, Sequence[Key]],
    ) -> None:  # fmt: skip
        """Write a checkpoint: every array from where it lives, and then the manifest.

        Parameters
        ----------
        engine : Engine
            Where the arrays are.
        names : Names
            Of the run.
        iterations : int
            Iterations of all cycles that were done.
        progress, gate, blocks
            As of `Saved`.
        arrays : mapping
            Keys of its arrays by kind; a key that occurs twice is written once.
        """
        began = monotonic()
        folder = self.checkpoints.begin()
        own = names.within("checkpoint", folder.name)
        graph: Graph = {}
        written: dict[Key, str] = {}
        for kind, keys in arrays.items():
            for index, key in enumerate(keys):
                if key not in written:
                    written[key] = f"{kind}-{index}.npy"
                    path = str(folder / written[key])
                    add(graph, own.key("checkpoint", len(written), *key[1:]), write_array, ref(key), path)
        tasks = list(graph)
        engine.run(graph, tasks)
        engine.drop(tasks)
        files = {kind: [written[key] for key in keys] for kind, keys in arrays.items()}
        facts = dict(identity=self.identity, iterations=iterations, gate=gate, progress=asdict(progress), blocks=asdict(blocks))
        self.checkpoints.commit(folder, {**facts, "arrays": files})
        self._at, self._when, self._cost = iterations, monotonic(), monotonic() - began

    def _load(self) -> Saved:
        manifest = self.checkpoints.read()
        refuse_another(self.checkpoints.path, manifest["identity"], self.identity)
        folder = self.checkpoints.path / manifest["folder"]
        told = manifest["progress"]
        start, last, best = (_statistics(told[name]) for name in ("start", "last", "best"))
        history = tuple(Cycle(*line)._replace(parts=tuple(map(_statistics, line[-1]))) for line in told["history"])
        rest = (told[name] for name in ("threshold", "rises", "reason", "reweightings"))
        progress = Progress(start, last, best, history, *rest)
        files = {kind: [str(folder / name) for name in names] for kind, names in manifest["arrays"].items()}
        self._at = manifest["iterations"]
        return Saved(progress, Gate(*manifest["gate"]), Blocks(**manifest["blocks"]), files)

    @contextmanager
    def heeding(self) -> Iterator[None]:
        """Let SIGTERM end the run at the next place where it can be saved; a second one ends it at once."""
        if self.every == 0 or threading.current_thread() is not threading.main_thread():
            yield
            return
        asked = threading.Event()
        before = signal.getsignal(signal.SIGTERM)

        def note(*_: Any) -> None:
            asked.set()
            signal.signal(signal.SIGTERM, before)
            self.report.message("asked to end: what is under way will be saved; ask once more to end at once")

        signal.signal(signal.SIGTERM, note)
        self.stopping = asked.is_set
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)


def _statistics(values: Sequence[Any]) -> Statistics:
    """Make statistics of what JSON has left of them."""
    return Statistics(*values)._replace(parts=tuple(map(_statistics, values[-1])))


def checkpoint_path(config: Clean) -> Path:
    """Return the folder of a run's checkpoints."""
    return Path(f"{config.output}.checkpoint")


def identity_of(sets: Sequence[str], config: Clean) -> dict[str, Any]:
    """Return what decides the next iteration of a run, as plain values: its sets, its options and the program."""
    given = {name: value for name, value in asdict(config).items() if name not in MAY_CHANGE}
    options = {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}
    return {"sets": [str(Path(path).absolute()) for path in sets], "pfb": __version__, **options}


def refuse_another(path: Path, there: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Raise `InputError` if a checkpoint has another identity than the run that shall go on from it."""
    for name in [*here, *there]:
        if there.get(name) != here.get(name):
            word = name if name in ("sets", "pfb") else "--" + name.replace("_", "-")
            raise InputError(
                f"the checkpoint {path} was made with {word} {there.get(name)} but this run has {here.get(name)}: "
                "give the same, or start anew with --overwrite"
            )

