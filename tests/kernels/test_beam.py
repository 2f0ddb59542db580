from itertools import pairwise

import numpy as np
import pytest
from scipy.ndimage import rotate
from scipy.signal import convolve2d

from pfb.errors import InputError, ShapeError
from pfb.kernels.beam import (
    common_beam,
    describe,
    encloses,
    fit_beam,
    fit_lobe,
    gaussian_transfer,
    restore,
    spread,
    transfer_ratio,
)
from pfb.types import Beam

CELL = 2e-5
NATIVE = Beam(5.0 * CELL, 3.6 * CELL, 0.4)
TARGET = Beam(7.0 * CELL, 6.0 * CELL, -0.9)
SHAPES = [(48, 48), (47, 53), (64, 37)]


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def gaussian(beam, shape, cell=CELL, centre=None):
    """A beam of peak 1 by its definition: widths along and across an axis at angle pa from North (+y) through East (-x)."""
    x0, y0 = (shape[0] // 2, shape[1] // 2) if centre is None else centre
    x, y = np.meshgrid(np.arange(shape[0]) - x0, np.arange(shape[1]) - y0, indexing="ij")
    east, north = -x * cell, y * cell
    along = north * np.cos(beam.pa) + east * np.sin(beam.pa)
    across = east * np.cos(beam.pa) - north * np.sin(beam.pa)
    return np.exp(-4 * np.log(2) * ((along / beam.major) ** 2 + (across / beam.minor) ** 2))


def random_beam(rng, roundest=0.999):
    major = rng.uniform(3, 12) * CELL
    return Beam(major, major * rng.uniform(0.3, roundest), rng.uniform(-np.pi / 2, np.pi / 2))


def angle_between(a, b):
    return abs((a - b + np.pi / 2) % np.pi - np.pi / 2)


# Fitting


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("shape", [(64, 64), (63, 64), (31, 97)])
@pytest.mark.parametrize("pa", [-1.5, -0.6, 0.0, 0.5, 1.2, np.pi / 2])
def test_fit_recovers_a_gaussian_of_any_normalisation(shape, pa, dtype):
    beam = Beam(9 * CELL, 5 * CELL, pa)
    fit = fit_lobe((3e5 * gaussian(beam, shape)).astype(dtype), CELL)
    assert fit.least_squares
    tolerance = 1e-4 if dtype == "f4" else 1e-9
    np.testing.assert_allclose(fit.beam[:2], beam[:2], rtol=tolerance)
    assert angle_between(fit.beam.pa, pa) < tolerance


def test_angle_is_north_through_east():
    # A lobe along North, turned by 30 degrees towards East: in [x, y] with x falling in right ascension,
    # East is -x, so its upper end (+y) moves to smaller x.
    shape = (81, 81)
    upright = gaussian(Beam(12 * CELL, 5 * CELL, 0.0), shape)
    assert upright[40, 46] > 0.4 > upright[46, 40]
    turned = [rotate(upright, angle, reshape=False, order=3) for angle in (30, -30)]
    (east,) = [image for image in turned if image[37, 45] > 1.5 * image[43, 45]]
    fit = fit_lobe(east / east[40, 40], CELL)
    assert np.degrees(fit.beam.pa) == pytest.approx(30, abs=0.1)
    assert fit.beam.major == pytest.approx(12 * CELL, rel=1e-2)


def test_sidelobes_do_not_disturb_the_lobe():
    beam = Beam(6 * CELL, 4 * CELL, 0.3)
    psf = gaussian(beam, (96, 96))
    for x, y in [(20, 30), (76, 66), (48, 80), (60, 48)]:
        psf += 0.9 * gaussian(beam, psf.shape, centre=(x, y))
    fit = fit_lobe(psf, CELL)
    np.testing.assert_allclose(fit.beam, beam, rtol=1e-6)


@pytest.mark.parametrize("width", [1.2, 1.6, 2.2, 3.0])
def test_beam_of_few_pixels(width):
    beam = Beam(1.2 * width * CELL, width * CELL, 0.7)
    fit = fit_lobe(gaussian(beam, (32, 32)), CELL)
    np.testing.assert_allclose(fit.beam, beam, rtol=1e-6)


def test_width_scales_with_the_sampling_also_beyond_the_first_window():
    beams = []
    for n, cell in [(64, 8 * CELL), (512, CELL)]:
        u, v = np.meshgrid(np.fft.fftfreq(n, cell), np.fft.fftfreq(n, cell), indexing="ij")
        beams.append(fit_lobe(np.fft.fftshift(np.fft.ifft2(np.hypot(u, v) < 500).real), cell).beam)
    coarse, fine = beams
    assert fine.major > 50 * CELL
    assert fine.major == pytest.approx(coarse.major, rel=0.02)


def test_beam_larger_than_the_first_window():
    beam = Beam(90 * CELL, 60 * CELL, -0.2)
    np.testing.assert_allclose(fit_lobe(gaussian(beam, (300, 280)), CELL).beam, beam, rtol=1e-9)


def test_realistic_psf_is_fitted_within_a_few_per_cent():
    # An elliptical uv-disk of radius R gives 2 J1(x)/x, whose width at half maximum is 0.705 / R; its lobe is no Gaussian.
    u, v = np.meshgrid(np.fft.fftfreq(128), np.fft.fftfreq(128), indexing="ij")
    disk = ((u / 0.12) ** 2 + (v / 0.2) ** 2 < 1).astype(float)
    psf = np.fft.fftshift(np.fft.ifft2(disk).real)
    beam = fit_lobe(psf, CELL).beam
    assert psf.min() < -0.1 * psf.max()
    assert beam.major == pytest.approx(0.705 / 0.12 * CELL, rel=0.05)
    assert beam.minor == pytest.approx(0.705 / 0.2 * CELL, rel=0.05)
    assert angle_between(beam.pa, np.pi / 2) < 0.02  # wide along x: East-West


def test_second_moments_where_no_gaussian_fits():
    psf = np.zeros((21, 21))
    psf[4:17, 10] = 1.0  # a ridge without curvature
    fit = fit_lobe(psf, CELL)
    assert not fit.least_squares
    assert np.isfinite(fit.beam).all()
    assert fit.beam.minor > 0.5 * CELL
    assert fit.beam.major > 10 * CELL
    assert fit.beam.pa == pytest.approx(np.pi / 2)  # along x: East-West


def test_second_moments_of_a_gaussian_are_nearly_right(monkeypatch):
    beam = Beam(14 * CELL, 9 * CELL, 0.5)
    monkeypatch.setattr("pfb.kernels.beam._least_squares", lambda *lobe: None)
    fit = fit_lobe(gaussian(beam, (64, 64)), CELL)
    assert not fit.least_squares
    np.testing.assert_allclose(fit.beam, beam, rtol=0.02)


def test_fit_beam_is_the_beam_of_fit_lobe():
    psf = gaussian(NATIVE, (32, 33))
    assert fit_beam(psf, CELL) == fit_lobe(psf, CELL).beam
    assert fit_beam(0 * psf, CELL) is None


def test_single_pixel_psf():
    psf = np.zeros((15, 15))
    psf[7, 7] = 2.0
    fit = fit_lobe(psf, CELL)
    assert not fit.least_squares
    assert 0.5 * CELL < fit.beam.minor <= fit.beam.major < 2 * CELL


@pytest.mark.parametrize("value", [0.0, np.nan, -1.0])
def test_empty_psf_has_no_beam(value):
    assert fit_lobe(np.full((32, 33), value), CELL) is None


def test_nan_in_the_lobe_has_no_beam():
    psf = gaussian(NATIVE, (32, 32))
    psf[17, 16] = np.nan
    assert fit_lobe(psf, CELL) is None


# Transfer functions


@pytest.mark.parametrize("beam", [(1.0, 0.8, 0.7), (2.0, 1.5, 0.7), (4.0, 2.5, 0.7), (5.0, 0.7, 0.1), (5.0, 0.7, 1.5)])
@pytest.mark.parametrize("shape", [(60, 60), (61, 60), (60, 61), (45, 77)])
def test_gaussian_transfer_is_that_of_the_sampled_gaussian(shape, beam):
    beam = Beam(beam[0] * CELL, beam[1] * CELL, beam[2])
    sampled = np.fft.rfft2(np.fft.ifftshift(gaussian(beam, shape)))
    np.testing.assert_allclose(gaussian_transfer(beam, shape, CELL), sampled, atol=1e-13 * sampled[0, 0].real)


@pytest.mark.parametrize("shape", SHAPES)
def test_ratio_is_that_of_the_transfers(shape):
    # Where the denominator is not lost in rounding; the closed form has no such limit.
    native, target = (gaussian_transfer(beam, shape, CELL) for beam in (NATIVE, TARGET))
    ratio = transfer_ratio(NATIVE, TARGET, shape, CELL)
    good = native > 1e-5 * native[0, 0]
    assert good.sum() > 100
    np.testing.assert_allclose((ratio * native)[good], target[good], atol=1e-8 * target[0, 0])
    assert ratio[0, 0] == pytest.approx(TARGET.major * TARGET.minor / (NATIVE.major * NATIVE.minor), rel=1e-14)
    assert ratio.max() == ratio[0, 0]


# Restoring


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("shape", SHAPES)
def test_model_equals_the_direct_convolution(shape, dtype, rng):
    model = (rng.random(shape) < 0.02) * rng.random(shape)
    model[0, 0] = model[-1, 3] = 1.0
    assert np.count_nonzero(model) > 20
    kernel = gaussian(TARGET, (2 * shape[0] + 1, 2 * shape[1] + 1))
    expected = convolve2d(model, kernel, mode="full")[shape[0] : 2 * shape[0], shape[1] : 2 * shape[1]]
    image = restore(model.astype(dtype), np.zeros(shape, dtype), CELL, NATIVE, TARGET)
    assert image.shape == shape
    assert image.dtype == dtype
    np.testing.assert_allclose(image, expected, atol=(2e-6 if dtype == "f4" else 1e-13) * expected.max())


@pytest.mark.parametrize("corner", [(0, 0), (0, -1), (-1, 0), (-1, -1)])
def test_nothing_wraps_around_an_edge(corner):
    model, residual = np.zeros((47, 52)), np.zeros((47, 52))
    model[corner] = 1.0
    image = restore(model, residual, CELL, NATIVE, TARGET)
    assert image[corner] == pytest.approx(1.0)
    others = [c for c in [(0, 0), (0, -1), (-1, 0), (-1, -1)] if c != corner]
    assert max(abs(image[c]) for c in others) < 1e-14


@pytest.mark.parametrize("offset", [(0.0, 0.0), (0.31, -0.46)])
def test_source_in_the_residual_keeps_its_flux_and_its_place(offset):
    shape, flux = (96, 101), 2.5
    centre = shape[0] // 2 + offset[0], shape[1] // 2 + offset[1]
    residual = flux * gaussian(NATIVE, shape, centre=centre)
    image = restore(np.zeros(shape), residual, CELL, NATIVE, TARGET)
    np.testing.assert_allclose(image, flux * gaussian(TARGET, shape, centre=centre), atol=1e-6 * flux)
    area = lambda beam: np.pi / (4 * np.log(2)) * beam.major * beam.minor / CELL**2
    assert image.sum() / area(TARGET) == pytest.approx(flux, rel=1e-6)
    assert residual.sum() / area(NATIVE) == pytest.approx(flux, rel=1e-6)
    x, y = np.indices(shape)
    assert (image * x).sum() / image.sum() == pytest.approx(centre[0], abs=1e-6)
    assert (image * y).sum() / image.sum() == pytest.approx(centre[1], abs=1e-6)


def test_source_in_the_model_keeps_its_flux_and_its_place():
    model = np.zeros((96, 101))
    model[40, 60] = 2.5
    image = restore(model, np.zeros(model.shape), CELL, NATIVE, TARGET)
    np.testing.assert_allclose(image, 2.5 * gaussian(TARGET, model.shape, centre=(40, 60)), atol=1e-13)


def test_model_and_residual_are_in_the_same_unit():
    # Half of a source in the model, half still in the residual: together it is the whole source.
    shape = (90, 83)
    model = np.zeros(shape)
    model[45, 41] = 0.5
    image = restore(model, 0.5 * gaussian(NATIVE, shape), CELL, NATIVE, TARGET)
    np.testing.assert_allclose(image, gaussian(TARGET, shape), atol=1e-6)


def test_variance_of_white_noise(rng):
    # The variance of filtered white noise is the mean of |transfer|^2, a Gaussian integral in closed form:
    # (A_T / A_N)^2 * pi / (2 * pi^2 / (4 ln 2) * sqrt(det(S_T - S_N))).
    native, target = Beam(3 * CELL, 2.5 * CELL, 0.3), Beam(8 * CELL, 7 * CELL, -1.0)
    noise = rng.standard_normal((600, 600))
    image = restore(np.zeros(noise.shape), noise, CELL, native, target)
    ratio = target.major * target.minor / (native.major * native.minor)
    excess = np.sqrt(np.linalg.det((spread(target) - spread(native)) / CELL**2))
    expected = ratio**2 * np.pi / (2 * np.pi**2 / (4 * np.log(2)) * excess)
    # 600^2 pixels in 44 pixels per beam: about 1.6 % statistical error; a margin of one pixel in 20 for the edges.
    assert image[20:-20, 20:-20].var() == pytest.approx(expected, rel=0.06)


def test_equal_beams_leave_the_residual_as_it_is(rng):
    for dtype in ("f4", "f8"):
        residual = rng.standard_normal((37, 42)).astype(dtype)
        image = restore(np.zeros_like(residual), residual, CELL, NATIVE, NATIVE)
        assert image.dtype == dtype
        np.testing.assert_array_equal(image, residual)


def test_inputs_are_not_changed(rng):
    model, residual = rng.random((20, 22)), rng.standard_normal((20, 22))
    before = model.copy(), residual.copy()
    restore(model, residual, CELL, NATIVE, TARGET)
    np.testing.assert_array_equal(model, before[0])
    np.testing.assert_array_equal(residual, before[1])


def test_target_wider_in_one_direction_only():
    target = Beam(NATIVE.major * 2, NATIVE.minor, NATIVE.pa)
    residual = gaussian(NATIVE, (96, 97))
    image = restore(np.zeros(residual.shape), residual, CELL, NATIVE, target)
    np.testing.assert_allclose(image, gaussian(target, residual.shape), atol=1e-4)


@pytest.mark.parametrize(
    "target",
    [
        Beam(4.9 * CELL, 4.9 * CELL, 0.0),
        Beam(5.0 * CELL, 3.5 * CELL, 0.4),
        Beam(7.0 * CELL, 3.6 * CELL, 0.4 + 0.3),
        Beam(5.0 * CELL, 3.6 * CELL, -0.4),
    ],
)
def test_target_narrower_in_any_direction_is_refused(target):
    image = np.zeros((16, 16))
    with pytest.raises(InputError, match=r"is narrower than the native beam .*; choose a wider one"):
        restore(image, image, CELL, NATIVE, target)


def test_images_of_different_shape_are_refused():
    with pytest.raises(ShapeError, match=r"model has shape \(4, 5\) but the residual \(5, 4\)"):
        restore(np.zeros((4, 5)), np.zeros((5, 4)), CELL, NATIVE, TARGET)


def test_description_of_a_beam():
    assert describe(Beam(np.radians(10 / 3600), np.radians(5 / 3600), np.radians(-30))) == '10" x 5" at -30.0 deg'


# The common beam


@pytest.mark.parametrize("number", [2, 3, 5, 40])
@pytest.mark.parametrize("roundest", [0.9, 1.0])
def test_common_beam_encloses_all(number, roundest, rng):
    for _ in range(10):
        beams = [random_beam(rng, roundest) for _ in range(number)]
        common = common_beam(beams)
        assert all(encloses(common, beam, rtol=1e-9) for beam in beams)
        directions = np.linspace(0, np.pi, 181)
        unit = np.stack([np.cos(directions), np.sin(directions)])
        support = np.einsum("ik,nij,jk->nk", unit, [spread(beam) for beam in [common, *beams]], unit)
        assert (support[0] >= support[1:].max(axis=0) * (1 - 1e-9)).all()


def test_common_beam_is_the_smallest(rng):
    # Against a search over the shapes of ellipses: for each, the least scale that encloses all.
    ratios, angles = np.meshgrid(np.linspace(0.2, 1, 401), np.linspace(0, np.pi, 361), indexing="ij")
    c, s = np.cos(angles), np.sin(angles)
    # Inverse of the spread of an ellipse of minor width 1 along the axis at this angle, major width 1/ratio.
    inverse = np.array(
        [[ratios**2 * c * c + s * s, (ratios**2 - 1) * s * c], [(ratios**2 - 1) * s * c, ratios**2 * s * s + c * c]]
    )
    for number in (2, 3, 6):
        beams = [random_beam(rng) for _ in range(number)]
        # The largest eigenvalue of inverse @ spread, for all shapes at once.
        scale = 0.0
        for beam in beams:
            product = np.einsum("ijab,jk->abik", inverse, spread(beam))
            trace, det = np.trace(product, axis1=-2, axis2=-1), np.linalg.det(product)
            scale = np.maximum(scale, trace / 2 + np.sqrt(np.maximum(trace**2 / 4 - det, 0)))
        least = (scale / ratios).min()
        common = common_beam(beams)
        area = common.major * common.minor
        assert area <= least * (1 + 1e-7)
        assert area > least * 0.999  # the search is that fine


def test_common_beam_of_two_crossed_ellipses():
    # By symmetry a circle or an ellipse along the axes; of two equal ones at right angles, the circle around both.
    beams = [Beam(4 * CELL, 2 * CELL, 0.3), Beam(4 * CELL, 2 * CELL, 0.3 - np.pi / 2)]
    common = common_beam(beams)
    np.testing.assert_allclose(common[:2], 4 * CELL, rtol=1e-7)
    unequal = common_beam([beams[0], Beam(3 * CELL, 2 * CELL, 0.3 - np.pi / 2)])
    np.testing.assert_allclose(unequal[:2], [4 * CELL, 3 * CELL], rtol=1e-7)
    assert unequal.pa == pytest.approx(0.3, abs=1e-6)


def test_angles_are_axes():
    beams = [Beam(4 * CELL, 2 * CELL, np.radians(89.5)), Beam(4 * CELL, 2 * CELL, np.radians(-89.5))]
    common = common_beam(beams)
    # One degree apart, not 179: T = diag(16 + d, 4 + e) with d e = (12 sin cos)^2 and 16 e + 4 d least.
    cross = 12 * np.sin(np.radians(0.5)) * np.cos(np.radians(0.5))
    assert common.major == pytest.approx(np.sqrt(16 + 2 * cross) * CELL, rel=1e-3)
    assert common.minor == pytest.approx(np.sqrt(4 + cross / 2) * CELL, rel=1e-3)
    assert angle_between(common.pa, np.pi / 2) < 1e-4
    turned = common_beam([beams[0], beams[1]._replace(pa=beams[1].pa + np.pi)])
    np.testing.assert_allclose(turned[:2], common[:2], rtol=1e-9)


def test_nearly_circular_beams(rng):
    beams = [Beam(5 * CELL, 5 * CELL * (1 - 1e-9 * rng.random()), rng.uniform(-2, 2)) for _ in range(20)]
    common = common_beam(beams)
    np.testing.assert_allclose(common[:2], 5 * CELL, rtol=1e-6)


def test_elongated_beams():
    beams = [Beam(100 * CELL, CELL, 0.0), Beam(100 * CELL, CELL, 0.01), Beam(90 * CELL, CELL, -0.01)]
    common = common_beam(beams)
    assert all(encloses(common, beam) for beam in beams)
    assert common.minor < 2 * CELL


def test_order_does_not_matter(rng):
    beams = [random_beam(rng) for _ in range(6)]
    np.testing.assert_allclose(common_beam(beams[::-1]), common_beam(beams), rtol=1e-6)


def test_beam_that_encloses_the_others_is_returned_unchanged():
    beams = [Beam(s * CELL, 0.7 * s * CELL, 0.3) for s in (3.0, 4.0, 5.0)]
    assert all(encloses(b, a) and not encloses(a, b) for a, b in pairwise(beams))
    assert common_beam(beams) == beams[2]
    assert common_beam(beams[:1]) == beams[0]
    assert common_beam([beams[0]] * 4) == beams[0]


def test_no_beam_at_all():
    with pytest.raises(InputError, match="no beam to enclose"):
        common_beam([])


def test_common_beam_of_bands_restores_each_of_them(rng):
    beams = [Beam(9 * CELL / f, 6 * CELL / f, 0.2 * f) for f in (0.9, 1.0, 1.2, 1.6)]
    common = common_beam(beams)
    for beam in beams:
        image = restore(np.zeros((80, 80)), gaussian(beam, (80, 80)), CELL, beam, common)
        np.testing.assert_allclose(image, gaussian(common, (80, 80)), atol=1e-3)
