"""`pfb plan`: what a run would take, without running it."""

from __future__ import annotations

from dataclasses import dataclass

from dask.system import CPU_COUNT

from pfb.config import Plan as Config
from pfb.errors import InputError
from pfb.graph.blocks import laid_out
from pfb.graph.names import Names, token
from pfb.graph.primal_dual import Data, PrimalDual
from pfb.graph.tasks import Graph
from pfb.operators.constraints import Constraint
from pfb.operators.regularisers import JointPrior
from pfb.pipeline.budget import GIB, KEPT, PROCESS, budget, disk, largest, limit
from pfb.pipeline.imaging import plan as make_plan
from pfb.pipeline.planning import Plan, dictionary_of
from pfb.pipeline.reporting import Reporter
from pfb.solvers.primal_dual import step_sizes

Table = tuple[str, tuple[str, ...], list[tuple[str, ...]]]

ITERATION, RESIDUAL = 57, 370
"""CPU nanoseconds per pixel and band of an iteration and of a residual, of the synthetic set in docs/decisions.md."""


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
    needed, there = budget(planned, config, nworker, nthread), limit() // nworker
    memory: list[tuple[str, ...]] = [(stage, f"{(PROCESS + KEPT * size) / GIB:.3g} GiB") for stage, size in needed.stages.items()]
    memory += [
        ("at most", f"{needed.worker / GIB:.3g} GiB"),
        ("there are", f"{there / GIB:.3g} GiB"),
        ("on disk", f"about {disk(planned, config) / GIB:.3g} GiB"),
        ("largest square image that fits", f"{largest(planned, config, nworker, nthread, there)} pixels")
        if needed.worker > there else ("fits", "yes"),
    ]  # fmt: skip
    return Forecast(memory, _work(planned, config, _solver(planned, config, nworker, nthread), nthread), nworker)


def _solver(planned: Plan, config: Config, nworker: int, nthread: int) -> PrimalDual:
    dictionary = dictionary_of(config, planned.geometry.shape)
    nband = len(planned.bands)
    constraint = Constraint(config.positivity, config.mask is not None)
    blocks = laid_out(nband, dictionary.codomain, nworker, nworker * nthread)
    steps = step_sizes(1.0, dictionary.norm_squared, constraint.active)
    prior = JointPrior(config.prior, nband)
    return PrimalDual(Names(token("plan")), blocks, dictionary, prior, steps, 1.0, constraint=constraint, nworker=nworker)


def _work(planned: Plan, config: Config, solver: PrimalDual, nthread: int) -> list[tuple[str, ...]]:
    names, nband = solver.names, len(planned.bands)
    bands = [names.key("model", v) for v in range(nband)]
    graph: Graph = {}
    solver.iterations(graph, Data(bands, bands, bands, bands), 1, 2)
    nbasis, ncoefficient = solver.dictionary.codomain
    statistics = 2 if config.prior == "mean21" else 1
    # A branch of the sum from every other worker, and the factors back.
    moved = 2 * (solver.nworker - 1) * nbasis * ncoefficient * statistics * solver.dictionary.dtype.itemsize
    pixels = planned.geometry.nx * planned.geometry.ny
    cpu = 1e-9 * pixels * nband * config.niter * (config.pd_maxit * ITERATION + RESIDUAL)
    busy = min(solver.nworker * nthread, nband)
    return [
        ("bands", str(nband)),
        ("samples", f"{budget(planned, config, 1, 1).samples:.4g}"),
        ("tasks of an iteration", str(len(graph))),
        ("between workers per iteration", f"{moved / 2**20:.4g} MiB"),
        ("iterations at most", str(config.niter * config.pd_maxit)),
        ("CPU time", f"about {cpu / 60:.2g} minutes"),
        ("time", f"about {cpu / busy / 60:.2g} minutes on {busy} cores"),
    ]
