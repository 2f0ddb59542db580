"""What a run takes beside memory: tasks, bytes between workers, and time.

`pfb plan`, the first lines of `pfb clean` and the benchmarks have these figures from here. Traffic and tasks are counted in the
graph itself; CPU seconds follow from the sizes by constants that were measured, see docs/decisions.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from pfb.config import Clean, Image
from pfb.graph.engine import Engine
from pfb.graph.grain import Grain, lay_out
from pfb.graph.names import Names, stage_of, token
from pfb.graph.placement import Placement, spread
from pfb.graph.primal_dual import ITERATIONS, Data, PrimalDual
from pfb.graph.tasks import Graph, Key
from pfb.kernels.decimation import FILL
from pfb.operators.constraints import Constraint
from pfb.operators.hessian import product_costs
from pfb.operators.regularisers import JointPrior
from pfb.pipeline import rounds
from pfb.pipeline.budget import Size, overhead_of, raw_samples_of, require, samples_of
from pfb.pipeline.masking import masked
from pfb.pipeline.planning import Plan, dictionary_of
from pfb.solvers.primal_dual import step_sizes

COUNTED = ITERATIONS
"""Iterations that tasks and traffic are counted over: those of a graph, which ends with tasks of its own."""

TRAVELLING = ("branch-norm", "l21-norm")
"""Stages whose results may be needed on other workers; what else crosses are numbers."""

IMAGE, BASIS = {4: 1.5, 8: 3.0}, {4: 4.6, 8: 9.2}
"""CPU nanoseconds of an iteration per pixel and band, and the same for every basis, by the bytes of a number; without the
product with the Hessian."""

MERGED = 0.45
"""Samples that are left when those that see the image alike are merged, over all."""

RESAMPLING = 5.0
"""The same of the way to coarser pixels and back, in a product with the Hessian."""

CONVOLUTION = {4: 13.0, 8: 25.0}
"""The same of a convolution with a PSF."""

PLANE, PLANES, PER_CYCLE, SAMPLE = 11.8, 8.0, 1.5, 600.0
"""CPU nanoseconds per pixel and plane of w of a gridding; planes at least, and more for every turn of the w-term at the corner
of the image; nanoseconds per sample."""

READ, FIRST = 300.0, 200.0
"""CPU nanoseconds per sample of what reads and weighs them; per pixel and band of what finds beams and the first model, and
writes the dirty images and PSFs."""

LANCZOS, GRADIENTS = 14, 58
"""Products that a preconditioner takes to be scaled; convolutions that the update takes."""

PRODUCTS = 320.0
"""CPU nanoseconds per pixel and band of what writes the products."""

ALWAYS = 4.0
"""CPU seconds of any run: libraries that are loaded, tables that are read, a picture that is drawn."""

DRIVER, WORKER = 0.6e-3, 1.4e-3
"""CPU seconds of a task on workers, beside its own: of scheduler and client, and of the worker."""

W = 0.55
"""The longest w over the longest baseline, unless the field is near the horizon."""

AXIS = 0.85
"""The longest baseline along an axis over the longest one."""


class Seconds(NamedTuple):
    """CPU seconds of all bands together."""

    start: float
    """From the set to the first residual."""
    iteration: float
    """One primal-dual iteration."""
    residual: float
    """Of a major cycle, once its iterations are done."""
    end: float
    """The update and the products."""


@dataclass(frozen=True)
class Forecast:
    """What a run of `pfb clean` takes beside memory."""

    tasks: int
    """Of an iteration."""
    moved: int
    """Bytes that cross between workers in an iteration."""
    cpu: Seconds
    cycles: int
    """At most."""
    iterations: int
    """Of a cycle, at most."""
    cores: int
    """That have something to do."""

    @property
    def total(self) -> float:
        """CPU seconds of the run."""
        return self.cpu.start + self.cycles * (self.iterations * self.cpu.iteration + self.cpu.residual) + self.cpu.end

    @property
    def seconds(self) -> float:
        """Seconds of the run, if the network takes no time."""
        return ALWAYS + (self.total - ALWAYS) / self.cores


def forecast(plan: Plan, config: Clean, nworker: int, nthread: int) -> Forecast:
    """Return what a run takes; parameters as of `budget`."""
    if config.algorithm != "sara":
        return _of_rounds(plan, config, nworker, nthread)
    solver = solver_of(plan, config, nworker, nthread)
    tasks, moved = traffic(solver)
    cpu = seconds(plan, config)
    if nworker > 1:
        cpu = cpu._replace(iteration=cpu.iteration + (DRIVER + WORKER) * tasks)
    cores = min(nworker * nthread, solver.blocks.nband * solver.blocks.nbasis)
    return Forecast(tasks, moved, cpu, config.niter, config.pd_maxit, cores)


def _of_rounds(plan: Plan, config: Clean, nworker: int, nthread: int) -> Forecast:
    """Return what a run without a prior takes; its iterations are rounds of minor cycles, of a typical number."""
    cpu = seconds(plan, config)
    products = [_product(plan, config, plan.longest * band.freq_max / plan.bands[-1].freq_max, samples_of(plan, v))
                for v, band in enumerate(plan.bands)]  # fmt: skip
    own = rounds.work(plan, config, nworker, sum(products))
    overhead = (DRIVER + WORKER) * own.tasks if nworker > 1 else 0.0
    cpu = cpu._replace(iteration=own.cpu + overhead, end=1e-9 * PRODUCTS * len(plan.bands) * plan.geometry.nx * plan.geometry.ny)
    cores = min(nworker * nthread, len(plan.bands) if config.algorithm != "hogbom" else 1)
    return Forecast(own.tasks, own.moved, cpu, config.niter, own.number, cores)


def solver_of(plan: Plan, config: Clean, nworker: int, nthread: int) -> PrimalDual:
    """Return the builder of the iterations that the run would have."""
    dictionary = dictionary_of(config, plan.geometry.shape)
    nband = len(plan.planes)
    products = tuple(plane.stokes for plane in plan.planes)
    constraint = Constraint(config.positivity, masked(config))
    grain, blocks = lay_out(nband, dictionary, nworker, nworker * nthread, overhead_of(config, nworker))
    steps = step_sizes(1.0, dictionary.norm_squared, constraint.active)
    return PrimalDual(
        Names(token("forecast")), blocks, dictionary, JointPrior(config.prior, nband, products=products), steps, 1.0,
        constraint=constraint,
        nworker=nworker, owners=spread(nband, nworker) if nworker > 1 else (), grain=grain, lanes=nthread,
    )  # fmt: skip


def traffic(solver: PrimalDual) -> tuple[int, int]:
    """Return the tasks of an iteration and the bytes that cross between workers in it, both in the mean over a graph."""
    tasks = max(round(len(_iterations(solver)) / COUNTED), 1)
    if solver.grain is Grain.BLOCK:
        return tasks, 0  # all is on one worker
    graph = _iterations(replace(solver, grain=Grain.STEP))  # where every key says what it is; what travels is the same
    place = Placement(tuple(map(str, range(solver.nworker))), solver.owners)
    sent = {
        (needed, *place(key))
        for key, node in graph.items()
        for needed in node.dependencies
        if stage_of(needed) in TRAVELLING and place(needed) != place(key)
    }
    return tasks, sum(_size(solver, key) for key, *_ in sent) // COUNTED


def _iterations(solver: PrimalDual) -> Graph:
    bands = [solver.names.key("model", v) for v in range(solver.blocks.nband)]
    graph: Graph = {}
    solver.iterations(graph, Data(bands, bands, bands, bands), 1, 1 + COUNTED, {})
    return graph


def _size(solver: PrimalDual, key: Key) -> int:
    """Return the bytes of a sum over bands, or of the factors made from it."""
    index = key[1:]
    (b0, b1), (t0, t1) = solver.blocks.bases[index[0]], solver.blocks.tiles[index[1]]
    return solver.prior.nstatistic * (b1 - b0) * (t1 - t0) * solver.dictionary.dtype.itemsize


def seconds(plan: Plan, config: Clean) -> Seconds:
    """Return the CPU seconds of a run's parts, without those of dask."""
    nx, ny = plan.geometry.shape
    pixels = nx * ny
    dictionary = dictionary_of(config, plan.geometry.shape)
    size = dictionary.dtype.itemsize
    start = iteration = residual = 0.0
    highest = max(band.freq_max for band in plan.bands)
    for plane in plan.planes:
        read = sum(raw_samples_of(plan, plane.band))
        samples, longest = samples_of(plan, plane.band), plan.longest * plan.bands[plane.band].freq_max / highest
        product = _product(plan, config, longest, samples)
        once = [_gridding(plan, config, longest, samples, shape) for shape in (plan.geometry.shape, plan.psf_shape)]
        iteration += product + pixels * (IMAGE[size] + BASIS[size] * dictionary.codomain[0])
        residual += 2 * once[0]
        start += sum(once) + READ * read + FIRST * pixels + LANCZOS * (product + CONVOLUTION[4] * pixels)
    end = len(plan.planes) * pixels * (PRODUCTS + min(GRADIENTS, config.cg_maxit) * CONVOLUTION[size])
    return Seconds(ALWAYS + 1e-9 * (start + residual), 1e-9 * iteration, 1e-9 * residual, 1e-9 * end)


