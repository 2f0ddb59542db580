"""Plan images that are too large for this machine on paper: memory, bytes moved, tasks and time on nodes that one names.

Prints, as Markdown, what `pfb plan` would say of imagined observations, and how right it was where `scale_overhead.py` has
measured it; writes the same as JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from scale import Case

from pfb.config import Clean
from pfb.io.measurement_set import Window
from pfb.kernels.gridding import good_even
from pfb.pipeline.budget import GIB, budget
from pfb.pipeline.forecast import DRIVER, duration, forecast
from pfb.pipeline.planning import Plan
from pfb.types import Band, Geometry

FIELD = math.radians(2.28)
"""Width of the images: that of MeerKAT's primary beam in L band, out to the first null."""
PER_NYQUIST = 4
"""Pixels per wavelength of the longest baseline: two of Nyquist's, halved once more, as by default."""
LOW, HIGH = 856e6, 1712e6

TINY = 1e-9
"""Of what is foretold to be nothing, e.g. bytes that one worker moves."""


@dataclass(frozen=True)
class Paper:
    """A run on paper; seconds are those of the wall."""

    npix: int
    nband: int
    nodes: int
    memory: int
    """Bytes of each node."""
    moved: int
    """Bytes that cross between nodes in an iteration."""
    tasks: int
    cpu: float
    """CPU seconds of an iteration."""
    compute: float
    """Seconds of an iteration that its cores are busy."""
    network: float
    """Seconds that what each node receives takes; as much is sent at the same time."""
    scheduler: float
    """Seconds that the scheduler is busy."""
    total: float
    """Seconds of the whole run."""

    @property
    def iteration(self) -> float:
        """Seconds of an iteration: nothing is taken to overlap but the scheduler."""
        return max(self.compute + self.network, self.scheduler)


def imagined(npix: int, nband: int, samples: int, config: Clean) -> Plan:
    """Return the plan of an observation with so many samples in each band; there is no set behind it."""
    geometry = Geometry(nx=npix, ny=npix, cell=FIELD / npix, ra=0.0, dec=-0.5)
    padded = good_even(math.ceil(config.psf_oversize * npix))
    width = (HIGH - LOW) / nband
    edges = [LOW + v * width for v in range(nband)]
    bands = [Band(index=v, freq_min=low, freq_max=low + width, freq=low + width / 2) for v, low in enumerate(edges)]
    window = Window(
        path="imagined", stamp=0, data_desc_id=0, spw=0, fields=(0,), scans=None, rows=samples,
        freq=np.array([band.freq for band in bands]), width=np.full(nband, width), channels=np.arange(nband),
        stored_channels=nband, correlations=(9, 12),
    )  # fmt: skip
    channels = tuple((slice(v, v + 1),) for v in range(nband))
    longest = 1 / (PER_NYQUIST * geometry.cell)
    return Plan(geometry, (padded, padded), tuple(bands), ((window,),) * nband, channels, (), (), longest)


def on_paper(npix: int, nband: int, a: argparse.Namespace) -> Paper:
    """Foretell a run with one worker on every node."""
    config = Clean(output="paper", npix=str(npix), nband=nband, bases=a.bases, prior=a.prior, niter=a.niter)
    planned = imagined(npix, nband, int(a.samples), config)
    found = forecast(planned, config, a.nodes, a.cores)
    compute = found.cpu.iteration / found.cores
    network = found.moved / a.nodes / (a.network * 1e9)
    paper = Paper(
        npix, nband, a.nodes, budget(planned, config, a.nodes, a.cores).worker, found.moved, found.tasks, found.cpu.iteration,
        compute, network, DRIVER * found.tasks, 0.0,
    )  # fmt: skip
    waiting = found.cycles * found.iterations * (paper.iteration - compute)
    return Paper(**{**vars(paper), "total": found.seconds + waiting})


def table(papers: Sequence[Paper]) -> list[str]:
    """Return the table of the runs."""
    lines = [
        "| pixels | bands | nodes | GiB of a node | tasks | GiB moved | CPU s | s of the cores | of the network "
        "| of the scheduler | whole run |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for p in papers:
        lines.append(
            f"| {p.npix} | {p.nband} | {p.nodes} | {p.memory / GIB:.0f} | {p.tasks} | {p.moved / GIB:.1f} | {p.cpu:.0f} "
            f"| {p.compute:.1f} | {p.network:.2f} | {p.scheduler:.2f} | {duration(p.total)} |"
        )
    return lines


def check(path: Path) -> list[str]:
    """Return the table of what was measured over what was foretold; a sentence if nothing was."""
    if not path.is_file():
        return [f"nothing was measured: {path.name} is not in {path.parent}, run scale_overhead.py with the same folder first"]
    lines = [
        "| bands | pixels | bases | tasks, measured over foretold | bytes moved | CPU seconds | memory |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for m in json.loads(path.read_text())["measured"]:
        case = Case(**m["case"])
        ratios = [m[what] / max(m[f"told_{what}"], TINY) for what in ("tasks", "moved", "cpu", "peak")]
        lines.append(f"| {case.nband} | {case.npix} | {case.nbasis} | " + " | ".join(f"{ratio:.2f}" for ratio in ratios) + " |")
    return lines


def sizes(text: str) -> list[tuple[int, int]]:
    """Read sizes such as 8192x32, pixels and bands, between commas."""
    return [(int(npix), int(nband)) for npix, nband in (word.split("x") for word in text.split(","))]


def parser() -> argparse.ArgumentParser:
    """Return the options."""
    out = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    folder = Path(__file__).parent / "out"
    out.add_argument("--folder", type=Path, default=folder, metavar="DIR", help="where everything goes (default: benchmarks/out)")
    out.add_argument(
        "--sizes", type=sizes, default="8192x32,16384x64", metavar="NxBANDS,...", help="images (default: %(default)s)"
    )
    for name, kind, default, text in (
        ("nodes", int, 16, "nodes, with one worker each"), ("cores", int, 32, "cores of each"),
        ("network", float, 1.5, "gigabytes per second that each receives"), ("samples", float, 1e7, "samples of each band"),
        ("bases", str, "self,db1,db2,db3", "bases"), ("prior", str, "mean21", "mean21 or l21"),
        ("niter", int, 20, "major cycles"),
    ):  # fmt: skip
        out.add_argument(f"--{name}", type=kind, default=default, metavar="N", help=f"{text} (default: {default})")
    return out


def main(argv: Sequence[str] | None = None) -> int:
    """Plan and print; returns the exit code."""
    a = parser().parse_args(argv)
    if min(a.nodes, a.cores, a.network, a.samples) <= 0:
        print("scale_plan: nodes, cores, network and samples must be positive: leave out those that are not", file=sys.stderr)
        return 2
    papers = [on_paper(npix, nband, a) for npix, nband in a.sizes]
    lines = [*table(papers), "", "Tasks, bytes and seconds are those of an iteration.", ""]
    lines += check(a.folder / "scale-overhead.json")
    print("\n".join(lines))
    a.folder.mkdir(parents=True, exist_ok=True)
    out = a.folder / "scale-plan.json"
    out.write_text(json.dumps([asdict(p) | {"iteration": p.iteration} for p in papers], indent=1))
    print(f"\nwritten to {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
