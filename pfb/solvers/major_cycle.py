"""Major cycles: minimise against an approximate Hessian, measure the exact residual, watch the progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import NamedTuple, Protocol

from pfb.errors import PfbError


class Statistics(NamedTuple):
    """Of the MFS residual, in Jy/beam."""

    rms: float
    peak: float


class Minimised(NamedTuple):
    """What one minimisation did."""

    objective: float
    iterations: int
    change: float
    """Norm of the change of the model over that of the model."""


class Steps(Protocol):
    """What a major cycle is made of; the state lives with whoever implements it."""

    def minimise(self, cycle: int, threshold: float, gamma: float) -> Minimised:
        """Update the model from the residual."""
        ...

    def measure(self) -> Statistics:
        """Make the exact residual of the model."""
        ...

    def keep(self) -> None:
        """Remember model and residual as the best so far."""
        ...

    def revert(self) -> None:
        """Go back to the best model and its residual."""
        ...


@dataclass(frozen=True, kw_only=True)
class Options:
    """When to stop, and how large steps are.

    Parameters
    ----------
    maxit : int
        Cycles at most.
    tol : float
        Stop when a cycle changes the model by less than this fraction.
    rmsfactor : float
        Threshold over the rms of the MFS residual.
    init_factor : float
        Further factor of the first threshold: its residual is mostly sidelobes.
    gamma : float
        Step of the forward-backward iteration.
    slack : float
        Rms and peak that exceed their best by no more than this fraction have not risen.
    """

    maxit: int
    tol: float
    rmsfactor: float
    init_factor: float = 0.5
    gamma: float = 1.0
    slack: float = 0.01


class Cycle(NamedTuple):
    """One line of the history."""

    cycle: int
    peak: float
    rms: float
    threshold: float
    objective: float
    inner: int
    change: float
    seconds: float


class Outcome(NamedTuple):
    """How the iteration ended: ``converged``, ``maxit`` or ``diverged``."""

    reason: str
    history: list[Cycle]


def run(steps: Steps, start: Statistics, options: Options, report: Callable[[Cycle], None]) -> Outcome:
    """Run major cycles until the model stands still, the limit is reached, or the residual grows.

    The preconditioner is a convolution with a truncated PSF; where it is too small for the step
    the residual grows. After a cycle in which rms and peak both rise, the best model is taken up
    again with half the step; if they rise again the run stops there.

    Parameters
    ----------
    steps : Steps
        The work.
    start : Statistics
        Of the residual that the first cycle starts from.
    options : Options
        Limits.
    report
        Is told of every cycle when it is done.

    Raises
    ------
    PfbError
        If the residual is not finite.
    """
    history: list[Cycle] = []
    best = last = start
    gamma, rises = options.gamma, 0
    steps.keep()
    for cycle in range(options.maxit):
        began = monotonic()
        threshold = options.rmsfactor * last.rms * (options.init_factor if cycle == 0 else 1)
        done = steps.minimise(cycle, threshold, gamma)
        last = steps.measure()
        if not (last.rms < float("inf") and done.change < float("inf")):
            raise PfbError(
                f"the residual of major cycle {cycle} has an rms of {last.rms} after a change of {done.change:.3g}: "
                "lower --gamma or raise --psf-oversize"
            )
        history.append(
            Cycle(cycle, last.peak, last.rms, threshold, done.objective, done.iterations, done.change, monotonic() - began)
        )
        report(history[-1])
        if last.rms > best.rms * (1 + options.slack) and last.peak > best.peak * (1 + options.slack):
            rises += 1
            steps.revert()
            last = best
            if rises == 2:
                return Outcome("diverged", history)
            gamma /= 2
            continue
        rises = 0
        if last.rms <= best.rms:
            best = last
            steps.keep()
        if done.change < options.tol:
            return Outcome("converged", history)
    return Outcome("maxit", history)
