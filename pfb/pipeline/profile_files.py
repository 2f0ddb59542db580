"""The files of a profile: tables, the trace of the memory, and the report of a run on threads."""

from __future__ import annotations

import csv
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
from bokeh.embed import file_html
from bokeh.layouts import column
from bokeh.models import ColumnDataSource, HoverTool
from bokeh.plotting import figure
from bokeh.resources import INLINE
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from pfb.graph.colours import colour_of
from pfb.graph.monitor import Mark
from pfb.graph.names import STAGES
from pfb.graph.phases import Phase, TaskTime

MIB, GIB = 2**20, 2**30
SHOWN = 12
"""Stages in the table that ends the run, those that took most."""


class Sample(NamedTuple):
    """Memory at a time."""

    time: float
    """Seconds since the epoch."""
    size: int
    """Resident bytes: of this process, or of all workers together."""
    cpu: float | None
    """CPU seconds of this process so far."""


def ordered(phases: Iterable[Phase]) -> list[Phase]:
    """Sort by cycle, what belongs to none first, and then as the stages follow each other."""
    rank = {stage: i for i, stage in enumerate(STAGES)}
    return sorted(phases, key=lambda p: (-1 if p.cycle is None else p.cycle, rank.get(p.stage, len(rank)), p.stage))


def total(phases: Iterable[Phase]) -> list[Phase]:
    """Add up the cycles, in the order of the stages; CPU seconds are unknown if they are in one of them."""
    sums: dict[str, Phase] = {}
    for phase in phases:
        before = sums.get(phase.stage)
        added = phase if before is None else Phase(None, phase.stage, *map(_plus, before[2:], phase[2:]))
        sums[phase.stage] = added._replace(cycle=None)
    return ordered(sums.values())


def _plus(a: Any, b: Any) -> Any:
    return None if a is None or b is None else a + b


