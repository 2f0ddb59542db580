"""What a model may not be: projections against brute force, and the cones that they leave."""

from itertools import product

import numpy as np
import pytest

from pfb.errors import InputError
from pfb.operators.constraints import POSITIVITY, Constraint

SHAPE = (4, 7, 5)
"""Of (band, nx, ny)."""
CASES = [(name, masked) for name in POSITIVITY for masked in (False, True)]
CONVEX = [("none", False), ("none", True), ("clip", False), ("clip", True)]


@pytest.fixture
def x(rng):
    """Bands that share their signs in some pixels, with zeros of both signs."""
    x = rng.standard_normal(SHAPE) + 2 * rng.standard_normal(SHAPE[1:])
    x[1, 0, 0], x[2, 0, 1], x[:, 0, 2], x[:, 0, 3] = 0.0, -0.0, 0.0, -0.0
    return x


@pytest.fixture
def mask(rng):
    return rng.random(SHAPE[1:]) < 0.6


def polar(name, masked, x, mask):
    """Of all bands at once."""
    return Constraint(name, masked).polar(x, mask if masked else None, list(x < 0))


def projection(name, masked, x, mask):
    return x - polar(name, masked, x, mask)


def allowed(name, values, inside):
    """Whether the bands of one pixel obey."""
    return (name == "none" or min(values) >= 0) and (inside or not any(values))


@pytest.mark.parametrize(("name", "masked"), CASES)
def test_what_the_projection_makes_of_every_pixel(name, masked, x, mask):
    """Pixel by pixel: the bands as they are, clipped one by one, or all zero."""
    for i, j in np.ndindex(SHAPE[1:]):
        values, inside = list(x[:, i, j]), mask[i, j] or not masked
        if not inside or (name == "joint" and min(values) < 0):
            values = [0.0] * SHAPE[0]
        elif name == "clip":
            values = [max(v, 0.0) for v in values]
        np.testing.assert_array_equal(projection(name, masked, x, mask)[:, i, j], values)
        assert allowed(name, values, inside)


@pytest.mark.parametrize(("name", "masked"), CONVEX)
def test_no_image_that_obeys_is_closer_than_the_projection(name, masked, x, mask, rng):
    p = projection(name, masked, x, mask)
    for _ in range(200):
        z = p + 10 ** rng.uniform(-4, 1) * rng.standard_normal(SHAPE)
        z = np.abs(z) if name == "clip" else z
        z = z * mask if masked else z
        assert np.linalg.norm(x - p) <= np.linalg.norm(x - z)


@pytest.mark.parametrize(("name", "masked"), CONVEX)
def test_the_two_parts_belong_to_a_cone_and_its_polar(name, masked, x, mask, rng):
    """Moreau: they are at right angles, and what is left makes no acute angle with anything that obeys."""
    p, u = projection(name, masked, x, mask), polar(name, masked, x, mask)
    assert np.vdot(p, u) == 0
    for _ in range(20):
        z = projection(name, masked, rng.standard_normal(SHAPE), mask)
        assert np.vdot(z, u) <= 0


@pytest.mark.parametrize(("name", "masked"), CASES)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_each_part_is_left_alone_when_taken_again(dtype, name, masked, x, mask):
    x = x.astype(dtype)
    p = projection(name, masked, x, mask)
    u = polar(name, masked, x, mask)
    assert p.dtype == u.dtype == dtype
    np.testing.assert_array_equal(p + u, x)
    np.testing.assert_array_equal(projection(name, masked, p, mask), p)
    np.testing.assert_array_equal(polar(name, masked, u, mask), u)


@pytest.mark.parametrize(("name", "masked"), CASES)
@pytest.mark.parametrize("scale", [0.5, 1024.0])
def test_it_is_a_cone(scale, name, masked, x, mask):
    np.testing.assert_array_equal(polar(name, masked, scale * x, mask), scale * polar(name, masked, x, mask))


@pytest.mark.parametrize(("name", "masked"), CASES)
def test_blocks_of_bands_are_those_of_all(name, masked, x, mask):
    constraint, whole = Constraint(name, masked), polar(name, masked, x, mask)
    for sizes in ([1, 1, 1, 1], [2, 2], [3, 1], [4]):
        blocks = np.split(x, np.cumsum(sizes)[:-1])
        signs = list(x < 0) if constraint.joint else ()
        parts = [constraint.polar(block, mask if masked else None, signs) for block in blocks]
        np.testing.assert_array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize("name", POSITIVITY)
@pytest.mark.parametrize("value", [False, True])
def test_masks_of_nothing_and_of_all(value, name, x):
    mask = np.full(SHAPE[1:], value)
    expected = polar(name, False, x, None) if value else x
    np.testing.assert_array_equal(polar(name, True, x, mask), expected)


def test_one_band_of_joint_positivity_is_clipped(x, mask):
    for masked, band in product((False, True), x):
        one = band[None]
        np.testing.assert_array_equal(projection("joint", masked, one, mask), projection("clip", masked, one, mask))


@pytest.mark.parametrize("name", ["none", "clip"])
def test_one_image_has_no_axis_of_bands(name, x, mask):
    for masked in (False, True):
        m = mask if masked else None
        np.testing.assert_array_equal(Constraint(name, masked).polar(x[0], m), polar(name, masked, x, mask)[0])


@pytest.mark.parametrize(("name", "masked"), CASES)
def test_inputs_are_neither_changed_nor_returned(name, masked, x, mask):
    before = x.copy(), mask.copy(), x < 0
    signs = x < 0
    out = Constraint(name, masked).polar(x, mask if masked else None, list(signs))
    out[:] = 7
    for now, then in zip((x, mask, signs), before, strict=True):
        np.testing.assert_array_equal(now, then)


@pytest.mark.parametrize(("name", "masked"), CASES)
def test_what_it_needs(name, masked):
    constraint = Constraint(name, masked)
    assert constraint.active == ((name, masked) != ("none", False))
    assert constraint.joint == (name == "joint")


@pytest.mark.parametrize("name", POSITIVITY)
def test_a_mask_cannot_be_forgotten(name, x):
    with pytest.raises(ValueError, match="the constraint needs its mask"):
        Constraint(name, masked=True).polar(x, None, list(x < 0))


def test_there_is_none_by_default(x):
    assert not Constraint().active
    assert not Constraint().polar(x).any()


def test_an_unknown_name_is_refused():
    with pytest.raises(InputError, match="positivity 'sometimes' is unknown; choose from none, clip, joint"):
        Constraint("sometimes")


@pytest.mark.parametrize("name", ["clip", "joint"])
@pytest.mark.parametrize("masked", [False, True])
def test_only_i_is_positive(name, masked):
    whole = Constraint(name, masked)
    assert whole.of("I") == whole
    for stokes in "QUV":
        assert whole.of(stokes) == Constraint("none", masked)
