"""Times as users write them."""

from __future__ import annotations

import pytest

from pfb.errors import InputError
from pfb.io.time_ranges import iso, mjd_seconds, parse_times

# MJD 60471 is 2024-06-10.
DAY = 60471 * 86400.0


def test_times_are_seconds_of_the_modified_julian_date():
    assert mjd_seconds("2024-06-10T06:00:00") == DAY + 6 * 3600
    assert mjd_seconds("2024-06-10T08:00:00+02:00") == DAY + 6 * 3600
    assert iso(DAY + 6 * 3600 + 0.6) == "2024-06-10T06:00:01"
    assert iso(DAY + 1.25, 2) == "2024-06-10T00:00:01.25"


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("2024-06-10T06:00:00~2024-06-10T06:15:00", [(6, 6.25)]),
        ("2024-06-10T06:00~06:15", [(6, 6.25)]),
        (" 2024-06-10T06:00:00.0 ~ 2024-06-11T00:00 , 2024-06-10T01:00~01:30", [(6, 24), (1, 1.5)]),
    ],
)
def test_ranges_of_times(text, hours):
    assert parse_times(text) == tuple((DAY + a * 3600, DAY + b * 3600) for a, b in hours)


@pytest.mark.parametrize(
    "text", ["", "06:00~07:00", "2024-06-10T06:00", "2024-06-10~2024-06-11", "2024-06-10T06:00~", "60471~60472"]
)
def test_what_is_no_range_is_refused(text):
    with pytest.raises(InputError, match=r"--time: cannot read '.*'; write ranges of UTC, e\.g\. 2024"):
        parse_times(text)


def test_a_range_that_ends_before_it_starts():
    with pytest.raises(InputError, match=r"--time 2024-06-10T06:00~05:00 ends before it starts; write"):
        parse_times("2024-06-10T06:00~05:00")
