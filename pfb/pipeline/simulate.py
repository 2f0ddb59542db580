"""Simulate an observation of a known sky, and write the truth beside it."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np

from pfb.config import Simulate
from pfb.io.simulated_array import RECEIVERS, elevation
from pfb.io.simulated_set import CIRCULAR, LINEAR, Defects, Layout, Simulation, lay_out, write_set
from pfb.io.sky import Component, polarised, random_sky, read_sky, write_sky
from pfb.io.staging import require_writable, staged
from pfb.pipeline.reporting import Reporter


def run(path: str, config: Simulate, report: Reporter) -> None:
    """Write a measurement set, and its sky as ``NAME-truth.ecsv`` beside ``NAME.ms``.

    Parameters
    ----------
    path
        Directory of the set.
    config
        Options of the command.
    report
        Told how far it is.

    Raises
    ------
    InputError
        If a product exists and is not to be replaced, or the sky cannot be used.
    """
    target = Path(path)
    truth = target.with_name(f"{target.name.removesuffix('.ms')}-truth.ecsv")
    require_writable([target, truth], config.overwrite)
    sky = _sky(config)
    given = {f.name: getattr(config, f.name) for f in fields(Simulation) if hasattr(config, f.name)}
    layout = lay_out(Simulation(**given, defects=Defects(feeds=CIRCULAR if config.feed == "circular" else LINEAR)), sky)
    _warn_of_the_horizon(layout, report)
    with staged(truth, config.overwrite) as temporary:
        write_sky(temporary, sky)
        with report.stage("simulate", len(layout.blocks)) as done:
            write_set(str(target), layout, overwrite=config.overwrite, progress=done)
    report.summary(str(target), _summary(layout, sky, target, truth))


def _sky(config: Simulate) -> list[Component]:
    if config.sky is not None:
        return read_sky(config.sky)
    middle = sum(RECEIVERS[config.band]) / 2
    ra, dec = np.deg2rad(config.ra % 360.0), np.deg2rad(config.dec)
    sky = random_sky(ra, dec, nsource=config.nsource, ref_freq=middle, seed=config.seed)
    return polarised(sky, config.polarised, config.seed) if config.polarised else sky


def _target_elevation(layout: Layout) -> tuple[float, float]:
    """Return the lowest and the highest elevation of the target in degrees."""
    target = next(f for f in layout.fields if f.intent == "TARGET")
    times = np.concatenate([b.times for b in layout.blocks if layout.fields[b.field] is target])
    angles = np.rad2deg(elevation(times, target.ra, target.dec))
    return float(angles.min()), float(angles.max())


def _warn_of_the_horizon(layout: Layout, report: Reporter) -> None:
    lowest, _ = _target_elevation(layout)
    if lowest < 0:
        report.warning(f"the target is below the horizon, at {lowest:.0f} deg of elevation; change --start, --ra or --dec")


def _summary(layout: Layout, sky: list[Component], target: Path, truth: Path) -> dict[str, str]:
    lowest, highest = _target_elevation(layout)
    channels = "+".join(str(len(w.freq)) for w in layout.windows)
    size = sum(p.stat().st_size for p in target.rglob("*") if p.is_file())
    return {
        "rows": f"{layout.rows}",
        "channels": channels,
        "dishes": f"{len(layout.dishes)}",
        "target": f"{', '.join(f.name for f in layout.fields if f.intent == 'TARGET')}",
        "elevation": f"{lowest:.0f} to {highest:.0f} deg",
        "noise": f"{1e3 * layout.noise:.3g} mJy per visibility",
        "sky": f"{len(sky)} components, {sum(c.I for c in sky):.3g} Jy in all, written to {truth}",
        "size": f"{size / 2**20:.1f} MiB",
    }
