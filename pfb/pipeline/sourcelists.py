"""From islands, images of bands and models to the lines of catalogues and component lists."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pfb.errors import InputError
from pfb.io import dataset as store
from pfb.io.catalogue import Source, iau_name, write_catalogue, write_regions
from pfb.io.fits import sky_wcs
from pfb.io.sky import Component
from pfb.kernels.sources import Gaussian, Island, band_peaks, deconvolved, errors, integrated
from pfb.kernels.spectra import polynomial
from pfb.kernels.spectral_fit import fit_spectra
from pfb.pipeline.reporting import Reporter
from pfb.pipeline.restored import Restored
from pfb.types import Plane, Real


def measure(
    sky: Restored, islands: Sequence[Island], planes: Real, wanted: NDArray[np.bool_], sigma: Real, reference: float, terms: int
) -> list[Source]:
    """Turn islands into lines of a catalogue, with the spectra of their Gaussians.

    Parameters
    ----------
    sky : Restored
        What the islands were found in.
    islands : sequence of Island
        In the order that they are numbered in.
    planes : (band, n) float
        The wanted pixels of every band.
    wanted : (nx, ny) bool
        Which pixels these are.
    sigma : (band,) float
        Noise of every band.
    reference : float
        Frequency of the fluxes of the spectra in Hz.
    terms : int
        1: spectral index; 2: and curvature; 0: neither.
    """
    index = np.zeros(wanted.shape, np.int64)
    index[wanted] = np.arange(planes.shape[1])
    typical = float(np.median([island.noise for island in islands])) if islands else 1.0
    lines = []
    for number, island in enumerate(islands):
        spectrum = np.full((4, len(island.gaussians)), np.nan)
        if terms:
            own = planes[:, index[island.x, island.y]]
            peak, error = band_peaks(own, island, sigma * island.noise / typical, sky.beam, sky.geometry.cell)
            fit = fit_spectra(peak, error, np.array([band.freq for band in sky.bands]), reference, terms)
            spectrum[: 2 * terms] = np.stack([fit.terms, fit.errors], axis=1).reshape(2 * terms, -1)
        lines += [_line(sky, number, island, g, spectrum[:, i]) for i, g in enumerate(island.gaussians)]
    return lines


def _line(sky: Restored, number: int, island: Island, g: Gaussian, spectrum: Real) -> Source:
    error, size = errors(g, island.noise, sky.beam), deconvolved(g.shape, sky.beam)
    ra, dec = np.deg2rad(sky_wcs(sky.geometry).wcs_pix2world([[g.x, g.y]], 0)[0]).tolist()
    sine, cosine = np.sin(g.shape.pa), np.cos(g.shape.pa)
    return Source(
        name=iau_name(ra, dec), island=number, ra=ra, dec=dec,
        ra_error=float(np.hypot(error.along * sine, error.across * cosine)),
        dec_error=float(np.hypot(error.along * cosine, error.across * sine)),
        peak=g.peak, peak_error=error.peak, flux=integrated(g, sky.beam), flux_error=error.flux,
        major=g.shape.major, major_error=error.major, minor=g.shape.minor, minor_error=error.minor,
        pa=g.shape.pa, pa_error=error.pa,
        major_deconvolved=size.major, minor_deconvolved=size.minor, pa_deconvolved=size.pa,
        alpha=float(spectrum[0]), alpha_error=float(spectrum[1]),
        curvature=float(spectrum[2]), curvature_error=float(spectrum[3]), noise=island.noise,
    )  # fmt: skip


def write_tables(table: Path, regions: Path, sources: Sequence[Source], sky: Restored, image: str, reference: float) -> None:
    """Write a catalogue as a table and as regions."""
    arcsec = np.rad2deg([sky.beam.major, sky.beam.minor]) * 3600
    beam = {"major_arcsec": float(arcsec[0]), "minor_arcsec": float(arcsec[1]), "pa_deg": float(np.rad2deg(sky.beam.pa))}
    meta = {"image": image, "beam": beam, "frequency_hz": sky.band.freq, "reference_hz": reference, "frame": sky.geometry.frame}
    write_catalogue(table, sources, meta)
    write_regions(regions, sources, sky.geometry.frame)


def catalogue_components(sources: Sequence[Source], reference: float) -> list[Component]:
    """Return sources as components: points, or Gaussians of their deconvolved sizes.

    The flux is that of the mean over the bands, whose frequency the spectrum is taken to refer to.
    """
    return [
        Component(
            ra=s.ra, dec=s.dec, I=s.flux, ref_freq=reference,
            alpha=s.alpha if np.isfinite(s.alpha) else 0.0, curvature=s.curvature if np.isfinite(s.curvature) else 0.0,
            fwhm=s.major_deconvolved, minor=s.minor_deconvolved if s.major_deconvolved else None, pa=s.pa_deconvolved,
        )
        for s in sources
    ]  # fmt: skip


def model_components(path: str, terms: int, floor: float, report: Reporter) -> list[Component]:
    """Return the pixels of a run's model as points, whose spectra are polynomials fitted to the bands with data.

    Parameters
    ----------
    path : str
        Dataset of `pfb clean`.
    terms : int
        Coefficients, the flux among them; at most one for each band.
    floor : float
        Pixels below this fraction of the brightest, in all bands, are left out.
    report : Reporter
        Is told how much of the flux is left.

    Raises
    ------
    InputError
        If the model is zero everywhere.
    """
    ds = store.open_dataset(path, needs="clean")
    stokes = store.place_of_i(path, ds)
    geometry, weight, freq = store.geometry(ds), ds["wsum"].values[stokes], ds["freq"].values
    good = np.flatnonzero(weight > 0)
    brightest, total = np.zeros(geometry.shape), 0.0
    for band in good:
        plane = store.read(path, "model", Plane(stokes, int(band)))
        np.maximum(brightest, np.abs(plane), out=brightest)
        total += float(plane.sum())
    found = (brightest > 0) & (brightest >= floor * brightest.max())
    if not found.any():
        raise InputError(
            f"the model of {path} is zero everywhere, so it has no components: clean deeper, or --components catalogue"
        )
    x, y = np.nonzero(found)
    fluxes = np.array([store.read(path, "model", Plane(stokes, int(band)))[found] for band in good], np.float64)
    share = f"{fluxes.sum() / total:.4%}" if total else "all"
    report.message(f"{len(x)} pixels of the model make the component list, with {share} of its flux")
    mix = polynomial(freq[good], freq[good], weight[good], min(terms, len(np.unique(freq[good])))).mix
    reference = float(np.average(freq[good], weights=weight[good]))
    first, *rest = mix @ fluxes
    places = np.deg2rad(sky_wcs(geometry).wcs_pix2world(np.stack([x, y], axis=1), 0))
    return [
        Component(ra=ra, dec=dec, I=flux, ref_freq=reference, polynomial=tuple(coefficients))
        for (ra, dec), flux, coefficients in zip(
            places.tolist(), first.tolist(), np.array(rest).reshape(-1, len(x)).T.tolist(), strict=True
        )
    ]
