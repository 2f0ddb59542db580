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


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0, 4.0])
def test_weights_equal_their_definition(alpha, dictionary, model, rng):
    update = 0.05 * rng.standard_normal(SHAPE)
    weight = l1_weight(dictionary, model, update, alpha)
    rms = np.sqrt((update**2).sum() / update.size)
    for row, expected in zip(weight, dictionary.dot(model), strict=True):
        np.testing.assert_allclose(row, [1 / (1 + (abs(c) / rms) ** alpha) for c in expected], rtol=1e-13)
    assert weight.shape == dictionary.codomain
    assert weight.min() < 0.2


def test_the_noise_of_an_update_is_that_of_its_coefficients(dictionary, rng):
    """What the single rms stands on: every basis is an isometry. Coefficients beyond the image's edge dilute it."""
    update = rng.standard_normal(SHAPE)
    energy = np.sqrt(np.square(dictionary.dot(update)).sum(axis=1))
    np.testing.assert_allclose(energy, np.linalg.norm(update), rtol=1e-13)


def test_empty_sky_has_weight_one(dictionary, model, rng):
    weight = l1_weight(dictionary, model, rng.standard_normal(SHAPE), 2.0)
    empty = dictionary.dot(model) == 0
    assert empty.mean() > 0.3
    assert (weight[empty] == 1).all()
    assert (weight <= 1).all()


def test_brighter_emission_has_less_weight(dictionary, model, rng):
    update = rng.standard_normal(SHAPE)
    faint, bright = (l1_weight(dictionary, scale * model, update, 2.0) for scale in (1, 10))
    there = np.abs(dictionary.dot(model)) > 1e-6  # less is rounding, and its weight 1 - 1e-12
    assert (bright[there] < faint[there]).all()


def test_only_the_ratio_to_the_noise_counts(dictionary, model, rng):
    update = rng.standard_normal(SHAPE)
    a, b = (l1_weight(dictionary, scale * model, scale * update, 2.0) for scale in (1.0, 1024.0))
    np.testing.assert_array_equal(a, b)


def test_padding_and_other_bases_do_not_count(model, rng):
    """A block of bases has the weights that it has in the whole dictionary."""
    update = rng.standard_normal(SHAPE)
    whole = Dictionary(SHAPE, BASES, 2, size=600)
    weight = l1_weight(whole, model, update, 2.0)
    for b in range(len(BASES)):
        np.testing.assert_array_equal(l1_weight(whole.subset(b, b + 1), model, update, 2.0), weight[b : b + 1])
    tight = Dictionary(SHAPE, BASES, 2)
    np.testing.assert_array_equal(l1_weight(tight, model, update, 2.0), weight[:, : tight.codomain[1]])


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_an_update_of_nothing(dtype, dictionary, model):
    """All emission is then infinitely far above the noise."""
    weight = l1_weight(dictionary, model.astype(dtype), np.zeros(SHAPE, dtype), 2.0)
    assert weight.dtype == dtype
    np.testing.assert_array_equal(weight, dictionary.dot(model.astype(dtype)) == 0)


def test_inputs_are_not_changed(dictionary, model, rng):
    update = rng.standard_normal(SHAPE)
    before = model.copy(), update.copy()
    l1_weight(dictionary, model, update, 2.0)
    np.testing.assert_array_equal(model, before[0])
    np.testing.assert_array_equal(update, before[1])
