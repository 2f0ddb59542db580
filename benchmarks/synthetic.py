"""Image a simulated MeerKAT observation of a known sky with `pfb clean`, and say what it cost and how good it is.

Prints, as Markdown, seconds, CPU seconds and peak memory of every stage, and the score of the model
against the truth; writes the same as JSON. The set is 32 dishes, 8 channels of L band and two scans of 15
minutes of a field with 80 points and 5 Gaussians; it is made once and used again. All other options are
those of `pfb clean`, e.g. --niter 3 --workers 2; unless they are given the images are 1728 pixels of 2
arcsec in 4 bands with Briggs weights of robustness 0.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import click
import numpy as np
import wsclean
from score import Model, Score, read_dataset, score
from stages import MIB, Recorder, markdown

from pfb.cli.console import Console
from pfb.cli.options import parameters
from pfb.config import Clean
from pfb.errors import PfbError
from pfb.io import dataset
from pfb.io.simulated_set import Simulation, lay_out, write_set
from pfb.io.sky import Component, offset, write_sky
from pfb.pipeline import clean
from pfb.pipeline.reporting import Reporter
from pfb.types import Real

OPTIONS = dict(npix="1728", cell=2.0, nband=4, weighting="briggs", robust=0.0)
"""Of `pfb clean`, where they are not its defaults."""

OBSERVATION = Simulation(
    nant=32, nchan=8, nspw=1, band="L", scans=2, scan_length=15.0, dump=8.0, ra=63.36, dec=-45.0,
    start="2024-06-10T06:00:00", sefd=420.0, gain_error=0.0, rfi=0.02, seed=0,
)  # fmt: skip
TARGET = 1
"""Id of the target's field; the calibrators are observed too."""

SEED = 7
GAUSSIANS = (
    (-9.0, 6.0, 0.60, 1.5, -0.9),
    (7.0, -11.0, 0.30, 0.8, -0.5),
    (12.0, 10.0, 0.20, 2.5, -0.7),
    (-3.0, -4.0, 0.15, 0.4, -1.1),
    (2.0, 14.0, 0.10, 1.0, -0.3),
)
"""East and north offset in arcminutes, Jy at 1.284 GHz, FWHM in arcminutes, spectral index."""


class Result(NamedTuple):
    """A line of the table of scores."""

    imager: str
    score: Score
    residual: float
    """Rms of the MFS residual in Jy/beam."""
    thermal: float
    """Rms that noise alone would give, in Jy/beam."""
    seconds: float
    cpu: float
    peak: int


def truth() -> list[Component]:
    """Return the sky: 80 points within 0.45 degrees with N(>S) proportional to 1/S, and `GAUSSIANS`.

    It is drawn here rather than by `pfb.io.sky.random_sky`, so that scores stay comparable whatever becomes of that.
    """
    ra, dec = np.deg2rad(OBSERVATION.ra), np.deg2rad(OBSERVATION.dec)
    rng = np.random.default_rng(SEED)
    sky = []
    for _ in range(80):
        r, angle = np.deg2rad(0.45) * np.sqrt(rng.random()), 2 * np.pi * rng.random()
        east, north = offset(ra, dec, r * np.cos(angle), r * np.sin(angle))
        flux, alpha = min(5e-4 / rng.random(), 0.3), -0.7 + 0.2 * rng.standard_normal()
        sky.append(Component(ra=east, dec=north, I=float(flux), alpha=float(alpha)))
    arcmin = np.deg2rad(1 / 60)
    for l, m, flux, fwhm, alpha in GAUSSIANS:
        east, north = offset(ra, dec, l * arcmin, m * arcmin)
        sky.append(Component(ra=east, dec=north, I=flux, alpha=alpha, fwhm=fwhm * arcmin))
    return sky


def simulate(folder: Path, observation: Simulation, report: Reporter) -> Path:
    """Make the set and its truth in a folder, unless it holds the same already; returns the set's path."""
    path, made = folder / "synthetic.ms", folder / "synthetic.json"
    wanted = json.loads(json.dumps(asdict(observation)))
    if path.is_dir() and made.is_file() and json.loads(made.read_text()) == wanted:
        report.message(f"using {path}")
        return path
    made.unlink(missing_ok=True)
    sky = truth()
    layout = lay_out(observation, sky)
    with report.stage("simulate", len(layout.blocks)) as done:
        write_set(str(path), layout, overwrite=True, progress=done)
    write_sky(folder / "synthetic-truth.ecsv", sky)
    made.write_text(json.dumps(wanted))
    return path


def configure(arguments: Sequence[str], output: str, options: Mapping[str, Any] = MappingProxyType(OPTIONS)) -> Clean:
    """Read options of `pfb clean` from a command line, with `options` for those that are not given."""
    command = click.Command("clean", params=list(parameters(Clean)))
    given = ["--output", output, "--overwrite", *arguments]
    with command.make_context("pfb clean", given, default_map=dict(options)) as context:
        return Clean(**context.params)


def residual_rms(path: str) -> float:
    """Return the rms of the MFS residual of a dataset in Jy/beam."""
    ds = dataset.open_dataset(path, needs="clean").sel(stokes="I")
    image: Real = ds["residual"].sum("band", skipna=True).values / float(ds["wsum"].sum())
    return float(image.std())


