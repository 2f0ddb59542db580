"""Sums of visibility columns, such as ``CORRECTED_DATA-MODEL_DATA``."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from pfb.errors import InputError

_NAME, _NUMBER = r"[A-Za-z_]\w*", r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_TERM = re.compile(rf"\s*([+-]?)\s*(?:({_NUMBER})\s*\*\s*)?({_NAME})(?:\s*\*\s*({_NUMBER}))?\s*")


class Term(NamedTuple):
    """A column, and what it is multiplied with."""

    factor: float
    column: str


@lru_cache(maxsize=64)
def parse_terms(text: str) -> tuple[Term, ...]:
    """Read a sum of columns, each with an optional factor: ``DATA``, ``CORRECTED_DATA - MODEL_DATA``, ``DATA + 0.5*MODEL_DATA``.

    Raises `InputError` for anything else.
    """
    terms: list[Term] = []
    place = 0
    while place < len(text) or not terms:
        match = _TERM.match(text, place)
        if match is None or (terms and not match[1]):
            raise InputError(
                f"--data-column: cannot read {text!r}; write a column, or a sum or difference such as 'CORRECTED_DATA-MODEL_DATA'"
            )
        sign, before, column, after = match.groups()
        factor = float(before or 1) * float(after or 1)
        terms.append(Term(-factor if sign == "-" else factor, column))
        place = match.end()
    return tuple(terms)
