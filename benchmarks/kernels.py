"""Compare the kernels of the inner loop with those of other libraries: the same work in the same run, one thread each.

Prints, as Markdown, the median CPU milliseconds of both, their ratio beside the one aimed at, and by how much the
results differ; writes the same as JSON. Peers that are not installed are left out, and the table says why.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import ducc0
import numpy as np
import pywt

from pfb.kernels.convolution import convolve, transfer
from pfb.kernels.memory import keep_freed_memory
from pfb.kernels.threads import set_thread_budget
from pfb.operators.constraints import Constraint
from pfb.operators.regularisers import JointPrior
from pfb.operators.wavelets import Dictionary
from pfb.solvers import primal_dual
from pfb.types import Real

BASES = ("self", "db1", "db2", "db3", "db4", "db5", "db6", "db7", "db8")
NLEVELS = 3
RADIUS, SIGMA, THETA, TAU = 0.5, 0.7, 0.3, 0.05
DTYPES = {"f4": np.float32, "f8": np.float64}

COMPILE = """
import time
started = time.perf_counter()
import numpy as np
from pfb.operators.wavelets import Dictionary
imported = time.perf_counter()
for dtype in (np.float32, np.float64):
    psi = Dictionary((64, 64), ("self", "db1", "db2", "db3"), 2, dtype)
    psi.hdot(psi.dot(np.zeros((64, 64), dtype)))
print(time.perf_counter() - imported)
"""


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    work: str
    peer: str
    ours: float
    """Median CPU milliseconds."""
    theirs: float
    aim: float
    """Ratio to reach."""
    error: float
    """Largest difference of the results over the largest value; of a pair of dot and hdot that of the former."""

    @property
    def ratio(self) -> float:
        """How many times faster we are."""
        return self.theirs / self.ours


def compare(work: str, peer: str, ours: Callable[[], Any], theirs: Callable[[], Any], aim: float, repeat: int) -> Row:
    """Time two functions in turns; what they return is compared."""
    found, expected = ours(), theirs()
    error = float(np.abs(found - expected).max() / np.abs(expected).max())
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeat):
        for function, into in zip((ours, theirs), times, strict=True):
            began = time.thread_time()
            function()
            into.append(1e3 * (time.thread_time() - began))
    return Row(work, peer, statistics.median(times[0]), statistics.median(times[1]), aim, error)


def pywt_dot(image: Real, bases: tuple[str, ...]) -> list[Any]:
    """Decompose an image with PyWavelets."""
    return [image.copy() if name == "self" else pywt.wavedec2(image, name, "zero", NLEVELS) for name in bases]


def pywt_hdot(parts: list[Any], bases: tuple[str, ...], shape: tuple[int, int]) -> Real:
    """Add up the images of all bases with PyWavelets."""
    out = np.zeros(shape, parts[0].dtype)
    for name, part in zip(bases, parts, strict=True):
        out += part if name == "self" else pywt.waverec2(part, name, "zero")[: shape[0], : shape[1]]
    return out


def flat(part: Any) -> Real:
    """Lay PyWavelets' coefficients out as `pfb.kernels.wavelets` does."""
    if isinstance(part, np.ndarray):
        return part.ravel()
    return np.concatenate([band.ravel() for details in reversed(part[1:]) for band in details] + [part[0].ravel()])


def wavelets(n: int, repeat: int) -> list[Row]:
    """Compare psi and its adjoint with PyWavelets."""
    rows = []
    for name, aims in (("f8", (15, 9)), ("f4", (20, 12))):
        dtype = DTYPES[name]
        image = np.random.default_rng(1).standard_normal((n, n)).astype(dtype)
        psi = Dictionary((n, n), BASES, NLEVELS, dtype)
        ours, theirs = psi.dot(image), pywt_dot(image, BASES)
        expected = np.zeros_like(ours)
        for row, part in zip(expected, theirs, strict=True):
            row[: flat(part).size] = flat(part)
        error = float(np.abs(ours - expected).max() / np.abs(expected).max())
        work = f"{len(BASES)} bases, {NLEVELS} levels, {n}^2, {name}"
        dot = compare(
            f"psi dot, {work}", "PyWavelets",
            lambda p=psi, x=image: p.dot(x)[0, : x.size], lambda x=image: pywt_dot(x, BASES)[0].ravel(), aims[0], repeat,
        )  # fmt: skip
        hdot = compare(
            f"psi hdot, {work}", "PyWavelets", lambda p=psi, a=ours: p.hdot(a), lambda a=theirs: pywt_hdot(a, BASES, (n, n)),
            aims[1], repeat,
        )  # fmt: skip
        rows += [Row(**{**asdict(dot), "error": error}), hdot]
    return rows


