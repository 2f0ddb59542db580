"""Memory, tasks, traffic and time of the algorithms that have no prior, for `pfb.pipeline.budget` and `pfb.pipeline.forecast`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pfb.config import Clean
from pfb.pipeline.planning import Plan, precision_of
from pfb.pipeline.scales import widths_of

ROUNDS = {"hogbom": 1, "clark": 4, "multiscale": 10}
"""Of a major cycle: estimates, since the sky decides."""

SCALES = 7
"""Automatic scales of an image of common size: their number follows from the beam, which is not known yet."""

CONVOLVING = 26.0
"""CPU nanoseconds per pixel of a convolution, of a kernel or a PSF, in single precision."""

SEARCH = 3.0
"""CPU nanoseconds per pixel of a look for a peak, and of a PSF that is taken off."""

COMPONENTS = 500
"""Of a cycle of `hogbom`."""


class Work(NamedTuple):
    """What a round takes."""

    tasks: int
    moved: int
    """Bytes between workers."""
    cpu: float
    """CPU seconds."""
    number: int
    """Rounds of a cycle."""


def memory(plan: Plan, config: Clean, nworker: int, busy: int, hessian: Sequence[int]) -> dict[str, int]:
    """Return the bytes that live at once on the worker that has most, beside the samples.

    Parameters
    ----------
    plan, config, nworker
        As of `pfb.pipeline.budget.budget`.
    busy : int
        Bytes that its threads need while they grid a residual.
    hessian : sequence of int
        Bytes of the Hessian of every band of that worker.
    """
    nband, own = len(plan.planes), -(-len(plan.planes) // nworker)
    pixels, padded = plan.geometry.nx * plan.geometry.ny, plan.psf_shape[0] * plan.psf_shape[1]
    size = np.dtype(precision_of(config)).itemsize
    # Present and best model, residuals before and after.
    state = own * pixels * 2 * (size + 8)
    if config.algorithm == "hogbom":
        # PSFs and images of all bands, which a chunk of components copies; sum and preference.
        psfs = 8 * nband * padded
        work = 2 * 8 * nband * pixels * 2 + 3 * 8 * pixels
    elif config.algorithm == "nnls":
        psfs = sum(hessian)
        work = own * pixels * size * 7
    else:
        psfs = own * padded * size // 2
        # Residual, model, what is added, their successors; on one worker sum, noise, preference and a scale with its transform.
        work = own * pixels * size * 6 + pixels * (8 * size + 16)
    return {"residual": state + psfs + busy, "minor cycle": state + psfs + work}


def work(plan: Plan, config: Clean, nworker: int, product: float) -> Work:
    """Return what a round takes; `product` are the nanoseconds of a product with the Hessians of all bands."""
    nband, pixels = len(plan.planes), plan.geometry.nx * plan.geometry.ny
    size = np.dtype(precision_of(config)).itemsize
    joint = 1 + (config.positivity == "joint")
    if config.algorithm == "nnls":
        return Work((1 + joint) * nband, 0, 1e-9 * (product + 4 * size * pixels * nband), config.nnls_iterations)
    number = ROUNDS[config.algorithm]
    if config.algorithm == "hogbom":
        moved = (nworker > 1) * nband * pixels * size
        return Work(nband + 4, moved, 1e-9 * COMPONENTS * SEARCH * pixels * (1 + nband), number)
    nscale = len(widths_of(config, plan.geometry, None)) if config.scales or config.algorithm == "clark" else SCALES
    convolutions = nscale + (3 if nscale > 1 else 1) * nband
    cpu = pixels * (CONVOLVING * size / 4 * convolutions + SEARCH * nscale)
    return Work(5 * nband + 5, (nworker - 1) * pixels * size, 1e-9 * cpu, number)
