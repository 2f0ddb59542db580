"""Compare priors, and how far their threshold goes, on simulated skies: which should be the default?

Every sky is observed by 32 dishes as in `synthetic.py`, with 8 channels of L band and baselines of up to 22 000 wavelengths,
and imaged by `pfb clean` on 864 pixels of 4 arcsec in 4 bands. Prints, as Markdown, a line per sky, prior and `--rmsfactor`;
writes the same as JSON. Other options of `pfb clean` may follow.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import arcae
import click
import numpy as np
import synthetic
from score import ARCSEC, Model, convolve, read_dataset, score, truth_image

from pfb.cli.console import Console
from pfb.errors import PfbError
from pfb.io.simulated_set import lay_out, write_set
from pfb.io.sky import Component, direction_cosines, offset
from pfb.pipeline import clean
from pfb.pipeline.reporting import Reporter, Silent
from pfb.types import LIGHTSPEED

OPTIONS = dict(npix="864", cell=4.0, nband=4, weighting="briggs", robust=0.0)
LONGEST = 22_000.0
"""In wavelengths, at any channel."""
BEAM = 16.0
"""Of the comparison, in arcsec."""
FAINT = 5.0, 20.0
"""Points between so many times the noise count for the completeness; they are found if their flux is right to 30 per cent."""
BRIGHT = 50.0
"""Sources of more than so many times the noise count for the spectral index."""


class Line(NamedTuple):
    """A line of the table."""

    sky: str
    prior: str
    rmsfactor: float
    snr: float
    flux_ratio: float
    off_source: float
    residual_over_noise: float
    completeness: float
    index_error: float
    """Median of the absolute error of the spectral index of bright sources."""
    seconds: float


def points() -> list[Component]:
    """Return 200 points within 0.4 degrees with N(>S) proportional to 1/S from 0.1 mJy, and spectra of all slopes."""
    return scattered(np.random.default_rng(11), 200, 1e-4, 0.1, (-0.7, 0.4))


def extended() -> list[Component]:
    """Return 25 Gaussians of 10 arcsec to 4 arcmin, and no points."""
    rng = np.random.default_rng(12)
    sky = scattered(rng, 25, 5e-3, 1.0, (-0.8, 0.3))
    return [c.__class__(**{**vars(c), "fwhm": float(10 * 24 ** rng.random() * ARCSEC)}) for c in sky]


def scattered(rng: np.random.Generator, n: int, faintest: float, brightest: float, alpha: tuple[float, float]) -> list[Component]:
    """Draw point sources within 0.4 degrees."""
    ra, dec = np.deg2rad(synthetic.OBSERVATION.ra), np.deg2rad(synthetic.OBSERVATION.dec)
    sky = []
    for _ in range(n):
        r, angle = np.deg2rad(0.4) * np.sqrt(rng.random()), 2 * np.pi * rng.random()
        east, north = offset(ra, dec, r * np.cos(angle), r * np.sin(angle))
        flux = min(faintest / rng.random(), brightest)
        sky.append(Component(ra=east, dec=north, I=float(flux), alpha=float(rng.normal(*alpha))))
    return sky


SKIES: dict[str, Callable[[], list[Component]]] = {"points": points, "extended": extended, "mixed": synthetic.truth}


def simulate(folder: Path, name: str, sky: Sequence[Component], report: Reporter) -> Path:
    """Make a set, unless it is there."""
    path, made = folder / f"{name}.ms", folder / f"{name}.made"
    if path.is_dir() and made.exists():
        report.message(f"using {path}")
        return path
    layout = lay_out(synthetic.OBSERVATION, list(sky))
    with report.stage("simulate", len(layout.blocks)) as done:
        write_set(str(path), layout, overwrite=True, progress=done)
    shorten(str(path), LONGEST)
    made.touch()
    return path


def shorten(path: str, longest: float) -> None:
    """Flag all rows whose baseline has more wavelengths than `longest` in any channel."""
    with arcae.table(f"{path}/SPECTRAL_WINDOW") as windows:
        highest = float(np.max(windows.getcol("CHAN_FREQ")))
    with arcae.table(path, readonly=False) as table:
        uvw, flag = table.getcol("UVW"), np.array(table.getcol("FLAG"))
        flag[np.hypot(uvw[:, 0], uvw[:, 1]) * highest / LIGHTSPEED > longest] = True
        table.putcol("FLAG", flag)


def fluxes(cube: np.ndarray, cell: float, pixels: Sequence[tuple[int, int]]) -> np.ndarray:
    """Return Jy/beam of every band at some pixels, (band, pixel)."""
    images = [convolve(image, cell, BEAM * ARCSEC) for image in cube]
    return np.array([[image[pixel] for pixel in pixels] for image in images])


def sources(model: Model, sky: Sequence[Component], noise: float) -> tuple[float, float]:
    """Return the completeness of faint points, and the median error of the spectral index of bright sources."""
    geometry = model.geometry
    pixels = []
    for c in sky:
        l, m, _ = direction_cosines(c.ra, c.dec, geometry.ra, geometry.dec)
        pixels.append((round(geometry.nx // 2 - l / geometry.cell), round(geometry.ny // 2 + m / geometry.cell)))
    truth = np.array([truth_image(sky, geometry, freq) for freq in model.freq])
    right, found = fluxes(truth, geometry.cell, pixels), fluxes(model.cube, geometry.cell, pixels)
    mean = right.mean(axis=0)
    own = np.array([c.I for c in sky])
    lonely = np.array([c.fwhm == 0 for c in sky]) & (own > 0.7 * mean)
    faint = lonely & (mean > FAINT[0] * noise) & (mean < FAINT[1] * noise)
    close = np.abs(found.mean(axis=0) - mean) < 0.3 * mean
    bright = (mean > BRIGHT * noise) & (found > 0).all(axis=0)
    slopes = [np.polyfit(np.log(model.freq), np.log(f[:, bright]), 1)[0] for f in (right, found)]
    completeness = float(close[faint].mean()) if faint.any() else float("nan")
    return completeness, float(np.median(np.abs(slopes[0] - slopes[1]))) if bright.any() else float("nan")


def run(path: Path, name: str, prior: str, rmsfactor: float, arguments: Sequence[str], report: Reporter) -> Line:
    """Clean a set with a prior and score the model."""
    output = str(path.parent / f"{name}-{prior}-{rmsfactor:g}")
    given = ["--prior", prior, "--rmsfactor", str(rmsfactor), *arguments]
    config = synthetic.configure(given, output, OPTIONS)
    recorder = synthetic.Recorder(Silent())
    with recorder:
        clean.run((str(path),), config, recorder)
    model, sky = read_dataset(f"{output}.zarr"), SKIES[name]()
    noise = synthetic.expected_noise(f"{output}.zarr")
    result = score(model, sky, BEAM)
    completeness, index_error = sources(model, sky, noise)
    line = Line(
        name, prior, rmsfactor, result.snr, result.flux_ratio, result.off_source,
        synthetic.residual_rms(f"{output}.zarr") / noise, completeness, index_error, recorder.total.seconds,
    )  # fmt: skip
    report.message(markdown([line]).splitlines()[-1])
    return line


def markdown(lines: Sequence[Line]) -> str:
    """Return the table."""
    out = [
        "| sky | prior | rmsfactor | SNR dB | flux ratio | off-source uJy/beam | residual / noise | faint points found "
        "| error of the spectral index | seconds |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for line in lines:
        out.append(
            f"| {line.sky} | {line.prior} | {line.rmsfactor:g} | {line.snr:.1f} | {line.flux_ratio:.4f} "
            f"| {line.off_source * 1e6:.2f} | {line.residual_over_noise:.2f} | {line.completeness:.2f} "
            f"| {line.index_error:.3f} | {line.seconds:.0f} |"
        )
    return "\n".join(out)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the comparison; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
        usage="%(prog)s [-h] [options below] [options of pfb clean]",
    )  # fmt: skip
    folder = Path(__file__).parent / "out" / "priors"
    parser.add_argument("--folder", type=Path, default=folder, metavar="DIR", help="where everything goes")
    parser.add_argument("--skies", default=",".join(SKIES), help="some of them (default: %(default)s)")
    parser.add_argument("--priors", default="mean21,l21", help="some of them (default: %(default)s)")
    parser.add_argument("--rmsfactors", default="0.2,0.26,0.34", help="some values (default: %(default)s)")
    arguments, options = parser.parse_known_args(argv)
    report = Console()
    lines = []
    try:
        arguments.folder.mkdir(parents=True, exist_ok=True)
        for name in arguments.skies.split(","):
            path = simulate(arguments.folder, name, SKIES[name](), report)
            for factor in map(float, arguments.rmsfactors.split(",")):
                lines += [run(path, name, prior, factor, options, report) for prior in arguments.priors.split(",")]
                (arguments.folder / "priors.json").write_text(json.dumps([line._asdict() for line in lines], indent=1))
    except (PfbError, click.ClickException) as error:
        print(f"priors: {error}", file=sys.stderr)
        return 2
    print(markdown(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
