"""Weights of the prior against their definition."""

import numpy as np
import pytest

from pfb.operators.wavelets import Dictionary
from pfb.solvers.reweighting import l1_weight

SHAPE = (14, 11)
BASES = ("self", "db1", "db4")


@pytest.fixture
def dictionary():
    return Dictionary(SHAPE, BASES, 2)


@pytest.fixture
def model(rng):
    image = np.zeros(SHAPE)
    image[3, 4], image[9:11, 6:9] = 2.0, 0.1
    return image


NOISE = 0.05


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0, 4.0])
def test_weights_equal_their_definition(alpha, dictionary, model):
    weight = l1_weight(dictionary, [model], [NOISE], alpha)
    for row, expected in zip(weight, dictionary.dot(model), strict=True):
        np.testing.assert_allclose(row, [1 / (1 + (abs(c) / NOISE) ** alpha) for c in expected], rtol=1e-13)
    assert weight.shape == dictionary.codomain
    assert weight.min() < 0.2


def test_a_coefficient_as_strong_as_the_noise_has_weight_one_half(model):
    """A point source of flux s has the coefficient s in the basis of pixels."""
    weight = l1_weight(Dictionary(SHAPE, ("self",), 2), [model], [2.0], 4.0).reshape(SHAPE)
    assert weight[3, 4] == 0.5
    assert weight[10, 7] == pytest.approx(1 / (1 + 0.05**4), rel=1e-13)


def test_an_exponent_of_zero_is_one_weight_for_all(dictionary, model):
    """Also of the empty sky, whose weight is 1 for every other exponent."""
    np.testing.assert_array_equal(l1_weight(dictionary, [model], [NOISE], 0.0), 0.5)


def test_the_noise_of_an_image_is_that_of_its_coefficients(dictionary, rng):
    """What the single rms stands on: every basis is an isometry. Coefficients beyond the image's edge dilute it."""
    noise = rng.standard_normal(SHAPE)
    energy = np.sqrt(np.square(dictionary.dot(noise)).sum(axis=1))
    np.testing.assert_allclose(energy, np.linalg.norm(noise), rtol=1e-13)


def test_empty_sky_has_weight_one(dictionary, model):
    weight = l1_weight(dictionary, [model], [NOISE], 2.0)
    empty = dictionary.dot(model) == 0
    assert empty.mean() > 0.3
    assert (weight[empty] == 1).all()
    assert (weight <= 1).all()


def test_brighter_emission_has_less_weight(dictionary, model):
    faint, bright = (l1_weight(dictionary, [scale * model], [NOISE], 2.0) for scale in (1, 10))
    there = np.abs(dictionary.dot(model)) > 1e-6  # less is rounding, and its weight 1 - 1e-12
    assert (bright[there] < faint[there]).all()


def test_a_sign_does_not_count(dictionary, model):
    np.testing.assert_array_equal(l1_weight(dictionary, [-model], [NOISE], 0.5), l1_weight(dictionary, [model], [NOISE], 0.5))


def test_only_the_ratio_to_the_noise_counts(dictionary, model):
    a, b = (l1_weight(dictionary, [scale * model], [scale * NOISE], 2.0) for scale in (1.0, 1024.0))
    np.testing.assert_array_equal(a, b)


def test_padding_and_other_bases_do_not_count(model):
    """A block of bases has the weights that it has in the whole dictionary."""
    whole = Dictionary(SHAPE, BASES, 2, size=600)
    weight = l1_weight(whole, [model], [NOISE], 2.0)
    for b in range(len(BASES)):
        np.testing.assert_array_equal(l1_weight(whole.subset(b, b + 1), [model], [NOISE], 2.0), weight[b : b + 1])
    tight = Dictionary(SHAPE, BASES, 2)
    np.testing.assert_array_equal(l1_weight(tight, [model], [NOISE], 2.0), weight[:, : tight.codomain[1]])


@pytest.mark.parametrize("alpha", [1.0, 2.0])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_no_noise(dtype, alpha, dictionary, model):
    """All emission is then infinitely far above it."""
    there = dictionary.dot(model.astype(dtype)) != 0
    weight = l1_weight(dictionary, [model.astype(dtype)], [0.0], alpha)
    assert weight.dtype == dtype
    assert (weight[~there] == 1).all()
    # One over the smallest normal number, of whatever rounding makes a coefficient.
    assert weight[there].max() < 1e-15


@pytest.mark.parametrize("scale", [NOISE, np.inf])
def test_important_bases_have_more_weight(scale, dictionary, model):
    plain, weighted = (l1_weight(dictionary, [model], [scale], 2.0, each) for each in ((1.0,), (3.0, 1.0, 0.5)))
    np.testing.assert_allclose(weighted, plain * [[3.0], [1.0], [0.5]], rtol=1e-15)


@pytest.mark.parametrize("alpha", [0.0, 2.0])
def test_an_infinite_scale_weighs_nothing(alpha, dictionary, model):
    weight = l1_weight(dictionary, [model], [np.inf], alpha)
    assert weight.shape == dictionary.codomain
    assert (weight == 1).all()


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_the_precision_is_that_of_the_model(dtype, dictionary, model):
    assert l1_weight(dictionary, [model.astype(dtype)], [NOISE], 2.0).dtype == dtype


def test_inputs_are_not_changed(dictionary, model):
    before = model.copy()
    l1_weight(dictionary, [model], [NOISE], 2.0)
    np.testing.assert_array_equal(model, before)
