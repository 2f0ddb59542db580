"""What a pipeline tells whoever runs it; the command line draws it, a script may ignore it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol


class Reporter(Protocol):
    """Receives the progress of a command."""

    def stage(self, name: str, total: int) -> AbstractContextManager[Callable[[int], None]]:
        """Open a stage of `total` pieces of work; the callable inside is told how many have been done since."""
        ...

    def message(self, text: str) -> None:
        """Say one sentence."""
        ...

    def warning(self, text: str) -> None:
        """Say one sentence that the user should act on."""
        ...

    def row(self, values: Mapping[str, float | int | str]) -> None:
        """Add a line to the table of major cycles; the first line names the columns."""
        ...

    def summary(self, title: str, values: Mapping[str, str]) -> None:
        """Close with a table of what was made."""
        ...


class Silent:
    """A reporter that says nothing."""

    @contextmanager
    def stage(self, name: str, total: int) -> Iterator[Callable[[int], None]]:
        """Count nothing."""
        yield lambda done: None

    def message(self, text: str) -> None:
        """Drop the sentence."""

    def warning(self, text: str) -> None:
        """Drop the sentence."""

    def row(self, values: Mapping[str, float | int | str]) -> None:
        """Drop the line."""

    def summary(self, title: str, values: Mapping[str, str]) -> None:
        """Drop the table."""
