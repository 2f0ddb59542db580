r"""Write the module `pfb/kernels/lattice.py`: `python docs/lattice.py`, or `make kernels`.

An orthonormal pair of filters of length 2 N is a cascade of N plane rotations with a delay between every two of
them [1]_. With t the tangent of a rotation one axis costs two fused multiply-adds per rotation and pair of samples, half of
what the filters themselves cost, and one scaling at the end:

.. math:: a' = a + t\,d, \qquad d' = d - t\,a,

where (a, d) starts as an even and the following odd sample, and ends as a low- and a high-pass coefficient up to
a factor; after all rotations but the last, a is replaced by the a of the pair before. Every stage is orthogonal up to
its factor, so the transform is an isometry in floating point too. Backwards, with d delayed instead, it is the adjoint.

The tangents are found in 60 digits, since factoring the filters loses some. They are literals of a module, one function
per wavelet: numba caches only what is in a file, and a compiler that knows the number of rotations keeps all of the
delays in registers.

References
----------
.. [1] Vaidyanathan P. P. & Hoang P.-Q. 1988, IEEE Trans. Acoust. Speech Signal Process. 36, 81.
"""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import Any, NamedTuple

import mpmath

MODULE = Path(__file__).parents[1] / "pfb" / "kernels" / "lattice.py"

DIGITS = 60
LONGEST = 8
"""Vanishing moments of the longest filter."""

WIDTH = 2048
"""Pairs of columns that are worked on at a time: all scratch of a strip fits in a second-level cache."""

PITCH = WIDTH + 32
"""Distance of the rows of the scratch, with room for what a strip overlaps its neighbour."""


class Lattice(NamedTuple):
    """A cascade of rotations."""

    tangents: list[float]
    """In the order in which they are applied to the samples."""
    scale: float
    """What the outputs of the cascade have to be multiplied with."""


def daubechies(n: int) -> list[Any]:
    """Return the 2 n reconstruction low-pass taps with n vanishing moments and minimum phase, as mpmath numbers.

    References
    ----------
    .. [1] Daubechies I. 1992, Ten Lectures on Wavelets, section 6.1.
    """
    mpmath.mp.dps = DIGITS
    # In y = (2 - z - 1/z) / 4 the half-band filter has the factor sum_k binomial(n - 1 + k, k) y^k.
    polynomial = [mpmath.binomial(n - 1 + k, k) for k in range(n)]
    taps = [mpmath.mpc(1)]
    for y in mpmath.polyroots(polynomial, maxsteps=500, extraprec=400, asc=True) if n > 1 else []:
        middle = 1 - 2 * y
        root = mpmath.sqrt(middle**2 - 1)
        taps = _times(taps, min(middle + root, middle - root, key=abs))
    for _ in range(n):
        taps = _times(taps, -1)
    total = mpmath.fsum(tap.real for tap in taps)
    return [tap.real * mpmath.sqrt(2) / total for tap in taps]


def _times(polynomial: list[Any], root: Any) -> list[Any]:
    """Multiply by 1 - root z."""
    shifted = [0, *polynomial]
    return [a - root * b for a, b in zip([*polynomial, 0], shifted, strict=True)]


def factor(low: list[Any]) -> Lattice:
    """Factor a low-pass filter and its quadrature mirror into rotations, from the last one to the first."""
    n = len(low) // 2
    high = [-((-1) ** k) * tap for k, tap in enumerate(reversed(low))]
    tangents = []
    for length in range(2 * n, 2, -2):
        # The rotation back has to take the last two taps off the low-pass and the first two off the high-pass.
        k = max(length - 1, length - 2, key=lambda i: abs(high[i]))
        t = low[k] / high[k]
        low, high = (
            [(a - t * b) / (1 + t * t) for a, b in zip(low, high, strict=True)][:-2],
            [(b + t * a) / (1 + t * t) for a, b in zip(low, high, strict=True)][2:],
        )
        tangents.append(t)
    tangents.append(low[1] / low[0])
    return Lattice([float(t) for t in reversed(tangents)], float(low[0]))


