"""What `pfb image` and `pfb clean` have in common: from the set to weights, dirty images, PSFs and beams."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import numpy as np

from pfb.config import Clean, Image
from pfb.errors import InputError
from pfb.graph import chi_squared, imaging
from pfb.graph.engine import Engine
from pfb.graph.names import Names, token
from pfb.graph.tasks import Graph, Key, add, ref
from pfb.io import dataset
from pfb.io.dataset import Layout
from pfb.io.measurement_set import SelectedData, Selection, select
from pfb.io.staging import require_writable, scratch, staged
from pfb.kernels.beam import fit_beam
from pfb.kernels.chi_squared import Expected
from pfb.operators.measurement import Gridder
from pfb.pipeline.beams import restoring_beam
from pfb.pipeline.blanks import only_zeros, warn_of_blanks, warn_of_zeros
from pfb.pipeline.budget import require_disk
from pfb.pipeline.forecast import announce
from pfb.pipeline.planning import Plan, make, nyquist_cell, parse_products
from pfb.pipeline.primary_beam import facts
from pfb.pipeline.products import Images, kinds_of, product_paths, write_products
from pfb.pipeline.profile import folders, profiled
from pfb.pipeline.reporting import Reporter
from pfb.pipeline.session import open_engine
from pfb.pipeline.streaming import Reading, reading_of, require_cache, settle
from pfb.pipeline.weighting import cost, scheme_of, thermal
from pfb.types import Band, Plane, Real

Prepare = Callable[[Plan], Mapping[str, Any]]
Attempt = Callable[..., Any]


def directly(name: str, function: Callable[..., Any], *args: Any) -> Any:
    """Take a step, whatever its name."""
    return function(*args)


class Ready(NamedTuple):
    """What is known of a run before data are read."""

    store: Path
    planned: tuple[SelectedData, Plan]
    extra: Mapping[str, Any]
    """Fields of the dataset's `Layout` that the command adds."""


@dataclass(frozen=True)
class Run:
    """A planned run: its data, its images, its store, and the names of its tasks."""

    data: SelectedData
    plan: Plan
    store: Path
    names: Names
    gridder: Gridder
    reading: Reading


@dataclass(frozen=True)
class Imaged:
    """What is resident once the dirty images are made; planes without data are left out."""

    planes: list[Plane]
    """The planes that have data: what follows has an entry for each."""
    visibilities: list[Key]
    dirty: list[Key]
    psf: list[Key]
    expected: list[Expected]
    """What noise would make of it."""
    weights: list[float]
    """Sum of the weights."""
    wsum: dict[int, float]
    """The same of all bands of each product that has data, by its number."""
    freq: list[float]
    """Effective frequency of every band in Hz, with data or without."""
    leading: int
    """Number of the product that decides where emission is: I if it has data, or the first that has."""
    natural: list[Key]
    """Visibilities with natural weights; only where weights are going to be renewed."""

    def of(self, product: int, keys: Sequence[Key]) -> dict[int, Key]:
        """Pick the keys of a product, by the place of their plane."""
        return {v: key for v, (plane, key) in enumerate(zip(self.planes, keys, strict=True)) if plane.stokes == product}

    def shares(self, product: int) -> list[float]:
        """Return the part of each band with data in the weights of a product."""
        own = [w for w, plane in zip(self.weights, self.planes, strict=True) if plane.stokes == product]
        return [w / self.wsum[product] for w in own]

    @cached_property
    def scales(self) -> dict[int, float]:
        """The least thermal noise of any product over that of each: what is multiplied with it is as noisy in all of them."""
        noise = {
            s: math.sqrt(sum(self.expected[v].variance for v in self.of(s, self.visibilities))) / wsum
            for s, wsum in self.wsum.items()
        }
        return {s: min(noise.values()) / own for s, own in noise.items()}

    @property
    def totals(self) -> list[float]:
        """What the images of each plane are divided by while minimising: Jy/beam, times the scale of the product."""
        return [self.wsum[plane.stokes] / self.scales[plane.stokes] for plane in self.planes]


class Opened(NamedTuple):
    """A run whose store exists, the engine it runs on, and its first images."""

    run: Run
    engine: Engine
    imaged: Imaged
    inspections: list[Callable[[Images], Mapping[str, str]]]
    """What looks at the images when they are written; gives lines for the summary."""