def _turns(plan: Plan, longest: float, shape: tuple[int, int]) -> float:
    """Return the turns that the w-term makes at the corner of an image for the longest w."""
    square = min(sum((n // 2 * plan.geometry.cell) ** 2 for n in shape), 1.0)
    return W * longest * (1 - math.sqrt(1 - square))


def _gridding(plan: Plan, config: Image, longest: float, samples: int, shape: tuple[int, int]) -> float:
    planes = PLANES + PER_CYCLE * _turns(plan, longest, shape) if config.wgridding else 1.0
    return shape[0] * shape[1] * planes * PLANE + samples * SAMPLE


def _product(plan: Plan, config: Image, longest: float, samples: int) -> float:
    """Return the nanoseconds of a product with the Hessian of a band, on the pixels and with the screens that it will have."""
    nx, ny = plan.geometry.shape
    kept = min(2 * AXIS * longest * plan.geometry.cell / FILL, 1.0)
    screens = 2 + 2 * math.ceil(_turns(plan, longest, (nx, ny))) if config.wgridding else 2
    through_samples, convolutions = product_costs(nx * ny * kept**2, screens, round(MERGED * samples))
    return min(through_samples, convolutions) + (RESAMPLING * nx * ny if kept < 1 else 0.0)


def announce(plan: Plan, config: Image, engine: Engine | Size) -> str:
    """Say in a line what a run takes.

    Raises
    ------
    InputError
        If there is too little memory.
    """
    memory = require(plan, config, engine)
    if not isinstance(config, Clean):
        return memory
    found = forecast(plan, config, engine.nworker, -(-engine.nthread // engine.nworker))
    between = f" and {size_of(found.moved)} between workers" if engine.nworker > 1 else ""
    tasks = f"{found.tasks} task{'s' * (found.tasks != 1)}"
    return (
        f"{memory}; {tasks}{between} per iteration; at most {found.cycles} cycles of {found.iterations} iterations, "
        f"about {duration(found.seconds)}"
    )


def size_of(count: float) -> str:
    """Return bytes for people to read."""
    return f"{count / 2**30:.3g} GiB" if count >= 2**30 else f"{count / 2**20:.3g} MiB"


def duration(count: float) -> str:
    """Return seconds for people to read."""
    for unit, size in (("hours", 3600), ("minutes", 60)):
        if count >= 2 * size:
            return f"{count / size:.2g} {unit}"
    return f"{count:.2g} s"
