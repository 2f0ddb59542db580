"""How the page of the solver looks; needs a dashboard, and so bokeh."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bokeh.document import Document
from bokeh.layouts import column, gridplot
from bokeh.models import ColumnDataSource, LinearColorMapper
from bokeh.models.widgets import Div, Select
from bokeh.palettes import Greys256
from bokeh.plotting import figure
from distributed.dashboard.core import BokehApplication

from pfb.graph.colours import colour_of
from pfb.graph.page import ROUTE, History, SolverPage
from pfb.graph.phases import stage_seconds
from pfb.kernels.thumbnail import LEVELS, ZERO

REFRESH = 1000
"""Milliseconds between looks at what is new; nothing happens while nobody has the page open."""

NEWEST = "the newest run"
WIDTH, HEIGHT = 440, 240

PER_CYCLE = {
    "residual": ("major cycle", ("peak", "rms", "noise", "lambda")),
    "objective": ("major cycle", ("objective",)),
    "change of the model": ("major cycle", ("change",)),
    "inner iterations": ("major cycle", ("inner",)),
    "seconds": ("major cycle", ("seconds",)),
}
"""Title: label of its axis, and the columns of the major cycles that it shows."""

PER_ITERATION = {"change per iteration": ("iterations of the primal-dual", ("primal", "dual"))}
LINEAR = ("objective", "inner iterations", "seconds")
COLOURS = ("#1f6fb4", "#d1495b", "#66a182", "#8d6a9f")


def add_page(page: SolverPage, scheduler: Any, prefix: str) -> None:
    """Add the page to the web server of a scheduler, below the prefix of its other pages."""
    application = BokehApplication({ROUTE: lambda _, extra, document: draw(page, scheduler, document)}, scheduler, prefix)
    scheduler.http_application.add_application(application)
    application.initialize(scheduler.loop)
    application.start()


def draw(page: SolverPage, scheduler: Any, document: Document) -> None:
    """Fill a document with the page, which from then on looks for news."""
    cycles = ColumnDataSource(columns(("cycle", *(name for _, names in PER_CYCLE.values() for name in names)), ()), name="cycles")
    iterations = ColumnDataSource(columns(("step", "primal", "dual"), ()), name="iterations")
    stages = ColumnDataSource({"stage": [], "seconds": [], "colour": []}, name="stages")
    residual = ColumnDataSource({"image": [], "width": [], "height": []}, name="residual")
    plots = [lines(title, axis, names, "cycle", cycles) for title, (axis, names) in PER_CYCLE.items()]
    plots[2:2] = [lines(title, axis, names, "step", iterations) for title, (axis, names) in PER_ITERATION.items()]
    bars = plot_of("compute seconds of each stage", y_range=[""], height=2 * HEIGHT, tooltips="@stage: @seconds s")
    bars.hbar(y="stage", right="seconds", height=0.8, color="colour", source=stages)
    sky = plot_of("MFS residual", height=2 * HEIGHT, match_aspect=True)
    sky.axis.visible = False
    shades = LinearColorMapper(palette=list(Greys256), low=ZERO - LEVELS, high=ZERO + LEVELS)
    sky.image(image="image", x=0, y=0, dw="width", dh="height", color_mapper=shades, source=residual)
    newest: list[str | tuple[Any, str]] = [NEWEST]
    heading, choice = Div(text=""), Select(value=NEWEST, options=newest)
    drawn: dict[str, Any] = {}

    def update() -> None:
        choice.options = newest + [(run, history.title) for run, history in page.runs.items()]
        run = choice.value if choice.value in page.runs else next(reversed(page.runs), "")
        history = page.runs.get(run, History())
        heading.text = summary(history) if run else "<b>pfb</b>: no run yet"
        cycles.data = columns(list(cycles.data), history.cycles)
        iterations.data = columns(list(iterations.data), cumulative(history.iterations))
        seconds = sorted(stage_seconds(scheduler, run).items(), key=lambda item: item[1])
        bars.y_range.factors = [stage for stage, _ in seconds]
        stages.data = {
            "stage": [stage for stage, _ in seconds],
            "seconds": [value for _, value in seconds],
            "colour": [colour_of(stage) for stage, _ in seconds],
        }
        if history.residual is not drawn.get("residual"):  # it is large: once is enough
            drawn["residual"] = history.residual
            show(history, sky, residual)

    update()
    document.title = "pfb"
    document.add_root(column(heading, choice, gridplot([*plots, bars, sky], ncols=3, merge_tools=False)))
    document.add_periodic_callback(update, REFRESH)


def plot_of(title: str, **options: Any) -> Any:
    """Return an empty figure."""
    plot: Any = figure(title=title, width=WIDTH, tools="pan,wheel_zoom,reset,save", **options)
    plot.toolbar.logo, plot.toolbar.autohide = None, True
    return plot


def lines(title: str, axis: str, names: Sequence[str], x: str, source: ColumnDataSource) -> Any:
    """Return a figure with a line for each name."""
    scale = "linear" if title in LINEAR else "log"
    plot = plot_of(title, height=HEIGHT, y_axis_type=scale, x_axis_label=axis)
    for name, colour in zip(names, COLOURS, strict=False):
        labelled: dict[str, Any] = {"legend_label": name} if len(names) > 1 else {}
        plot.line(x, name, source=source, color=colour, line_width=2, **labelled)
        plot.scatter(x, name, source=source, color=colour, size=5, **labelled)
    if len(names) > 1:
        plot.legend.orientation, plot.legend.border_line_color, plot.legend.margin = "horizontal", None, 0
        plot.add_layout(plot.legend[0], "above")
    return plot


def show(history: History, sky: Any, source: ColumnDataSource) -> None:
    """Put the residual of a run into its figure."""
    if history.residual is None:
        source.data, sky.title.text = {"image": [], "width": [], "height": []}, "MFS residual"
        return
    levels, limit = history.residual
    where = "of the first model" if history.residual_cycle is None else f"of cycle {history.residual_cycle}"
    sky.title.text = f"MFS residual {where}, \u00b1{limit:.3g} Jy/beam"
    source.data = {"image": [levels.T], "width": [levels.shape[0]], "height": [levels.shape[1]]}


def summary(history: History) -> str:
    """Say in a line where a run stands."""
    text = f"<b>pfb</b>, begun {history.title}"
    if history.cycles:
        last = history.cycles[-1]
        text += f": {len(history.cycles)} major cycles, residual of {last['rms']:.3e} Jy/beam rms, threshold {last['lambda']:.3e}"
    return text


def columns(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Turn rows into columns."""
    return {name: [row.get(name) for row in rows] for name in names}


def cumulative(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Number the iterations of all cycles one after the other."""
    done, last, out = 0, 0, []
    cycle = None
    for row in rows:
        if row["cycle"] != cycle:
            done, last, cycle = done + last, 0, row["cycle"]
        last = row["iterations"]
        out.append({"step": done + last, "primal": row["primal"], "dual": row["dual"]})
    return out
