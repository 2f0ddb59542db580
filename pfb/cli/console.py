"""Draws the progress of a command: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console as Terminal
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

Value = float | int | str

# A batch log of a run of hours should show that it lives, and still be readable.
SECONDS_BETWEEN_LINES = 30.0


class Console:
    """A `Reporter` that writes to a stream.

    On a terminal every open stage has a bar with its rate and the time left. Elsewhere nothing but plain
    lines is written: no colour, no cursor movement. The first stage of each name leaves a line with
    its duration; later ones (the inner stages of major cycles) leave none, since the table has it.

    Parameters
    ----------
    quiet
        Write nothing at all.
    stream
        Where to write; default: the standard output.
    interval
        Seconds between the lines of a long stage when there is no terminal.
    """

    def __init__(
        self, *, quiet: bool = False, stream: TextIO | None = None, interval: float = SECONDS_BETWEEN_LINES
    ) -> None:
        stream = sys.stdout if stream is None else stream
        self._quiet = quiet
        self._interval = interval
        self._terminal = Terminal(
            file=stream, quiet=quiet, force_terminal=stream.isatty(), highlight=False, markup=False, emoji=False
        )
        self._live = stream.isatty() and not self._terminal.is_dumb_terminal and not quiet
        self._progress: Progress | None = None
        self._open = 0
        self._seen: set[str] = set()
        self._lock = threading.Lock()
        self._columns: list[str] = []
        self._widths: list[int] = []

    @contextmanager
    def stage(self, name: str, total: int) -> Iterator[Callable[[int], None]]:
        """Open a stage of `total` pieces of work; the callable inside is told how many have been done since."""
        count = Counter(total)
        show, close = self._bar(name, total) if self._live else self._lines(name, count)

        def advance(done: int) -> None:
            count.add(done)
            show(done)

        try:
            yield advance
        finally:
            close()
        if name not in self._seen:
            self._seen.add(name)
            self._line(f"{name:<14}{count!s:>9}  {duration(count.seconds):>12}")

    def message(self, text: str) -> None:
        """Say one sentence."""
        self._line(text)

    def warning(self, text: str) -> None:
        """Say one sentence that the user should act on."""
        self._line(f"warning: {text}", style="yellow")

    def row(self, values: Mapping[str, Value]) -> None:
        """Add a line to the table of major cycles, under a header when the columns are new."""
        if list(values) != self._columns:
            self._columns = list(values)
            self._widths = [max(len(name), least_width(value)) for name, value in values.items()]
            self._line(aligned(self._columns, self._widths, values.values()), style="bold")
        self._line(aligned([shown(v) for v in values.values()], self._widths, values.values()))

    def summary(self, title: str, values: Mapping[str, str]) -> None:
        """Close with a table of what was made."""
        self._line("")
        self._line(title, style="bold")
        width = max(map(len, values), default=0)
        for name, value in values.items():
            self._line(f"  {name:<{width}}  {value}")

    def table(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[Value | None]]) -> None:
        """Write a whole table, its columns as wide as they must be; without a header if no column has a name."""
        rows = list(rows)
        body = [["" if v is None else shown(v) for v in row] for row in rows]
        # A column with one word in it is a column of words.
        kinds: list[Value] = ["" if any(isinstance(row[i], str) for row in rows) else 0 for i in range(len(columns))]
        widths = [max(map(len, column)) for column in zip(columns, *body, strict=True)]
        self._line(title, style="bold")
        for cells in [list(columns)] * any(columns) + body:
            self._line("  " + aligned(cells, widths, kinds))
        self._line("")

    def _line(self, text: str, style: str | None = None) -> None:
        # soft_wrap: a path must stay in one piece to be copied.
        self._terminal.print(text.rstrip(), style=style, soft_wrap=True)

    def _bar(self, name: str, total: int) -> tuple[Callable[[int], None], Callable[[], None]]:
        with self._lock:
            if self._progress is None:
                self._progress = Progress(
                    TextColumn("{task.description:<12}", markup=False),
                    BarColumn(),
                    MofNCompleteColumn(),
                    RateColumn(),
                    TimeRemainingColumn(),
                    console=self._terminal,
                    transient=True,
                )
                self._progress.start()
            progress = self._progress
            self._open += 1
        task = progress.add_task(name, total=total or None)

        def close() -> None:
            progress.remove_task(task)
            with self._lock:
                self._open -= 1
                if self._open == 0:
                    progress.stop()
                    self._progress = None

        return lambda done: progress.advance(task, done), close

    def _lines(self, name: str, count: Counter) -> tuple[Callable[[int], None], Callable[[], None]]:
        last = time.monotonic()

        def show(done: int) -> None:
            nonlocal last
            with self._lock:
                due = time.monotonic() - last >= self._interval
                last = time.monotonic() if due else last
            if due:
                self._line(f"{name:<14}{count!s:>9}  {rate(count.rate)}  {count.remaining}".rstrip())

        return show, lambda: None


class Counter:
    """How much of a stage is done, and how fast; may be told from several threads."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = 0
        self._start = time.monotonic()
        self._lock = threading.Lock()

    def add(self, done: int) -> None:
        """Count pieces of work."""
        with self._lock:
            self.done += done

    @property
    def seconds(self) -> float:
        """Time since the stage was opened."""
        return time.monotonic() - self._start

    @property
    def rate(self) -> float | None:
        """Pieces of work per second, None before the first."""
        return self.done / self.seconds if self.done and self.seconds > 0 else None

    @property
    def remaining(self) -> str:
        """The time left, in words."""
        if self.rate is None or self.done >= self.total:
            return ""
        return f"{duration((self.total - self.done) / self.rate)} left"

    def __str__(self) -> str:
        return f"{self.done}/{self.total}" if self.total else str(self.done)


class RateColumn(ProgressColumn):
    """Pieces of work per second."""

    def render(self, task: Task) -> Text:
        """Write the rate of one bar."""
        return Text(rate(task.speed))


def rate(value: float | None) -> str:
    """Write a rate; slow work reads better as seconds per piece."""
    if not value:
        return ""
    return f"{value:.3g}/s" if value >= 0.1 else f"{1 / value:.3g} s each"


def duration(seconds: float) -> str:
    """Write a time span with as many digits as anyone needs."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    if (whole := round(seconds)) < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min"


def shown(value: Value) -> str:
    """Write a value in four digits, or as it is."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def least_width(value: Value) -> int:
    """Return the width of a column from its first value: four digits with a sign and an exponent take ten."""
    return 10 if isinstance(value, float) else max(5, len(str(value)))


def aligned(cells: Sequence[str], widths: Sequence[int], values: Iterable[Value]) -> str:
    """Write one line of a table, words to the left and numbers to the right."""
    pairs = zip(cells, widths, values, strict=True)
    return "  ".join(f"{c:<{w}}" if isinstance(v, str) else f"{c:>{w}}" for c, w, v in pairs)
