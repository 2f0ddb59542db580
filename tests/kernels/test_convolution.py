"""The FFT convolution against direct sums."""

import numpy as np
import pytest
from scipy.signal import convolve2d

from pfb.errors import ShapeError
from pfb.kernels.convolution import convolve, neighbourhood_maximum, transfer


def periodic(image, kernel):
    """The sum that defines it on a grid of the kernel's size, whose ends are joined."""
    (nx, ny), (px, py) = image.shape, kernel.shape
    out = np.zeros(image.shape)
    for x in range(nx):
        for y in range(ny):
            for i in range(nx):
                for j in range(ny):
                    out[x, y] += kernel[(x - i + px // 2) % px, (y - j + py // 2) % py] * image[i, j]
    return out


def linear(image, kernel):
    """The same without wrapping: what lies outside the kernel is zero."""
    x, y = (n // 2 for n in kernel.shape)
    return convolve2d(image, kernel, "full")[x : x + image.shape[0], y : y + image.shape[1]]


# Kernels of every parity, twice the image (exact), and as large as it; never symmetric.
EXACT = [((8, 8), (16, 16)), ((8, 6), (15, 11)), ((7, 9), (14, 17)), ((5, 7), (40, 13)), ((1, 5), (1, 9)), ((1, 1), (1, 1))]
WRAPPED = [((6, 6), (6, 6)), ((5, 6), (7, 9)), ((7, 4), (10, 4)), ((3, 5), (3, 5))]


@pytest.mark.parametrize(("shape", "padded"), EXACT, ids=str)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_convolution_is_linear_on_a_grid_twice_the_image(shape, padded, dtype, rng):
    image, kernel = rng.standard_normal(shape).astype(dtype), rng.standard_normal(padded).astype(dtype)
    before = image.copy()
    out = convolve(image, transfer(kernel), padded)
    assert out.dtype == image.dtype
    assert (image == before).all()
    norm = np.linalg.norm(image) * np.linalg.norm(kernel)
    np.testing.assert_allclose(out, linear(image, kernel), rtol=0, atol=20 * np.finfo(dtype).eps * norm)


@pytest.mark.parametrize(("shape", "padded"), WRAPPED, ids=str)
def test_a_smaller_grid_wraps_around(shape, padded, rng):
    image, kernel = rng.standard_normal(shape), rng.standard_normal(padded)
    out = convolve(image, transfer(kernel), padded)
    np.testing.assert_allclose(out, periodic(image, kernel), rtol=0, atol=1e-13)
    assert np.abs(out - linear(image, kernel)).max() > 0.1


@pytest.mark.parametrize("size", [3, 4])
def test_a_kernel_smaller_than_the_image(size, rng):
    """On a grid larger than both by half the kernel nothing wraps."""
    image, small = rng.standard_normal((9, 8)), rng.standard_normal((size, 3))
    kernel = np.zeros((13, 12))
    kernel[6 - size // 2 : 6 - size // 2 + size, 5:8] = small
    out = convolve(image, transfer(kernel), kernel.shape)
    np.testing.assert_allclose(out, linear(image, small), rtol=0, atol=1e-13)


@pytest.mark.parametrize("padded", [(9, 9), (8, 9), (8, 12)], ids=str)
def test_a_point_at_the_origin_of_the_kernel_changes_nothing(padded, rng):
    image, kernel = rng.standard_normal((7, 8)), np.zeros(padded)
    kernel[padded[0] // 2, padded[1] // 2] = 1
    np.testing.assert_allclose(convolve(image, transfer(kernel), padded), image, rtol=0, atol=1e-14)


def test_a_shifted_point_shifts_the_image(rng):
    image, kernel = rng.standard_normal((7, 8)), np.zeros((15, 16))
    kernel[7 + 2, 8 - 3] = 1
    out = convolve(image, transfer(kernel), kernel.shape)
    np.testing.assert_allclose(out[2:, :-3], image[:-2, 3:], rtol=0, atol=1e-14)
    np.testing.assert_allclose(out[:2], 0, rtol=0, atol=1e-14)


@pytest.mark.parametrize("padded", [(12, 10), (11, 13)], ids=str)
def test_a_conjugate_transfer_function_correlates(padded, rng):
    image, kernel = rng.standard_normal((5, 4)), rng.standard_normal(padded)
    turned = kernel[::-1, ::-1]  # its origin is at n - 1 - n // 2: roll it back to n // 2
    turned = np.roll(turned, [n // 2 - (n - 1 - n // 2) for n in padded], axis=(0, 1))
    out = convolve(image, transfer(kernel).conj(), padded)
    np.testing.assert_allclose(out, periodic(image, turned), rtol=0, atol=1e-13)


def test_the_transfer_function_is_the_transform_that_defines_it(rng):
    kernel = rng.standard_normal((5, 6))
    x, y = np.arange(5) - 2, np.arange(6) - 3
    p, q = np.arange(5)[:, None, None, None], np.arange(4)[None, :, None, None]
    phase = -2j * np.pi * (p * x[:, None] / 5 + q * y[None, :] / 6)
    np.testing.assert_allclose(transfer(kernel), (kernel * np.exp(phase)).sum(axis=(2, 3)), rtol=0, atol=1e-13)


@pytest.mark.parametrize("nthreads", [0, 2, 3])
def test_threads_do_not_change_the_bits(nthreads, rng):
    """Nor do the parts that it works on at once, some of which do not come out even."""
    image, kernel = rng.standard_normal((61, 100)), rng.standard_normal((90, 140))
    hat = transfer(kernel)
    np.testing.assert_array_equal(transfer(kernel, nthreads), hat)
    one = convolve(image, hat, (90, 140))
    np.testing.assert_array_equal(convolve(image, hat, (90, 140), nthreads=nthreads), one)
    np.testing.assert_allclose(one, np.fft.irfft2(np.fft.rfft2(image, (90, 140)) * hat, (90, 140))[:61, :100], rtol=0, atol=1e-11)


@pytest.mark.parametrize("padded", [(6, 16), (16, 6)], ids=str)
def test_a_grid_smaller_than_the_image_is_refused(padded):
    with pytest.raises(ShapeError, match=r"an image of shape \(7, 8\) .* must hold the image"):
        convolve(np.zeros((7, 8)), transfer(np.zeros(padded)), padded)


def test_a_transfer_function_of_another_grid_is_refused():
    with pytest.raises(ShapeError, match=r"have a transfer function of \(16, 9\)"):
        convolve(np.zeros((7, 8)), transfer(np.zeros((16, 18))), (16, 16))


SIZES = [(8, 8), (8, 6), (7, 9), (6, 5), (9, 4), (1, 5), (5, 1), (1, 1), (2, 2), (2, 5), (5, 2), (1, 2), (2, 1), (1, 4), (3, 3)]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_the_largest_of_a_cell_and_its_neighbours(dtype, size, rng):
    """Of the whole even function, whose ends are joined; half of it is stored."""
    (px, py), half = size, size[1] // 2 + 1
    values = rng.standard_normal(size).astype(dtype)
    opposite = np.array([[values[-x % px, -y % py] for y in range(py)] for x in range(px)])
    whole = values + opposite
    expected = np.array(
        [[max(whole[(x + i) % px, (y + j) % py] for i in (-1, 0, 1) for j in (-1, 0, 1)) for y in range(half)] for x in range(px)]
    )
    stored = whole[:, :half].copy()
    found = neighbourhood_maximum(stored, size)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(stored, whole[:, :half])


def test_the_largest_neighbours_of_a_transfer_function_are_those_of_its_modulus(rng):
    """The half that a real kernel's transform stores is half of an even function."""
    modulus = np.abs(transfer(rng.standard_normal((7, 8))))
    assert (neighbourhood_maximum(modulus, (7, 8)) >= modulus).all()
    np.testing.assert_array_equal(modulus[1:, 0], modulus[:0:-1, 0])
