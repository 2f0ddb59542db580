"""Major cycles: improve the model with an approximate Hessian, measure the exact residual, lower the threshold."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import NamedTuple, Protocol

from pfb.errors import PfbError


class Statistics(NamedTuple):
    """Of the MFS residual, in Jy/beam; of several Stokes products as `joined` has it."""

    rms: float
    peak: float
    noise: float = 0.0
    """Rms that it would have if the visibilities it is made of were incoherent; 0 if that is not known."""
    parts: tuple[Statistics, ...] = ()
    """Of each product, if there are several."""


def joined(parts: Sequence[Statistics], scales: Sequence[float]) -> Statistics:
    """Return what the residuals of several Stokes products come to together.

    Rms and noise are the roots of the sums of their squares, which is what noise contributes to a norm over the products; the
    peak is the largest one.

    Parameters
    ----------
    parts : sequence of Statistics
        Of each product.
    scales : sequence of float
        What each is multiplied with, so that all are in the Jy/beam of the least noisy product.
    """
    if len(parts) == 1:
        return parts[0]
    pairs = list(zip(scales, parts, strict=True))
    rms, noise = math.hypot(*(scale * own.rms for scale, own in pairs)), math.hypot(*(scale * own.noise for scale, own in pairs))
    return Statistics(rms, max(scale * own.peak for scale, own in pairs), noise, tuple(parts))


class Minimised(NamedTuple):
    """What one minimisation did."""

    objective: float
    iterations: int
    change: float
    """Norm of the change of the model over that of the model."""
    threshold: float | None = None
    """What it went down to, in Jy/beam, where that is for it to decide; None if it was the one it was asked for."""
    deepest: bool = False
    """It went down to where the noise begins."""


@dataclass(frozen=True)
class Progress:
    """What is known between two cycles: with the images it is all that the next ones depend on."""

    start: Statistics
    """Of the residual that the first cycle starts from."""
    last: Statistics
    best: Statistics
    history: tuple[Cycle, ...] = ()
    threshold: float = 0.0
    """Of the last cycle."""
    rises: int = 0
    """Cycles in a row, up to the last, in which rms and peak have risen."""
    reason: str = ""
    """How the iteration ended, see `Outcome`; empty if it has not."""
    reweightings: int = 0
    """How often the weights of the data have been renewed."""

    def renewed(self, fresh: Statistics) -> Progress:
        """Return what is known once the weights are others, and with them the residual: nothing before compares with it."""
        count = self.reweightings + 1
        return replace(self, start=fresh, last=fresh, best=fresh, rises=0, reason="", reweightings=count)

    @classmethod
    def begin(cls, start: Statistics) -> Progress:
        """Return what is known before the first cycle."""
        return cls(start, start, start)


class Steps(Protocol):
    """What a major cycle is made of; the state lives with whoever implements it."""

    def minimise(self, cycle: int, threshold: float) -> Minimised:
        """Update the model from the residual."""
        ...

    def measure(self) -> Statistics:
        """Make the exact residual of the model."""
        ...

    def may_reweigh(self, progress: Progress) -> bool:
        """Whether the weights of the data shall be renewed before the next cycle, or instead of ending."""
        ...

    def reweigh(self, progress: Progress) -> Statistics:
        """Renew the weights of the data and make the exact residual of the model with them."""
        ...

    def keep(self) -> None:
        """Remember model and residual as the best so far."""
        ...

    def revert(self) -> None:
        """Go back to the best model and its residual."""
        ...

    def save(self, progress: Progress) -> None:
        """Take note of where the run is; it may be asked to go on from there."""
        ...


class Rule(Protocol):
    """How deep every cycle goes, and when the iteration is over."""

    @property
    def maxit(self) -> int:
        """Cycles at most."""
        ...

    def threshold(self, progress: Progress) -> float:
        """Return what the next cycle is asked for, in Jy/beam."""
        ...

    def reason(self, progress: Progress, done: Minimised, last: Statistics, threshold: float) -> str:
        """Return why a cycle in which the residual has not grown is the last one; an empty word if it is not.

        Parameters
        ----------
        progress : Progress
            Before the cycle.
        done : Minimised
            What it did.
        last : Statistics
            Of the residual that it has left.
        threshold : float
            What it was asked for.
        """
        ...


SLACK = 0.05
"""Rms and peak that exceed those before by no more than this fraction have not risen."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """When to stop, and how the threshold falls, with a prior whose weight is that threshold.

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
    """

    maxit: int
    tol: float
    rmsfactor: float
    overfit: float = 1.25
    peakfactor: float = 0.02
    fall: float = 0.6

    def threshold(self, progress: Progress) -> float:
        """Return the threshold of the next cycle: where it shall come to, from above."""
        before = progress.last
        return max(self.wanted(before), self.peakfactor * before.peak, self.fall * progress.threshold)

    def wanted(self, before: Statistics) -> float:
        """Return where the threshold shall come to, by a residual."""
        return self.rmsfactor * (self.overfit * before.noise if before.noise else before.rms)

    def reason(self, progress: Progress, done: Minimised, last: Statistics, threshold: float) -> str:
        """Say why the cycle is the last one, see `Rule`."""
        if threshold > self.wanted(progress.last):
            return ""
        if done.change < self.tol:
            return "converged"
        # Where data are few compared to pixels a model that goes on fits their noise.
        return "noise" if last.rms <= last.noise else ""


SETTLED = 0.05
"""A level that falls by no more than this fraction stands still: the noise of the residual falls a little with each cycle."""


@dataclass(frozen=True, kw_only=True)
class Depth:
    """When CLEAN stops: when nothing stands out of the noise any more, whose level is for it to find.

    Parameters
    ----------
    maxit : int
        Cycles at most.
    iterations : int
        Minor iterations of all cycles at most.
    """

    maxit: int
    iterations: int

    def threshold(self, progress: Progress) -> float:
        """Return zero: the minor cycle knows, by the noise."""
        return 0.0

    def reason(self, progress: Progress, done: Minimised, last: Statistics, threshold: float) -> str:
        """Say why the cycle is the last one, see `Rule`."""
        settled = done.threshold is not None and done.threshold >= (1 - SETTLED) * progress.threshold > 0
        if not done.iterations or (done.deepest and settled):
            return "threshold"
        return "iterations" if iterations_of(progress) + done.iterations >= self.iterations else ""


@dataclass(frozen=True, kw_only=True)
class Stillness:
    """When a minimisation without a prior stops: when the model stands still.

    An image whose rms is that of noise says little here, since such a model fits noise from the beginning.

    Parameters
    ----------
    maxit : int
        Cycles at most.
    tol : float
        Stop when a cycle changes the model by less than this fraction.
    """

    maxit: int
    tol: float

    def threshold(self, progress: Progress) -> float:
        """Return zero: there is none."""
        return 0.0

    def reason(self, progress: Progress, done: Minimised, last: Statistics, threshold: float) -> str:
        """Say why the cycle is the last one, see `Rule`."""
        return "converged" if done.change < self.tol else ""


def iterations_of(progress: Progress) -> int:
    """Return the inner iterations of all cycles that are done."""
    return sum(cycle.inner for cycle in progress.history)


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
    parts: tuple[Statistics, ...] = ()
    """Of the residual of each Stokes product, if there are several."""


class Outcome(NamedTuple):
    """How the iteration ended: ``converged``, ``noise``, ``threshold``, ``iterations``, ``maxit`` or ``diverged``."""

    reason: str
    history: list[Cycle]


def run(steps: Steps, progress: Progress, rule: Rule, report: Callable[[Cycle], None]) -> Outcome:
    """Run major cycles until the rule says that it is enough, the limit is reached, or the residual grows.

    After a second cycle in a row in which rms and peak of the residual have risen above those before and above those at
    the start the run stops. Then, and if the last cycle was such a one, the best model is taken up again.

    Between two cycles the weights of the data may be renewed. What comes after is a new problem: no residual of before
    is compared with, and a run that would have ended goes on.

    Parameters
    ----------
    steps : Steps
        The work.
    progress : Progress
        Where to go on from.
    rule : Rule
        Thresholds and limits.
    report
        Is told of every cycle when it is done.

    Raises
    ------
    PfbError
        If the residual is not finite.
    """
    if not progress.history:
        steps.keep()
    steps.save(progress)
    while not progress.reason and len(progress.history) < rule.maxit:
        progress = advance(steps, progress, rule)
        report(progress.history[-1])
        if progress.reason != "diverged" and len(progress.history) < rule.maxit and steps.may_reweigh(progress):
            if progress.rises:
                steps.revert()
            progress = progress.renewed(steps.reweigh(progress))
            steps.keep()
        steps.save(progress)
    if progress.rises:
        steps.revert()
    return Outcome(progress.reason or "maxit", list(progress.history))


def advance(steps: Steps, progress: Progress, rule: Rule) -> Progress:
    """Do one major cycle; raises as `run` does."""
    began, cycle, before = monotonic(), len(progress.history), progress.last
    threshold = rule.threshold(progress)
    done = steps.minimise(cycle, threshold)
    last = steps.measure()
    if not (last.rms < float("inf") and done.change < float("inf")):
        raise PfbError(
            f"the residual of major cycle {cycle} has an rms of {last.rms} after a change of {done.change:.3g}: lower --gamma"
        )
    better = last.rms <= progress.best.rms
    if better:
        steps.keep()
    # On the way to its optimum the residual may rise, but not above what it was at the start.
    worse = all(
        new > max(old * (1 + SLACK), first)
        for new, old, first in zip(last[:2], before[:2], progress.start[:2], strict=True)
    )
    rises = progress.rises + 1 if worse else 0
    reason = ""
    if rises == 2:
        reason = "diverged"
    elif not rises:
        reason = rule.reason(progress, done, last, threshold)
    reached = threshold if done.threshold is None else done.threshold
    seconds = monotonic() - began
    line = Cycle(
        cycle, last.peak, last.rms, last.noise, reached, done.objective, done.iterations, done.change, seconds, last.parts
    )
    best = last if better else progress.best
    return Progress(progress.start, last, best, (*progress.history, line), reached, rises, reason, progress.reweightings)