def convolutions(n: int, repeat: int) -> list[Row]:
    """Compare the convolution with a PSF with scipy's transforms of the padded image, and with ducc0's without pruning."""
    rng = np.random.default_rng(2)
    rows = []
    for name, aims in (("f8", (2.5, 1.25)), ("f4", (2.5, 1.25))):
        dtype = DTYPES[name]
        image = rng.standard_normal((n, n)).astype(dtype)
        spectrum = np.abs(transfer(rng.standard_normal((2 * n, 2 * n)).astype(dtype)))
        padded = (2 * n, 2 * n)

        def unpruned(x: Real = image, t: Real = spectrum, size: tuple[int, int] = padded) -> Real:
            wide = np.zeros(size, x.dtype)
            wide[: x.shape[0], : x.shape[1]] = x
            product = ducc0.fft.r2c(wide, axes=(0, 1), nthreads=1)
            product *= t
            whole = ducc0.fft.c2r(product, axes=(0, 1), lastsize=size[1], forward=False, inorm=2, nthreads=1, out=wide)
            return np.ascontiguousarray(whole[: x.shape[0], : x.shape[1]])

        def scipys(x: Real = image, t: Real = spectrum, size: tuple[int, int] = padded) -> Real:
            from scipy import fft

            product = fft.rfft2(x, size)
            product *= t
            return np.ascontiguousarray(fft.irfft2(product, size)[: x.shape[0], : x.shape[1]])

        def ours(x: Real = image, t: Real = spectrum, size: tuple[int, int] = padded) -> Real:
            return convolve(x, t, size)

        work = f"PSF convolution, {n}^2, {name}"
        if importlib.util.find_spec("scipy"):
            rows.append(compare(work, "scipy.fft, padded", ours, scipys, aims[0], repeat))
        rows.append(compare(work, "ducc0 without pruning", ours, unpruned, aims[1], repeat))
    return rows


class Peer:
    """pfb-imaging, in a process and an environment of its own; a context that ends it."""

    def __init__(self, python: str, npix: int, bases: tuple[str, ...], nband: int) -> None:
        command = [python, str(Path(__file__).with_name("peer.py")), str(npix), ",".join(bases), str(nband)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            self._answer("ready")
        except SystemExit:
            self._process.communicate()
            raise

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def _answer(self, expected: str = "") -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line or (expected and line != expected):
            raise SystemExit("pfb-imaging does not run in the environment that --peer names: see what it printed above")
        return line

    def time(self, name: str) -> float:
        """Call a function of it; returns CPU milliseconds."""
        assert self._process.stdin is not None
        self._process.stdin.write(name + "\n")
        self._process.stdin.flush()
        return 1e3 * float(self._answer())


def iteration(npix: int, bases: tuple[str, ...], nband: int, dtype: Any) -> Callable[[], Any]:
    """Return a function that does one primal-dual iteration without a gradient, with positivity."""
    psi = Dictionary((npix, npix), bases, NLEVELS, dtype)
    prior, constraint = JointPrior("l21", nband), Constraint("clip")
    x = list(np.random.default_rng(0).standard_normal((nband, npix, npix)).astype(dtype))
    dual = np.zeros((len(bases), nband, psi.codomain[1]), dtype)
    state: list[Any] = [x, x, dual, [np.zeros_like(image) for image in x]]

    def once() -> None:
        new, old, dual, bounds = state
        extrapolated = [primal_dual.extrapolate(a, b) for a, b in zip(new, old, strict=True)]
        dual = primal_dual.renew(dual, extrapolated, psi, prior, SIGMA, RADIUS)
        bounds = [constraint.polar(primal_dual.press(u, image, THETA)) for u, image in zip(bounds, extrapolated, strict=True)]
        following = primal_dual.synthesise(dual, psi)
        for image, bound, before in zip(following, bounds, new, strict=True):
            for rows in primal_dual.runs(image):
                image[rows] += bound[rows]
                image[rows] *= -TAU
                image[rows] += before[rows]
            primal_dual.change(image, before)
        state[:] = following, new, dual, bounds

    return once


def against(peer: Peer, name: str, work: str, ours: Callable[[], Any], aim: float, repeat: int) -> Row:
    """Time a function of ours and one of pfb-imaging in turns."""
    ours()
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeat):
        began = time.thread_time()
        ours()
        times[0].append(1e3 * (time.thread_time() - began))
        times[1].append(peer.time(name))
    return Row(work, "pfb-imaging", statistics.median(times[0]), statistics.median(times[1]), aim, float("nan"))


