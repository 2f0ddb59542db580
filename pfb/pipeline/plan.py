"""`pfb plan`: what a run would take, without running it."""

from __future__ import annotations

from dataclasses import dataclass

from dask.system import CPU_COUNT

from pfb.config import Plan as Config
from pfb.errors import InputError
from pfb.pipeline.budget import GIB, KEPT, PROCESS, Size, budget, disk, largest, limit
from pfb.pipeline.forecast import duration, forecast
from pfb.pipeline.imaging import plan as make_plan
from pfb.pipeline.planning import Plan
from pfb.pipeline.reporting import Reporter
from pfb.pipeline.streaming import settle

Table = tuple[str, tuple[str, ...], list[tuple[str, ...]]]


@dataclass(frozen=True)
class Forecast:
    """What a run would take."""

    memory: list[tuple[str, ...]]
    """Stages and their bytes on the worker that has most, as text."""
    work: list[tuple[str, ...]]
    """Size of the graph, traffic and time, as text."""
    nworker: int

    def tables(self) -> list[Table]:
        """Return (title, columns, rows)."""
        each = " of each worker" if self.nworker > 1 else ""
        return [(f"Memory{each}", ("stage", "needs"), self.memory), ("Graph and time", ("", ""), self.work)]


def run(sets: tuple[str, ...], config: Config, report: Reporter) -> Forecast:
    """Say what memory and time a run of `pfb clean` would take.

    Parameters
    ----------
    sets : tuple of str
        Measurement sets that would be imaged together.
    config : Config
        Options of `pfb clean`.
    report : Reporter
        Is told of the selection and of the image grid.

    Raises
    ------
    InputError
        For anything that cannot be imaged as asked; not for too little memory, which the tables show.
    """
    if config.scheduler:
        raise InputError(
            f"--scheduler {config.scheduler} is not looked at here: give the --workers and --threads-per-worker that it has"
        )
    if config.cluster not in (None, "local"):
        raise InputError(
            f"--cluster {config.cluster} is not looked at here: leave it out, and give the --workers and --threads-per-worker "
            "that it shall have"
        )
    nworker = max(config.workers, 1)
    nthread = config.threads_per_worker or max(int(CPU_COUNT) // nworker, 1)
    _, planned = make_plan(sets, config, report)
    planned = settle(planned, config, Size(nworker, nworker * nthread))
    needed, there = budget(planned, config, nworker, nthread), limit() // nworker
    memory: list[tuple[str, ...]] = [(stage, f"{(PROCESS + KEPT * size) / GIB:.3g} GiB") for stage, size in needed.stages.items()]
    memory += [
        ("at most", f"{needed.worker / GIB:.3g} GiB"),
        ("there are", f"{there / GIB:.3g} GiB"),
        ("visibilities", "read from disk whenever they are needed" if planned.streamed else "held in memory"),
        ("on disk", f"about {disk(planned, config) / GIB:.3g} GiB"),
        ("largest square image that fits", f"{largest(planned, config, nworker, nthread, there)} pixels")
        if needed.worker > there else ("fits", "yes"),
    ]  # fmt: skip
    return Forecast(memory, _work(planned, config, nworker, nthread), nworker)


def _work(planned: Plan, config: Config, nworker: int, nthread: int) -> list[tuple[str, ...]]:
    found = forecast(planned, config, nworker, nthread)
    return [
        ("bands", str(len(planned.bands))),
        *([("Stokes products", ", ".join(planned.products))] if planned.products != "I" else []),
        ("samples", f"{budget(planned, config, 1, 1).samples:.4g}"),
        ("tasks of an iteration", str(found.tasks)),
        ("between workers per iteration", f"{found.moved / 2**20:.4g} MiB"),
        ("iterations at most", str(found.cycles * found.iterations)),
        ("CPU time of an iteration", f"about {found.cpu.iteration:.2g} s"),
        ("CPU time", f"about {duration(found.total)}"),
        ("time", f"about {duration(found.seconds)} on {found.cores} core{'s' * (found.cores > 1)}, if the network takes none"),
    ]
