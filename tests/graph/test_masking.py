"""The mask of what stands out of the noise, from images of bands that live anywhere."""

import dask
import numpy as np
import pytest

from pfb.graph.engine import ThreadEngine
from pfb.graph.masking import Search, significant
from pfb.graph.names import Names
from pfb.graph.tasks import value
from pfb.kernels.beam import restore
from pfb.kernels.masking import beam_pixels, islands
from pfb.kernels.noise import local_rms
from pfb.types import Beam

SHAPE = (60, 47)
CELL = 1e-5
BEAM = Beam(5 * CELL, 4 * CELL, 0.3)
SEARCH = Search(5.0, 3.0, 8.0, CELL, BEAM)


def refuse(*args, **kwargs):
    raise AssertionError("the builder computed")


@pytest.fixture
def images(rng):
    """Raw residuals and models of four bands, the second without a model."""
    weights = np.array([1.0, 2.0, 0.5, 3.0])
    residuals = rng.standard_normal((4, *SHAPE)) * np.sqrt(weights)[:, None, None]
    models = np.zeros((4, *SHAPE), "f4")
    models[[0, 2, 3], 20, 30] = 2, 3, 4
    models[:, 50:53, 10:12] = 0.5
    return weights, residuals, models


def found(weights, residuals, models, within=None):
    graph, names = {}, Names("t")
    total = float(weights.sum())
    keys = [{v: value(graph, names.key(kind, v), a) for v, a in enumerate(arrays)} for kind, arrays in
            (("residual", residuals), ("primal", models))]  # fmt: skip
    mask = None if within is None else value(graph, names.key("mask", 9), within)
    with dask.config.set(scheduler=refuse):
        both = significant(graph, names.within("x"), *keys, list(weights / total), total, SEARCH, mask)
    engine = ThreadEngine(2)
    engine.run(graph, both)
    result = engine.fetch(both)
    engine.close()
    return *result, len(graph)


def test_it_is_its_definition(images):
    weights, residuals, models = images
    total = weights.sum()
    residual = residuals.sum(axis=0) / total
    model = np.tensordot(weights / total, models, 1)
    noise = local_rms(residual, 8 * 5)
    image = restore(model, residual, CELL, BEAM, BEAM)
    expected = islands(image, noise, high=5, low=3, smallest=0.5 * beam_pixels(5, 4, 1))
    mask, numbers, _ = found(*images)
    assert mask[20, 30]
    assert 0.01 < mask.mean() < 0.3
    np.testing.assert_array_equal(mask, expected.mask)
    assert numbers.islands == expected.number
    assert numbers.fraction == pytest.approx(mask.mean())
    assert (numbers.lowest, numbers.highest) == pytest.approx((noise.min(), noise.max()))


def test_the_order_of_bands_does_not_matter(images, rng):
    mask, _, _ = found(*images)
    for _ in range(3):
        order = rng.permutation(4)
        np.testing.assert_array_equal(found(*(a[order] for a in images))[0], mask)


def test_a_first_band_of_no_weight_does_not_matter(images):
    weights, residuals, models = images
    mask, _, _ = found(*images)
    empty = np.zeros(SHAPE)
    again, _, _ = found(np.r_[0, weights], np.r_[[empty], residuals], np.r_[[empty + 7], models])
    np.testing.assert_array_equal(again, mask)


def test_it_stays_within_the_mask_of_the_user(images):
    within = np.zeros(SHAPE, bool)
    within[:40] = True
    mask, _, _ = found(*images, within)
    whole, _, _ = found(*images)
    np.testing.assert_array_equal(mask[:36], whole[:36])  # an island may reach over the edge
    assert whole[50, 10]
    assert not mask[40:].any()


def test_tasks_grow_with_the_bands_only(images):
    weights, residuals, models = images
    few, many = (found(weights[:n], residuals[:n], models[:n])[2] for n in (2, 4))
    assert many - few <= 12
