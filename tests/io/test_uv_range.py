"""Limits of the lengths of baselines."""

from __future__ import annotations

import numpy as np
import pytest

from pfb.errors import InputError
from pfb.io.uv_range import UVRange, parse_uv_range

C = 299792458.0
INF = np.inf


@pytest.mark.parametrize(
    ("low", "high", "metres", "wavelengths"),
    [
        ("100", None, (0, INF), (100, INF)),
        ("2klambda", "0.5Mlambda", (0, INF), (2000, 5e5)),
        (None, "1.5km", (0, 1500), (0, INF)),
        (" 300 m", "4e3lambda", (300, INF), (0, 4000)),
        (".5km", "500m", (500, 500), (0, INF)),
    ],
)
def test_lengths_have_units(low, high, metres, wavelengths):
    assert parse_uv_range(low, high) == UVRange(metres, wavelengths)


def test_no_limits():
    assert parse_uv_range(None, None) is None


@pytest.mark.parametrize("text", ["", "-3", "300M", "3 furlongs", "m", "1,5", "nan", "1e", "2Klambda"])
def test_what_is_no_length_is_refused(text):
    with pytest.raises(InputError, match=r"--max-uv: cannot read '.*'; write a length in wavelengths or metres"):
        parse_uv_range(None, text)


def test_limits_that_leave_nothing():
    with pytest.raises(InputError, match=r"--min-uv 2km is above --max-uv 300m"):
        parse_uv_range("2km", "300m")


@pytest.mark.parametrize("limits", [((0, INF), (200, 900)), ((50, 180), (0, INF)), ((60, INF), (0, 700)), ((0, INF), (0, 0))])
def test_samples_are_those_of_the_definition(limits, rng):
    uvw = rng.standard_normal((600, 3)) * 150
    uvw[0] = 0
    freq = np.sort(rng.uniform(0.9e9, 1.7e9, 7))
    metres = np.sqrt(uvw[:, 0] ** 2 + uvw[:, 1] ** 2)
    wanted = np.array(
        [[limits[0][0] <= m <= limits[0][1] and limits[1][0] <= m * f / C <= limits[1][1] for f in freq] for m in metres]
    )
    r = UVRange(*limits)
    np.testing.assert_array_equal(r.samples(uvw, freq), wanted)
    assert wanted.any()
    low, high = r.in_metres(freq[0], freq[-1])
    rows = (metres >= low) & (metres <= high)
    assert rows[wanted.any(axis=1)].all(), "a row with a sample in the range is left out"
