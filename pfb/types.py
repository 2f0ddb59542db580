"""Array aliases, small records and the protocols that the layers share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Real = NDArray[np.floating[Any]]
Complex = NDArray[np.complexfloating[Any, Any]]

LIGHTSPEED = 299792458.0
"""In m/s."""

CORRELATION_NAMES = {
    1: "I", 2: "Q", 3: "U", 4: "V", 5: "RR", 6: "RL", 7: "LR", 8: "LL", 9: "XX", 10: "XY", 11: "YX", 12: "YY"
}  # fmt: skip
"""Names of casacore's numbers in POLARIZATION::CORR_TYPE; the first four are those of a FITS axis, too."""


CORRELATIONS: dict[int, tuple[complex, complex, complex, complex]] = {
    1: (1, 0, 0, 0), 2: (0, 1, 0, 0), 3: (0, 0, 1, 0), 4: (0, 0, 0, 1),
    5: (1, 0, 0, 1), 6: (0, 1, 1j, 0), 7: (0, 1, -1j, 0), 8: (1, 0, 0, -1),
    9: (1, 1, 0, 0), 10: (0, 0, 1, 1j), 11: (0, 0, 1, -1j), 12: (1, -1, 0, 0),
}  # fmt: skip
"""What I, Q, U, V add to a correlation, by casacore's number of it: I Q U V, RR RL LR LL, XX XY YX YY."""


class Beam(NamedTuple):
    """An elliptical Gaussian: full widths at half maximum in radians, position angle in radians North through East."""

    major: float
    minor: float
    pa: float


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """The pixel grid of an image and where it lies on the sky (SIN projection).

    Arrays are indexed ``[x, y]``: x along falling right ascension, y along rising
    declination; the phase centre is at pixel ``(nx // 2, ny // 2)``.
    """

    nx: int
    ny: int
    cell: float
    """Pixel size along both axes in radians."""
    ra: float
    """Right ascension of the phase centre in radians, 0 <= ra < 2 pi."""
    dec: float
    """Declination of the phase centre in radians."""
    frame: str = "FK5"
    """``ICRS``, ``FK5`` (equinox 2000) or ``FK4`` (equinox 1950)."""

    @property
    def shape(self) -> tuple[int, int]:
        """(nx, ny)."""
        return self.nx, self.ny


@dataclass(frozen=True, kw_only=True)
class Observation:
    """Who observed what and when, for the headers of the products."""

    telescope: str = ""
    object: str = ""
    observer: str = ""
    start: float = 0.0
    """First time stamp, MJD seconds UTC."""
    parallactic: tuple[tuple[float, float], ...] = ()
    """Parallactic angles in radians at which it was observed and their weights, for the primary beam; empty if unknown."""


@dataclass(frozen=True, kw_only=True)
class Band:
    """One imaging band, an interval of frequency."""

    index: int
    freq_min: float
    """Lower edge of its lowest channel in Hz."""
    freq_max: float
    """Upper edge of its highest channel in Hz."""
    freq: float
    """Effective frequency in Hz: the mean over its channels, weighted once the weights are known."""


class Plane(NamedTuple):
    """An image of a run: a Stokes product in a band."""

    stokes: int
    """Place of its product among those of the run."""
    band: int


class LinearOperator(Protocol):
    """A linear map between real arrays."""

    domain: tuple[int, ...]
    codomain: tuple[int, ...]
    dtype: np.dtype[Any]

    def dot(self, x: Real) -> Real:
        """Apply the operator."""
        ...

    def hdot(self, y: Real) -> Real:
        """Apply its adjoint."""
        ...


class Visibilities(NamedTuple):
    """Stokes visibilities that share their channels.

    A band is a tuple of these, at least one per spectral window and set, or gives them one after the other
    (`pfb.kernels.samples.Streamed`).
    """

    uvw: Real
    """(row, 3) float64, metres."""
    freq: Real
    """(chan,) float64, Hz, ascending."""
    vis: Complex
    """(row, chan) complex128, Jy; zero where the weight is zero."""
    weight: Real
    """(row, chan) float64: natural weights in Jy**-2, or imaging weights; zero where flagged."""
    window: int = 0
    """Which of the windows of their band they come from."""
