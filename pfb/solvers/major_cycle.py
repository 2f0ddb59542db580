"""Major cycles: minimise with an approximate Hessian, measure the exact residual, lower the threshold."""

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
    noise: float = 0.0
    """Rms that it would have if the visibilities it is made of were incoherent; 0 if that is not known."""


class Minimised(NamedTuple):
    """What one minimisation did."""

    objective: float
    iterations: int
    change: float
    """Norm of the change of the model over that of the model."""


class Steps(Protocol):
    """What a major cycle is made of; the state lives with whoever implements it."""

    def minimise(self, cycle: int, threshold: float) -> Minimised:
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
    """When to stop, and how the threshold falls.

    Parameters
    ----------
    maxit : int
        Cycles at most.
    tol : float
        Stop when a cycle changes the model by less than this fraction, and the threshold is where it shall be.
    rmsfactor : float
        Threshold over the rms that the MFS residual shall come to.
    overfit : float
        That rms over the noise of the residual; where the noise is not known it is the rms of the residual.
    peakfactor : float
        Threshold over the peak of the MFS residual, at least: bright sources come first, or what
        their sidelobes hide is fitted with them.
    fall : float
        The threshold falls to this fraction of the one before, at most.
    slack : float
        Rms and peak that exceed those before by no more than this fraction have not risen.
    """

    maxit: int
    tol: float
    rmsfactor: float
    overfit: float = 1.25
    peakfactor: float = 0.02
    fall: float = 0.6
    slack: float = 0.05


class Cycle(NamedTuple):
    """One line of the history."""

    cycle: int
    peak: float
    rms: float
    noise: float
    threshold: float
    objective: float
    inner: int
    change: float
    seconds: float


class Outcome(NamedTuple):
    """How the iteration ended: ``converged``, ``noise``, ``maxit`` or ``diverged``."""

    reason: str
    history: list[Cycle]


def run(steps: Steps, start: Statistics, options: Options, report: Callable[[Cycle], None]) -> Outcome:
    """Run major cycles until the model stands still, nothing but noise is left, the limit is reached, or the residual grows.

    The threshold follows the noise of the residual, reached from above; once it is there, an rms below that noise ends the
    run. After a second cycle in a row in which rms and peak of the residual have risen above those before and above those at
    the start the run stops. Then, and if the last cycle was such a one, the best model is taken up again.

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
    rises, threshold = 0, 0.0
    reason = "maxit"
    steps.keep()
    for cycle in range(options.maxit):
        began = monotonic()
        before, previous = last, threshold
        level = options.overfit * last.noise if last.noise else last.rms
        wanted = options.rmsfactor * level
        threshold = max(wanted, options.peakfactor * last.peak, options.fall * previous)
        done = steps.minimise(cycle, threshold)
        last = steps.measure()
        if not (last.rms < float("inf") and done.change < float("inf")):
            raise PfbError(
                f"the residual of major cycle {cycle} has an rms of {last.rms} after a change of {done.change:.3g}: lower --gamma"
            )
        history.append(
            Cycle(
                cycle, last.peak, last.rms, last.noise, threshold,
                done.objective, done.iterations, done.change, monotonic() - began,
            )
        )  # fmt: skip
        report(history[-1])
        if last.rms <= best.rms:
            best = last
            steps.keep()
        # On the way to its optimum the residual may rise, but not above what it was at the start.
        worse = all(
            new > max(old * (1 + options.slack), first) for new, old, first in zip(last[:2], before[:2], start[:2], strict=True)
        )
        rises = rises + 1 if worse else 0
        if rises == 2:
            reason = "diverged"
            break
        if threshold <= wanted and not rises:
            if done.change < options.tol:
                reason = "converged"
                break
            # Where data are few compared to pixels a model that goes on fits their noise.
            if last.rms <= last.noise:
                reason = "noise"
                break
    if rises:
        steps.revert()
    return Outcome(reason, history)
