"""The generated kernels of one level against the sums that define it, and the generator against PyWavelets."""

import importlib.util
import platform
import re

import numba
import numpy as np
import pytest
import pywt

from pfb.kernels import lattice
from tests.observations import ROOT

WAVELETS = [f"db{n}" for n in range(1, 9)]
WIDE = 4096
# Odd, non-square, length 1; one, two and three strips of columns, with an odd column at and next to the edge of a strip.
SHAPES = [(8, 8), (7, 6), (6, 9), (13, 31), (1, 7), (6, 1), (1, 1), (2, 3),
          (3, WIDE - 1), (2, WIDE), (3, WIDE + 1), (1, WIDE + 2), (2, 2 * WIDE + 5)]  # fmt: skip


def taps(name):
    wavelet = pywt.Wavelet(name)
    return np.array([wavelet.dec_lo, wavelet.dec_hi])


def by_definition(image, taps, axis):
    """c[i] = sum_k taps[k] x[2 i + 1 - k] along one axis."""
    n, length = image.shape[axis], len(taps)
    x = np.moveaxis(image, axis, 0)
    out = np.zeros(((n + length - 1) // 2, *x.shape[1:]))
    for i in range(len(out)):
        for k in range(length):
            if 0 <= 2 * i + 1 - k < n:
                out[i] += taps[k] * x[2 * i + 1 - k]
    return np.moveaxis(out, 0, axis)


def split(image, name):
    shape = tuple((n + pywt.Wavelet(name).dec_len - 1) // 2 for n in image.shape)
    out = [np.full(shape, np.nan, image.dtype) for _ in range(4)]
    getattr(lattice, f"analyse_{name}")(image, *out)
    return out


def join(subbands, name, shape, start=None):
    image = np.full(shape, np.nan, subbands[0].dtype) if start is None else start.copy()
    getattr(lattice, f"synthesise_{name}")(*subbands, image, start is not None)
    return image


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", WAVELETS)
def test_a_level_is_the_sum_that_defines_it(name, shape, dtype, rng):
    """The first letter of a sub-band is the filter along y, the second that along x."""
    image = rng.standard_normal(shape).astype(dtype)
    atol = 30 * np.finfo(dtype).eps
    along_x = [by_definition(image, tap, 0) for tap in taps(name)]
    found = split(image, name)
    for subband, (y, x) in zip(found, [(0, 0), (0, 1), (1, 0), (1, 1)], strict=True):
        assert subband.dtype == dtype
        np.testing.assert_allclose(subband, by_definition(along_x[x], taps(name)[y], 1), rtol=0, atol=atol)
    np.testing.assert_allclose(join(found, name, shape), image, rtol=0, atol=atol)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", ["db1", "db4", "db7"])
def test_synthesis_is_the_adjoint(name, shape, rng):
    image = rng.standard_normal(shape)
    subbands = [rng.standard_normal(subband.shape) for subband in split(image, name)]
    left = sum(np.vdot(a, b) for a, b in zip(split(image, name), subbands, strict=True))
    right = np.vdot(image, join(subbands, name, shape))
    assert left == pytest.approx(right, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("shape", [(8, 8), (7, 9), (1, WIDE + 3)], ids=str)
def test_synthesis_adds_if_asked(shape, rng):
    image, before = rng.standard_normal((2, *shape))
    np.testing.assert_allclose(join(split(image, "db3"), "db3", shape, before), before + image, rtol=0, atol=1e-14)


@pytest.fixture(scope="module")
def generator():
    pytest.importorskip("mpmath", reason="mpmath, which the generator needs, is not installed")
    spec = importlib.util.spec_from_file_location("docs_lattice", ROOT / "docs" / "lattice.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_module_is_what_the_generator_writes(generator):
    assert generator.MODULE.read_text() == generator.source(), "run `make kernels`"
    assert 2 * generator.WIDTH == WIDE, "the shapes that are tested are to cross the edges of strips"


@pytest.mark.parametrize("n", range(1, 9))
def test_the_generator_finds_the_filters_of_pywavelets(generator, n):
    found = [float(tap) for tap in generator.daubechies(n)]
    np.testing.assert_allclose(found, pywt.Wavelet(f"db{n}").rec_lo, rtol=0, atol=2e-12)


def arguments(part):
    """Of the functions that have the loops."""
    work, row, scale = np.zeros(100_000), np.zeros(64), 1.0
    return {
        "rows": (work, 0, 2080, row, row, 32, scale, scale), "rows_back": (row, row, work, 0, 2080, 32, scale, scale),
        "columns": (work, 32), "columns_back": (work, 32), "fetch": (row, work, 0, 2080, 32, 32),
    }[part]  # fmt: skip


@pytest.mark.parametrize("part", ["rows", "rows_back", "columns", "columns_back"])
@pytest.mark.parametrize("name", ["db1", "db3", "db8"])
def test_the_kernels_are_vectorised(name, part):
    """An index whose sign the compiler cannot tell, or a possible alias, costs a factor of a few without a word."""
    if platform.machine() != "x86_64":
        pytest.skip("the test knows the instructions of x86-64 only")
    cached = getattr(lattice, f"_{part}_{name}")
    kernel = numba.jit(**cached.targetoptions)(cached.py_func)
    kernel(*arguments(part))
    (assembly,) = kernel.inspect_asm().values()
    assert len(re.findall(r"\bv?(?:fn?m(?:add|sub)\d+|add|sub)pd\b", assembly)) >= 2
