"""Whether the result of `pfb clean` is what its data promise: noise, chi-squared, flux scale and negative regions.

Every finding is a number with limits. One beyond them is a warning; all are in the dataset's attribute ``verdict`` and in the
summary. The limits were measured, see docs/decisions.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np

from pfb.kernels.beam import restore
from pfb.kernels.chi_squared import NBIN, Expected
from pfb.kernels.noise import robust_rms
from pfb.kernels.quality import Source, brightest, deepest_bowl, source_at
from pfb.pipeline.products import Images
from pfb.types import LIGHTSPEED, Band, Real

NOISE = 0.3, 1.6
"""Noise of the residual over that of the weights: 1.25 to 1.4 where a threshold ends, less where pixels are few."""
CHI_SQUARED = 0.5, 2.0
BANDS, LENGTHS = 1.5, 4.0
"""Chi-squared over that of the typical band or length, at most; the shortest baselines always keep some extended emission."""
CERTAIN, FEWEST = 5.0, 30.0
"""Standard deviations that an excess of chi-squared must have to count; samples of a bin that has a chi-squared."""
PEAKS, FLUX = 0.01, 0.02
"""Relative differences of restored peaks, and of the restored flux, from what model and residual make."""
LEFT = 0.15
"""Part of a bright source's peak that may be left in the residual, where it is not seen with the restoring beam."""
SOURCES, BRIGHT = 5, 10.0
"""Sources that are looked at; how many times brighter than the noise they are."""
DEPTH = 1.5
"""Negative peaks over those that noise makes in so many beams."""


@dataclass(frozen=True)
class Finding:
    """A number, the limits that it should lie within, and what to say if it does not."""

    name: str
    value: float
    low: float
    high: float
    shown: str
    """The value in words."""
    sentence: str
    """What is wrong if it lies outside, and what to look for."""

    @property
    def ok(self) -> bool:
        """Whether it is within its limits; a number that is none is not."""
        return bool(self.low <= self.value <= self.high)


class ChiSquared(NamedTuple):
    """Reduced chi-squared of the residual visibilities, 1 for noise as the weights have it."""

    total: float
    bands: Real
    """(band,), NaN where samples are few."""
    lengths: Real
    """(NBIN,) by octave of the length, see `pfb.kernels.chi_squared`."""
    both: Real
    """(band, NBIN)."""
    samples: tuple[Real, Real]
    """How many samples of equal weight each of the bands and of the lengths stands for."""


