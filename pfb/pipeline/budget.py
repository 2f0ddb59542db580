"""How much memory a run takes, stage by stage, and how much there is: a run that cannot fit is refused before it starts."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from distributed.system import memory_limit

from pfb.config import Clean, Image
from pfb.errors import InputError
from pfb.graph.cluster import ClusterEngine
from pfb.graph.engine import Engine, ThreadEngine
from pfb.graph.grain import Grain, lay_out
from pfb.operators.hessian import MOST
from pfb.operators.wavelets import Dictionary
from pfb.pipeline import rounds
from pfb.pipeline.averaging import PIECE
from pfb.pipeline.loading import READ
from pfb.pipeline.planning import Plan, dictionary_of, parse_products

GIB = 2**30

PROCESS = 490 * 2**20
"""Bytes of a process that has done nothing: Python, libraries, compiled kernels."""

GRIDDING = 50
"""Bytes per pixel while one thread grids: image, its copy, and the complex grid, oversampled 1.46 times along an axis."""

RESIDUAL = 105
"""The same while it predicts and grids a residual."""

PICTURE, PRODUCTS = 100 * 2**20, 165
"""Bytes of the libraries that draw and write, and bytes per pixel of what they write at a time."""

KEPT = 1.1
"""Memory of a process over that of its live arrays: what is freed is kept, and not always of use for what comes next."""

MANY, CONVOLUTIONS = 0.05, 45
"""Samples per pixel from which a band's products with the Hessian may be convolutions; bytes per pixel that these keep."""

PRODUCTS_OF = 40
"""Bytes of a sample for products with the Hessian: coordinates and work."""

SAMPLE = 24 + PRODUCTS_OF
"""The same, and visibility and weight."""

STORED = 24
"""Bytes of a sample on disk, at most: they are compressed, to about half."""

BATCH = 1 << 19
"""Samples of a streamed band that are in memory at a time, at least; as many as the image has pixels, so that gridding them takes
longer than the Fourier transforms."""

BATCHED, READING, DENSITY, MERGING = 120, 160, 11.6, 150
"""Bytes of a sample of a batch: the one before, and what is made of them; of one that is read from the set; bytes per pixel of
the density; of a sample that is being merged."""

RENEWED = 16
"""Bytes of a sample more if its weight may be renewed: its natural weight, and the imaging weight that the run began with."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Memory that a run takes on the worker that has most."""

    stages: Mapping[str, int]
    """Bytes of the arrays that live at once in a stage."""
    nworker: int
    """Processes that take so much each."""
    samples: int
    """Samples of all planes."""

    @property
    def worker(self) -> int:
        """Bytes of a worker at most."""
        return PROCESS + int(KEPT * max(self.stages.values()))


