"""Options of the algorithms that take components off a residual, and which algorithms there are."""

from __future__ import annotations

from dataclasses import dataclass

from pfb.config.declaring import Config, option

SARA, NNLS, MULTISCALE = ("sara",), ("nnls",), ("multiscale",)
CLEAN = ("hogbom", "clark", *MULTISCALE)
ALGORITHMS = SARA + CLEAN + NNLS


@dataclass(frozen=True, kw_only=True)
class Components(Config):
    """How deep and in which steps CLEAN goes; `nnls` has its iterations and the mop of these."""

    gain: float = option(0.1, above=0.0, maximum=1.0, only=CLEAN, help="fraction of a peak that is taken off at once")
    major_gain: float = option(
        0.8, above=0.0, maximum=1.0, only=CLEAN, help="fraction of the peak that a major cycle takes off at most"
    )
    minor_iterations: int = option(1_000_000, minimum=1, only=CLEAN, help="components that all major cycles take off at most")
    threshold: float | None = option(
        None, minimum=0.0, metavar="JY", only=CLEAN, help="stop when the peak residual falls below this"
    )
    auto_threshold: float | None = option(
        None, above=0.0, metavar="SIGMA", only=CLEAN,
        help="stop when the peak falls below so many times the noise (default: 3, 1 within a mask, none with --threshold)",
    )
    local_noise: bool = option(
        False, only=CLEAN, help="the noise of the automatic threshold is measured in boxes, those of the automatic mask"
    )
    scales: str | None = option(
        None, metavar="WIDTH,...", only=MULTISCALE,
        help="full widths at half maximum in arcsec, or in pixels as 8px; 0 is a point (default: 0, the beam and its doubles)",
    )
    scale_bias: float = option(
        0.9, above=0.0, maximum=1.0, only=MULTISCALE, help="what a scale counts less than one of half its width"
    )
    spectral_terms: int | None = option(
        None, minimum=1, metavar="N", only=CLEAN,
        help="terms of the polynomial in frequency that a component has (default: a flux of its own in every band)",
    )
    nnls_iterations: int = option(200, minimum=1, only=NNLS, help="iterations of a major cycle at most")
    mop: bool = option(
        False, only=CLEAN + NNLS, help="at the end, fit the fluxes of all pixels of the model at once by conjugate gradients"
    )
