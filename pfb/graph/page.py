"""The page of the solver on the scheduler's web server: what it knows. How it looks is in `pfb.graph.drawing`."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from distributed import SchedulerPlugin

from pfb.kernels.thumbnail import Thumbnail

TOPIC = "pfb"
"""Topic of the events that a run sends to the scheduler."""

ROUTE = "/pfb"

NAME = "pfb-page"

RUNS_KEPT = 8
"""Runs that the page remembers: a scheduler may outlive hundreds."""


@dataclass
class History:
    """What a run has told."""

    began: float = field(default_factory=time.time)
    iterations: list[dict[str, Any]] = field(default_factory=list)
    """Of the primal-dual: cycle, iterations so far, relative change of images and of coefficients."""
    cycles: list[dict[str, Any]] = field(default_factory=list)
    """The line of every major cycle."""
    residual: Thumbnail | None = None
    residual_cycle: int | None = None
    """The cycle that the residual was measured in; None before the first."""

    @property
    def title(self) -> str:
        """When it began."""
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.began))


class SolverPage(SchedulerPlugin):
    """Remembers what runs tell, and adds the page to the dashboard if there is one.

    It stays when the run is over, so that its end can be looked at; on a scheduler that goes on it serves the next runs too.
    """

    name = NAME
    idempotent = True

    def __init__(self) -> None:
        self.runs: dict[str, History] = {}
        self.served = False

    async def start(self, scheduler: Any) -> None:
        """Add the page beside dask's own; without those nothing is added."""
        dashboards = [app for app in scheduler.http_application.applications if hasattr(app, "app_paths")]
        if not dashboards:
            return
        # Not at the top: a scheduler without a dashboard may have no bokeh, and must know this class all the same.
        drawing = import_module("pfb.graph.drawing")
        drawing.add_page(self, scheduler, dashboards[0].prefix)
        self.served = True

    def log_event(self, topic: str, msg: Any) -> None:
        """Remember an event of a run."""
        if topic != TOPIC:
            return
        history = self.of(msg["run"])
        values = {name: value for name, value in msg.items() if name not in ("run", "event")}
        if msg["event"] == "iterations":
            history.iterations.append(values)
        elif msg["event"] == "cycle":
            history.cycles.append(values)

    def of(self, run: str) -> History:
        """Return the history of a run, which may begin now; the oldest are forgotten."""
        if run not in self.runs:
            self.runs[run] = History()
            for old in list(self.runs)[:-RUNS_KEPT]:
                del self.runs[old]
        return self.runs[run]


def is_served(dask_scheduler: Any) -> bool:
    """Say, on the scheduler, whether it has the page."""
    return bool(dask_scheduler.plugins[NAME].served)


def receive(run: str, residual: Thumbnail, cycle: int | None, dask_scheduler: Any) -> None:
    """Take a residual, on the scheduler; unlike an event it is forgotten when the next one comes."""
    history = dask_scheduler.plugins[NAME].of(run)
    history.residual, history.residual_cycle = residual, cycle
