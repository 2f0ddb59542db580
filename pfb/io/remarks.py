"""What a check of a measurement set finds."""

from __future__ import annotations

from typing import NamedTuple

OK, WARNING, FAILS, UNTRIED = "ok", "warning", "fails", "not tried"
"""Verdicts; only `FAILS` is what a run would refuse."""


class Remark(NamedTuple):
    """One line of a check."""

    check: str
    verdict: str
    detail: str


def remark(check: str, detail: str, *wrong: str) -> Remark:
    """Return a warning that says what is wrong, or else that all is well."""
    return Remark(check, WARNING, "; ".join(wrong)) if wrong else Remark(check, OK, detail)