@contextmanager
def opened(
    sets: tuple[str, ...], config: Image, report: Reporter, *, maker: str, prepare: Prepare | None = None
) -> Iterator[Opened]:
    """Plan a run, start its engine and make its images; afterwards write its products.

    Everything is made beside its final place and appears when the block, which must finish the
    dataset, has ended without an error.

    Parameters
    ----------
    sets : tuple of str
        Measurement sets.
    config : Image
        Options.
    report : Reporter
        Is told the progress and, at the end, the files.
    maker : str
        ``image`` or ``clean``.
    prepare : callable, optional
        Checks what else the command needs of the planned images and returns further fields of the
        dataset's `Layout`; it is called before any data are read.

    Raises
    ------
    InputError
        If a product exists and must not be replaced, or cannot be written, or the data cannot be imaged as asked.
    """
    began = monotonic()
    final, (data, planned), extra = preflight(sets, config, report, maker=maker, prepare=prepare)
    with staged(final, config.overwrite) as store, scratch(final) as parking:
        nthreads = 1
        with open_engine(config, len(planned.planes), parking, report) as engine, profiled(config, engine, report):
            nthreads = engine.nthread
            report.message(announce(planned := settle(planned, config, engine), config, engine))
            reading = reading_of(planned, config, parking, report)
            dataset.create(
                store,
                Layout(
                    maker=maker, geometry=planned.geometry, observation=data.observation, bands=planned.bands,
                    psf_shape=planned.psf_shape, products=planned.products, options=asdict(config), **extra,
                ),
            )  # fmt: skip
            made = Run(data, planned, store, names_of(sets, config), gridder(planned, config, engine), reading)
            state = Opened(made, engine, make_images(made, config, engine, report), [])
            yield state
        notes: dict[str, str] = {}

        def inspect(images: Images) -> None:
            for look in state.inspections:
                notes.update(look(images))

        files = write_products(
            store, config.output, beam=restoring_beam(config), overwrite=config.overwrite, report=report, nthreads=nthreads,
            inspect=inspect,
        )  # fmt: skip
    seconds = {"seconds": f"{monotonic() - began:.1f}"}
    report.summary(f"pfb {maker}", {"dataset": str(final)} | {file.name: str(file.parent) for file in files} | notes | seconds)


def preflight(
    sets: tuple[str, ...], config: Image, report: Reporter, *,
    maker: str, prepare: Prepare | None = None, attempt: Attempt = directly,
) -> Ready:  # fmt: skip
    """Try all that could be refused before data are read; parameters as of `opened`.

    `pfb check` gives an `attempt` of its own, which is told the name of a step, the function, and its arguments,
    and goes on after an error.
    """
    final = attempt("output", require_output, config, maker)
    planned = attempt("selection and image", plan, sets, config, report)
    extra = attempt("dictionary and mask", _prepare, planned, prepare)
    attempt("disk", _require_disk, planned, config)
    return Ready(final, planned, extra)


def _prepare(planned: tuple[SelectedData, Plan], prepare: Prepare | None) -> Mapping[str, Any]:
    return {} if prepare is None else prepare(planned[1])


def _require_disk(planned: tuple[SelectedData, Plan], config: Image) -> None:
    require_disk(planned[1], config)


def require_output(config: Image, maker: str) -> Path:
    """Return where the dataset goes.

    Raises
    ------
    InputError
        If a product exists and must not be replaced, or cannot be written.
    """
    final = Path(f"{config.output}.zarr")
    if final.name == ".zarr":
        raise InputError(f"--output {config.output!r} is a folder, not a prefix: add what the names begin with, e.g. image")
    paths = product_paths(config.output, kinds_of(maker, facts(config) is not None), parse_products(config.stokes))
    require_cache(config)
    require_writable([final, *(path for group in paths.values() for path in group), *folders(config)], config.overwrite)
    return final