@dataclass(frozen=True)
class Verdict:
    """All findings of a run."""

    findings: tuple[Finding, ...]
    noise: float
    """Robust standard deviation of the MFS residual, Jy/beam."""
    thermal: float
    """What the weights promise."""
    chi_squared: ChiSquared
    bands: Sequence[int] = field(default=())
    """Numbers of the bands that have data."""

    @property
    def warnings(self) -> list[str]:
        """A sentence for each finding that is off; one of noise and chi-squared is enough if both are so in the same way."""
        off = {f.name: f for f in self.findings if not f.ok}
        if "noise" in off and "chi-squared" in off and (off["noise"].value > 1) == (off["chi-squared"].value > 1):
            del off["noise"]
        return [f.sentence for f in off.values()]

    def summary(self) -> dict[str, str]:
        """Return lines for the summary of the run."""
        off = [f.name for f in self.findings if not f.ok]
        lines = {f.name: f.shown + ("" if f.ok else "  <- off") for f in self.findings}
        return lines | {"self-check": f"{len(off)} off: {', '.join(off)}" if off else "all is within its limits"}

    def attributes(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        chi = self.chi_squared
        return {
            "findings": [asdict(f) | {"value": _number(f.value), "low": _number(f.low), "high": _number(f.high), "ok": f.ok}
                         for f in self.findings],
            "noise": _number(self.noise),
            "thermal": _number(self.thermal),
            "chi_squared": {
                "total": _number(chi.total), "bands": list(self.bands), "octaves_from_m": [2**k for k in range(NBIN)],
                "of_bands": _numbers(chi.bands), "of_lengths": _numbers(chi.lengths),
                "of_bands_and_lengths": [_numbers(row) for row in chi.both],
            },
        }  # fmt: skip


def judge(images: Images, expected: Sequence[Expected], power: Sequence[Real]) -> Verdict | None:
    """Judge the images of a finished run.

    Parameters
    ----------
    images : Images
        Of its dataset; what has been read of the MFS images is not read again.
    expected, power : sequences
        Of every band with data: what noise comes to, and what the residual visibilities do.

    Returns
    -------
    Verdict or None
        None if the residual is zero, since nothing was observed then.
    """
    residual = images.mfs("residual")
    noise = robust_rms(residual)
    if not noise > 0 or images.native is None:
        return None
    thermal = math.sqrt(sum(e.variance for e in expected)) / float(images.wsum[images.good].sum())
    chi = reduce(expected, power)
    bands = [images.bands[b] for b in images.good]
    # A model of few pixels takes up noise, which the residual then lacks and the restored image has.
    taken = max(thermal * math.sqrt(chi.total) / noise, 1.0)
    findings = [*_of_noise(noise, thermal), *_of_chi_squared(chi, bands), *_of_restored(images, taken)]
    return Verdict(tuple(findings), noise, thermal, chi, [b.index for b in bands])


def _of_restored(images: Images, taken: float) -> list[Finding]:
    """Judge the restored image, whose noise is `taken` times that of the residual, seen with the same beam."""
    native, beam, cell = images.native, images.targets[-1], images.geometry.cell
    assert native is not None
    assert beam is not None
    restored, model, residual = (images.mfs(kind) for kind in ("image", "apparent", "residual"))
    if beam != native:
        residual = restore(np.zeros_like(residual), residual, cell, native, beam, images.nthreads)
    level = taken * robust_rms(residual)
    area = math.pi / (4 * math.log(2)) * beam.major * beam.minor / cell**2
    strength = restored if images.product == "I" else np.abs(restored)
    places = brightest(strength, SOURCES, math.ceil(3 * beam.major / cell), BRIGHT * level)
    sources = [source_at(place, restored, model, residual, beam, cell) for place in places]
    findings = _of_sources(sources, level)
    if images.product == "I":  # what is negative is wrong in total intensity only
        findings += [*_of_flux(restored, residual, model, area, bool(sources)), *_of_negatives(restored, level, cell, area)]
    return findings


def reduce(expected: Sequence[Expected], power: Sequence[Real]) -> ChiSquared:
    """Divide the power of residual visibilities by what noise makes, band by band and length by length."""
    found, taper, square = np.array(power), np.array([e.taper for e in expected]), np.array([e.square for e in expected])

    def ratio(axis: int | None) -> tuple[Real, Real]:
        one, other, spread = (x if axis is None else x.sum(axis=axis) for x in (found, taper, square))
        with np.errstate(invalid="ignore", divide="ignore"):
            samples = np.where(spread > 0, other**2 / spread, 0.0)
            return np.where(samples >= FEWEST, one / other, np.nan), samples

    (bands, per_band), (lengths, per_length) = ratio(1), ratio(0)
    total = float(taper.sum())
    return ChiSquared(float(found.sum()) / total if total else math.nan, bands, lengths, ratio(None)[0], (per_band, per_length))


def _of_noise(noise: float, thermal: float) -> list[Finding]:
    ratio = noise / thermal
    left = "calibration errors, interference or emission that was not cleaned are left"
    why = left if ratio > 1 else "the model has taken up noise"
    return [Finding(
        "noise", ratio, *NOISE, f"{noise:.3g} Jy/beam, {ratio:.3g} of the thermal noise",
        f"the residual has a noise of {noise:.3g} Jy/beam where the weights promise {thermal:.3g}: they have another scale "
        f"than 1/sigma^2, or {why}",
    )]  # fmt: skip


def _of_chi_squared(chi: ChiSquared, bands: Sequence[Band]) -> list[Finding]:
    findings = [Finding(
        "chi-squared", chi.total, *CHI_SQUARED, f"{chi.total:.3g}",
        f"the residual visibilities have a reduced chi-squared of {chi.total:.3g}, not 1: the weights have another scale than "
        "1/sigma^2, or calibration errors, interference or emission that was not cleaned are left",
    )]  # fmt: skip
    worst, ratio = _excess(chi.bands, chi.samples[0])
    if worst is not None:
        b = bands[worst]
        findings.append(Finding(
            "bands", ratio, 0.0, BANDS, f"chi-squared of each at most {ratio:.3g} of the typical one",
            f"chi-squared of band {b.index} ({b.freq_min / 1e6:.6g} - {b.freq_max / 1e6:.6g} MHz) is {ratio:.3g} times that of "
            "a typical band: look for interference or bad calibration there",
        ))  # fmt: skip
    worst, ratio = _excess(chi.lengths, chi.samples[1])
    if worst is not None:
        wave = LIGHTSPEED / np.mean([b.freq for b in bands])
        findings.append(Finding(
            "baselines", ratio, 0.0, LENGTHS, f"chi-squared by length at most {ratio:.3g} of the typical one",
            f"chi-squared of baselines of {2**worst} to {2 ** (worst + 1)} m (structure of about "
            f"{math.degrees(wave / 2**worst) * 3600:.3g} arcsec) is {ratio:.3g} times that of a typical length: look for "
            "interference, or emission of that size that the model lacks",
        ))  # fmt: skip
    return findings


def _excess(values: Real, samples: Real) -> tuple[int | None, float]:
    """Return the place that most exceeds the median of all, and its ratio to that; 1 if none does for certain."""
    known = np.isfinite(values)
    if known.sum() < 2:
        return None, 1.0
    with np.errstate(invalid="ignore"):
        ratio = values / np.median(values[known])
        certain = np.where(known & ((ratio - 1) * np.sqrt(samples) > CERTAIN), ratio, 1.0)
    worst = int(certain.argmax())
    return worst, float(certain[worst])


def _of_sources(sources: Sequence[Source], noise: float) -> list[Finding]:
    if not sources:
        return []
    worst = max(sources, key=lambda s: abs((s.restored - s.model - s.residual) / s.restored))
    made = worst.model + worst.residual
    error = abs((worst.restored - made) / worst.restored)
    certain = [s for s in sources if abs(s.residual) > CERTAIN * noise] or sources[:1]
    most = max(certain, key=lambda s: abs(s.residual / s.restored))
    left = abs(most.residual / most.restored) if abs(most.residual) > CERTAIN * noise else 0.0
    return [
        Finding(
            "restored peaks", error, 0.0, PEAKS, f"of {len(sources)} sources within {100 * error:.2g}% of model and residual",
            f"the source at pixel ({worst.x}, {worst.y}) has {worst.restored:.4g} Jy/beam in the restored image but model and "
            f"residual make {made:.4g}: the restored fluxes are not those of the model",
        ),
        Finding(
            "left in the residual", left, 0.0, LEFT, f"at most {100 * left:.2g}% of the brightest sources",
            f"{100 * left:.3g}% of the source at pixel ({most.x}, {most.y}) of {most.restored:.4g} Jy/beam is left in the "
            "residual, so its restored flux depends on the PSF: clean deeper (--niter, --rmsfactor)",
        ),
    ]  # fmt: skip


def _of_flux(restored: Real, residual: Real, model: Real, area: float, certain: bool) -> list[Finding]:
    """Compare the flux that the model has in the restored image with its own."""
    total = float(model.sum())
    if not certain or total <= 0:
        return []
    seen = float(np.nansum(restored - residual)) / area
    return [Finding(
        "restored flux", seen / total, 1 - FLUX, 1 + FLUX, f"{seen:.4g} Jy of the model's {total:.4g} Jy",
        f"the restored image has {seen:.4g} Jy of the {total:.4g} Jy of the model: emission lies at the edge of the image, or "
        "the beam does not fit the pixels",
    )]  # fmt: skip


def _of_negatives(restored: Real, noise: float, cell: float, area: float) -> list[Finding]:
    beams = max(float(np.isfinite(restored).sum()) / area, 2.0)
    x, y = np.unravel_index(np.nanargmin(restored), restored.shape)
    depth, limit = float(restored[x, y]) / noise, -DEPTH * math.sqrt(2 * math.log(beams))
    findings = [Finding(
        "deepest negative", depth, limit, math.inf, f"{depth:.3g} times the noise",
        f"the restored image is {restored[x, y]:.3g} Jy/beam at pixel ({x}, {y}), {depth:.3g} times its noise: look for errors "
        "of calibration of the nearest bright source, or for a source outside of the image",
    )]  # fmt: skip
    bowl = deepest_bowl(restored, area, noise)
    if bowl is not None:
        ratio, limit = bowl.mean / bowl.noise, -DEPTH * math.sqrt(2 * math.log(max(bowl.boxes, 4)))
        findings.append(Finding(
            "bowls", ratio, limit, math.inf, f"the deepest is {ratio:.3g} times its noise",
            f"a region of {math.degrees(bowl.width * cell) * 3600:.3g} arcsec around pixel ({bowl.x}, {bowl.y}) is negative, "
            f"{bowl.mean:.3g} Jy/beam in the mean, {ratio:.3g} times its noise: short baselines are missing for emission there",
        ))  # fmt: skip
    return findings


def _number(value: float) -> float | None:
    """JSON knows neither NaN nor infinity."""
    return float(value) if math.isfinite(value) else None


def _numbers(values: Real) -> list[float | None]:
    return [_number(value) for value in values.tolist()]
