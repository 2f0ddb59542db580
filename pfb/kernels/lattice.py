"""Lattices of rotations for db1 ... db8, written by `docs/lattice.py`, which explains them: do not edit.

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
    e, o = work[even : even + 2080], work[odd : odd + 2080]
    for j in range(npair):
        e[j], o[j] = row[2 * j], row[2 * j + 1]
    if width > npair:
        e[npair] = row[2 * npair]


@_jit
def _store(work, even, odd, row, npair, width, add):  # type: ignore[no-untyped-def]
    """Write or add a row whose even and odd columns are apart; there is one even column more if width > npair."""
    e, o = work[even : even + 2080], work[odd : odd + 2080]
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


# db1


@_jit
def _rows_db1(work, even, odd, low, high, width, scale_low, scale_high):  # type: ignore[no-untyped-def]
    ty = work.dtype.type
    t0 = ty(1.0)
    e, o = work[even : even + 2080], work[odd : odd + 2080]
    # one rotation, no delay
    for j in range(width):
        a, d = e[j], o[j]
        a, d = a + t0 * d, d - t0 * a
        low[j], high[j] = scale_low * a, scale_high * d


@_jit
def _rows_back_db1(low, high, work, even, odd, width, scale_low, scale_high):  # type: ignore[no-untyped-def]
    ty = work.dtype.type
    t0 = ty(1.0)
    e, o = work[even : even + 2080], work[odd : odd + 2080]
    # one rotation, no delay
    for j in range(width):
        a, d = scale_low * low[j], scale_high * high[j]
        a, d = a - t0 * d, d + t0 * a
        e[j], o[j] = a, d


@_jit
def _columns_db1(work, width):  # type: ignore[no-untyped-def]
    """Work on every second column; `work` begins at the row of the even ones or of the odd ones."""
    ty = work.dtype.type
    t0 = ty(1.0)
    for j in range(width):
        a0, d0 = work[16640 + j], work[20800 + j]
        a1, d1 = work[24960 + j], work[29120 + j]
        a, d = a0, d0
        a, d = a + t0 * d, d - t0 * a
        work[0 + j] = a
        work[4160 + j] = d
        a, d = a1, d1
        a, d = a + t0 * d, d - t0 * a
        work[8320 + j] = a
        work[12480 + j] = d


@_jit
def _columns_back_db1(work, width):  # type: ignore[no-untyped-def]
    ty = work.dtype.type
    t0 = ty(1.0)
    for j in range(width):
        a0, d0 = work[0 + j], work[4160 + j]
        a1, d1 = work[8320 + j], work[12480 + j]
        a, d = a0, d0
        a, d = a - t0 * d, d + t0 * a
        work[16640 + j] = a
        work[20800 + j] = d
        a, d = a1, d1
        a, d = a - t0 * d, d + t0 * a
        work[24960 + j] = a
        work[29120 + j] = d


@_jit
def analyse_db1(image, ll, lh, hl, hh):  # type: ignore[no-untyped-def]
    """Split an image, (nx, ny) float, into four sub-bands; the first letter is the filter along y, the second along x.

    An output is c[i] = sum_k taps[k] x[2 i + 1 - k] along each axis, of the image extended by zeros; each has
    (n + 1) // 2 values along an axis of n. All rows are contiguous and all types the same.
    """
    n0, n1 = image.shape
    c0, c1 = ll.shape
    npair, ncolumn = n1 // 2, (n1 + 1) // 2
    work, blank = np.empty(33280, ll.dtype), np.zeros(n1, ll.dtype)
    plus = ll.dtype.type(0.5000000000000001)
    minus = -plus
    nstrip = (c1 + 2047) // 2048
    # From right to left: the first outputs of a strip lack what is left of it, and are overwritten by the next.
    for q in range(nstrip):
        begin = (nstrip - 1 - q) * 2048
        end = min(c1, begin + 2048)
        start = max(0, begin - 0)
        even, odd = max(0, min(ncolumn, end) - start), max(0, min(npair, end) - start)
        work[:] = 0  # the delays, and the columns beyond the image
        for i in range(0, c0, 2):
            for r in range(4):
                row = image[2 * i + r] if 2 * i + r < n0 else blank
                at = 16640 + 2 * r * 2080
                _fetch(row[2 * start :], work, at, at + 2080, odd, even)
            _columns_db1(work, end - start)
            _columns_db1(work[2080:], end - start)
            _rows_db1(work, 0, 2080, ll[i, start:], hl[i, start:], end - start, plus, minus)
            _rows_db1(work, 4160, 6240, lh[i, start:], hh[i, start:], end - start, minus, plus)
            if i + 1 < c0:
                _rows_db1(work, 8320, 10400, ll[i + 1, start:], hl[i + 1, start:], end - start, plus, minus)
                _rows_db1(work, 12480, 14560, lh[i + 1, start:], hh[i + 1, start:], end - start, minus, plus)


@_jit
def synthesise_db1(ll, lh, hl, hh, image, add):  # type: ignore[no-untyped-def]
    """Write the image of four sub-bands, or add it if `add`: the adjoint of `analyse_db1`."""
    n0, n1 = image.shape
    c0, c1 = ll.shape
    npair, ncolumn = n1 // 2, (n1 + 1) // 2
    work = np.empty(33280, image.dtype)
    plus = image.dtype.type(0.5000000000000001)
    minus = -plus
    for begin in range(0, ncolumn, 2048):
        end = min(ncolumn, begin + 2048)
        # What the coefficients to the right give to this strip comes out of the cascade later.
        width = min(c1, end + 0) - begin
        work[:0] = 0
        for i in range(0, c0, 2):
            _rows_back_db1(ll[i, begin:], hl[i, begin:], work, 0, 2080, width, plus, minus)
            _rows_back_db1(lh[i, begin:], hh[i, begin:], work, 4160, 6240, width, minus, plus)
            if i + 1 < c0:
                _rows_back_db1(ll[i + 1, begin:], hl[i + 1, begin:], work, 8320, 10400, width, plus, minus)
                _rows_back_db1(lh[i + 1, begin:], hh[i + 1, begin:], work, 12480, 14560, width, minus, plus)
            else:
                work[8320 : 8320 + 4 * 2080] = 0
            _columns_back_db1(work, end - begin)
            _columns_back_db1(work[2080:], end - begin)
            for r in range(4):
                x = 2 * (i - 0) + r
                if 0 <= x < n0:
                    even = 16640 + 2 * r * 2080
                    _store(work, even, even + 2080, image[x, 2 * begin :], min(end, npair) - begin, end - begin, add)


# db2


@_jit
def _rows_db2(work, even, odd, low, high, width, scale_low, scale_high):  # type: ignore[no-untyped-def]
    ty = work.dtype.type
    t0 = ty(1.7320508075688772)
    t1 = ty(-0.2679491924311227)
    e, o = work[even : even + 2080], work[odd : odd + 2080]
    s0 = ty(0)
    for j in range(width):
        a, d = e[j], o[j]
        a, d = a + t0 * d, d - t0 * a
        a, s0 = s0, a
        a, d = a + t1 * d, d - t1 * a
        low[j], high[j] = scale_low * a, scale_high * d


@_jit
def _rows_back_db2(low, high, work, even, odd, width, scale_low, scale_high):  # type: ignore[no-untyped-def]
    ty = work.dtype.type
    t0 = ty(1.7320508075688772)
    t1 = ty(-0.2679491924311227)
    e, o = work[even : even + 2080], work[odd : odd + 2080]
    s0 = ty(0)
    for j in range(width):
        a, d = scale_low * low[j], scale_high * high[j]
        a, d = a - t1 * d, d + t1 * a
        d, s0 = s0, d
        a, d = a - t0 * d, d + t0 * a
        e[j], o[j] = a, d


@_jit
def _columns_db2(work, width):  # type: ignore[no-untyped-def]
    """Work on every second column; `work` begins at the row of the even ones or of the odd ones."""
    ty = work.dtype.type
    t0 = ty(1.7320508075688772)
    t1 = ty(-0.2679491924311227)
    for j in range(width):
        a0, d0 = work[20800 + j], work[24960 + j]
        a1, d1 = work[29120 + j], work[33280 + j]
        s0 = work[0 + j]
        a, d = a0, d0
        a, d = a + t0 * d, d - t0 * a
        a, s0 = s0, a
        a, d = a + t1 * d, d - t1 * a
        work[4160 + j] = a
        work[8320 + j] = d
        a, d = a1, d1
        a, d = a + t0 * d, d - t0 * a
        a, s0 = s0, a
        a, d = a + t1 * d, d - t1 * a
        work[12480 + j] = a
        work[16640 + j] = d
        work[0 + j] = s0


@_jit
def _columns_back_db2(work, width):  # type: ignore[no-untyped-def]
    ty = work.dtype.type
    t0 = ty(1.7320508075688772)
    t1 = ty(-0.2679491924311227)
    for j in range(width):
        a0, d0 = work[4161 + j], work[8321 + j]
        a1, d1 = work[12481 + j], work[16641 + j]
        s0 = work[0 + j]
        a, d = a0, d0
        a, d = a - t1 * d, d + t1 * a
        d, s0 = s0, d
        a, d = a - t0 * d, d + t0 * a
        work[20800 + j] = a
        work[24960 + j] = d
        a, d = a1, d1
        a, d = a - t1 * d, d + t1 * a
        d, s0 = s0, d
        a, d = a - t0 * d, d + t0 * a
        work[29120 + j] = a
        work[33280 + j] = d
        work[0 + j] = s0


@_jit
def analyse_db2(image, ll, lh, hl, hh):  # type: ignore[no-untyped-def]
    """Split an image, (nx, ny) float, into four sub-bands; the first letter is the filter along y, the second along x.

    An output is c[i] = sum_k taps[k] x[2 i + 1 - k] along each axis, of the image extended by zeros; each has
    (n + 3) // 2 values along an axis of n. All rows are contiguous and all types the same.
    """
    n0, n1 = image.shape
    c0, c1 = ll.shape
    npair, ncolumn = n1 // 2, (n1 + 1) // 2
    work, blank = np.empty(37440, ll.dtype), np.zeros(n1, ll.dtype)
    plus = ll.dtype.type(0.23325317547305485)
    minus = -plus
    nstrip = (c1 + 2047) // 2048
    # From right to left: the first outputs of a strip lack what is left of it, and are overwritten by the next.
    for q in range(nstrip):
        begin = (nstrip - 1 - q) * 2048
        end = min(c1, begin + 2048)
        start = max(0, begin - 1)
        even, odd = max(0, min(ncolumn, end) - start), max(0, min(npair, end) - start)
        work[:] = 0  # the delays, and the columns beyond the image
        for i in range(0, c0, 2):
            for r in range(4):
                row = image[2 * i + r] if 2 * i + r < n0 else blank
                at = 20800 + 2 * r * 2080
                _fetch(row[2 * start :], work, at, at + 2080, odd, even)
            _columns_db2(work, end - start)
            _columns_db2(work[2080:], end - start)
            _rows_db2(work, 4160, 6240, ll[i, start:], hl[i, start:], end - start, plus, minus)
            _rows_db2(work, 8320, 10400, lh[i, start:], hh[i, start:], end - start, minus, plus)
            if i + 1 < c0:
                _rows_db2(work, 12480, 14560, ll[i + 1, start:], hl[i + 1, start:], end - start, plus, minus)
                _rows_db2(work, 16640, 18720, lh[i + 1, start:], hh[i + 1, start:], end - start, minus, plus)


@_jit
def synthesise_db2(ll, lh, hl, hh, image, add):  # type: ignore[no-untyped-def]
    """Write the image of four sub-bands, or add it if `add`: the adjoint of `analyse_db2`."""
    n0, n1 = image.shape
    c0, c1 = ll.shape
    npair, ncolumn = n1 // 2, (n1 + 1) // 2
    work = np.empty(37440, image.dtype)
    plus = image.dtype.type(0.23325317547305485)
    minus = -plus
    for begin in range(0, ncolumn, 2048):
        end = min(ncolumn, begin + 2048)
        # What the coefficients to the right give to this strip comes out of the cascade later.
        width = min(c1, end + 1) - begin
        work[:4160] = 0
        for i in range(0, c0, 2):
            _rows_back_db2(ll[i, begin:], hl[i, begin:], work, 4160, 6240, width, plus, minus)
            _rows_back_db2(lh[i, begin:], hh[i, begin:], work, 8320, 10400, width, minus, plus)
            if i + 1 < c0:
                _rows_back_db2(ll[i + 1, begin:], hl[i + 1, begin:], work, 12480, 14560, width, plus, minus)
                _rows_back_db2(lh[i + 1, begin:], hh[i + 1, begin:], work, 16640, 18720, width, minus, plus)
            else:
                work[12480 : 12480 + 4 * 2080] = 0
            _columns_back_db2(work, end - begin)
            _columns_back_db2(work[2080:], end - begin)
            for r in range(4):
                x = 2 * (i - 1) + r
                if 0 <= x < n0:
                    even = 20800 + 2 * r * 2080
                    _store(work, even, even + 2080, image[x, 2 * begin :], min(end, npair) - begin, end - begin, add)


# db3


@_jit
def _rows_db3(work, even, odd, low, high, width, scale_low, scale_high):  # type: ignore[no-untyped-def]
    ty = work.dtype.type
    t0 = ty(2.425497243911958)
    t1 = ty(-0.5460964029793958)
    t2 = ty(0.10588941994813487)
    e, o = work[even : even + 2080], work[odd : odd + 2080]
    s0 = ty(0)
    s1 = ty(0)
    for j in range(width):
        a, d = e[j], o[j]
        a, d = a + t0 * d, d - t0 * a
        a, s0 = s0, a
        a, d = a + t1 * d, d - t1 * a
        a, s1 = s1, a
        a, d = a + t2 * d, d - t2 * a
        low[j], high[j] = scale_low * a, scale_high * d


@_jit
def _rows_back_db3(low, high, work, even, odd, width, scale_low, scale_high):  # type: ignore[no-untyped-def]
    ty = work.dtype.type
    t0 = ty(2.425497243911958)
    t1 = ty(-0.5460964029793958)
    t2 = ty(0.10588941994813487)
    e, o = work[even : even + 2080], work[odd : odd + 2080]
    s0 = ty(0)
    s1 = ty(0)
    for j in range(width):
        a, d = scale_low * low[j], scale_high * high[j]
        a, d = a - t2 * d, d + t2 * a
        d, s1 = s1, d
        a, d = a - t1 * d, d + t1 * a
        d, s0 = s0, d
        a, d = a - t0 * d, d + t0 * a
        e[j], o[j] = a, d


@_jit
def _columns_db3(work, width):  # type: ignore[no-untyped-def]
    """Work on every second column; `work` begins at the row of the even ones or of the odd ones."""
    ty = work.dtype.type
    t0 = ty(2.425497243911958)
    t1 = ty(-0.5460964029793958)
    t2 = ty(0.10588941994813487)
    for j in range(width):
        a0, d0 = work[24960 + j], work[29120 + j]
        a1, d1 = work[33280 + j], work[37440 + j]
        s0 = work[0 + j]
        s1 = work[4160 + j]
        a, d = a0, d0
        a, d = a + t0 * d, d - t0 * a
        a, s0 = s0, a
        a, d = a + t1 * d, d - t1 * a
        a, s1 = s1, a
        a, d = a + t2 * d, d - t2 * a
        work[8320 + j] = a
        work[12480 + j] = d
        a, d = a1, d1
        a, d = a + t0 * d, d - t0 * a
        a, s0 = s0, a
        a, d = a + t1 * d, d - t1 * a
        a, s1 = s1, a
        a, d = a + t2 * d, d - t2 * a
        work[16640 + j] = a
        work[20800 + j] = d
        work[0 + j] = s0
        work[4160 + j] = s1


@_jit
def _columns_back_db3(work, width):  # type: ignore[no-untyped-def]
    ty = work.dtype.type
    t0 = ty(2.425497243911958)
    t1 = ty(-0.5460964029793958)
    t2 = ty(0.10588941994813487)
    for j in range(width):
        a0, d0 = work[8322 + j], work[12482 + j]
        a1, d1 = work[16642 + j], work[20802 + j]
        s0 = work[0 + j]
        s1 = work[4160 + j]
        a, d = a0, d0
        a, d = a - t2 * d, d + t2 * a
        d, s1 = s1, d
        a, d = a - t1 * d, d + t1 * a
        d, s0 = s0, d
        a, d = a - t0 * d, d + t0 * a
        work[24960 + j] = a
        work[29120 + j] = d
        a, d = a1, d1
        a, d = a - t2 * d, d + t2 * a
        d, s1 = s1, d
        a, d = a - t1 * d, d + t1 * a
        d, s0 = s0, d
        a, d = a - t0 * d, d + t0 * a
        work[33280 + j] = a
        work[37440 + j] = d
        work[0 + j] = s0
        work[4160 + j] = s1


@_jit
def analyse_db3(image, ll, lh, hl, hh):  # type: ignore[no-untyped-def]
    """Split an image, (nx, ny) float, into four sub-bands; the first letter is the filter along y, the second along x.

    An output is c[i] = sum_k taps[k] x[2 i + 1 - k] along each axis, of the image extended by zeros; each has
    (n + 5) // 2 values along an axis of n. All rows are contiguous and all types the same.
    """
    n0, n1 = image.shape
    c0, c1 = ll.shape
    npair, ncolumn = n1 // 2, (n1 + 1) // 2
    work, blank = np.empty(41600, ll.dtype), np.zeros(n1, ll.dtype)
    plus = ll.dtype.type(0.11066969680011374)
    minus = -plus
    nstrip = (c1 + 2047) // 2048
    # From right to left: the first outputs of a strip lack what is left of it, and are overwritten by the next.
    for q in range(nstrip):
        begin = (nstrip - 1 - q) * 2048
        end = min(c1, begin + 2048)
        start = max(0, begin - 2)
        even, odd = max(0, min(ncolumn, end) - start), max(0, min(npair, end) - start)
        work[:] = 0  # the delays, and the columns beyond the image
        for i in range(0, c0, 2):
            for r in range(4):
                row = image[2 * i + r] if 2 * i + r < n0 else blank
                at = 24960 + 2 * r * 2080
                _fetch(row[2 * start :], work, at, at + 2080, odd, even)
            _columns_db3(work, end - start)
            _columns_db3(work[2080:], end - start)
            _rows_db3(work, 8320, 10400, ll[i, start:], hl[i, start:], end - start, plus, minus)
            _rows_db3(work, 12480, 14560, lh[i, start:], hh[i, start:], end - start, minus, plus)
            if i + 1 < c0:
                _rows_db3(work, 16640, 18720, ll[i + 1, start:], hl[i + 1, start:], end - start, plus, minus)
                _rows_db3(work, 20800, 22880, lh[i + 1, start:], hh[i + 1, start:], end - start, minus, plus)


@_jit
def synthesise_db3(ll, lh, hl, hh, image, add):  # type: ignore[no-untyped-def]
    """Write the image of four sub-bands, or add it if `add`: the adjoint of `analyse_db3`."""
    n0, n1 = image.shape
    c0, c1 = ll.shape
    npair, ncolumn = n1 // 2, (n1 + 1) // 2
    work = np.empty(41600, image.dtype)
    plus = image.dtype.type(0.11066969680011374)
    minus = -plus
    for begin in range(0, ncolumn, 2048):
        end = min(ncolumn, begin + 2048)
        # What the coefficients to the right give to this strip comes out of the cascade later.
        width = min(c1, end + 2) - begin
        work[:8320] = 0
        for i in range(0, c0, 2):
            _rows_back_db3(ll[i, begin:], hl[i, begin:], work, 8320, 10400, width, plus, minus)
            _rows_back_db3(lh[i, begin:], hh[i, begin:], work, 12480, 14560, width, minus, plus)
            if i + 1 < c0:
                _rows_back_db3(ll[i + 1, begin:], hl[i + 1, begin:], work, 16640, 18720, width, plus, minus)
                _rows_back_db3(lh[i + 1, begin:], hh[i + 1, begin:], work, 20800, 22880, width, minus, plus)
            else:
                work[16640 : 16640 + 4 * 2080] = 0
            _columns_back_db3(work, end - begin)
            _columns_back_db3(work[2080:], end - begin)
            for r in range(4):
                x = 2 * (i - 2) + r
                if 0 <= x < n0:
                    even = 24960 + 2 * r * 2080
                    _store(work, even, even + 2080, image[x, 2 * begin :], min(end, npair) - begin, end - begin, add)


# db4


@_jit
def _rows_db4(work, even, odd, low, high, width, scale_low, scale_high):  # type: ignore[no-untyped-def]
    ty = work.dtype.type
    t0 = ty(3.102931485830326)
    t1 = ty(-0.8109313444939048)
    t2 = ty(0.25929388162988976)
    t3 = ty(-0.046000097113777894)
    e, o = work[even : even + 2080], work[odd : odd + 2080]
    s0 = ty(0)
    s1 = ty(0)
    s2 = ty(0)
    for j in range(width):
        a, d = e[j], o[j]
        a, d = a + t0 * d, d - t0 * a
        a, s0 = s0, a
        a, d = a + t1 * d, d - t1 * a
        a, s1 = s1, a
        a, d = a + t2 * d, d - t2 * a
        a, s2 = s2, a
        a, d = a + t3 * d, d - t3 * a
        low[j], high[j] = scale_low * a, scale_high * d


@_jit
def _rows_back_db4(low, high, work, even, odd, width, scale_low, scale_high):  # type: ignore[no-untyped-def]
    ty = work.dtype.type
    t0 = ty(3.102931485830326)
    t1 = ty(-0.8109313444939048)
    t2 = ty(0.25929388162988976)
    t3 = ty(-0.046000097113777894)
    e, o = work[even : even + 2080], work[odd : odd + 2080]
    s0 = ty(0)
    s1 = ty(0)
    s2 = ty(0)
    for j in range(width):
        a, d = scale_low * low[j], scale_high * high[j]
        a, d = a - t3 * d, d + t3 * a
        d, s2 = s2, d
        a, d = a - t2 * d, d + t2 * a
        d, s1 = s1, d
        a, d = a - t1 * d, d + t1 * a
        d, s0 = s0, d
        a, d = a - t0 * d, d + t0 * a
        e[j], o[j] = a, d


@_jit
def _columns_db4(work, width):  # type: ignore[no-untyped-def]
    """Work on every second column; `work` begins at the row of the even ones or of the odd ones."""
    ty = work.dtype.type
    t0 = ty(3.102931485830326)
    t1 = ty(-0.8109313444939048)
    t2 = ty(0.25929388162988976)
    t3 = ty(-0.046000097113777894)
    for j in range(width):
        a0, d0 = work[29120 + j], work[33280 + j]
        a1, d1 = work[37440 + j], work[41600 + j]
        s0 = work[0 + j]
        s1 = work[4160 + j]
        s2 = work[8320 + j]
        a, d = a0, d0
        a, d = a + t0 * d, d - t0 * a
        a, s0 = s0, a
        a, d = a + t1 * d, d - t1 * a
        a, s1 = s1, a
        a, d = a + t2 * d, d - t2 * a
        a, s2 = s2, a
        a, d = a + t3 * d, d - t3 * a
        work[12480 + j] = a
        work[16640 + j] = d
        a, d = a1, d1
        a, d = a + t0 * d, d - t0 * a
        a, s0 = s0, a
        a, d = a + t1 * d, d - t1 * a
        a, s1 = s1, a
        a, d = a + t2 * d, d - t2 * a
        a, s2 = s2, a
        a, d = a + t3 * d, d - t3 * a
        work[20800 + j] = a
        work[24960 + j] = d
        work[0 + j] = s0
        work[4160 + j] = s1
        work[8320 + j] = s2


@_jit
def _columns_back_db4(work, width):  # type: ignore[no-untyped-def]
    ty = work.dtype.type
    t0 = ty(3.102931485830326)
    t1 = ty(-0.8109313444939048)
    t2 = ty(0.25929388162988976)
    t3 = ty(-0.046000097113777894)
    for j in range(width):
        a0, d0 = work[12483 + j], work[16643 + j]
        a1, d1 = work[20803 + j], work[24963 + j]
        s0 = work[0 + j]
        s1 = work[4160 + j]
        s2 = work[8320 + j]
        a, d = a0, d0
        a, d = a - t3 * d, d + t3 * a
        d, s2 = s2, d
        a, d = a - t2 * d, d + t2 * a
        d, s1 = s1, d
        a, d = a - t1 * d, d + t1 * a
        d, s0 = s0, d
        a, d = a - t0 * d, d + t0 * a
        work[29120 + j] = a
        work[33280 + j] = d
        a, d = a1, d1
        a, d = a - t3 * d, d + t3 * a
        d, s2 = s2, d
        a, d = a - t2 * d, d + t2 * a
        d, s1 = s1, d
        a, d = a - t1 * d, d + t1 * a
        d, s0 = s0, d
        a, d = a - t0 * d, d + t0 * a
        work[37440 + j] = a
        work[41600 + j] = d
        work[0 + j] = s0
        work[4160 + j] = s1
        work[8320 + j] = s2


@_jit
def analyse_db4(image, ll, lh, hl, hh):  # type: ignore[no-untyped-def]
    """Split an image, (nx, ny) float, into four sub-bands; the first letter is the filter along y, the second along x.

    An output is c[i] = sum_k taps[k] x[2 i + 1 - k] along each axis, of the image extended by zeros; each has
    (n + 7) // 2 values along an axis of n. All rows are contiguous and all types the same.
    """
    n0, n1 = image.shape
    c0, c1 = ll.shape
    npair, ncolumn = n1 // 2, (n1 + 1) // 2
    work, blank = np.empty(45760, ll.dtype), np.zeros(n1, ll.dtype)
    plus = ll.dtype.type(0.05307393686498877)
    minus = -plus
    nstrip = (c1 + 2047) // 2048
    # From right to left: the first outputs of a strip lack what is left of it, and are overwritten by the next.
    for q in range(nstrip):
        begin = (nstrip - 1 - q) * 2048
        end = min(c1, begin + 2048)
        start = max(0, begin - 3)
        even, odd = max(0, min(ncolumn, end) - start), max(0, min(npair, end) - start)
        work[:] = 0  # the delays, and the columns beyond the image
        for i in range(0, c0, 2):
            for r in range(4):
                row = image[2 * i + r] if 2 * i + r < n0 else blank
                at = 29120 + 2 * r * 2080
                _fetch(row[2 * start :], work, at, at + 2080, odd, even)
            _columns_db4(work, end - start)
            _columns_db4(work[2080:], end - start)
            _rows_db4(work, 12480, 14560, ll[i, start:], hl[i, start:], end - start, plus, minus)
            _rows_db4(work, 16640, 18720, lh[i, start:], hh[i, start:], end - start, minus, plus)
            if i + 1 < c0:
                _rows_db4(work, 20800, 22880, ll[i + 1, start:], hl[i + 1, start:], end - start, plus, minus)
                _rows_db4(work, 24960, 27040, lh[i + 1, start:], hh[i + 1, start:], end - start, minus, plus)


@_jit
def synthesise_db4(ll, lh, hl, hh, image, add):  # type: ignore[no-untyped-def]
    """Write the image of four sub-bands, or add it if `add`: the adjoint of `analyse_db4`."""
    n0, n1 = image.shape
    c0, c1 = ll.shape
    npair, ncolumn = n1 // 2, (n1 + 1) // 2
    work = np.empty(45760, image.dtype)
    plus = image.dtype.type(0.05307393686498877)
    minus = -plus
    for begin in range(0, ncolumn, 2048):
        end = min(ncolumn, begin + 2048)
        # What the coefficients to the right give to this strip comes out of the cascade later.
        width = min(c1, end + 3) - begin
        work[:12480] = 0
        for i in range(0, c0, 2):
            _rows_back_db4(ll[i, begin:], hl[i, begin:], work, 12480, 14560, width, plus, minus)
            _rows_back_db4(lh[i, begin:], hh[i, begin:], work, 16640, 18720, width, minus, plus)
            if i + 1 < c0:
                _rows_back_db4(ll[i + 1, begin:], hl[i + 1, begin:], work, 20800, 22880, width, plus, minus)
                _rows_back_db4(lh[i + 1, begin:], hh[i + 1, begin:], work, 24960, 27040, width, minus, plus)
            else:
                work[20800 : 20800 + 4 * 2080] = 0
            _columns_back_db4(work, end - begin)
            _columns_back_db4(work[2080:], end - begin)
            for r in range(4):
                x = 2 * (i - 3) + r
                if 0 <= x < n0:
                    even = 29120 + 2 * r * 2080
                    _store(work, even, even + 2080, image[x, 2 * begin :], min(end, npair) - begin, end - begin, add)


# db5


@_jit
def _rows_db5(work, even, odd, low, high, width, scale_low, scale_high):  # type: ignore[no-untyped-def]
    ty = work.dtype.type
    t0 = ty(3.771519211689269)
    t1 = ty(-1.06394342665818)
    t2 = ty(0.4248292778014028)
    t3 = ty(-0.1331845456485091)
    t4 = ty(0.020834948930692848)
    e, o = work[even : even + 2080], work[odd : odd + 2080]
    s0 = ty(0)
    s1 = ty(0)
    s2 = ty(0)
    s3 = ty(0)
    for j in range(width):
        a, d = e[j], o[j]
        a, d = a + t0 * d, d - t0 * a
        a, s0 = s0, a
        a, d = a + t1 * d, d - t1 * a
        a, s1 = s1, a
        a, d = a + t2 * d, d - t2 * a
        a, s2 = s2, a
        a, d = a + t3 * d, d - t3 * a
        a, s3 = s3, a
        a, d = a + t4 * d, d - t4 * a
        low[j], high[j] = scale_low * a, scale_high * d


@_jit
def _rows_back_db5(low, high, work, even, odd, width, scale_low, scale_high):  # type: ignore[no-untyped-def]
    ty = work.dtype.type
    t0 = ty(3.771519211689269)
    t1 = ty(-1.06394342665818)
    t2 = ty(0.4248292778014028)
    t3 = ty(-0.1331845456485091)
    t4 = ty(0.020834948930692848)
    e, o = work[even : even + 2080], work[odd : odd + 2080]
    s0 = ty(0)
    s1 = ty(0)
    s2 = ty(0)
    s3 = ty(0)
    for j in range(width):
        a, d = scale_low * low[j], scale_high * high[j]
        a, d = a - t4 * d, d + t4 * a
        d, s3 = s3, d
        a, d = a - t3 * d, d + t3 * a
        d, s2 = s2, d
        a, d = a - t2 * d, d + t2 * a
        d, s1 = s1, d
        a, d = a - t1 * d, d + t1 * a
        d, s0 = s0, d
        a, d = a - t0 * d, d + t0 * a
        e[j], o[j] = a, d


@_jit
def _columns_db5(work, width):  # type: ignore[no-untyped-def]
    """Work on every second column; `work` begins at the row of the even ones or of the odd ones."""
    ty = work.dtype.type
    t0 = ty(3.771519211689269)
    t1 = ty(-1.06394342665818)
    t2 = ty(0.4248292778014028)
    t3 = ty(-0.1331845456485091)
    t4 = ty(0.020834948930692848)
    for j in range(width):
        a0, d0 = work[33280 + j], work[37440 + j]
        a1, d1 = work[41600 + j], work[45760 + j]
        s0 = work[0 + j]
        s1 = work[4160 + j]
        s2 = work[8320 + j]
        s3 = work[12480 + j]
        a, d = a0, d0
        a, d = a + t0 * d, d - t0 * a
        a, s0 = s0, a
        a, d = a + t1 * d, d - t1 * a
        a, s1 = s1, a
        a, d = a + t2 * d, d - t2 * a
        a, s2 = s2, a
        a, d = a + t3 * d, d - t3 * a
        a, s3 = s3, a
        a, d = a + t4 * d, d - t4 * a
        work[16640 + j] = a
        work[20800 + j] = d
        a, d = a1, d1
        a, d = a + t0 * d, d - t0 * a
        a, s0 = s0, a
        a, d = a + t1 * d, d - t1 * a
        a, s1 = s1, a
        a, d = a + t2 * d, d - t2 * a
        a, s2 = s2, a
        a, d = a + t3 * d, d - t3 * a
        a, s3 = s3, a
        a, d = a + t4 * d, d - t4 * a
        work[24960 + j] = a
        work[29120 + j] = d
        work[0 + j] = s0
        work[4160 + j] = s1
        work[8320 + j] = s2
        work[12480 + j] = s3


@_jit
def _columns_back_db5(work, width):  # type: ignore[no-untyped-def]
    ty = work.dtype.type
    t0 = ty(3.771519211689269)
    t1 = ty(-1.06394342665818)
    t2 = ty(0.4248292778014028)
    t3 = ty(-0.1331845456485091)
    t4 = ty(0.020834948930692848)
    for j in range(width):
        a0, d0 = work[16644 + j], work[20804 + j]
        a1, d1 = work[24964 + j], work[29124 + j]
        s0 = work[0 + j]
        s1 = work[4160 + j]
        s2 = work[8320 + j]
        s3 = work[12480 + j]
        a, d = a0, d0
        a, d = a - t4 * d, d + t4 * a
        d, s3 = s3, d
        a, d = a - t3 * d, d + t3 * a
        d, s2 = s2, d
        a, d = a - t2 * d, d + t2 * a
        d, s1 = s1, d
        a, d = a - t1 * d, d + t1 * a
        d, s0 = s0, d
        a, d = a - t0 * d, d + t0 * a
        work[33280 + j] = a
        work[37440 + j] = d
        a, d = a1, d1
        a, d = a - t4 * d, d + t4 * a
        d, s3 = s3, d
        a, d = a - t3 * d, d + t3 * a
        d, s2 = s2, d
        a, d = a - t2 * d, d + t2 * a
        d, s1 = s1, d
        a, d = a - t1 * d, d + t1 * a
        d, s0 = s0, d
        a, d = a - t0 * d, d + t0 * a
        work[41600 + j] = a
        work[45760 + j] = d
        work[0 + j] = s0
        work[4160 + j] = s1
        work[8320 + j] = s2
        work[12480 + j] = s3


@_jit
def analyse_db5(image, ll, lh, hl, hh):  # type: ignore[no-untyped-def]
    """Split an image, (nx, ny) float, into four sub-bands; the first letter is the filter along y, the second along x.

    An output is c[i] = sum_k taps[k] x[2 i + 1 - k] along each axis, of the image extended by zeros; each has
    (n + 9) // 2 values along an axis of n. All rows are contiguous and all types the same.
    """
    n0, n1 = image.shape
    c0, c1 = ll.shape
    npair, ncolumn = n1 // 2, (n1 + 1) // 2
    work, blank = np.empty(49920, ll.dtype), np.zeros(n1, ll.dtype)
    plus = ll.dtype.type(0.025632777837086857)
    minus = -plus
    nstrip = (c1 + 2047) // 2048
    # From right to left: the first outputs of a strip lack what is left of it, and are overwritten by the next.
    for q in range(nstrip):
        begin = (nstrip - 1 - q) * 2048
        end = min(c1, begin + 2048)
        start = max(0, begin - 4)
        even, odd = max(0, min(ncolumn, end) - start), max(0, min(npair, end) - start)
        work[:] = 0  # the delays, and the columns beyond the image
        for i in range(0, c0, 2):
            for r in range(4):
                row = image[2 * i + r] if 2 * i + r < n0 else blank
                at = 33280 + 2 * r * 2080
                _fetch(row[2 * start :], work, at, at + 2080, odd, even)
            _columns_db5(work, end - start)
            _columns_db5(work[2080:], end - start)
            _rows_db5(work, 16640, 18720, ll[i, start:], hl[i, start:], end - start, plus, minus)
            _rows_db5(work, 20800, 22880, lh[i, start:], hh[i, start:], end - start, minus, plus)
            if i + 1 < c0:
                _rows_db5(work, 24960, 27040, ll[i + 1, start:], hl[i + 1, start:], end - start, plus, minus)
                _rows_db5(work, 29120, 31200, lh[i + 1, start:], hh[i + 1, start:], end - start, minus, plus)


@_jit
def synthesise_db5(ll, lh, hl, hh, image, add):  # type: ignore[no-untyped-def]
    """Write the image of four sub-bands, or add it if `add`: the adjoint of `analyse_db5`."""
    n0, n1 = image.shape
    c0, c1 = ll.shape
    npair, ncolumn = n1 // 2, (n1 + 1) // 2
    work = np.empty(49920, image.dtype)
    plus = image.dtype.type(0.025632777837086857)
    minus = -plus
    for begin in range(0, ncolumn, 2048):
        end = min(ncolumn, begin + 2048)
        # What the coefficients to the right give to this strip comes out of the cascade later.
        width = min(c1, end + 4) - begin
        work[:16640] = 0
        for i in range(0, c0, 2):
            _rows_back_db5(ll[i, begin:], hl[i, begin:], work, 16640, 18720, width, plus, minus)
            _rows_back_db5(lh[i, begin:], hh[i, begin:], work, 20800, 22880, width, minus, plus)
            if i + 1 < c0:
                _rows_back_db5(ll[i + 1, begin:], hl[i + 1, begin:], work, 24960, 27040, width, plus, minus)
                _rows_back_db5(lh[i + 1, begin:], hh[i + 1, begin:], work, 29120, 31200, width, minus, plus)
            else:
                work[24960 : 24960 + 4 * 2080] = 0
            _columns_back_db5(work, end - begin)
            _columns_back_db5(work[2080:], end - begin)
            for r in range(4):
                x = 2 * (i - 4) + r
                if 0 <= x < n0:
                    even = 33280 + 2 * r * 2080
                    _store(work, even, even + 2080, image[x, 2 * begin :], min(end, npair) - begin, end - begin, add)


# db6


@_jit
def _rows_db6(work, even, odd, low, high, width, scale_low, scale_high):  # type: ignore[no-untyped-def]
    ty = work.dtype.type
    t0 = ty(4.434468298690675)
    t1 = ty(-1.3083360430181672)
    t2 = ty(0.5896181242331424)
    t3 = ty(-0.24301459735988695)
    t4 = ty(0.06999987822450948)
    t5 = ty(-0.009658363867335857)
    e, o = work[even : even + 2080], work[odd : odd + 2080]
    s0 = ty(0)
    s1 = ty(0)
    s2 = ty(0)
    s3 = ty(0)
    s4 = ty(0)
    for j in range(width):
        a, d = e[j], o[j]
        a, d = a + t0 * d, d - t0 * a
        a, s0 = s0, a
        a, d = a + t1 * d, d - t1 * a
        a, s1 = s1, a
        a, d = a + t2 * d, d - t2 * a
        a, s2 = s2, a
        a, d = a + t3 * d, d - t3 * a
        a, s3 = s3, a
        a, d = a + t4 * d, d - t4 * a
        a, s4 = s4, a
        a, d = a + t5 * d, d - t5 * a
        low[j], high[j] = scale_low * a, scale_high * d


@_jit
def _rows_back_db6(low, high, work, even, odd, width, scale_low, scale_high):  # type: ignore[no-untyped-def]
    ty = work.dtype.type
    t0 = ty(4.434468298690675)
    t1 = ty(-1.3083360430181672)
    t2 = ty(0.5896181242331424)
    t3 = ty(-0.24301459735988695)
    t4 = ty(0.06999987822450948)
    t5 = ty(-0.009658363867335857)
    e, o = work[even : even + 2080], work[odd : odd + 2080]
    s0 = ty(0)
    s1 = ty(0)
    s2 = ty(0)
    s3 = ty(0)
    s4 = ty(0)
    for j in range(width):
        a, d = scale_low * low[j], scale_high * high[j]
        a, d = a - t5 * d, d + t5 * a
        d, s4 = s4, d
        a, d = a - t4 * d, d + t4 * a
        d, s3 = s3, d
        a, d = a - t3 * d, d + t3 * a
        d, s2 = s2, d
        a, d = a - t2 * d, d + t2 * a
        d, s1 = s1, d
        a, d = a - t1 * d, d + t1 * a
        d, s0 = s0, d
        a, d = a - t0 * d, d + t0 * a
        e[j], o[j] = a, d


@_jit
def _columns_db6(work, width):  # type: ignore[no-untyped-def]
    """Work on every second column; `work` begins at the row of the even ones or of the odd ones."""
    ty = work.dtype.type
    t0 = ty(4.434468298690675)
    t1 = ty(-1.3083360430181672)
    t2 = ty(0.5896181242331424)
    t3 = ty(-0.24301459735988695)
    t4 = ty(0.06999987822450948)
    t5 = ty(-0.009658363867335857)
    for j in range(width):
        a0, d0 = work[37440 + j], work[41600 + j]
        a1, d1 = work[45760 + j], work[49920 + j]
        s0 = work[0 + j]
        s1 = work[4160 + j]
        s2 = work[8320 + j]
        s3 = work[12480 + j]
        s4 = work[16640 + j]
        a, d = a0, d0
        a, d = a + t0 * d, d - t0 * a
        a, s0 = s0, a
        a, d = a + t1 * d, d - t1 * a
        a, s1 = s1, a
        a, d = a + t2 * d, d - t2 * a
        a, s2 = s2, a
        a, d = a + t3 * d, d - t3 * a
        a, s3 = s3, a
        a, d = a + t4 * d, d - t4 * a
        a, s4 = s4, a
        a, d = a + t5 * d, d - t5 * a
        work[20800 + j] = a
        work[24960 + j] = d
        a, d = a1, d1
        a, d = a + t0 * d, d - t0 * a
        a, s0 = s0, a
        a, d = a + t1 * d, d - t1 * a
        a, s1 = s1, a
        a, d = a + t2 * d, d - t2 * a
        a, s2 = s2, a
        a, d = a + t3 * d, d - t3 * a
        a, s3 = s3, a
        a, d = a + t4 * d, d - t4 * a
        a, s4 = s4, a
        a, d = a + t5 * d, d - t5 * a
        work[29120 + j] = a
        work[33280 + j] = d
        work[0 + j] = s0
        work[4160 + j] = s1
        work[8320 + j] = s2
        work[12480 + j] = s3
        work[16640 + j] = s4


@_jit
def _columns_back_db6(work, width):  # type: ignore[no-untyped-def]
    ty = work.dtype.type
    t0 = ty(4.434468298690675)
    t1 = ty(-1.3083360430181672)
    t2 = ty(0.5896181242331424)
    t3 = ty(-0.24301459735988695)
    t4 = ty(0.06999987822450948)
    t5 = ty(-0.009658363867335857)
    for j in range(width):
        a0, d0 = work[20805 + j], work[24965 + j]
        a1, d1 = work[29125 + j], work[33285 + j]
        s0 = work[0 + j]
        s1 = work[4160 + j]
        s2 = work[8320 + j]
        s3 = work[12480 + j]
        s4 = work[16640 + j]
        a, d = a0, d0
        a, d = a - t5 * d, d + t5 * a
        d, s4 = s4, d
        a, d = a - t4 * d, d + t4 * a
        d, s3 = s3, d
        a, d = a - t3 * d, d + t3 * a
        d, s2 = s2, d
        a, d = a - t2 * d, d + t2 * a
        d, s1 = s1, d
        a, d = a - t1 * d, d + t1 * a
        d, s0 = s0, d
        a, d = a - t0 * d, d + t0 * a
        work[37440 + j] = a
        work[41600 + j] = d
        a, d = a1, d1
        a, d = a - t5 * d, d + t5 * a
        d, s4 = s4, d
        a, d = a - t4 * d, d + t4 * a
        d, s3 = s3, d
        a, d = a - t3 * d, d + t3 * a
        d, s2 = s2, d
        a, d = a - t2 * d, d + t2 * a
        d, s1 = s1, d
        a, d = a - t1 * d, d + t1 * a
        d, s0 = s0, d
        a, d = a - t0 * d, d + t0 * a
        work[45760 + j] = a
        work[49920 + j] = d
        work[0 + j] = s0
        work[4160 + j] = s1
        work[8320 + j] = s2
        work[12480 + j] = s3
        work[16640 + j] = s4


@_jit
def analyse_db6(image, ll, lh, hl, hh):  # type: ignore[no-untyped-def]
    """Split an image, (nx, ny) float, into four sub-bands; the first letter is the filter along y, the second along x.

    An output is c[i] = sum_k taps[k] x[2 i + 1 - k] along each axis, of the image extended by zeros; each has
    (n + 11) // 2 values along an axis of n. All rows are contiguous and all types the same.
    """
    n0, n1 = image.shape
    c0, c1 = ll.shape
    npair, ncolumn = n1 // 2, (n1 + 1) // 2
    work, blank = np.empty(54080, ll.dtype), np.zeros(n1, ll.dtype)
    plus = ll.dtype.type(0.01244133742709499)
    minus = -plus
    nstrip = (c1 + 2047) // 2048
    # From right to left: the first outputs of a strip lack what is left of it, and are overwritten by the next.
    for q in range(nstrip):
        begin = (nstrip - 1 - q) * 2048
        end = min(c1, begin + 2048)
        start = max(0, begin - 5)
        even, odd = max(0, min(ncolumn, end) - start), max(0, min(npair, end) - start)
        work[:] = 0  # the delays, and the columns beyond the image
        for i in range(0, c0, 2):
            for r in range(4):
                row = image[2 * i + r] if 2 * i + r < n0 else blank
                at = 37440 + 2 * r * 2080
                _fetch(row[2 * start :], work, at, at + 2080, odd, even)
            _columns_db6(work, end - start)
            _columns_db6(work[2080:], end - start)
            _rows_db6(work, 20800, 22880, ll[i, start:], hl[i, start:], end - start, plus, minus)
            _rows_db6(work, 24960, 27040, lh[i, start:], hh[i, start:], end - start, minus, plus)
            if i + 1 < c0:
                _rows_db6(work, 29120, 31200, ll[i + 1, start:], hl[i + 1, start:], end - start, plus, minus)
                _rows_db6(work, 33280, 35360, lh[i + 1, start:], hh[i + 1, start:], end - start, minus, plus)


@_jit
def synthesise_db6(ll, lh, hl, hh, image, add):  # type: ignore[no-untyped-def]
    """Write the image of four sub-bands, or add it if `add`: the adjoint of `analyse_db6`."""
    n0, n1 = image.shape
    c0, c1 = ll.shape
    npair, ncolumn = n1 // 2, (n1 + 1) // 2
    work = np.empty(54080, image.dtype)
    plus = image.dtype.type(0.01244133742709499)
    minus = -plus
    for begin in range(0, ncolumn, 2048):
        end = min(ncolumn, begin + 2048)
        # What the coefficients to the right give to this strip comes out of the cascade later.
        width = min(c1, end + 5) - begin
        work[:20800] = 0
        for i in range(0, c0, 2):
            _rows_back_db6(ll[i, begin:], hl[i, begin:], work, 20800, 22880, width, plus, minus)
            _rows_back_db6(lh[i, begin:], hh[i, begin:], work, 24960, 27040, width, minus, plus)
            if i + 1 < c0:
                _rows_back_db6(ll[i + 1, begin:], hl[i + 1, begin:], work, 29120, 31200, width, plus, minus)
                _rows_back_db6(lh[i + 1, begin:], hh[i + 1, begin:], work, 33280, 35360, width, minus, plus)
            else:
                work[29120 : 29120 + 4 * 2080] = 0
            _columns_back_db6(work, end - begin)
            _columns_back_db6(work[2080:], end - begin)
            for r in range(4):
                x = 2 * (i - 5) + r
                if 0 <= x < n0:
                    even = 37440 + 2 * r * 2080
                    _store(work, even, even + 2080, image[x, 2 * begin :], min(end, npair) - begin, end - begin, add)


# db7


@_jit
def _rows_db7(work, even, odd, low, high, width, scale_low, scale_high):  # type: ignore[no-untyped-def]
    ty = work.dtype.type
    t0 = ty(5.093498484303615)
    t1 = ty(-1.5465355920499169)
    t2 = ty(0.7501664330496637)
    t3 = ty(-0.3616950920259952)
    t4 = ty(0.14214170477042137)
    t5 = ty(-0.03703317232894079)
    t6 = ty(0.004543409986180823)
    e, o = work[even : even + 2080], work[odd : odd + 2080]
    s0 = ty(0)
    s1 = ty(0)
    s2 = ty(0)
    s3 = ty(0)
    s4 = ty(0)
    s5 = ty(0)
    for j in range(width):
        a, d = e[j], o[j]
        a, d = a + t0 * d, d - t0 * a
        a, s0 = s0, a
        a, d = a + t1 * d, d - t1 * a
        a, s1 = s1, a
        a, d = a + t2 * d, d - t2 * a
        a, s2 = s2, a
        a, d = a + t3 * d, d - t3 * a
        a, s3 = s3, a
        a, d = a + t4 * d, d - t4 * a
        a, s4 = s4, a
        a, d = a + t5 * d, d - t5 * a
        a, s5 = s5, a
        a, d = a + t6 * d, d - t6 * a
        low[j], high[j] = scale_low * a, scale_high * d


@_jit
def _rows_back_db7(low, high, work, even, odd, width, scale_low, scale_high):  # type: ignore[no-untyped-def]
    ty = work.dtype.type
    t0 = ty(5.093498484303615)
    t1 = ty(-1.5465355920499169)
    t2 = ty(0.7501664330496637)
    t3 = ty(-0.3616950920259952)
    t4 = ty(0.14214170477042137)
    t5 = ty(-0.03703317232894079)
    t6 = ty(0.004543409986180823)
    e, o = work[even : even + 2080], work[odd : odd + 2080]
    s0 = ty(0)
    s1 = ty(0)
    s2 = ty(0)
    s3 = ty(0)
    s4 = ty(0)
    s5 = ty(0)
    for j in range(width):
        a, d = scale_low * low[j], scale_high * high[j]
        a, d = a - t6 * d, d + t6 * a
        d, s5 = s5, d
        a, d = a - t5 * d, d + t5 * a
        d, s4 = s4, d
        a, d = a - t4 * d, d + t4 * a
        d, s3 = s3, d
        a, d = a - t3 * d, d + t3 * a
        d, s2 = s2, d
        a, d = a - t2 * d, d + t2 * a
        d, s1 = s1, d
        a, d = a - t1 * d, d + t1 * a
        d, s0 = s0, d
        a, d = a - t0 * d, d + t0 * a
        e[j], o[j] = a, d


@_jit
def _columns_db7(work, width):  # type: ignore[no-untyped-def]
    """Work on every second column; `work` begins at the row of the even ones or of the odd ones."""
    ty = work.dtype.type
    t0 = ty(5.093498484303615)
    t1 = ty(-1.5465355920499169)
    t2 = ty(0.7501664330496637)
    t3 = ty(-0.3616950920259952)
    t4 = ty(0.14214170477042137)
    t5 = ty(-0.03703317232894079)
    t6 = ty(0.004543409986180823)
    for j in range(width):
        a0, d0 = work[41600 + j], work[45760 + j]
        a1, d1 = work[49920 + j], work[54080 + j]
        s0 = work[0 + j]
        s1 = work[4160 + j]
        s2 = work[8320 + j]
        s3 = work[12480 + j]
        s4 = work[16640 + j]
        s5 = work[20800 + j]
        a, d = a0, d0
        a, d = a + t0 * d, d - t0 * a
        a, s0 = s0, a
        a, d = a + t1 * d, d - t1 * a
        a, s1 = s1, a
        a, d = a + t2 * d, d - t2 * a
        a, s2 = s2, a
        a, d = a + t3 * d, d - t3 * a
        a, s3 = s3, a
        a, d = a + t4 * d, d - t4 * a
        a, s4 = s4, a
        a, d = a + t5 * d, d - t5 * a
        a, s5 = s5, a
        a, d = a + t6 * d, d - t6 * a
        work[24960 + j] = a
        work[29120 + j] = d
        a, d = a1, d1
        a, d = a + t0 * d, d - t0 * a
        a, s0 = s0, a
        a, d = a + t1 * d, d - t1 * a
        a, s1 = s1, a
        a, d = a + t2 * d, d - t2 * a
        a, s2 = s2, a
        a, d = a + t3 * d, d - t3 * a
        a, s3 = s3, a
        a, d = a + t4 * d, d - t4 * a
        a, s4 = s4, a
        a, d = a + t5 * d, d - t5 * a
        a, s5 = s5, a
        a, d = a + t6 * d, d - t6 * a
        work[33280 + j] = a
        work[37440 + j] = d
        work[0 + j] = s0
        work[4160 + j] = s1
        work[8320 + j] = s2
        work[12480 + j] = s3
        work[16640 + j] = s4
        work[20800 + j] = s5


@_jit
def _columns_back_db7(work, width):  # type: ignore[no-untyped-def]
    ty = work.dtype.type
    t0 = ty(5.093498484303615)
    t1 = ty(-1.5465355920499169)
    t2 = ty(0.7501664330496637)
    t3 = ty(-0.3616950920259952)
    t4 = ty(0.14214170477042137)
    t5 = ty(-0.03703317232894079)
    t6 = ty(0.004543409986180823)
    for j in range(width):
        a0, d0 = work[24966 + j], work[29126 + j]
        a1, d1 = work[33286 + j], work[37446 + j]
        s0 = work[0 + j]
        s1 = work[4160 + j]
        s2 = work[8320 + j]
        s3 = work[12480 + j]
        s4 = work[16640 + j]
        s5 = work[20800 + j]
        a, d = a0, d0
        a, d = a - t6 * d, d + t6 * a
        d, s5 = s5, d
        a, d = a - t5 * d, d + t5 * a
        d, s4 = s4, d
        a, d = a - t4 * d, d + t4 * a
        d, s3 = s3, d
        a, d = a - t3 * d, d + t3 * a
        d, s2 = s2, d
        a, d = a - t2 * d, d + t2 * a
        d, s1 = s1, d
        a, d = a - t1 * d, d + t1 * a
        d, s0 = s0, d
        a, d = a - t0 * d, d + t0 * a
        work[41600 + j] = a
        work[45760 + j] = d
        a, d = a1, d1
        a, d = a - t6 * d, d + t6 * a
        d, s5 = s5, d
        a, d = a - t5 * d, d + t5 * a
        d, s4 = s4, d
        a, d = a - t4 * d, d + t4 * a
        d, s3 = s3, d
        a, d = a - t3 * d, d + t3 * a
        d, s2 = s2, d
        a, d = a - t2 * d, d + t2 * a
        d, s1 = s1, d
        a, d = a - t1 * d, d + t1 * a
        d, s0 = s0, d
        a, d = a - t0 * d, d + t0 * a
        work[49920 + j] = a
        work[54080 + j] = d
        work[0 + j] = s0
        work[4160 + j] = s1
        work[8320 + j] = s2
        work[12480 + j] = s3
        work[16640 + j] = s4
        work[20800 + j] = s5


@_jit
def analyse_db7(image, ll, lh, hl, hh):  # type: ignore[no-untyped-def]
    """Split an image, (nx, ny) float, into four sub-bands; the first letter is the filter along y, the second along x.

    An output is c[i] = sum_k taps[k] x[2 i + 1 - k] along each axis, of the image extended by zeros; each has
    (n + 13) // 2 values along an axis of n. All rows are contiguous and all types the same.
    """
    n0, n1 = image.shape
    c0, c1 = ll.shape
    npair, ncolumn = n1 // 2, (n1 + 1) // 2
    work, blank = np.empty(58240, ll.dtype), np.zeros(n1, ll.dtype)
    plus = ll.dtype.type(0.006060942325255195)
    minus = -plus
    nstrip = (c1 + 2047) // 2048
    # From right to left: the first outputs of a strip lack what is left of it, and are overwritten by the next.
    for q in range(nstrip):
        begin = (nstrip - 1 - q) * 2048
        end = min(c1, begin + 2048)
        start = max(0, begin - 6)
        even, odd = max(0, min(ncolumn, end) - start), max(0, min(npair, end) - start)
        work[:] = 0  # the delays, and the columns beyond the image
        for i in range(0, c0, 2):
            for r in range(4):
                row = image[2 * i + r] if 2 * i + r < n0 else blank
                at = 41600 + 2 * r * 2080
                _fetch(row[2 * start :], work, at, at + 2080, odd, even)
            _columns_db7(work, end - start)
            _columns_db7(work[2080:], end - start)
            _rows_db7(work, 24960, 27040, ll[i, start:], hl[i, start:], end - start, plus, minus)
            _rows_db7(work, 29120, 31200, lh[i, start:], hh[i, start:], end - start, minus, plus)
            if i + 1 < c0:
                _rows_db7(work, 33280, 35360, ll[i + 1, start:], hl[i + 1, start:], end - start, plus, minus)
                _rows_db7(work, 37440, 39520, lh[i + 1, start:], hh[i + 1, start:], end - start, minus, plus)


@_jit
def synthesise_db7(ll, lh, hl, hh, image, add):  # type: ignore[no-untyped-def]
    """Write the image of four sub-bands, or add it if `add`: the adjoint of `analyse_db7`."""
    n0, n1 = image.shape
    c0, c1 = ll.shape
    npair, ncolumn = n1 // 2, (n1 + 1) // 2
    work = np.empty(58240, image.dtype)
    plus = image.dtype.type(0.006060942325255195)
    minus = -plus
    for begin in range(0, ncolumn, 2048):
        end = min(ncolumn, begin + 2048)
        # What the coefficients to the right give to this strip comes out of the cascade later.
        width = min(c1, end + 6) - begin
        work[:24960] = 0
        for i in range(0, c0, 2):
            _rows_back_db7(ll[i, begin:], hl[i, begin:], work, 24960, 27040, width, plus, minus)
            _rows_back_db7(lh[i, begin:], hh[i, begin:], work, 29120, 31200, width, minus, plus)
            if i + 1 < c0:
                _rows_back_db7(ll[i + 1, begin:], hl[i + 1, begin:], work, 33280, 35360, width, plus, minus)
                _rows_back_db7(lh[i + 1, begin:], hh[i + 1, begin:], work, 37440, 39520, width, minus, plus)
            else:
                work[33280 : 33280 + 4 * 2080] = 0
            _columns_back_db7(work, end - begin)
            _columns_back_db7(work[2080:], end - begin)
            for r in range(4):
                x = 2 * (i - 6) + r
                if 0 <= x < n0:
                    even = 41600 + 2 * r * 2080
                    _store(work, even, even + 2080, image[x, 2 * begin :], min(end, npair) - begin, end - begin, add)


# db8


@_jit
def _rows_db8(work, even, odd, low, high, width, scale_low, scale_high):  # type: ignore[no-untyped-def]
    ty = work.dtype.type
    t0 = ty(5.7496416120242895)
    t1 = ty(-1.7802042665222924)
    t2 = ty(0.906100829140833)
    t3 = ty(-0.48202108808897093)
    t4 = ty(0.228281430588519)
    t5 = ty(-0.08329313467990687)
    t6 = ty(0.019605582091024497)
    t7 = ty(-0.0021588710067178478)
    e, o = work[even : even + 2080], work[odd : odd + 2080]
    s0 = ty(0)
    s1 = ty(0)
    s2 = ty(0)
    s3 = ty(0)
    s4 = ty(0)
    s5 = ty(0)
    s6 = ty(0)
    for j in range(width):
        a, d = e[j], o[j]
        a, d = a + t0 * d, d - t0 * a
        a, s0 = s0, a
        a, d = a + t1 * d, d - t1 * a
        a, s1 = s1, a
        a, d = a + t2 * d, d - t2 * a
        a, s2 = s2, a
        a, d = a + t3 * d, d - t3 * a
        a, s3 = s3, a
        a, d = a + t4 * d, d - t4 * a
        a, s4 = s4, a
        a, d = a + t5 * d, d - t5 * a
        a, s5 = s5, a
        a, d = a + t6 * d, d - t6 * a
        a, s6 = s6, a
        a, d = a + t7 * d, d - t7 * a
        low[j], high[j] = scale_low * a, scale_high * d


@_jit
def _rows_back_db8(low, high, work, even, odd, width, scale_low, scale_high):  # type: ignore[no-untyped-def]
    ty = work.dtype.type
    t0 = ty(5.7496416120242895)
    t1 = ty(-1.7802042665222924)
    t2 = ty(0.906100829140833)
    t3 = ty(-0.48202108808897093)
    t4 = ty(0.228281430588519)
    t5 = ty(-0.08329313467990687)
    t6 = ty(0.019605582091024497)
    t7 = ty(-0.0021588710067178478)
    e, o = work[even : even + 2080], work[odd : odd + 2080]
    s0 = ty(0)
    s1 = ty(0)
    s2 = ty(0)
    s3 = ty(0)
    s4 = ty(0)
    s5 = ty(0)
    s6 = ty(0)
    for j in range(width):
        a, d = scale_low * low[j], scale_high * high[j]
        a, d = a - t7 * d, d + t7 * a
        d, s6 = s6, d
        a, d = a - t6 * d, d + t6 * a
        d, s5 = s5, d
        a, d = a - t5 * d, d + t5 * a
        d, s4 = s4, d
        a, d = a - t4 * d, d + t4 * a
        d, s3 = s3, d
        a, d = a - t3 * d, d + t3 * a
        d, s2 = s2, d
        a, d = a - t2 * d, d + t2 * a
        d, s1 = s1, d
        a, d = a - t1 * d, d + t1 * a
        d, s0 = s0, d
        a, d = a - t0 * d, d + t0 * a
        e[j], o[j] = a, d


@_jit
def _columns_db8(work, width):  # type: ignore[no-untyped-def]
    """Work on every second column; `work` begins at the row of the even ones or of the odd ones."""
    ty = work.dtype.type
    t0 = ty(5.7496416120242895)
    t1 = ty(-1.7802042665222924)
    t2 = ty(0.906100829140833)
    t3 = ty(-0.48202108808897093)
    t4 = ty(0.228281430588519)
    t5 = ty(-0.08329313467990687)
    t6 = ty(0.019605582091024497)
    t7 = ty(-0.0021588710067178478)
    for j in range(width):
        a0, d0 = work[45760 + j], work[49920 + j]
        a1, d1 = work[54080 + j], work[58240 + j]
        s0 = work[0 + j]
        s1 = work[4160 + j]
        s2 = work[8320 + j]
        s3 = work[12480 + j]
        s4 = work[16640 + j]
        s5 = work[20800 + j]
        s6 = work[24960 + j]
        a, d = a0, d0
        a, d = a + t0 * d, d - t0 * a
        a, s0 = s0, a
        a, d = a + t1 * d, d - t1 * a
        a, s1 = s1, a
        a, d = a + t2 * d, d - t2 * a
        a, s2 = s2, a
        a, d = a + t3 * d, d - t3 * a
        a, s3 = s3, a
        a, d = a + t4 * d, d - t4 * a
        a, s4 = s4, a
        a, d = a + t5 * d, d - t5 * a
        a, s5 = s5, a
        a, d = a + t6 * d, d - t6 * a
        a, s6 = s6, a
        a, d = a + t7 * d, d - t7 * a
        work[29120 + j] = a
        work[33280 + j] = d
        a, d = a1, d1
        a, d = a + t0 * d, d - t0 * a
        a, s0 = s0, a
        a, d = a + t1 * d, d - t1 * a
        a, s1 = s1, a
        a, d = a + t2 * d, d - t2 * a
        a, s2 = s2, a
        a, d = a + t3 * d, d - t3 * a
        a, s3 = s3, a
        a, d = a + t4 * d, d - t4 * a
        a, s4 = s4, a
        a, d = a + t5 * d, d - t5 * a
        a, s5 = s5, a
        a, d = a + t6 * d, d - t6 * a
        a, s6 = s6, a
        a, d = a + t7 * d, d - t7 * a
        work[37440 + j] = a
        work[41600 + j] = d
        work[0 + j] = s0
        work[4160 + j] = s1
        work[8320 + j] = s2
        work[12480 + j] = s3
        work[16640 + j] = s4
        work[20800 + j] = s5
        work[24960 + j] = s6


@_jit
def _columns_back_db8(work, width):  # type: ignore[no-untyped-def]
    ty = work.dtype.type
    t0 = ty(5.7496416120242895)
    t1 = ty(-1.7802042665222924)
    t2 = ty(0.906100829140833)
    t3 = ty(-0.48202108808897093)
    t4 = ty(0.228281430588519)
    t5 = ty(-0.08329313467990687)
    t6 = ty(0.019605582091024497)
    t7 = ty(-0.0021588710067178478)
    for j in range(width):
        a0, d0 = work[29127 + j], work[33287 + j]
        a1, d1 = work[37447 + j], work[41607 + j]
        s0 = work[0 + j]
        s1 = work[4160 + j]
        s2 = work[8320 + j]
        s3 = work[12480 + j]
        s4 = work[16640 + j]
        s5 = work[20800 + j]
        s6 = work[24960 + j]
        a, d = a0, d0
        a, d = a - t7 * d, d + t7 * a
        d, s6 = s6, d
        a, d = a - t6 * d, d + t6 * a
        d, s5 = s5, d
        a, d = a - t5 * d, d + t5 * a
        d, s4 = s4, d
        a, d = a - t4 * d, d + t4 * a
        d, s3 = s3, d
        a, d = a - t3 * d, d + t3 * a
        d, s2 = s2, d
        a, d = a - t2 * d, d + t2 * a
        d, s1 = s1, d
        a, d = a - t1 * d, d + t1 * a
        d, s0 = s0, d
        a, d = a - t0 * d, d + t0 * a
        work[45760 + j] = a
        work[49920 + j] = d
        a, d = a1, d1
        a, d = a - t7 * d, d + t7 * a
        d, s6 = s6, d
        a, d = a - t6 * d, d + t6 * a
        d, s5 = s5, d
        a, d = a - t5 * d, d + t5 * a
        d, s4 = s4, d
        a, d = a - t4 * d, d + t4 * a
        d, s3 = s3, d
        a, d = a - t3 * d, d + t3 * a
        d, s2 = s2, d
        a, d = a - t2 * d, d + t2 * a
        d, s1 = s1, d
        a, d = a - t1 * d, d + t1 * a
        d, s0 = s0, d
        a, d = a - t0 * d, d + t0 * a
        work[54080 + j] = a
        work[58240 + j] = d
        work[0 + j] = s0
        work[4160 + j] = s1
        work[8320 + j] = s2
        work[12480 + j] = s3
        work[16640 + j] = s4
        work[20800 + j] = s5
        work[24960 + j] = s6


@_jit
def analyse_db8(image, ll, lh, hl, hh):  # type: ignore[no-untyped-def]
    """Split an image, (nx, ny) float, into four sub-bands; the first letter is the filter along y, the second along x.

    An output is c[i] = sum_k taps[k] x[2 i + 1 - k] along each axis, of the image extended by zeros; each has
    (n + 15) // 2 values along an axis of n. All rows are contiguous and all types the same.
    """
    n0, n1 = image.shape
    c0, c1 = ll.shape
    npair, ncolumn = n1 // 2, (n1 + 1) // 2
    work, blank = np.empty(62400, ll.dtype), np.zeros(n1, ll.dtype)
    plus = ll.dtype.type(0.0029610838870263827)
    minus = -plus
    nstrip = (c1 + 2047) // 2048
    # From right to left: the first outputs of a strip lack what is left of it, and are overwritten by the next.
    for q in range(nstrip):
        begin = (nstrip - 1 - q) * 2048
        end = min(c1, begin + 2048)
        start = max(0, begin - 7)
        even, odd = max(0, min(ncolumn, end) - start), max(0, min(npair, end) - start)
        work[:] = 0  # the delays, and the columns beyond the image
        for i in range(0, c0, 2):
            for r in range(4):
                row = image[2 * i + r] if 2 * i + r < n0 else blank
                at = 45760 + 2 * r * 2080
                _fetch(row[2 * start :], work, at, at + 2080, odd, even)
            _columns_db8(work, end - start)
            _columns_db8(work[2080:], end - start)
            _rows_db8(work, 29120, 31200, ll[i, start:], hl[i, start:], end - start, plus, minus)
            _rows_db8(work, 33280, 35360, lh[i, start:], hh[i, start:], end - start, minus, plus)
            if i + 1 < c0:
                _rows_db8(work, 37440, 39520, ll[i + 1, start:], hl[i + 1, start:], end - start, plus, minus)
                _rows_db8(work, 41600, 43680, lh[i + 1, start:], hh[i + 1, start:], end - start, minus, plus)


@_jit
def synthesise_db8(ll, lh, hl, hh, image, add):  # type: ignore[no-untyped-def]
    """Write the image of four sub-bands, or add it if `add`: the adjoint of `analyse_db8`."""
    n0, n1 = image.shape
    c0, c1 = ll.shape
    npair, ncolumn = n1 // 2, (n1 + 1) // 2
    work = np.empty(62400, image.dtype)
    plus = image.dtype.type(0.0029610838870263827)
    minus = -plus
    for begin in range(0, ncolumn, 2048):
        end = min(ncolumn, begin + 2048)
        # What the coefficients to the right give to this strip comes out of the cascade later.
        width = min(c1, end + 7) - begin
        work[:29120] = 0
        for i in range(0, c0, 2):
            _rows_back_db8(ll[i, begin:], hl[i, begin:], work, 29120, 31200, width, plus, minus)
            _rows_back_db8(lh[i, begin:], hh[i, begin:], work, 33280, 35360, width, minus, plus)
            if i + 1 < c0:
                _rows_back_db8(ll[i + 1, begin:], hl[i + 1, begin:], work, 37440, 39520, width, plus, minus)
                _rows_back_db8(lh[i + 1, begin:], hh[i + 1, begin:], work, 41600, 43680, width, minus, plus)
            else:
                work[37440 : 37440 + 4 * 2080] = 0
            _columns_back_db8(work, end - begin)
            _columns_back_db8(work[2080:], end - begin)
            for r in range(4):
                x = 2 * (i - 7) + r
                if 0 <= x < n0:
                    even = 45760 + 2 * r * 2080
                    _store(work, even, even + 2080, image[x, 2 * begin :], min(end, npair) - begin, end - begin, add)