HEADER = Template('''\
"""Lattices of rotations for db1 ... db$longest, written by `docs/lattice.py`, which explains them: do not edit.

For every wavelet there are, for one level, `analyse_db*` and its adjoint `synthesise_db*`. They stream the rows of an image
in pairs, two pairs at a time: `_fetch` puts even and odd columns apart, `_columns` runs the cascade down them, with delays in
the scratch, and `_rows` along what comes out of that, with delays in registers; `_store`, `_columns_back` and `_rows_back` are
their adjoints.
"""

import numba
import numpy as np

# Only contraction to fused multiply-adds: the sums keep the order in which they are written.
_jit = numba.njit(nogil=True, cache=True, fastmath={"contract"}, error_model="numpy", boundscheck=False)


@_jit
def _fetch(row, work, even, odd, npair, width):  # type: ignore[no-untyped-def]
    """Read the even and the odd columns of a row; there is one even column more if width > npair."""
    e, o = work[even : even + $pitch], work[odd : odd + $pitch]
    for j in range(npair):
        e[j], o[j] = row[2 * j], row[2 * j + 1]
    if width > npair:
        e[npair] = row[2 * npair]


@_jit
def _store(work, even, odd, row, npair, width, add):  # type: ignore[no-untyped-def]
    """Write or add a row whose even and odd columns are apart; there is one even column more if width > npair."""
    e, o = work[even : even + $pitch], work[odd : odd + $pitch]
    if add:
        for j in range(npair):
            p, q = row[2 * j], row[2 * j + 1]
            row[2 * j], row[2 * j + 1] = p + e[j], q + o[j]
        if width > npair:
            row[2 * npair] += e[npair]
    else:
        for j in range(npair):
            row[2 * j], row[2 * j + 1] = e[j], o[j]
        if width > npair:
            row[2 * npair] = e[npair]
''')

WAVELET = Template('''

# db$n


@_jit
def _rows_db$n(work, even, odd, low, high, width, scale_low, scale_high):  # type: ignore[no-untyped-def]
    ty = work.dtype.type
    $tangents
    e, o = work[even : even + $pitch], work[odd : odd + $pitch]
    $clear
    for j in range(width):
        a, d = e[j], o[j]
        $forward
        low[j], high[j] = scale_low * a, scale_high * d


@_jit
def _rows_back_db$n(low, high, work, even, odd, width, scale_low, scale_high):  # type: ignore[no-untyped-def]
    ty = work.dtype.type
    $tangents
    e, o = work[even : even + $pitch], work[odd : odd + $pitch]
    $clear
    for j in range(width):
        a, d = scale_low * low[j], scale_high * high[j]
        $backward
        e[j], o[j] = a, d


@_jit
def _columns_db$n(work, width):  # type: ignore[no-untyped-def]
    """Work on every second column; `work` begins at the row of the even ones or of the odd ones."""
    ty = work.dtype.type
    $tangents
    for j in range(width):
        $columns


@_jit
def _columns_back_db$n(work, width):  # type: ignore[no-untyped-def]
    ty = work.dtype.type
    $tangents
    for j in range(width):
        $columns_back


@_jit
def analyse_db$n(image, ll, lh, hl, hh):  # type: ignore[no-untyped-def]
    """Split an image, (nx, ny) float, into four sub-bands; the first letter is the filter along y, the second along x.

    An output is c[i] = sum_k taps[k] x[2 i + 1 - k] along each axis, of the image extended by zeros; each has
    (n + $overlap) // 2 values along an axis of n. All rows are contiguous and all types the same.
    """
    n0, n1 = image.shape
    c0, c1 = ll.shape
    npair, ncolumn = n1 // 2, (n1 + 1) // 2
    work, blank = np.empty($scratch, ll.dtype), np.zeros(n1, ll.dtype)
    plus = ll.dtype.type($square)
    minus = -plus
    nstrip = (c1 + $last) // $width
    # From right to left: the first outputs of a strip lack what is left of it, and are overwritten by the next.
    for q in range(nstrip):
        begin = (nstrip - 1 - q) * $width
        end = min(c1, begin + $width)
        start = max(0, begin - $delay)
        even, odd = max(0, min(ncolumn, end) - start), max(0, min(npair, end) - start)
        work[:] = 0  # the delays, and the columns beyond the image
        for i in range(0, c0, 2):
            for r in range(4):
                row = image[2 * i + r] if 2 * i + r < n0 else blank
                at = $out + 2 * r * $pitch
                _fetch(row[2 * start :], work, at, at + $pitch, odd, even)
            _columns_db$n(work, end - start)
            _columns_db$n(work[$pitch:], end - start)
            _rows_db$n(work, $m0, $m1, ll[i, start:], hl[i, start:], end - start, plus, minus)
            _rows_db$n(work, $m2, $m3, lh[i, start:], hh[i, start:], end - start, minus, plus)
            if i + 1 < c0:
                _rows_db$n(work, $m4, $m5, ll[i + 1, start:], hl[i + 1, start:], end - start, plus, minus)
                _rows_db$n(work, $m6, $m7, lh[i + 1, start:], hh[i + 1, start:], end - start, minus, plus)


@_jit
def synthesise_db$n(ll, lh, hl, hh, image, add):  # type: ignore[no-untyped-def]
    """Write the image of four sub-bands, or add it if `add`: the adjoint of `analyse_db$n`."""
    n0, n1 = image.shape
    c0, c1 = ll.shape
    npair, ncolumn = n1 // 2, (n1 + 1) // 2
    work = np.empty($scratch, image.dtype)
    plus = image.dtype.type($square)
    minus = -plus
    for begin in range(0, ncolumn, $width):
        end = min(ncolumn, begin + $width)
        # What the coefficients to the right give to this strip comes out of the cascade later.
        width = min(c1, end + $delay) - begin
        work[:$middle] = 0
        for i in range(0, c0, 2):
            _rows_back_db$n(ll[i, begin:], hl[i, begin:], work, $m0, $m1, width, plus, minus)
            _rows_back_db$n(lh[i, begin:], hh[i, begin:], work, $m2, $m3, width, minus, plus)
            if i + 1 < c0:
                _rows_back_db$n(ll[i + 1, begin:], hl[i + 1, begin:], work, $m4, $m5, width, plus, minus)
                _rows_back_db$n(lh[i + 1, begin:], hh[i + 1, begin:], work, $m6, $m7, width, minus, plus)
            else:
                work[$m4 : $m4 + 4 * $pitch] = 0
            _columns_back_db$n(work, end - begin)
            _columns_back_db$n(work[$pitch:], end - begin)
            for r in range(4):
                x = 2 * (i - $delay) + r
                if 0 <= x < n0:
                    even = $out + 2 * r * $pitch
                    _store(work, even, even + $pitch, image[x, 2 * begin :], min(end, npair) - begin, end - begin, add)
''')


