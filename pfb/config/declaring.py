"""How an option is declared, and how its value is checked."""

from __future__ import annotations

import math
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from pfb.errors import InputError


def option(
    default: Any = MISSING,
    *,
    help: str,
    metavar: str | None = None,
    choices: tuple[str, ...] = (),
    minimum: float | None = None,
    maximum: float | None = None,
    above: float | None = None,
    short: str | None = None,
    nested: bool = False,
    only: tuple[str, ...] = (),
) -> Any:
    """Declare an option.

    Parameters
    ----------
    default
        Its default; without one the option is required.
    help
        One line for ``--help``.
    metavar
        What stands for the value in the help.
    choices
        The words that are allowed, for an option that takes one of few.
    minimum, maximum
        The closed interval that a number must lie in.
    above
        What a number must exceed: a lower bound that is itself not allowed.
    short
        A second, short spelling such as ``-o``.
    nested
        Whether its text is a YAML mapping, which a file may hold as a section.
    only
        The algorithms that it is an option of; all by default.

    An option of type ``tuple[str, ...]`` may be given several times.
    """
    limits = dict(choices=choices, minimum=minimum, maximum=maximum, above=above)
    return field(default=default, metadata=dict(help=help, metavar=metavar, short=short, nested=nested, only=only, **limits))


def check(config: Any) -> None:
    """Raise `InputError` unless every number lies in its range and every word among its choices."""
    for f in fields(config):
        value = getattr(config, f.name)
        if value is None or not f.metadata:
            continue
        name = "--" + f.name.replace("_", "-")
        low, high, above = f.metadata["minimum"], f.metadata["maximum"], f.metadata["above"]
        if isinstance(value, float) and not math.isfinite(value):
            raise InputError(f"{name} is {value} but must be a finite number")
        if above is not None and not value > above:
            raise InputError(f"{name} is {value} but must be greater than {above:g}")
        if low is not None and not value >= low:
            raise InputError(f"{name} is {value} but must be at least {low:g}")
        if high is not None and not value <= high:
            raise InputError(f"{name} is {value} but must be at most {high:g}")
        choices = f.metadata["choices"]
        if choices and value not in choices:
            raise InputError(f"{name} is {value!r} but must be one of {', '.join(choices)}")
        only, algorithm = f.metadata["only"], getattr(config, "algorithm", None)
        if only and algorithm not in only and value != f.default:
            raise InputError(f"{name} is an option of {' and '.join(only)}, not of --algorithm {algorithm}: leave it out")


@dataclass(frozen=True, kw_only=True)
class Config:
    """Base of every command's options: ranges and choices are checked when it is made."""

    def __post_init__(self) -> None:
        check(self)