def incumbent(python: str, npix: int, repeat: int) -> list[Row]:
    """Compare psi and an iteration with pfb-imaging's."""
    rows = []
    nband = 2
    for bases in (BASES[:4], BASES):
        psi = Dictionary((npix, npix), bases, NLEVELS)
        images = np.random.default_rng(3).standard_normal((nband, npix, npix))
        coefficients = np.empty((len(bases), nband, psi.codomain[1]))

        def dot(psi: Dictionary = psi, images: Real = images, out: Real = coefficients) -> None:
            for band, image in enumerate(images):
                psi.dot(image, out[:, band])

        def hdot(psi: Dictionary = psi, a: Real = coefficients) -> None:
            primal_dual.synthesise(a, psi)

        work = f"{len(bases)} bases, {nband} bands, {npix}^2, f8"
        with Peer(python, npix, bases, nband) as peer:
            rows.append(against(peer, "dot", f"psi dot, {work}", dot, 5, repeat))
            rows.append(against(peer, "hdot", f"psi hdot, {work}", hdot, 5, repeat))
            if len(bases) == 4:
                for name, aim in (("f8", 5), ("f4", 9)):
                    once = iteration(npix, bases, nband, DTYPES[name])
                    work = f"primal-dual iteration, {len(bases)} bases, {nband} bands, {npix}^2, {name}"
                    rows.append(against(peer, "iteration", work, once, aim, repeat))
    return rows


def first_calls() -> tuple[float, float]:
    """Return the seconds that all filters of the default bases take to be ready: compiled, and from the cache."""
    with tempfile.TemporaryDirectory() as folder:
        env = os.environ | {"NUMBA_CACHE_DIR": folder}
        command = [sys.executable, "-c", COMPILE]
        runs = [subprocess.run(command, env=env, check=True, capture_output=True, text=True) for _ in range(2)]
    return float(runs[0].stdout), float(runs[1].stdout)


def markdown(rows: list[Row]) -> str:
    """Return the table."""
    lines = ["| work | peer | pfb [ms] | peer [ms] | ratio | aim | difference |", "|---|---|---|---|---|---|---|"]
    for r in rows:
        error = "" if np.isnan(r.error) else f"{r.error:.1e}"
        lines.append(f"| {r.work} | {r.peer} | {r.ours:.1f} | {r.theirs:.1f} | {r.ratio:.1f} | {r.aim:g} | {error} |")
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--npix", type=int, default=2048, help="size of the images (default: 2048)")
    parser.add_argument("--repeat", type=int, default=7, help="calls of each function (default: 7)")
    parser.add_argument("--peer", metavar="PYTHON", help="interpreter of an environment that has pfb-imaging")
    parser.add_argument("--output", type=Path, default=Path("pfb-kernels.json"), help="file of the numbers")
    options = parser.parse_args(arguments)
    set_thread_budget(1)
    keep_freed_memory()
    rows = wavelets(options.npix, options.repeat) + convolutions(options.npix, options.repeat)
    if options.peer:
        rows += incumbent(options.peer, options.npix, options.repeat)
    print(markdown(rows))
    if not options.peer:
        print("\npfb-imaging is left out: name the interpreter of an environment that has it with --peer")
    if not importlib.util.find_spec("scipy"):
        print("\nscipy is not installed, so its transforms are left out: pip install scipy")
    cold, warm = first_calls()
    print(f"\nFirst call of the default bases: {cold:.1f} s compiled (aim: 30), {warm:.2f} s from the cache (aim: 1)")
    result = {"rows": [asdict(r) | {"ratio": r.ratio} for r in rows], "first_call": {"cold": cold, "warm": warm}}
    options.output.write_text(json.dumps(result, indent=2))


if __name__ == "__main__":
    main(sys.argv[1:])