def budget(plan: Plan, config: Image, nworker: int, nthread: int) -> Budget:
    """Return the memory that a run takes.

    Live arrays are counted; what only experience knows are the constants above (docs/decisions.md).

    Parameters
    ----------
    plan : Plan
        What is imaged.
    config : Image
        Options; those of `Clean` have stages of their own.
    nworker, nthread : int
        Processes that bands are spread over, and threads of each.
    """
    pixels = plan.geometry.nx * plan.geometry.ny
    padded = plan.psf_shape[0] * plan.psf_shape[1]
    nband = -(-len(plan.planes) // nworker)
    counts = [samples_of(plan, plane.band) for plane in plan.planes]
    busy = min(nthread, nband)
    data = _streamed(plan, config, nband, busy) if plan.streamed else sum(sorted(counts)[-nband:]) * SAMPLE
    stages = {"read": nthread * _reading(plan)} if plan.streamed else {}
    stages |= {"grid": data + 8 * nband * (pixels + padded) + busy * GRIDDING * padded}
    if nworker == 1:
        stages["products"] = PICTURE + PRODUCTS * pixels
    if isinstance(config, Clean) and config.algorithm != "sara":
        hessians = [count * SAMPLE + (count > MANY * pixels) * CONVOLUTIONS * pixels for count in sorted(counts)[-nband:]]
        own = rounds.memory(plan, config, nworker, busy * RESIDUAL * pixels, hessians)
        stages |= {stage: data + size for stage, size in own.items()}
    elif isinstance(config, Clean):
        stages |= _cleaning(plan, config, nband, busy, counts)
        dictionary = dictionary_of(config, plan.geometry.shape)
        grain, _ = lay_out(len(plan.planes), dictionary, nworker, nworker * nthread, overhead_of(config, nworker))
        if grain is Grain.BLOCK:  # all bands are on one of the workers
            stages["primal-dual"] = _cleaning(plan, config, len(plan.planes), 1, counts)["primal-dual"]
        elif nworker > 1:
            stages["primal-dual"] += _joined(config, dictionary, nworker, nband)
    return Budget(stages=stages, nworker=nworker, samples=sum(counts))


def samples_of(plan: Plan, band: int) -> int:
    """Return how many samples of a band are imaged, flagged ones among them."""
    counts = raw_samples_of(plan, band)
    return sum(counts) if not plan.left else round(sum(n * f for n, f in zip(counts, plan.left[band], strict=True)))


def raw_samples_of(plan: Plan, band: int) -> list[int]:
    """Return how many samples a band has in each of its windows, before any are averaged."""
    return [w.rows * (s.stop - s.start) for w, s in zip(plan.windows[band], plan.channels[band], strict=True)]


def _cleaning(plan: Plan, config: Clean, nband: int, busy: int, counts: Sequence[int]) -> dict[str, int]:
    pixels = plan.geometry.nx * plan.geometry.ny
    largest = sorted(counts)[-nband:]
    convolutions = sum(n > MANY * pixels for n in largest) * CONVOLUTIONS * pixels
    merged = [min(n, MOST * pixels) for n in largest]
    if plan.streamed:
        data = _streamed(plan, config, nband, busy) + PRODUCTS_OF * sum(merged)
    else:
        data = sum(largest) * SAMPLE
    data += convolutions
    padded = plan.psf_shape[0] * plan.psf_shape[1]
    dictionary = dictionary_of(config, plan.geometry.shape)
    size = dictionary.dtype.itemsize
    nbasis, ncoefficient = dictionary.codomain
    image, dual = size * nband * pixels, size * nband * nbasis * ncoefficient
    weights = size * nbasis * ncoefficient
    transfers = nband * padded * (size + 4) // 2
    resident = data + transfers + weights
    # Present and best model, residuals before and after; the dual waits.
    residual = resident + 2 * image + 2 * 8 * nband * pixels + dual + busy * RESIDUAL * pixels
    # Model, slope, three states and what is between them; images of every basis; two duals; the spectrum of a convolution.
    spectrum = 8 * plan.geometry.nx * plan.psf_shape[1] // 2
    iteration = resident + (7 + nbasis) * image + 8 * nband * pixels + 2 * dual + busy * spectrum
    stages = {"primal-dual": iteration, "residual": residual}
    if plan.streamed:
        stages["hessian"] = data + transfers + 2 * 8 * nband * pixels + busy * MERGING * (merged[-1] + batch_of(pixels))
    # The primary beam of every band; that of all together, and the ratios, if models are behind it.
    behind = config.beam_use == "model"
    more = ((8 * nband + behind * (8 + size * nband)) * pixels) if config.has_beam else 0
    if config.robust_reweight_at is None:
        return {stage: bytes_ + more for stage, bytes_ in stages.items()}
    # The model that weights were renewed with stays.
    more += image + (0 if plan.streamed else RENEWED * sum(largest))
    stages["reweigh"] = resident + 3 * image + 8 * nband * (3 * pixels + padded) + dual + busy * GRIDDING * padded
    return {stage: size + more for stage, size in stages.items()}


def batch_of(pixels: int) -> int:
    """Return how many samples of a streamed band are in memory at a time, for images of so many pixels."""
    return max(BATCH, pixels)


def _streamed(plan: Plan, config: Image, nband: int, busy: int) -> int:
    """Return the bytes that streamed bands take: batches, and what their weights are made of."""
    pixels = plan.geometry.nx * plan.geometry.ny
    most = max(samples_of(plan, band) for band in range(len(plan.bands)))
    densities = 0 if config.weighting == "natural" else nband if config.weight_grouping == "band" else 1
    return busy * BATCHED * min(batch_of(pixels), most) + int(densities * DENSITY * pixels)


def _reading(plan: Plan) -> int:
    """Return the bytes that a piece takes while it is read and written."""
    raw = max(sum(raw_samples_of(plan, band)) for band in range(len(plan.bands)))
    averages = max((PIECE * left for own in plan.left for left in own if left < 1), default=0)
    each = BATCHED / 2 * len(plan.products)
    return int((READING - BATCHED / 2 + each) * min(READ, raw) + each * min(averages, raw))


def _joined(config: Clean, dictionary: Dictionary, nworker: int, nband: int) -> int:
    """Return the bytes of sums over bands that a worker makes and is sent, of the factors, and of duals that wait for them."""
    nbasis, ncoefficient = dictionary.codomain
    arrays = 2 * nbasis + (nworker - 1) * -(-nbasis // nworker)
    sums = sums_of(config.prior, len(parse_products(config.stokes)))
    return (arrays * sums + nband * nbasis) * ncoefficient * dictionary.dtype.itemsize


def overhead_of(config: Image, nworker: int) -> float:
    """Return the seconds that a task costs beside its work, on the engine that a run of so many workers has."""
    return (ClusterEngine if nworker > 1 or config.workers or config.scheduler else ThreadEngine).overhead


def sums_of(prior: str, nproduct: int) -> int:
    """Return of how many sums over the planes a prior is made: `mean21` takes a mean of each Stokes product, and a norm."""
    return 1 + nproduct if prior == "mean21" else 1


def limit() -> int:
    """Return the bytes that this process may use: the least of the machine's, its control group's and Slurm's."""
    found = [int(memory_limit())]
    if value := os.environ.get("SLURM_MEM_PER_NODE"):
        found.append(int(value) * 2**20)
    elif value := os.environ.get("SLURM_MEM_PER_CPU"):
        found.append(int(value) * 2**20 * int(os.environ.get("SLURM_CPUS_ON_NODE", "1")))
    return min(found)


FULL = 0.8
"""What a disk must have free, over the bytes of uncompressed products: models and blank pixels compress well, noise does not."""


def disk(plan: Plan, config: Image) -> int:
    """Return the bytes of the dataset, uncompressed, of the FITS images, and of the checkpoints."""
    nband, pixels = len(plan.planes), plan.geometry.nx * plan.geometry.ny
    padded = plan.psf_shape[0] * plan.psf_shape[1]
    stored = STORED * sum(samples_of(plan, plane.band) for plane in plan.planes) if plan.streamed else 0
    if not isinstance(config, Clean):
        return stored + (8 * nband + 4 * (nband + len(plan.products))) * (pixels + padded)
    dictionary = dictionary_of(config, plan.geometry.shape)
    nbasis, ncoefficient = dictionary.codomain if config.algorithm == "sara" else (0, 0)
    # Dirty image, model, residual, and update or restored image.
    products = (8 * nband + 4 * (nband + len(plan.products))) * (4 * pixels + padded) + 8 * nband * nbasis * ncoefficient
    if config.has_beam:  # the beams in the dataset; images of them, and images corrected for them
        products += (8 * nband + 2 * 4 * (nband + len(plan.products))) * pixels
    # Models, residuals, dual, and two images of an iteration that is under way; the one before stays until the next is whole.
    size = dictionary.dtype.itemsize
    checkpoint = nband * ((2 * size + 2 * 8 + 2 * size) * pixels + size * nbasis * ncoefficient)
    return stored + products + (0 if config.checkpoint == 0 else 2 * checkpoint)


def require_disk(plan: Plan, config: Image) -> None:
    """Raise `InputError` if the products do not fit the disk, which would be known at the end of a run only."""
    folder = next(parent for parent in Path(f"{config.output}.zarr").absolute().parents if parent.exists())
    needed, free = disk(plan, config), shutil.disk_usage(folder).free
    if free < FULL * needed:
        raise InputError(
            f"the products need about {needed / GIB:.3g} GiB but {folder} has {free / GIB:.3g} GiB free: "
            "make room, write elsewhere (--output), or make the image smaller (--npix)"
        )


@dataclass(frozen=True)
class Size:
    """What an engine would have; names as of `Engine`."""

    nworker: int
    nthread: int
    memory: int = 0


def allowed(engine: Engine | Size, config: Image) -> int:
    """Return the bytes that each worker may use; 0 if nobody knows."""
    elsewhere = config.scheduler or config.cluster not in (None, "local")
    if engine.memory or elsewhere:
        return engine.memory
    return limit() // engine.nworker


def require(plan: Plan, config: Image, engine: Engine | Size) -> str:
    """Say in a sentence what memory a run takes.

    Raises
    ------
    InputError
        If it does not fit; the sentence says what would.
    """
    nthread = -(-engine.nthread // engine.nworker)
    needed, there = budget(plan, config, engine.nworker, nthread).worker, allowed(engine, config)
    each = " per worker" if engine.nworker > 1 else ""
    if there and needed > there:
        nx, ny = plan.geometry.shape
        raise InputError(
            f"{len(plan.planes)} bands of {nx} x {ny} pixels need about {needed / GIB:.3g} GiB of memory{each} but there are "
            f"{there / GIB:.3g} GiB: give --npix {largest(plan, config, engine.nworker, nthread, there)} or less, "
            "fewer bands (--nband), or workers on more machines (--scheduler)"
        )
    said = f"about {needed / GIB:.3g} GiB of memory{each} will be used" + (f", of {there / GIB:.3g} GiB" if there else "")
    return said + ("; visibilities are read from disk whenever they are needed" if plan.streamed else "")


def largest(plan: Plan, config: Image, nworker: int, nthread: int, there: int) -> int:
    """Return the largest even number of pixels along an edge that fits the memory of a worker; 2 at least."""
    low, high = 1, max(plan.geometry.shape) // 2
    while high - low > 1:
        middle = (low + high) // 2
        fits = budget(shrunk(plan, 2 * middle), config, nworker, nthread).worker <= there
        low, high = (middle, high) if fits else (low, middle)
    return 2 * low


def shrunk(plan: Plan, npix: int) -> Plan:
    """Return a plan with fewer pixels."""
    old = plan.geometry
    padded = [npix * p // n for p, n in zip(plan.psf_shape, old.shape, strict=True)]
    return replace(plan, geometry=replace(old, nx=npix, ny=npix), psf_shape=(padded[0], padded[1]))
