"""The cascade of levels against PyWavelets."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import pywt

from pfb.errors import InputError
from pfb.kernels.wavelets import NAMES, analyse, length, levels, ncoefficient, synthesise

WAVELETS = NAMES[1:]
SIZES = [(16, 16), (12, 20), (17, 9), (13, 31), (1, 7), (6, 1), (1, 1), (2, 3)]


def coefficients_of(image, name, nlevels, extra=0):
    out = np.full(ncoefficient(image.shape, name, nlevels) + extra, np.nan, image.dtype)
    analyse(image, name, nlevels, out)
    return out


def by_pywavelets(image, name, nlevels):
    """Details of the first level, of the second, ..., approximation of the last."""
    parts = []
    for _ in range(nlevels):
        image, details = pywt.dwt2(image, name, mode="zero")
        parts += [d.ravel() for d in details]
    return np.concatenate(parts + [image.ravel()])


@pytest.mark.parametrize("nlevels", [1, 2, 3])
@pytest.mark.parametrize("shape", SIZES, ids=str)
@pytest.mark.parametrize("name", WAVELETS)
def test_coefficients_equal_those_of_pywavelets(name, shape, nlevels, rng):
    image = rng.standard_normal(shape)
    np.testing.assert_allclose(coefficients_of(image, name, nlevels), by_pywavelets(image, name, nlevels), rtol=0, atol=1e-14)


@pytest.mark.parametrize("shape", [*SIZES, (47, 53)], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_every_basis_is_an_isometry_whose_adjoint_is_its_inverse(name, shape, rng):
    image = rng.standard_normal(shape)
    coefficients = coefficients_of(image, name, 3)
    assert np.linalg.norm(coefficients) == pytest.approx(np.linalg.norm(image), rel=1e-14)
    back = np.zeros(shape)
    synthesise(coefficients, name, 3, back)
    np.testing.assert_allclose(back, image, rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", ["self", "db1", "db5"])
def test_single_precision_stays_single(name, rng):
    image = rng.standard_normal((13, 10)).astype("f4")
    coefficients = coefficients_of(image, name, 2)
    reference = coefficients_of(image.astype("f8"), name, 2)
    np.testing.assert_allclose(coefficients, reference, rtol=0, atol=2e-6)
    back = np.zeros_like(image)
    synthesise(coefficients, name, 2, back)
    np.testing.assert_allclose(back, image, rtol=0, atol=2e-6)


@pytest.mark.parametrize(("name", "nlevels"), [("self", 2), ("db1", 2), ("db4", 2), ("db4", 0)])
def test_synthesise_adds(name, nlevels, rng):
    image, before = rng.standard_normal((2, 9, 14))
    out = before.copy()
    synthesise(coefficients_of(image, name, nlevels), name, nlevels, out)
    np.testing.assert_allclose(out, before + image, rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", ["self", "db3"])
def test_what_lies_beyond_the_last_coefficient_is_zero_and_ignored(name, rng):
    image = rng.standard_normal((9, 14))
    n = ncoefficient(image.shape, name, 2)
    padded = coefficients_of(image, name, 2, extra=5)
    np.testing.assert_array_equal(padded[:n], coefficients_of(image, name, 2))
    np.testing.assert_array_equal(padded[n:], 0)
    padded[n:] = np.nan
    back = np.zeros_like(image)
    synthesise(padded, name, 2, back)
    np.testing.assert_allclose(back, image, rtol=0, atol=1e-14)


def test_neither_way_changes_its_input(rng):
    image = rng.standard_normal((9, 14))
    before = image.copy()
    coefficients = coefficients_of(image, "db2", 3)
    assert (image == before).all()
    before = coefficients.copy()
    synthesise(coefficients, "db2", 3, np.zeros_like(image))
    assert (coefficients == before).all()


def test_threads_at_once_give_the_same_bits(rng):
    images = rng.standard_normal((12, 61, 40))

    def both_ways(image):
        coefficients = coefficients_of(image, "db6", 3)
        back = np.zeros_like(image)
        synthesise(coefficients, "db6", 3, back)
        return coefficients, back

    alone = [both_ways(image) for image in images]
    with ThreadPoolExecutor(6) as pool:
        together = list(pool.map(both_ways, images))
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one[0], other[0])
        np.testing.assert_array_equal(one[1], other[1])


@pytest.mark.parametrize(("name", "shape", "nlevels", "expected"), [
    ("self", (7, 9), 3, 63),
    ("db1", (8, 8), 3, 64),  # 3 (16 + 4 + 1) + 1: no more than the pixels
    ("db1", (7, 9), 1, 4 * 4 * 5),
    ("db2", (7, 9), 2, 3 * 5 * 6 + 4 * 4 * 4),
    ("db8", (1, 1), 1, 4 * 8 * 8),
])  # fmt: skip
def test_number_of_coefficients(name, shape, nlevels, expected):
    assert ncoefficient(shape, name, nlevels) == expected


def test_sizes_of_the_levels():
    assert levels((7, 9), "self", 3) == ()
    assert levels((7, 9), "db2", 2) == (((7, 9), (5, 6)), ((5, 6), (4, 4)))


@pytest.mark.parametrize("name", ["db9", "haar", "self"])
def test_an_unknown_wavelet_is_refused(name):
    with pytest.raises(InputError, match=f"wavelet basis '{name}' is unknown; choose from self, db1"):
        length(name)
