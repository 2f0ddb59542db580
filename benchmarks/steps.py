"""Count the primal-dual iterations that step sizes need to come near an optimum: ours, plain ones, and pfb-imaging's.

One problem for all: four bands of points and Gaussians, seen by 32 dishes for half an hour, convolved with their PSFs. Prints, as
Markdown, a line per step: iterations until the objective has fallen to the optimum but for so small a part of all that it falls.
Writes the same as JSON.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pfb.io.simulated_array import antenna_uvw, dishes, mjd_seconds
from pfb.operators.hessian import PsfHessian
from pfb.operators.measurement import Gridder
from pfb.operators.preconditioner import Preconditioner
from pfb.operators.regularisers import JointPrior
from pfb.operators.wavelets import Dictionary
from pfb.pipeline.sara import SHIFT
from pfb.solvers.lanczos import largest_eigenvalue, start_vector
from pfb.solvers.primal_dual import Minimisation, solve
from pfb.types import LIGHTSPEED, Real, Visibilities

BASES = ("self", "db1", "db2", "db3")
FREQ = (0.96e9, 1.18e9, 1.39e9, 1.61e9)
PARTS = (1e-2, 1e-3, 1e-4)
START = "2024-06-10T06:00:00"


class Problem(NamedTuple):
    """A sum over bands of x^T H x / 2 - r^T x, and lambda times a prior; the first image is zero."""

    hessians: list[PsfHessian]
    slopes: list[Real]
    dictionary: Dictionary
    prior: JointPrior
    radius: float

    def objective(self, images: Sequence[Real]) -> float:
        """Return its value."""
        data = sum(np.vdot(x, h.dot(x) / 2 - r) for x, h, r in zip(images, self.hessians, self.slopes, strict=True))
        coefficients = np.stack([self.dictionary.dot(x) for x in images], axis=1)
        return float(data) + self.radius * self.prior.value(coefficients)


def problem(npix: int) -> Problem:
    """Make the problem on images of npix pixels that resolve the highest band twice over."""
    dec = np.deg2rad(-45.0)
    times = mjd_seconds(START) + 60.0 * np.arange(30)
    antennas = antenna_uvw(dishes(32)[1], times, 1.1, dec)
    first, second = np.triu_indices(32, 1)
    uvw = (antennas[:, first] - antennas[:, second]).reshape(-1, 3)
    uvw = np.ascontiguousarray(uvw[np.hypot(uvw[:, 0], uvw[:, 1]) < 3000])
    cell = LIGHTSPEED / FREQ[-1] / np.hypot(uvw[:, 0], uvw[:, 1]).max() / 4
    gridder = Gridder((npix, npix), cell, wgridding=False)
    bands = []
    for nu in FREQ:
        weight = np.ones((len(uvw), 1))
        bands.append([Visibilities(uvw, np.array([nu]), weight * 0j, weight)])
    total = sum(float(part.weight.sum()) for band in bands for part in band)
    hessians = [PsfHessian(gridder.psf(band, (2 * npix, 2 * npix)), (npix, npix), total) for band in bands]
    rng = np.random.default_rng(5)
    sky, noise = shapes(npix, rng), 1e-3
    slopes = []
    for hessian, nu in zip(hessians, FREQ, strict=True):
        slopes.append(hessian.dot(sky * (nu / FREQ[0]) ** -0.7) + noise / 2 * rng.standard_normal(sky.shape))
    dictionary = Dictionary((npix, npix), BASES, 3)
    return Problem(hessians, slopes, dictionary, JointPrior("l21", len(FREQ)), 3 * noise)


def shapes(npix: int, rng: np.random.Generator) -> Real:
    """Return an image of points and Gaussians, in the middle half."""
    x, y = np.mgrid[:npix, :npix] / npix - 0.5
    sky = np.zeros((npix, npix))
    for _ in range(20):
        sky[tuple(rng.integers(npix // 4, 3 * npix // 4, 2))] += 0.05 / rng.uniform(0.05, 1)
    for width in (0.01, 0.03, 0.06):
        a, b = rng.uniform(-0.25, 0.25, 2)
        blob = np.exp(-((x - a) ** 2 + (y - b) ** 2) / (2 * width**2))
        sky += 3 * blob / blob.sum()
    return sky


def run(p: Problem, shift: float, precondition: Callable[[int, Real], Real], maxit: int) -> list[float]:
    """Return the objective before every iteration."""
    values, images = [], []

    def gradient(band: int, x: Real) -> Real:
        images.append(x)
        if len(images) == len(p.hessians):
            values.append(p.objective(images))
            images.clear()
        return p.hessians[band].dot(x) - p.slopes[band]

    size = p.dictionary.codomain
    zero = [np.zeros_like(r) for r in p.slopes]
    solve(
        Minimisation(gradient, precondition, p.dictionary, p.prior), zero, np.zeros((size[0], len(zero), size[1])),
        radius=p.radius, shift=shift, tol=0.0, maxit=maxit,
    )  # fmt: skip
    return values


def steps(p: Problem) -> dict[str, tuple[float, Callable[[int, Real], Real]]]:
    """Return the shift and the primal step of every rule."""
    start, nbasis = start_vector(p.slopes[0].shape), len(BASES)
    norm = max(largest_eigenvalue(h.dot, lambda x: x, start) for h in p.hessians)
    plain, theirs = 0.98 / norm, 0.98 / (norm / 2 * (1 + nbasis))
    shift = SHIFT / len(p.hessians)
    ours = []
    for h in p.hessians:
        whole = Preconditioner(h, 1.0, shift)
        scale = 1.03 * largest_eigenvalue(whole.dot, lambda x, h=h: h.dot(x) / 2 + shift * x, start)
        ours.append(Preconditioner(h, 1.0, shift, scale))
    return {
        "pfb-imaging's, 0.98 / (L / 2 + sigma nbasis^2)": (norm / 2, lambda _, x: theirs * x),
        "plain, 0.98 / (L / 2 + sigma nbasis)": (norm / 2, lambda _, x: plain * x),
        "ours, preconditioned": (shift, lambda band, x: ours[band].dot(x)),
    }


def count(values: Sequence[float], optimum: float) -> list[int | None]:
    """Return after how many iterations the objective is near enough, for each of `PARTS`."""
    gap = np.asarray(values) - optimum
    # From there on for good: the objective does not fall in every iteration.
    far = [np.flatnonzero(gap > part * gap[0]) for part in PARTS]
    return [int(late[-1]) + 1 if late[-1] + 1 < gap.size else None for late in far]


def main(argv: Sequence[str] | None = None) -> None:
    """Count, print and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--npix", type=int, default=128, help="size of the images (default: %(default)s)")
    parser.add_argument("--maxit", type=int, default=4000, help="iterations at most (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=Path("pfb-steps.json"), help="file of the numbers")
    arguments = parser.parse_args(argv)
    p = problem(arguments.npix)
    values = {name: run(p, *step, arguments.maxit) for name, step in steps(p).items()}
    optimum = min(min(v) for v in values.values())
    counts = {name: count(v, optimum) for name, v in values.items()}
    print("| step | " + " | ".join(f"to {part:g}" for part in PARTS) + " |\n|---|" + "---:|" * len(PARTS))
    for name, found in counts.items():
        print(f"| {name} | " + " | ".join("-" if n is None else str(n) for n in found) + " |")
    arguments.output.write_text(json.dumps({"parts": PARTS, "iterations": counts, "optimum": optimum}, indent=1))


if __name__ == "__main__":
    main()
