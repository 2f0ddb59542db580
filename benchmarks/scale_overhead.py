"""Say what dask costs and whether plans are right: tasks, CPU seconds, bytes and memory of `pfb clean` on workers.

Runs two major cycles of a simulated set of few samples for every number of bands, pixels and bases, and prints, as
Markdown, what an iteration of the second cycle took beside what `pfb plan` says; writes the same as JSON. A case that does not
fit the memory is left out, and said. Times between iterations are those of the wall, and longer where other work is done.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import product

from scale import BASES, MOST, Case, Measured, measure, numbers, parser, simulate

from pfb.graph.primal_dual import ITERATIONS
from pfb.pipeline.budget import GIB, budget

MIB = 2**20

HEADER = (
    "| bands | pixels | bases | tasks | CPU ms | of these scheduler and client | per task | MiB moved (told) "
    "| GiB of a worker (told) | ms between graphs, iterations |",
    "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
)


def cases(a: argparse.Namespace) -> Iterator[Case]:
    """All that are asked for, the small ones first."""
    for npix, nband, nbasis in product(a.npix, a.nband, a.nbasis):
        yield Case(nband, npix, nbasis, a.workers, a.threads_per_worker, a.pd_maxit)


def unfit(case: Case, path: str, memory: float) -> str:
    """Return why a case cannot be run; an empty text if it can."""
    needed = case.nworker * budget(case.planned(path), case.config("none"), case.nworker, case.nthread).worker
    return f"it needs {needed / GIB:.3g} GiB and there are {memory / GIB:.3g}" if needed > memory else ""


def line(m: Measured) -> str:
    """Return a line of the table."""
    case = m.case
    return (
        f"| {case.nband} | {case.npix} | {case.nbasis} | {m.tasks:.0f} ({m.told_tasks}) "
        f"| {1e3 * m.cpu:.0f} ({1e3 * m.told_cpu:.0f}) | {100 * m.overhead:.2g} % | {1e3 * m.driver / m.tasks:.2f} ms "
        f"| {m.moved / MIB:.0f} ({m.told_moved / MIB:.0f}) "
        f"| {m.peak / GIB:.2f} ({m.told_peak / GIB:.2f}) | {1e3 * m.between:.0f}, {1e3 * m.within:.0f} |"
    )


ROWS = (
    ("workers", 2, "workers"), ("threads-per-worker", 1, "threads of each"),
    ("pd-maxit", 2 * ITERATIONS, "iterations of a cycle"),
)  # fmt: skip


def options() -> argparse.ArgumentParser:
    """Return the options."""
    out = parser(__doc__, ROWS)
    for name, default, text in (("nband", "4,8,16", "bands"), ("npix", "512,1024,2048", "pixels"), ("nbasis", "4,9", "bases")):
        out.add_argument(f"--{name}", type=numbers, default=default, metavar="N,...", help=f"{text} (default: {default})")
    return out


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit code."""
    a = options().parse_args(argv)
    for name, given, low, high in (("nband", a.nband, 1, MOST), ("nbasis", a.nbasis, 1, len(BASES)), ("npix", a.npix, 2, 10**5)):
        if not all(low <= n <= high for n in given):
            print(f"scale_overhead: --{name} is {given} but must be {low} to {high}: leave out the others", file=sys.stderr)
            return 2
    path, found, left_out = simulate(a.folder / "scale-set"), [], []
    print(*HEADER, sep="\n")
    for case in cases(a):
        if reason := unfit(case, path, a.memory * GIB):
            left_out.append(f"{case.nband} bands of {case.npix} pixels with {case.nbasis} bases are left out: {reason}")
            continue
        found.append(measure(case, path, a.folder))
        print(line(found[-1]), flush=True)
    print("", *left_out, "What stands in brackets is foretold. Tasks, CPU and bytes are those of an iteration.", sep="\n")
    out = a.folder / "scale-overhead.json"
    out.write_text(json.dumps({"measured": [asdict(m) for m in found], "left_out": left_out}, indent=1))
    print(f"written to {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
