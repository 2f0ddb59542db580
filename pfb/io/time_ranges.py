"""Ranges of time as users write them, in UTC, and as sets have them, in seconds of the modified Julian date."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pfb.errors import InputError

_ZERO = datetime(1858, 11, 17, tzinfo=UTC)


def mjd_seconds(text: str) -> float:
    """Return an ISO 8601 time, UTC unless it says otherwise, in MJD seconds; raises `ValueError` if it is none."""
    time = datetime.fromisoformat(text)
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - _ZERO).total_seconds()


def iso(seconds: float, digits: int = 0) -> str:
    """Write MJD seconds UTC as ISO 8601, to the second or with so many digits of it, at most six; rounded to the nearest."""
    time = _ZERO + timedelta(seconds=round(seconds, digits))
    return time.strftime("%Y-%m-%dT%H:%M:%S") + (f".{time.microsecond:06d}"[: digits + 1] if digits else "")


def parse_times(text: str) -> tuple[tuple[float, float], ...]:
    """Read ``2024-06-10T06:00~2024-06-10T06:10,...`` as MJD seconds; the end may be a time of day, of the day of the start.

    Raises `InputError` for anything else, and for a range that ends before it starts.
    """
    ranges = []
    for item in text.split(","):
        first, mark, last = (part.strip() for part in item.partition("~"))
        day, letter, _ = first.partition("T")
        try:
            if not (mark and letter):
                raise ValueError("a date, a time and a range are needed")
            start, end = mjd_seconds(first), mjd_seconds(last if "T" in last else f"{day}T{last}")
        except ValueError as error:
            raise InputError(
                f"--time: cannot read {item.strip()!r}; write ranges of UTC, e.g. 2024-06-10T06:00:00~2024-06-10T06:10:00"
            ) from error
        if end < start:
            raise InputError(f"--time {item.strip()} ends before it starts; write the earlier time first")
        ranges.append((start, end))
    return tuple(ranges)