def plan(sets: tuple[str, ...], config: Image, report: Reporter) -> tuple[SelectedData, Plan]:
    """Select the data and plan the images; tells the reporter what was decided by default."""
    chosen = Selection(
        field=config.field, spw=config.spw, scan=config.scan, chan=config.chan,
        time=config.time, min_uv=config.min_uv, max_uv=config.max_uv,
        data_column=config.data_column, weight_column=config.weight_column,
    )  # fmt: skip
    data = select(sets, chosen)
    planned = make(data, config)
    scheme_of(config, planned.geometry)  # refuses here what it would when the data have been read
    for note in data.notes:
        report.message(note)
    for warning in (*data.warnings, *planned.warnings):
        report.warning(warning)
    g, bands = planned.geometry, planned.bands
    stokes = "" if planned.products == "I" else f" in Stokes {', '.join(planned.products)}"
    report.message(
        f"{len(bands)} band{'s' * (len(bands) > 1)}{stokes} of {g.nx} x {g.ny} pixels of {np.degrees(g.cell) * 3600:.4g} arcsec, "
        f"{bands[0].freq_min / 1e6:.6g} - {bands[-1].freq_max / 1e6:.6g} MHz"
    )
    return data, planned


def gridder(planned: Plan, config: Image, engine: Engine) -> Gridder:
    """Return the gridder of a run; a plane has the threads that its neighbours leave."""
    g = planned.geometry
    nthreads = max(engine.nthread // engine.nworker // -(-len(planned.planes) // engine.nworker), 1)
    return Gridder(g.shape, g.cell, config.epsilon, config.wgridding, nthreads)


def names_of(sets: Iterable[str], config: Image) -> Names:
    """Return names that identify the run: the same inputs give the same keys."""
    return Names(token(*map(str, sets), *(f"{k}={v}" for k, v in sorted(asdict(config).items()))))


def make_images(run: Run, config: Image, engine: Engine, report: Reporter) -> Imaged:
    """Read, weigh and grid all planes, and write dirty images, PSFs and weight sums to the store.

    Raises
    ------
    InputError
        If no plane has an unflagged sample.
    """
    names, planned, nproduct = run.names, run.plan, len(run.plan.products)
    graph: Graph = {}
    loaded = imaging.load(graph, names, run.reading.loaders, config.clip, nproduct, run.reading.join)
    run_stage(engine, report, "read", graph, loaded)

    graph = {}
    weighed = imaging.weigh(graph, names, loaded, scheme_of(config, planned.geometry), nproduct)
    sums = imaging.sums(graph, names, loaded, weighed)
    flat = [add(graph, names.within("zeros").key("statistics", v), only_zeros, ref(key)) for v, key in enumerate(weighed)]
    noise = chi_squared.expectations(graph, names, loaded, weighed)
    run_stage(engine, report, "weight", graph, weighed + sums + flat + noise)
    totals, expected = engine.fetch(sums), engine.fetch(noise)
    engine.drop(sums + noise)

    active = require_data(run.data, planned, config, [own.wsum for own in totals])
    warn_of_zeros(planned, report, engine.fetch(flat))
    engine.drop(flat)
    planes = [planned.planes[v] for v in active]
    warn_of_blanks(planned, planes, report)
    leading = min((plane.stokes for plane in planes), key=lambda s: planned.products[s] != "I")
    report.message(cost(config, totals[leading::nproduct], expected[leading::nproduct]))
    engine.narrow(active)
    engine.drop(key for i, keys in enumerate(zip(weighed, loaded, strict=True)) for key in keys if i not in active)
    used, natural = ([keys[i] for i in active] for keys in (weighed, loaded))
    if not (isinstance(config, Clean) and config.robust_reweight_at):
        engine.drop(natural)
        natural = []
    expected = [expected[i] for i in active]
    weights = record_weights(run, planes, [totals[i] for i in active], expected)
    dirty, psfs = grid_images(run, planes, used, names, engine, report)
    return Imaged(planes, used, dirty, psfs, expected, *weights, leading, natural)


class Weights(NamedTuple):
    """What the weights of a run come to, see `Imaged`."""

    weights: list[float]
    wsum: dict[int, float]
    freq: list[float]


def record_weights(run: Run, planes: Sequence[Plane], sums: Sequence[imaging.Sums], expected: Sequence[Expected]) -> Weights:
    """Write what is known of the weights of every plane to the store, and return it.

    Parameters
    ----------
    run : Run
        What is imaged.
    planes : sequence of Plane
        Those with data.
    sums, expected
        Of those.
    """
    known, plan = dict(zip(planes, sums, strict=True)), run.plan
    shape = len(plan.products), len(plan.bands)
    wsum, noise = np.zeros(shape), np.full(shape, np.nan)
    for plane, own, foretold in zip(planes, sums, expected, strict=True):
        wsum[plane], noise[plane] = own.wsum, thermal(own, foretold)
    freq = [frequency(band, [own for plane, own in known.items() if plane.band == band.index]) for band in plan.bands]
    for name, values in (("wsum", wsum), ("freq", np.array(freq)), ("thermal", noise)):
        dataset.write(run.store, name, None, values)
    totals = {s: float(sum(wsum[s].tolist())) for s in range(shape[0])}
    return Weights([own.wsum for own in sums], {s: total for s, total in totals.items() if total > 0}, freq)


def frequency(band: Band, products: Sequence[imaging.Sums]) -> float:
    """Return the effective frequency of a band: the mean over its samples of all products with data, with their weights."""
    if len(products) < 2:
        return products[0].freq if products else band.freq
    return float(np.average([own.freq for own in products], weights=[own.wsum for own in products]))


def grid_images(
    run: Run, planes: Sequence[Plane], visibilities: list[Key], names: Names, engine: Engine, report: Reporter
) -> tuple[list[Key], list[Key]]:
    """Make dirty images, PSFs and beams of the planes with data, and write them to the store; returns keys of the first two."""
    graph: Graph = {}
    dirty = imaging.dirty(graph, names, visibilities, run.gridder)
    psfs = imaging.psf(graph, names, visibilities, run.gridder, run.plan.psf_shape)
    beams = [add(graph, names.key("beam", v), fit, ref(key), run.gridder.cell) for v, key in enumerate(psfs)]
    writes = [write(graph, names, run.store, variable, plane, v, key)
              for variable, keys in (("dirty", dirty), ("psf", psfs), ("beam", beams))
              for v, (plane, key) in enumerate(zip(planes, keys, strict=True))]  # fmt: skip
    run_stage(engine, report, "grid", graph, dirty + psfs + beams + writes)
    for plane, beam in zip(planes, engine.fetch(beams), strict=True):
        if np.isnan(beam).any():
            what = run.plan.name(plane)
            report.warning(f"the PSF of {what} has no main lobe to fit a beam to: it is left out of restored images")
    engine.drop(beams + writes)
    return dirty, psfs


def require_data(data: SelectedData, planned: Plan, config: Image, wsums: Sequence[float]) -> list[int]:
    """Return the numbers of the planes whose weights have a sum above zero; raises `InputError` if there is none."""
    active = [v for v, wsum in enumerate(wsums) if wsum > 0]
    if active:
        return active
    if config.weighting != "natural" and planned.geometry.cell > nyquist_cell(data.longest_baseline_wavelengths):
        raise InputError(
            f"--cell {config.cell} arcsec is too large for any of the baselines, which --weighting {config.weighting} "
            "therefore leaves out: make the pixels smaller"
        )
    stokes = "" if planned.products == "I" else f", or lack a correlation that Stokes {', '.join(planned.products)} need"
    raise InputError(f"all selected samples are flagged or have weight zero{stokes}: select others or unflag some")


def run_stage(engine: Engine, report: Reporter, name: str, graph: Graph, keep: list[Key]) -> None:
    """Run a graph as a stage whose progress is that of its results."""
    with engine.monitor.stage(name), report.stage(name, len(keep)) as advance:
        engine.run(graph, keep, advance)


def write(graph: Graph, names: Names, store: Path, variable: str, plane: Plane, index: int, key: Key) -> Key:
    """Add a task that writes one plane of a variable where the plane is; returns its key."""
    place = list(dataset.SCHEMA).index(variable)
    call = partial(write_plane, str(store), variable, plane)
    return add(graph, names.key("write", place, index), imaging.call, call, ref(key))


def write_plane(store: str, variable: str, plane: Plane, array: Real) -> None:
    """Write one plane of a variable; returns nothing, so that nothing travels."""
    dataset.write(store, variable, plane, array)


def fit(psf: Real, cell: float) -> Real:
    """Fit the beam of a PSF: (3,) radians, NaN if there is none."""
    beam = fit_beam(psf, cell)
    return np.full(3, np.nan) if beam is None else np.array(beam)
