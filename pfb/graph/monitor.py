"""Where a run stands, for whoever watches it: the spans of dask's pages, and the events of the solver's own page."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import urljoin

import dask
from distributed import Client, span

from pfb.graph.names import Names
from pfb.graph.page import ROUTE, TOPIC, SolverPage, is_served, receive
from pfb.graph.tasks import Graph, Key, add, ref
from pfb.kernels.thumbnail import Thumbnail, thumbnail


class Mark(NamedTuple):
    """A time from which on the run is in a stage of a major cycle."""

    time: float
    """Seconds since the epoch."""
    cycle: int | None
    """None before the first cycle and after the last."""
    stage: str
    """As the progress display calls it; empty between stages."""


class Monitor:
    """Knows where a run stands; there is no page where it runs on the threads of this process."""

    page = ""
    """Address of the page of the solver; empty if there is none."""

    def __init__(self) -> None:
        self.marks = [Mark(time.time(), None, "")]

    @property
    def cycle(self) -> int | None:
        """The major cycle that the run is in."""
        return self.marks[-1].cycle

    def begin(self, cycle: int | None) -> None:
        """Say that a major cycle begins, or that the last one is over (None)."""
        self._mark(cycle, "")

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Say that what is submitted inside is a stage."""
        before = self.marks[-1].stage
        self._mark(self.cycle, name)
        try:
            yield
        finally:
            self._mark(self.cycle, before)

    def annotations(self) -> dict[str, Any]:
        """Return what dask shall know of every task that is submitted now."""
        return {}

    def tell(self, event: str, **values: float | int | None) -> None:
        """Send a few numbers to the page."""

    def picture(self, graph: Graph, names: Names, image: Key) -> list[Key]:
        """Add the task that makes a small picture of a residual, if there is a page; returns its key, or none."""
        return []

    def show(self, pictures: Sequence[Thumbnail]) -> None:
        """Send the small picture to the page."""

    def _mark(self, cycle: int | None, stage: str) -> None:
        self.marks.append(Mark(time.time(), cycle, stage))


class ClusterMonitor(Monitor):
    """Tells a dask scheduler: each task belongs to a span such as ``("pfb", "cycle 3", "primal-dual")``.

    Parameters
    ----------
    client : Client
        A connected client. Its scheduler gets the page of the solver, if it has a dashboard.
    """

    def __init__(self, client: Client) -> None:
        super().__init__()
        self._client = client
        self._run = _opened(None, "pfb")
        self._cycle = self._now = self._run
        client.register_plugin(SolverPage())
        if client.run_on_scheduler(is_served):
            self.page = urljoin(client.dashboard_link, ROUTE.strip("/"))
        self.tell("run")

    @property
    def run(self) -> str:
        """The span that all tasks of the run are in."""
        return str(self._run["ids"][-1])

    def begin(self, cycle: int | None) -> None:
        """Open the span of a major cycle."""
        super().begin(cycle)
        self._cycle = self._now = self._run if cycle is None else _opened(self._run, f"cycle {cycle}")

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Open the span of a stage."""
        before, self._now = self._now, _opened(self._cycle, name)
        try:
            with super().stage(name):
                yield
        finally:
            self._now = before

    def annotations(self) -> dict[str, Any]:
        """Return the span."""
        return {"span": self._now}

    def tell(self, event: str, **values: float | int | None) -> None:
        """Log an event of the scheduler."""
        self._client.log_event(TOPIC, {"run": self.run, "event": event, **values})

    def picture(self, graph: Graph, names: Names, image: Key) -> list[Key]:
        """Add the task, where the residual is."""
        return [add(graph, names.key("thumbnail", *image[1:]), thumbnail, ref(image))] if self.page else []

    def show(self, pictures: Sequence[Thumbnail]) -> None:
        """Hand the pictures to the scheduler."""
        for picture in pictures:
            self._client.run_on_scheduler(receive, self.run, picture, self.cycle)


def _opened(parent: dict[str, Any] | None, name: str) -> dict[str, Any]:
    """Return the annotation of a new span within another."""
    with dask.annotate(**({"span": parent} if parent else {})), span(name):
        opened: dict[str, Any] = dask.get_annotations()["span"]
        return opened
