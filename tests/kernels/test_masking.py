import numpy as np
import pytest

from pfb.kernels.masking import beam_pixels, islands


def naive(image, noise, high, low, smallest):
    """Flood every island from its pixels one at a time."""
    mask, count = np.zeros(image.shape, bool), 0
    left = {(i, j) for i, j in np.ndindex(image.shape) if image[i, j] > low * noise[i, j]}
    while left:
        island, todo = [], [left.pop()]
        while todo:
            i, j = todo.pop()
            island.append((i, j))
            for near in [(i + a, j + b) for a in (-1, 0, 1) for b in (-1, 0, 1)]:
                if near in left:
                    left.remove(near)
                    todo.append(near)
        if any(image[p] > high * noise[p] for p in island) and len(island) >= smallest:
            count += 1
            for p in island:
                mask[p] = True
    return mask, count


@pytest.mark.parametrize("smallest", [0, 3, 7.5])
@pytest.mark.parametrize("shape", [(40, 40), (33, 21)], ids=str)
def test_islands_are_their_definition(shape, smallest, rng):
    image = rng.standard_normal(shape)
    noise = np.linspace(0.5, 1.0, shape[1]) * np.ones(shape)
    image[3, 4] = np.nan
    mask, count = naive(image, noise, 2.5, 0.8, smallest)
    found = islands(image, noise, high=2.5, low=0.8, smallest=smallest)
    assert 0 < count == found.number
    np.testing.assert_array_equal(found.mask, mask)


def test_negative_islands_are_found_when_asked_for():
    image = np.zeros((9, 9))
    image[4, 4] = -5
    assert islands(image, np.ones((9, 9)), high=4, low=3).number == 0
    assert islands(image, np.ones((9, 9)), high=4, low=3, negative=True).mask[4, 4]


def test_islands_stay_within_a_mask():
    image, within = np.zeros((9, 9)), np.zeros((9, 9), bool)
    image[2:7, 4] = [3.5, 5, 3.5, 3.5, 3.5]
    within[4:] = True
    assert islands(image, np.ones((9, 9)), high=4, low=3).mask.sum() == 5
    assert islands(image, np.ones((9, 9)), high=4, low=3, within=within).number == 0  # its peak lies outside


def test_beam_pixels_counts_the_pixels_above_half_maximum():
    x, y = np.mgrid[-100:101, -100:101] * 0.1  # the border has one pixel in 200
    inside = (x / 8.0) ** 2 + (y / 5.0) ** 2 < 1  # half widths
    assert beam_pixels(16.0, 10.0, 0.1) == pytest.approx(inside.sum(), rel=5e-3)