def source() -> str:
    """Return the text of the module."""
    return HEADER.substitute(longest=LONGEST, pitch=PITCH) + "".join(wavelet(n) for n in range(1, LONGEST + 1))


def wavelet(n: int) -> str:
    """Return the functions of one wavelet."""
    lattice, delays = factor(daubechies(n)), range(n - 1)
    # Rows of the scratch, those of even columns before those of odd ones: delays, eight between the axes, eight of an image.
    middle, out = 2 * (n - 1), 2 * (n - 1) + 8

    def columns(cascade: list[str], source: int, late: int, target: int) -> list[str]:
        """Two steps of the cascade down the columns, from the rows from `source` on to those from `target` on."""
        # All inputs are read before anything is written, or the compiler does not vectorise.
        at = [[f"work[{(first + row) * PITCH + shift} + j]" for row in (0, 2, 4, 6)]
              for first, shift in ((source, late), (target, 0))]  # fmt: skip
        lines = [f"a{pair}, d{pair} = {at[0][2 * pair]}, {at[0][2 * pair + 1]}" for pair in (0, 1)]
        lines += [f"s{s} = work[{2 * s * PITCH} + j]" for s in delays]
        for pair in (0, 1):
            lines += [f"a, d = a{pair}, d{pair}", *cascade]
            lines += [f"{at[1][2 * pair]} = a", f"{at[1][2 * pair + 1]} = d"]
        return lines + [f"work[{2 * s * PITCH} + j] = s{s}" for s in delays]

    return WAVELET.substitute(
        n=n, overlap=2 * n - 1, pitch=PITCH, width=WIDTH, last=WIDTH - 1, delay=n - 1, middle=middle * PITCH, out=out * PITCH,
        scratch=(out + 8) * PITCH, square=repr(lattice.scale**2),
        tangents=_lines([f"t{s} = ty({t!r})" for s, t in enumerate(lattice.tangents)], 1),
        clear=_lines([f"s{s} = ty(0)" for s in delays] or ["# one rotation, no delay"], 1),
        forward=_lines(forward(n), 2), backward=_lines(backward(n), 2),
        columns=_lines(columns(forward(n), out, 0, middle), 2),
        # The cascade along the rows comes out n - 1 columns late.
        columns_back=_lines(columns(backward(n), middle, n - 1, out), 2),
        **{f"m{i}": (middle + i) * PITCH for i in range(8)},
    )  # fmt: skip


def forward(n: int) -> list[str]:
    """Return the statements of the cascade."""
    lines = []
    for s in range(n):
        lines.append(f"a, d = a + t{s} * d, d - t{s} * a")
        if s < n - 1:
            lines.append(f"a, s{s} = s{s}, a")
    return lines


def backward(n: int) -> list[str]:
    """Return the statements of the adjoint cascade."""
    lines = []
    for s in reversed(range(n)):
        lines.append(f"a, d = a - t{s} * d, d + t{s} * a")
        if s > 0:
            lines.append(f"d, s{s - 1} = s{s - 1}, d")
    return lines


def _lines(statements: list[str], depth: int) -> str:
    return f"\n{'    ' * depth}".join(statements)


if __name__ == "__main__":
    MODULE.write_text(source())
