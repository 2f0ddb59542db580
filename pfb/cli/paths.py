"""Paths of measurement sets on the command line, which may be quoted patterns."""

from __future__ import annotations

import os
from collections.abc import Iterable
from glob import glob, has_magic

import click

from pfb.errors import InputError


def expand(words: Iterable[str]) -> tuple[str, ...]:
    """Replace every pattern by the sorted paths that match it; a path that exists is taken as it is.

    Raises `InputError` for a pattern that nothing matches.
    """
    paths: list[str] = []
    for word in words:
        if not has_magic(word) or os.path.exists(word):
            paths.append(word)
        elif found := sorted(glob(os.path.expanduser(word))):
            paths += found
        else:
            raise InputError(f"nothing matches the pattern {word}; give paths of measurement sets or a pattern that some match")
    return tuple(paths)


def sets_argument() -> click.Argument:
    """Return the argument of commands that take measurement sets."""
    return click.Argument(
        ["sets"], nargs=-1, required=True, metavar="SET...", callback=lambda ctx, param, words: expand(words)
    )