def expected_noise(path: str) -> float:
    """Return the thermal noise of the MFS image of a dataset in Jy/beam, by its weights."""
    ds = dataset.open_dataset(path).sel(stokes="I")
    wsum, noise = (ds[name].values[ds["wsum"].values > 0] for name in ("wsum", "thermal"))
    return float(np.linalg.norm(wsum * noise) / wsum.sum())


def run_pfb(path: str, config: Clean, recorder: Recorder) -> tuple[Result, Model]:
    """Clean the set and score the model."""
    with recorder:
        clean.run((path,), config, recorder)
    store, total = f"{config.output}.zarr", recorder.total
    model = read_dataset(store)
    noise = expected_noise(store)
    return Result("pfb", score(model, truth()), residual_rms(store), noise, total.seconds, total.cpu, total.peak), model


def run_wsclean(path: str, prefix: str, config: Clean, model: Model, thermal: float) -> Result:
    """Image the set with WSClean as `pfb` did, and score its model."""
    nthread = config.threads_per_worker or os.cpu_count() or 1
    done = wsclean.run(
        path, prefix, model.geometry, nband=len(model.freq), robust=config.robust, nthread=nthread,
        field=TARGET, column="CORRECTED_DATA",
    )  # fmt: skip
    found = score(done.model, truth())
    return Result(done.version, found, float(done.residual.std()), thermal, done.seconds, done.cpu, done.peak)


def scores(results: Sequence[Result]) -> str:
    """Return the table of scores."""
    lines = [
        "| imager | SNR dB | flux ratio | off-source uJy/beam | residual uJy/beam | residual / thermal "
        "| seconds | CPU seconds | peak MiB |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for r in results:
        lines.append(
            f"| {r.imager} | {r.score.snr:.2f} | {r.score.flux_ratio:.4f} | {r.score.off_source * 1e6:.2f} "
            f"| {r.residual * 1e6:.2f} | {r.residual / r.thermal:.3f} | {r.seconds:.1f} | {r.cpu:.1f} | {r.peak / MIB:.0f} |"
        )
    return "\n".join(lines)


def record(results: Sequence[Result], recorder: Recorder, config: Clean, observation: Simulation) -> dict[str, Any]:
    """Return everything as JSON can hold it."""
    return dict(
        observation=asdict(observation),
        options=asdict(config),
        cores=os.cpu_count(),
        software=dataset.open_dataset(f"{config.output}.zarr").attrs["software"],
        stages={name: asdict(stage) for name, stage in recorder.stages.items()},
        total=asdict(recorder.total),
        cycles=recorder.rows,
        warnings=recorder.warnings,
        results=[r._asdict() | {"score": r.score._asdict()} for r in results],
    )


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options that are not `pfb clean`'s."""
    out = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
        usage="%(prog)s [-h] [options below] [options of pfb clean]",
    )  # fmt: skip
    folder = Path(__file__).parent / "out"
    out.add_argument("--folder", type=Path, default=folder, metavar="DIR", help="where everything goes (default: benchmarks/out)")
    out.add_argument("--wsclean", action="store_true", help="run WSClean on the same set too, if it is installed")
    for name, kind, text in (
        ("nant", int, "dishes"),
        ("nchan", int, "channels"),
        ("scans", int, "scans of the target"),
        ("scan-length", float, "length of each in minutes"),
    ):
        value = getattr(OBSERVATION, name.replace("-", "_"))
        out.add_argument(f"--{name}", type=kind, default=value, metavar="N", help=f"{text} (default: {value:g})")
    return out


def benchmark(arguments: argparse.Namespace, config: Clean, report: Reporter) -> str:
    """Do everything; returns the tables."""
    folder: Path = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    given = {name: getattr(arguments, name) for name in ("nant", "nchan", "scans", "scan_length")}
    observation = Simulation(**{**vars(OBSERVATION), **given})
    path = str(simulate(folder, observation, report))
    recorder = Recorder(report)
    result, model = run_pfb(path, config, recorder)
    results = [result]
    if arguments.wsclean and (reason := wsclean.missing()):
        report.warning(f"WSClean is left out: {reason}")
    elif arguments.wsclean:
        results.append(run_wsclean(path, str(folder / "wsclean"), config, model, result.thermal))
    out = Path(f"{config.output}-benchmark.json")
    out.write_text(json.dumps(record(results, recorder, config, observation), indent=1))
    return f"\n{markdown(recorder)}\n\n{scores(results)}\n\nwritten to {out}"


def printed(name: str, work: Callable[[], str]) -> int:
    """Print what a benchmark of that name returns, or its error in one sentence; returns the exit code."""
    try:
        print(work())
    except PfbError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return error.exit_code
    except click.ClickException as error:
        print(f"{name}: {error.format_message()}", file=sys.stderr)
        return error.exit_code
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; returns the exit code."""
    arguments, options = parser().parse_known_args(argv)

    def work() -> str:
        config = configure(options, str(arguments.folder / "pfb"))
        return str(benchmark(arguments, config, Console(quiet=config.quiet)))

    return printed("synthetic", work)


if __name__ == "__main__":
    sys.exit(main())
