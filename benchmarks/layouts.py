"""Compare how the dual may be cut into blocks of bases and bands: primal-dual iterations without a Hessian, all in one run.

Prints, as Markdown, milliseconds and CPU milliseconds per iteration of every layout, on the threads of this process and on
workers in processes of their own, and what crosses between workers; the layouts take turns. The images of all are compared.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import dask
import numpy as np
import psutil
from distributed import Client, LocalCluster

from pfb.graph.blocks import Blocks
from pfb.graph.cluster import CONFIG, ClusterEngine
from pfb.graph.engine import Engine, ThreadEngine
from pfb.graph.names import Names, token
from pfb.graph.primal_dual import Data, PrimalDual
from pfb.graph.tasks import Graph, add
from pfb.kernels.memory import keep_freed_memory
from pfb.kernels.threads import set_thread_budget
from pfb.operators.regularisers import JointPrior
from pfb.operators.wavelets import Dictionary
from pfb.solvers.primal_dual import step_sizes
from pfb.types import Real

BASES = ("self", "db1", "db2", "db3")
ITERATIONS = 10
SHIFT = 1.0


LOG = {"distributed.admin.low-level-log-length": 100_000}
"""So that the workers remember all transfers."""

Opened = tuple[Engine, Callable[[], float], Callable[[], float]]
"""An engine, the CPU seconds that it has used, and the bytes that its workers have sent each other."""


class Scaled:
    """A number as an operator: what costs least in the place of a Hessian and of its preconditioner."""

    def __init__(self, number: float) -> None:
        self.number = np.float32(number)

    def dot(self, x: Real) -> Real:
        """Multiply."""
        return self.number * x


def noise(npix: int, band: int) -> Real:
    """Return an image."""
    return np.random.default_rng(band).standard_normal((npix, npix), np.float32)


class Layout:
    """A solver whose blocks have so many bases and bands."""

    def __init__(self, npix: int, nband: int, basis_chunk: int, band_chunk: int, nworker: int) -> None:
        self.label = f"{basis_chunk} of {len(BASES)} bases, {band_chunk} of {nband} bands"
        dictionary = Dictionary((npix, npix), BASES, 5, np.float32)
        nbasis, ncoefficient = dictionary.codomain
        blocks = Blocks(nband, nbasis, ncoefficient, band_chunk, basis_chunk)
        self.names = Names(token("layouts", npix, nband, basis_chunk, band_chunk, nworker))
        self.solver = PrimalDual(
            self.names, blocks, dictionary, JointPrior("mean21", nband), step_sizes(SHIFT, nbasis, False), 0.5, tol=0.0,
            nworker=nworker,
        )  # fmt: skip
        self.npix, self.done = npix, 0

    def start(self, engine: Engine) -> None:
        """Make what is resident."""
        graph: Graph = {}
        names, bands = self.names, range(self.solver.blocks.nband)
        images = [add(graph, names.key("model", v), noise, self.npix, v) for v in bands]
        hessians = [add(graph, names.key("hessian", v), Scaled, 1.0) for v in bands]
        steps = [add(graph, names.key("precondition", v), Scaled, 1 / (0.5 + SHIFT)) for v in bands]
        self.data = Data(hessians, images, images, steps)
        self.solver.start(graph, images, None)
        engine.run(graph, [*self.solver.state(0), *images, *hessians, *steps])

    def advance(self, engine: Engine) -> None:
        """Run some iterations."""
        before, after = self.solver.state(self.done), self.solver.state(self.done + ITERATIONS)
        graph: Graph = {}
        self.solver.iterations(graph, self.data, self.done, self.done + ITERATIONS)
        self.ntask = len(graph) / ITERATIONS
        engine.run(graph, after)
        engine.drop(key for key in before if key not in after)
        self.done += ITERATIONS

    def image(self, engine: Engine) -> Real:
        """Return the image of a band."""
        found: Real = engine.fetch(self.solver.primal(self.done)[:1])[0]
        return found


def layouts(npix: int, nband: int, nworker: int) -> Iterator[Layout]:
    """All that make sense: a block of all bands needs one worker to be any good."""
    for basis_chunk in (1, len(BASES)):
        for band_chunk in (1, nband) if nworker == 1 else (1,):
            yield Layout(npix, nband, basis_chunk, band_chunk, nworker)


@contextmanager
def threads(nthread: int) -> Iterator[Opened]:
    """Open an engine on threads."""
    set_thread_budget(nthread)
    keep_freed_memory()
    engine = ThreadEngine(nthread)
    try:
        yield engine, time.process_time, lambda: 0.0
    finally:
        engine.close()


@contextmanager
def cluster(n: int, nthread: int) -> Iterator[Client]:
    """Start workers in processes of their own; their scheduler lives in this one."""
    with (
        dask.config.set(CONFIG | LOG),
        LocalCluster(n_workers=n, threads_per_worker=nthread, dashboard_address="127.0.0.1:0", memory_limit=0) as started,
        Client(started, set_as_default=False) as client,
    ):
        yield client


@contextmanager
def workers(n: int, nthread: int, nband: int) -> Iterator[Opened]:
    """Open one on workers; the CPU seconds are those of the scheduler and of this process too."""
    with cluster(n, nthread) as client, tempfile.TemporaryDirectory() as parking:
        engine = ClusterEngine(client, nband, parking)
        pids = list(client.run(os.getpid).values())

        def cpu() -> float:
            return time.process_time() + sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in pids)

        def moved() -> float:
            return float(sum(client.run(incoming).values()))

        yield engine, cpu, moved
        engine.close()


def incoming(dask_worker: Any) -> float:
    """Return the bytes that a worker has received from others."""
    return float(sum(transfer["total"] for transfer in dask_worker.transfer_incoming_log))


def compare(title: str, opened: Opened, made: list[Layout], repeat: int) -> list[str]:
    """Time the layouts in turns; returns lines of the table."""
    engine, cpu, moved = opened
    for layout in made:
        layout.start(engine)
        layout.advance(engine)
    times: list[list[tuple[float, float, float]]] = [[] for _ in made]
    for _ in range(repeat):
        for layout, into in zip(made, times, strict=True):
            began = time.perf_counter(), cpu(), moved()
            layout.advance(engine)
            into.append((time.perf_counter() - began[0], cpu() - began[1], moved() - began[2]))
    images = [layout.image(engine) for layout in made]
    lines = []
    for layout, measured, image in zip(made, times, images, strict=True):
        wall, seconds, traffic = (statistics.median(column) / ITERATIONS for column in zip(*measured, strict=True))
        error = float(np.abs(image - images[0]).max() / np.abs(images[0]).max())
        lines.append(
            f"| {title} | {layout.label} | {layout.ntask:.0f} | {1e3 * wall:.0f} | {1e3 * seconds:.0f} "
            f"| {traffic / 2**20:.0f} | {error:.0e} |"
        )
    return lines


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--npix", type=int, default=1728, help="size of the images (default: %(default)s)")
    parser.add_argument("--nband", type=int, default=4, help="bands (default: %(default)s)")
    parser.add_argument("--repeat", type=int, default=5, help="blocks of iterations of each layout (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of all workers together (default: all)")
    a = parser.parse_args(argv)
    lines = [
        "| where | block of the dual | tasks | ms | CPU ms | MiB between workers | difference |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for title, opened, nworker in (
        (f"{a.threads} threads", threads(a.threads), 1),
        (f"1 worker of {a.threads} threads", workers(1, a.threads, a.nband), 1),
        (f"{a.threads} workers of 1 thread", workers(a.threads, 1, a.nband), a.threads),
    ):
        with opened as found:
            lines += compare(title, found, list(layouts(a.npix, a.nband, nworker)), a.repeat)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
