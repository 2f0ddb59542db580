"""Sources of an image: found, fitted, deconvolved, and their errors against the scatter over draws of the noise."""

import numpy as np
import pytest

from pfb.kernels.beam import LN16, gaussian_transfer, spread
from pfb.kernels.convolution import convolve
from pfb.kernels.sources import band_peaks, deconvolved, errors, find_sources, integrated
from pfb.types import Beam

CELL = np.deg2rad(1 / 3600)
BEAM = Beam(6 * CELL, 4.5 * CELL, 0.4)


def draw(shape, sources):
    """An image of Gaussians (x, y, peak, Beam), from the definition."""
    image = np.zeros(shape)
    i, j = np.indices(shape)
    for x, y, peak, beam in sources:
        l, m = -(i - x) * CELL, (j - y) * CELL
        along, across = l * np.sin(beam.pa) + m * np.cos(beam.pa), l * np.cos(beam.pa) - m * np.sin(beam.pa)
        image += peak * np.exp(-LN16 * ((along / beam.major) ** 2 + (across / beam.minor) ** 2))
    return image


def noise_of(rng, shape, beam, rms):
    """White noise seen with a beam."""
    wide = tuple(n + 40 for n in shape)
    seen = convolve(rng.standard_normal(wide), gaussian_transfer(beam, wide, CELL), wide)[20:-20, 20:-20]
    return rms * seen / np.sqrt(np.square(draw((61, 61), [(30, 30, 1.0, beam)])).sum())


def test_sources_that_touch_are_told_apart_and_found_exactly():
    """A resolved, turned one, one of the beam, two in one island; odd, not square, with blank pixels."""
    wide = Beam(11 * CELL, 6 * CELL, -0.9)
    true = [(20.3, 30.6, 1.0, BEAM), (29.1, 32.2, 0.6, BEAM), (60.4, 21.7, 0.8, wide), (80.0, 60.0, 0.01, BEAM)]
    image = draw((101, 75), true)
    image[:3] = np.nan
    found = find_sources(image, np.full(image.shape, 1e-4), BEAM, CELL, high=5, low=3)
    assert [len(island.gaussians) for island in found] == [2, 1, 1]
    fitted = sorted((g for island in found for g in island.gaussians), key=lambda g: g.x)
    for g, (x, y, peak, beam) in zip(fitted, true, strict=True):
        np.testing.assert_allclose([g.x, g.y, g.peak], [x, y, peak], rtol=1e-4)
        np.testing.assert_allclose(spread(g.shape), spread(beam), rtol=1e-3, atol=1e-3 * CELL**2)
    assert integrated(fitted[2], BEAM) == pytest.approx(0.8 * 66 / 27, rel=1e-4)


def test_nothing_is_found_in_nothing(rng):
    noise = noise_of(rng, (64, 64), BEAM, 1.0)
    assert find_sources(noise, np.ones((64, 64)), BEAM, CELL, high=6, low=3) == []


def test_few_pixels_get_the_shape_of_the_beam():
    """A beam of one pixel leaves too few above the noise to fit a shape to."""
    small = Beam(1.2 * CELL, 1.2 * CELL, 0.0)
    image = draw((21, 21), [(10, 10, 6.0, small), (0, 0, 7.0, small)])
    found = find_sources(image, np.ones(image.shape), small, CELL, high=5, low=3)
    corner = found[0].gaussians[0]
    assert (corner.x, corner.y) == pytest.approx((0, 0), abs=0.3)
    assert spread(corner.shape) == pytest.approx(spread(small), rel=1e-6)


@pytest.mark.parametrize("shape", [BEAM, Beam(14 * CELL, 6 * CELL, -0.7)], ids=["point", "resolved"])
def test_errors_are_the_scatter(shape, rng):
    """30 sigma; 120 draws give a standard deviation to a fifteenth. Condon's formulae are good to a sixth or so."""
    rms, pulls = 1 / 30, []
    clean = draw((55, 55), [(27.2, 26.7, 1.0, shape)])
    flux = shape.major * shape.minor / (BEAM.major * BEAM.minor)
    for _ in range(120):
        image = clean + noise_of(rng, clean.shape, BEAM, rms)
        g = find_sources(image, np.full(image.shape, rms), BEAM, CELL, high=10, low=2)[0].gaussians[0]
        e = errors(g, rms, BEAM)
        east, north = -(g.x - 27.2) * CELL, (g.y - 26.7) * CELL
        along = east * np.sin(shape.pa) + north * np.cos(shape.pa)
        across = east * np.cos(shape.pa) - north * np.sin(shape.pa)
        row = [along / e.along, across / e.across, (g.peak - 1) / e.peak, (integrated(g, BEAM) - flux) / e.flux]
        row += [(g.shape.major - shape.major) / e.major, (g.shape.minor - shape.minor) / e.minor]
        row += [((g.shape.pa - shape.pa + np.pi / 2) % np.pi - np.pi / 2) / e.pa]
        pulls.append(row)
    np.testing.assert_allclose(np.std(pulls, axis=0), 1, atol=0.35)
    np.testing.assert_allclose(np.mean(pulls, axis=0)[:3], 0, atol=0.35)


def test_deconvolution_undoes_convolution():
    true = Beam(8 * CELL, 3 * CELL, 1.1)
    seen = spread(true) + spread(BEAM)
    values, vectors = np.linalg.eigh(seen)
    angle = np.arctan2(-vectors[0, 1], vectors[1, 1])
    found = deconvolved(Beam(float(np.sqrt(values[1])), float(np.sqrt(values[0])), float(angle)), BEAM)
    assert (found.major, found.minor) == pytest.approx((true.major, true.minor))
    assert np.sin(found.pa - true.pa) == pytest.approx(0, abs=1e-9)
    assert deconvolved(BEAM, BEAM) == (0, 0, 0)
    line = deconvolved(Beam(9 * CELL, 4 * CELL, BEAM.pa), BEAM)
    assert (line.minor, line.major / CELL) == pytest.approx((0, np.sqrt(81 - 36)))
    assert np.sin(line.pa - BEAM.pa) == pytest.approx(0, abs=1e-9)


def test_peaks_of_bands_and_their_errors(rng):
    """Two sources in one island, whose spectra differ; the errors are the scatter."""
    sources = [(20.3, 20.6, 1.0, BEAM), (26.1, 22.2, 0.6, Beam(9 * CELL, 6 * CELL, 0.0))]
    (island,) = find_sources(draw((45, 45), sources), np.full((45, 45), 0.01), BEAM, CELL, high=5, low=3)
    order = np.argsort([g.x for g in island.gaussians])
    bands = np.array([draw((45, 45), [(x, y, f * p, b) for f, (x, y, p, b) in zip(fs, sources, strict=True)])
                      for fs in ((2.0, 0.5), (1.0, 1.0), (0.1, 3.0))])  # fmt: skip
    pixels = bands[:, island.x, island.y]
    noise = np.array([0.01, 0.02, 0.03])
    peak, error = band_peaks(pixels, island, noise, BEAM, CELL)
    np.testing.assert_allclose(peak[:, order], [[2.0, 0.3], [1.0, 0.6], [0.1, 1.8]], rtol=2e-3)
    draws = [noise_of(rng, (45, 45), BEAM, 0.01)[island.x, island.y] for _ in range(300)]
    scatter = np.std(band_peaks(np.array(draws), island, np.full(300, 0.01), BEAM, CELL)[0], axis=0)
    np.testing.assert_allclose(error[0], scatter, rtol=0.15)
    np.testing.assert_allclose(error[2], 3 * error[0])