def write_phases(folder: Path, phases: Sequence[Phase]) -> None:
    """Write ``phases.csv``, a line per cycle and stage, and ``phases.md``, the same as tables with their sums."""
    with open(folder / "phases.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("cycle", "stage", "tasks", "compute_s", "cpu_s", "transfer_s", "transfer_bytes", "other_s"))
        writer.writerows(["" if p.cycle is None else p.cycle, p.stage, p.tasks, *map(_plain, p[3:])] for p in phases)
    cycles = list(dict.fromkeys(p.cycle for p in phases))
    parts = [("All", total(phases))]
    parts += [("Outside of cycles" if c is None else f"Cycle {c}", [p for p in phases if p.cycle == c]) for c in cycles]
    (folder / "phases.md").write_text("\n".join(["# Stages", "", *(line for part in parts for line in _markdown(*part))]))


def _plain(value: float | int | None) -> str:
    return "" if value is None else f"{value:.6f}" if isinstance(value, float) else str(value)


def _markdown(title: str, phases: Sequence[Phase]) -> list[str]:
    lines = [
        f"## {title}", "",
        "| stage | tasks | compute s | CPU s | transfer s | transfer MiB | other s |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]  # fmt: skip
    everything = [p._replace(stage="sum") for p in phases]
    for p in [*phases, *total(everything)]:
        cpu = "" if p.cpu is None else f"{p.cpu:.2f}"
        cells = (p.stage, p.tasks, f"{p.compute:.2f}", cpu, f"{p.transfer:.2f}", f"{p.transferred / MIB:.1f}", f"{p.other:.2f}")
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return [*lines, ""]


def shares(phases: Sequence[Phase]) -> dict[str, str]:
    """Return the table that ends a run: the stages that took most, with what they took."""
    sums = sorted(total(phases), key=lambda p: p.compute + p.transfer, reverse=True)
    whole = sum(p.compute for p in sums) or 1.0
    return {
        p.stage: f"{p.tasks:7d} tasks {p.compute:10.2f} s {100 * p.compute / whole:5.1f} %"
        + (f"   {p.transfer:.2f} s for {p.transferred / MIB:.1f} MiB from other workers" if p.transferred else "")
        for p in sums[:SHOWN]
    }


def write_memory(path: Path, samples: Sequence[Sample], marks: Sequence[Mark]) -> None:
    """Write the trace: seconds since the start, bytes, and the cycle and stage at that time."""
    times = [mark.time for mark in marks]
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("seconds", "bytes", "cycle", "stage"))
        for s in samples:
            mark = marks[max(bisect_right(times, s.time) - 1, 0)]
            writer.writerow((f"{s.time - marks[0].time:.3f}", s.size, "" if mark.cycle is None else mark.cycle, mark.stage))


def draw_memory(path: Path, samples: Sequence[Sample], marks: Sequence[Mark]) -> None:
    """Draw the trace as PNG, over the stages in colours, with the first moments of cycles as lines."""
    start = marks[0].time
    drawing = Figure(figsize=(9, 4), dpi=100, layout="constrained")
    FigureCanvasAgg(drawing)
    axes = drawing.add_subplot(xlabel="seconds", ylabel="memory [GiB]")
    axes.plot([s.time - start for s in samples], [s.size / GIB for s in samples], color="black", linewidth=1.2)
    end = max([s.time for s in samples] + [marks[-1].time])
    names = list(dict.fromkeys(mark.stage for mark in marks if mark.stage))
    shades = dict(zip(names, matplotlib.color_sequences["tab20"] * (1 + len(names) // 20), strict=False))
    told: set[str] = set()
    for mark, following in zip(marks, [*(m.time for m in marks[1:]), end], strict=True):
        if mark.stage:
            label: dict[str, Any] = {} if mark.stage in told else {"label": mark.stage}
            axes.axvspan(mark.time - start, following - start, color=shades[mark.stage], alpha=0.35, linewidth=0, **label)
            told.add(mark.stage)
    for mark, before in zip(marks[1:], marks, strict=False):
        if mark.cycle != before.cycle and mark.cycle is not None:
            axes.axvline(mark.time - start, color="gray", linewidth=0.6, linestyle=":")
    axes.set_xlim(0, max(end - start, 1e-3))
    axes.set_ylim(bottom=0)
    if names:
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    drawing.savefig(path, format="png")


def draw_threads(path: Path, tasks: Iterable[TaskTime], phases: Iterable[Phase], samples: Sequence[Sample], start: float) -> None:
    """Write the report of a run on threads: a row per thread with its tasks, memory and CPUs, seconds per stage."""
    tasks = list(tasks)
    threads = {ident: str(row) for row, ident in enumerate(dict.fromkeys(t.thread for t in tasks))}
    stream = _figure("tasks", 140 + 40 * len(threads), y_range=list(threads.values()) or ["0"], y_axis_label="thread")
    data = {
        "thread": [threads[t.thread] for t in tasks], "left": [t.start - start for t in tasks],
        "right": [t.stop - start for t in tasks], "seconds": [t.stop - t.start for t in tasks],
        "stage": [t.stage for t in tasks], "colour": [colour_of(t.stage) for t in tasks],
    }  # fmt: skip
    stream.hbar(y="thread", left="left", right="right", height=0.8, color="colour", source=ColumnDataSource(data))
    stream.add_tools(HoverTool(tooltips="@stage: @seconds s"))
    memory = _figure("memory", 200, x_range=stream.x_range, y_axis_label="GiB")
    memory.line([s.time - start for s in samples], [s.size / GIB for s in samples], line_width=2)
    cpu = _figure("CPUs that work", 200, x_range=stream.x_range)
    used = [(b.time - start, ((b.cpu or 0) - (a.cpu or 0)) / (b.time - a.time)) for a, b in pairwise(samples) if b.time > a.time]
    cpu.step([at for at, _ in used], [number for _, number in used], mode="before")
    sums = sorted(total(phases), key=lambda p: p.compute)
    names = [p.stage for p in sums]
    bars = _figure("compute seconds of each stage", 100 + 22 * len(sums), y_range=names or [""])
    bars.hbar(y=names, right=[p.compute for p in sums], height=0.8, color=[colour_of(name) for name in names])
    path.write_text(file_html(column(stream, memory, cpu, bars), INLINE, "pfb"))


def _figure(title: str, height: int, **options: Any) -> Any:
    tools = "xpan,xwheel_zoom,box_zoom,reset,save"
    return figure(title=title, width=1000, height=height, x_axis_label="seconds", tools=tools, **options)
