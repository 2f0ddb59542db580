"""Whether the samples of a run stay in memory, and where they are if they do not."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pfb.config import Image
from pfb.errors import InputError
from pfb.graph.engine import Engine
from pfb.io.measurement_set import Window, pieces
from pfb.io.visibility_store import survey
from pfb.kernels.samples import join
from pfb.pipeline.budget import GIB, STORED, Size, allowed, batch_of, budget, raw_samples_of, samples_of
from pfb.pipeline.loading import READ, Loader
from pfb.pipeline.planning import Plan
from pfb.pipeline.reporting import Reporter
from pfb.pipeline.storing import Deferred, Joiner, Kept


@dataclass(frozen=True)
class Reading:
    """How a run comes by its samples."""

    loaders: Sequence[Sequence[Sequence[Callable[[], Any]]]]
    """``[band][window][piece]``, see `pfb.graph.imaging.load`."""
    join: Callable[[Sequence[Any]], Any]
    """Makes the samples of a window out of its pieces."""


def settle(plan: Plan, config: Image, engine: Engine | Size) -> Plan:
    """Decide whether samples are streamed: if that is asked for, or if they do not fit the memory otherwise."""
    streamed = replace(plan, streamed=True)
    if config.stream != "auto":
        return streamed if config.stream == "always" else plan
    there = allowed(engine, config)
    nthread = -(-engine.nthread // engine.nworker)
    needed, least = (budget(p, config, engine.nworker, nthread).worker for p in (plan, streamed))
    return streamed if there and needed > there and least < needed else plan


def require_cache(config: Image) -> None:
    """Make the folder that is named to keep visibilities.

    Raises
    ------
    InputError
        If it cannot be made or not be written to.
    """
    if config.cache is None:
        return
    folder = Path(config.cache)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--cache {config.cache} is a file but must be a folder: name another one")
    above = folder if folder.is_dir() else folder.absolute().parent
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        raise InputError(f"--cache {config.cache}: {above} does not exist or is not writable; name another folder")


def reading_of(plan: Plan, config: Image, scratch: Path, report: Reporter) -> Reading:
    """Return how the samples are read, and say where they are kept and what is there already.

    Parameters
    ----------
    plan : Plan
        Of `settle`.
    config : Image
        Options.
    scratch : Path
        A folder of the run that all workers see, for samples that are streamed and not to be kept.
    report : Reporter
        Is told.

    Raises
    ------
    InputError
        If the disk has too little space.
    """
    before = sum(sum(raw_samples_of(plan, band.index)) for band in plan.bands)
    after = sum(samples_of(plan, band.index) for band in plan.bands)
    if before > after:
        report.message(f"averaging makes about {after:.3g} samples of {before:.3g}")
    if not plan.streamed and config.cache is None:
        return Reading(plan.loaders, join)
    folder = scratch / "visibilities" if config.cache is None else Path(config.cache).absolute()
    folder.mkdir(exist_ok=True)
    loaders = [
        [_short(own, window) for own, window in zip(windows, plan.windows[band], strict=True)]
        for band, windows in enumerate(plan.loaders)
    ]
    every = [loader for windows in loaders for own in windows for loader in own]
    there = 0 if config.cache is None else _look(str(config.cache), every, report)
    _require_space(plan, folder, 1 - there / len(every))
    kept = [[[Kept(loader, str(folder)) for loader in own] for own in windows] for windows in loaders]
    if not plan.streamed:
        return Reading(kept, join)
    joiner = Joiner(batch_of(plan.geometry.nx * plan.geometry.ny))
    return Reading([[[Deferred(own) for own in pieces_] for pieces_ in windows] for windows in kept], joiner)


def _short(loaders: Sequence[Loader], window: Window) -> Sequence[Loader]:
    """Return loaders of pieces that are small enough to be worked on one by one; those that average cut them themselves."""
    if loaders[0].averaging is not None:
        return loaders
    rows = window.whole_tiles(max(READ // loaders[0].freq.size, 1))
    return [replace(loaders[0], piece=piece) for piece in pieces(window, rows)]


def _look(cache: str, loaders: Sequence[Loader], report: Reporter) -> int:
    """Say what of the visibilities is in a cache; returns how many pieces."""
    there, differing = survey(cache, [loader.maker() for loader in loaders])
    if there == len(loaders):
        report.message(f"all visibilities are taken from {cache}")
    elif there:
        report.message(f"{there} of {len(loaders)} pieces of visibilities are taken from {cache}, the others read and kept there")
    elif differing:
        report.message(
            f"{cache} holds visibilities that were made otherwise ({', '.join(differing)}) and are not used: "
            "they are read anew and kept beside them"
        )
    else:
        report.message(f"visibilities are kept in {cache}")
    return there


def _require_space(plan: Plan, folder: Path, missing: float) -> None:
    needed = missing * STORED * sum(samples_of(plan, plane.band) for plane in plan.planes)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise InputError(
            f"the visibilities need about {needed / GIB:.3g} GiB on disk but {folder} has {free / GIB:.3g} GiB free: make room, "
            "keep them elsewhere (--cache), or average more (--bda)"
        )
