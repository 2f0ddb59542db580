"""Let the number of workers grow with that of the bands, and say what a band costs: weak scaling, by CPU seconds and bytes.

Prints, as Markdown, a line per number of workers: CPU seconds of a band and iteration, tasks, and bytes that a worker is sent;
writes the same as JSON. All workers are on this machine, so seconds of the wall would say nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from scale import BASES, MOST, Case, Measured, measure, numbers, parser, simulate
from scale_overhead import MIB, unfit

from pfb.graph.primal_dual import ITERATIONS
from pfb.pipeline.budget import GIB

HEADER = (
    "| workers | bands | tasks of an iteration | CPU ms of a band and iteration | of these scheduler and client "
    "| MiB sent to a worker (told) | GiB of a worker (told) |",
    "|---:|---:|---:|---:|---:|---:|---:|",
)


def line(m: Measured) -> str:
    """Return a line of the table."""
    nband, nworker = m.case.nband, m.case.nworker
    return (
        f"| {nworker} | {nband} | {m.tasks:.0f} | {1e3 * m.cpu / nband:.1f} | {1e3 * m.driver / nband:.1f} "
        f"| {m.moved / nworker / MIB:.1f} ({m.told_moved / nworker / MIB:.1f}) | {m.peak / GIB:.2f} ({m.told_peak / GIB:.2f}) |"
    )


ROWS = (
    ("bands", 2, "bands of each worker"), ("npix", 1024, "pixels along an edge"), ("nbasis", 4, "bases"),
    ("pd-maxit", 2 * ITERATIONS, "iterations of a cycle"),
)  # fmt: skip


def options() -> argparse.ArgumentParser:
    """Return the options."""
    out = parser(__doc__, ROWS)
    out.add_argument("--workers", type=numbers, default="1,2,4,8", metavar="N,...", help="workers (default: %(default)s)")
    return out


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit code."""
    a = options().parse_args(argv)
    if min(a.workers) < 1 or a.bands < 1 or a.bands * max(a.workers) > MOST or not 1 <= a.nbasis <= len(BASES):
        print(
            f"scale_weak: {max(a.workers)} workers of {a.bands} bands with {a.nbasis} bases are asked for but there may be "
            f"1 to {MOST} bands and 1 to {len(BASES)} bases: ask for fewer",
            file=sys.stderr,
        )
        return 2
    path, found = simulate(a.folder / "scale-set"), []
    print(*HEADER, sep="\n")
    for nworker in a.workers:
        case = Case(a.bands * nworker, a.npix, a.nbasis, nworker, 1, a.pd_maxit)
        if reason := unfit(case, path, a.memory * GIB):
            print(f"{nworker} workers are left out: {reason}", file=sys.stderr)
            continue
        found.append(measure(case, path, a.folder))
        print(line(found[-1]), flush=True)
    out = a.folder / "scale-weak.json"
    out.write_text(json.dumps([asdict(m) for m in found], indent=1))
    print(f"\nwritten to {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
