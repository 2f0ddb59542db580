"""`pfb fit`: spectral index and curvature of every pixel, a catalogue of sources, and a component list."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pfb.config import Fit
from pfb.errors import InputError
from pfb.io.component_list import write_components
from pfb.io.fits import HeaderInfo, write_mfs
from pfb.io.staging import require_writable, staged
from pfb.kernels.beam import describe
from pfb.kernels.noise import local_rms
from pfb.kernels.sources import find_sources
from pfb.kernels.spectral_fit import SpectralFit, fit_spectra, require_rank
from pfb.pipeline.reporting import Reporter
from pfb.pipeline.restored import Restored, open_restored
from pfb.pipeline.sourcelists import catalogue_components, measure, model_components, write_tables
from pfb.types import Band, Real

Mask = NDArray[np.bool_]

MAPS = {
    "i0": ("Jy/beam", "Intensity"),
    "i0-error": ("Jy/beam", "Intensity error"),
    "alpha": ("", "Spectral index"),
    "alpha-error": ("", "Spectral index error"),
    "curvature": ("", "Spectral curvature"),
    "curvature-error": ("", "Spectral curvature error"),
}
"""Unit and kind of every map."""


def run(paths: tuple[str, ...], config: Fit, report: Reporter) -> None:
    """Write ``PREFIX-alpha.fits``, its error and others, ``PREFIX-catalogue.ecsv`` and ``.reg``, and ``PREFIX-sources.txt``.

    Parameters
    ----------
    paths : tuple of str
        The ``PREFIX.zarr`` of a finished `pfb clean`, or restored FITS images and cubes.
    config : Fit
        Options of the command.
    report : Reporter
        Is told the progress and the files.

    Raises
    ------
    InputError
        If the images cannot be used, a product exists, or there are too few bands for what is asked.
    """
    sky = open_restored(paths, config.images == "model", report)
    _check(sky, paths, config)
    files = _products(paths, config)
    require_writable(files.values(), config.overwrite)
    report.message(f"{len(sky.bands)} bands with data, all seen with a beam of {describe(sky.beam)}")
    image, noise = _mean(sky, config)
    reference = sky.band.freq if config.ref_freq is None else config.ref_freq * 1e6
    with ExitStack() as stack:
        staging = {kind: stack.enter_context(staged(path, config.overwrite)) for kind, path in files.items()}
        islands = []
        if config.catalogue or config.components == "catalogue":
            islands = find_sources(
                image, noise, sky.beam, sky.geometry.cell, high=config.sigma, low=min(config.grow, config.sigma)
            )
        with np.errstate(invalid="ignore"):
            chosen = (image > config.sigma * noise) if config.maps else np.zeros(image.shape, bool)
        wanted = chosen.copy()
        for island in islands:
            wanted[island.x, island.y] = True
        planes, sigma = _pixels(sky, wanted, report)
        if config.maps:
            _write_maps(sky, chosen, planes[:, chosen[wanted]], sigma, noise, reference, config, staging, report)
        terms = min(len(sky.bands) - 1, 1 + config.curvature)
        sources = measure(sky, islands, planes, wanted, sigma, reference, terms)
        if config.catalogue:
            write_tables(staging["catalogue"], staging["regions"], sources, sky, paths[0], reference)
            report.message(f"{len(sources)} sources in {len(islands)} islands")
        if _from_model(paths, config):
            made = model_components(paths[0], config.terms, config.floor, report)
        else:
            made = catalogue_components(sources, reference)
        write_components(staging["components"], made, None if _from_model(paths, config) else [s.name for s in sources])
    report.summary("pfb fit", {path.name: str(path.parent) for path in files.values()})


def _check(sky: Restored, paths: Sequence[str], config: Fit) -> None:
    if config.maps or config.curvature:
        try:
            require_rank(len(sky.bands), 1 + config.curvature)
        except InputError as error:
            raise InputError(f"{paths[0]}: {error}{', or give --no-maps' if not config.curvature else ''}") from error
    if config.components == "model" and not Path(paths[0]).is_dir():
        raise InputError("--components model needs a dataset of pfb clean, PREFIX.zarr; or leave it out")
    if config.ref_freq is not None and not 0.1 < config.ref_freq * 1e6 / sky.band.freq < 10:
        raise InputError(
            f"--ref-freq {config.ref_freq:g} MHz is far from the bands at {sky.band.freq / 1e6:.6g} MHz; choose another"
        )


def _from_model(paths: Sequence[str], config: Fit) -> bool:
    return config.components != "catalogue" and Path(paths[0]).is_dir()


def _products(paths: Sequence[str], config: Fit) -> dict[str, Path]:
    first = Path(paths[0])
    prefix = config.output or str(first.with_suffix("") if first.suffix in (".zarr", ".fits") else first)
    prefix += "-model" if config.images == "model" else ""
    kinds = [kind for kind in MAPS if config.maps and (config.curvature or not kind.startswith("curvature"))]
    files = {kind: Path(f"{prefix}-{kind}.fits") for kind in kinds}
    if config.catalogue:
        files |= {"catalogue": Path(f"{prefix}-catalogue.ecsv"), "regions": Path(f"{prefix}-catalogue.reg")}
    return files | {"components": Path(f"{prefix}-sources.txt")}


def _mean(sky: Restored, config: Fit) -> tuple[Real, Real]:
    """Return the mean over the bands and its local noise, which for a model alone is that of the residuals."""
    image = sky.mfs()
    width = config.box * np.sqrt(sky.beam.major * sky.beam.minor) / sky.geometry.cell
    if config.images == "model":
        each = np.array([sky.noise(i) for i in range(len(sky.bands))])
        return image, np.full(image.shape, np.sum(each**-2.0) ** -0.5)
    return image, local_rms(image, width)


def _pixels(sky: Restored, wanted: Mask, report: Reporter) -> tuple[Real, Real]:
    """Return the (band, n) wanted pixels of every band, and its (band,) noise; one plane is in memory at a time."""
    planes, sigma = np.empty((len(sky.bands), int(wanted.sum()))), np.empty(len(sky.bands))
    with report.stage("bands", len(sky.bands)) as done:
        for i in range(len(sky.bands)):
            planes[i], sigma[i] = sky.plane(i)[wanted], sky.noise(i)
            done(1)
    if not (sigma > 0).all():
        i = int(np.argmin(sigma > 0))
        raise InputError(
            f"the noise of band {sky.bands[i].index} is {sigma[i]:g} Jy/beam but must be positive; give an image with noise"
        )
    return planes, sigma


def _write_maps(
    sky: Restored, chosen: Mask, planes: Real, sigma: Real, noise: Real, reference: float, config: Fit, staging: dict[str, Path],
    report: Reporter,
) -> None:  # fmt: skip
    """Fit the chosen pixels and write a map of every parameter, blank elsewhere."""
    # Where the mean is noisier than elsewhere every band is, in proportion.
    local = noise[chosen] / np.median(noise)
    fit = fit_spectra(
        planes, sigma[:, None] * local, np.array([band.freq for band in sky.bands]), reference, 1 + config.curvature
    )
    band = Band(index=0, freq_min=sky.band.freq_min, freq_max=sky.band.freq_max, freq=reference)
    for kind, values in _maps(fit).items():
        if kind not in staging:
            continue
        unit, meaning = MAPS[kind]
        image = np.full(chosen.shape, np.nan)
        image[chosen] = values
        history = (
            "pfb fit",
            f"images = {config.images}",
            f"sigma = {config.sigma:g}",
            f"reference frequency = {reference:.9g} Hz",
        )
        info = HeaderInfo(geometry=sky.geometry, observation=sky.observation, unit=unit, kind=meaning, history=history)
        write_mfs(staging[kind], image, info, band, sky.beam)
    report.message(f"{int(np.isfinite(fit.flux).sum())} pixels above {config.sigma:g} times the local noise have a spectrum")


def _maps(fit: SpectralFit) -> dict[str, Real]:
    maps = {"i0": fit.flux, "i0-error": fit.flux_error, "alpha": fit.terms[0], "alpha-error": fit.errors[0]}
    return maps if len(fit.terms) == 1 else maps | {"curvature": fit.terms[1], "curvature-error": fit.errors[1]}
