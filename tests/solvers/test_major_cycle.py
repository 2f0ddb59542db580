"""The control of major cycles, with work that follows a script."""

import pytest

from pfb.errors import PfbError
from pfb.solvers.major_cycle import Cycle, Minimised, Options, Progress, Statistics, run

START = Statistics(rms=1.0, peak=10.0)


class Scripted:
    """Steps whose residuals and changes are given; remembers what was asked of it."""

    def __init__(self, residuals, changes=None, reweighed=None):
        self.residuals = [Statistics(*pair) for pair in residuals]
        self.changes = [1.0] * len(residuals) if changes is None else changes
        self.model = self.best = -1  # the number of the cycle that made it
        self.asked, self.log, self.saved = [], [], []
        self.reweighed = dict(reweighed or {})  # the residual with new weights, by the cycles that are done

    def minimise(self, cycle, threshold):
        self.asked.append((cycle, threshold))
        self.log.append("minimise")
        self.model = cycle
        return Minimised(objective=100.0 - cycle, iterations=cycle + 5, change=self.changes[cycle])

    def measure(self):
        self.log.append("measure")
        return self.residuals[self.model]

    def may_reweigh(self, progress):
        return len(progress.history) in self.reweighed

    def reweigh(self, progress):
        self.log.append(f"reweigh {self.model}")
        return Statistics(*self.reweighed[len(progress.history)])

    def keep(self):
        self.log.append("keep")
        self.best = self.model

    def save(self, progress):
        self.saved.append(progress)

    def revert(self):
        self.log.append("revert")
        self.model = self.best

    @property
    def thresholds(self):
        return [threshold for _, threshold in self.asked]


def go(steps, **options):
    """Run with a limit of as many cycles as the script has, with a threshold of twice the rms of the residual and no floor."""
    given = dict(maxit=len(steps.residuals), tol=1e-3, rmsfactor=2.0, peakfactor=0.0, fall=0.0) | options
    return run(steps, Progress.begin(START), Options(**given), lambda cycle: None)


def falling(n):
    return [(0.5**k, 10 * 0.5**k) for k in range(1, n + 1)]


# Endings


def test_it_converges_when_the_model_stands_still():
    steps = Scripted(falling(5), changes=[1.0, 0.1, 9e-4, 1.0, 1.0])
    outcome = go(steps)
    assert outcome.reason == "converged"
    assert [line.cycle for line in outcome.history] == [0, 1, 2]
    assert steps.model == steps.best == 2
    assert "revert" not in steps.log


def test_it_converges_at_once():
    assert len(go(Scripted(falling(3), changes=[0.0, 1.0, 1.0])).history) == 1


def test_it_stops_when_only_noise_is_left():
    """But not before the threshold is where it shall be, and not while the residual rises."""
    steps = Scripted([(0.9, 9.0, 1.0), (0.8, 8.0, 1.0), (0.7, 7.0, 1.0), (0.6, 6.0, 1.0)])
    outcome = go(steps, rmsfactor=0.4, fall=0.9, peakfactor=0.1)  # 1.0, 0.9, 0.81, 0.73 for the 0.5 that it shall be
    assert outcome.reason == "maxit"
    outcome = go(steps, rmsfactor=0.4)
    assert (outcome.reason, len(outcome.history)) == ("noise", 1)
    assert steps.model == steps.best == 0
    steps = Scripted([(1.01, 9.0, 1.0), (1.0, 8.0, 1.0), (0.7, 7.0, 1.0)])
    assert len(go(steps, rmsfactor=0.4).history) == 2
    steps = Scripted([(1.1, 20.0, 1.2), (1.5, 30.0, 2.0)])  # from 1.0 and 10
    assert go(steps, rmsfactor=0.4).reason == "diverged"


def test_it_stops_at_the_limit():
    steps = Scripted(falling(4))
    outcome = go(steps)
    assert outcome.reason == "maxit"
    assert len(outcome.history) == 4
    assert steps.model == 3


def test_no_cycle_at_all():
    steps = Scripted([])
    assert go(steps) == ("maxit", [])
    assert steps.log == ["keep"]


def test_two_rises_in_a_row_are_divergence_and_the_best_model_stays():
    steps = Scripted([(0.5, 5.0), (2.0, 20.0), (3.0, 30.0), (0.1, 1.0)])
    outcome = go(steps, rmsfactor=0.0)
    assert outcome.reason == "diverged"
    assert len(outcome.history) == 3
    assert steps.model == steps.best == 0
    assert steps.log[-1] == "revert"


def test_the_first_residual_may_be_the_best():
    steps = Scripted([(2.0, 20.0), (3.0, 30.0)])
    assert go(steps, rmsfactor=0.0).reason == "diverged"
    assert steps.model == -1


def test_one_rise_is_forgiven():
    steps = Scripted([(0.5, 5.0), (2.0, 20.0), (0.4, 4.0), (0.3, 3.0)])
    outcome = go(steps, rmsfactor=0.0)
    assert outcome.reason == "maxit"
    assert "revert" not in steps.log
    assert steps.model == steps.best == 3


def test_rises_that_are_not_consecutive_are_no_divergence():
    steps = Scripted([(0.5, 5.0), (2.0, 20.0), (0.4, 4.0), (2.0, 20.0), (0.3, 3.0)])
    assert go(steps, rmsfactor=0.0).reason == "maxit"


def test_a_run_that_ends_on_a_rise_keeps_the_best_model():
    steps = Scripted([(0.5, 5.0), (0.4, 4.0), (2.0, 20.0)])
    assert go(steps, rmsfactor=0.0).reason == "maxit"
    assert steps.model == 1


def test_a_rise_does_not_count_as_convergence():
    steps = Scripted([(0.5, 5.0), (2.0, 20.0), (0.4, 4.0)], changes=[1.0, 1e-6, 1.0])
    assert go(steps, rmsfactor=0.0).reason == "maxit"
    assert len(steps.asked) == 3


def test_a_falling_threshold_does_not_count_as_convergence():
    """A model may stand still, at zero for instance, because the threshold is still high."""
    steps = Scripted(falling(6), changes=[0.0] * 6)
    outcome = go(steps, rmsfactor=0.5, peakfactor=1.0, fall=0.5)
    assert outcome.reason == "maxit"
    assert steps.thresholds == pytest.approx([10 * 0.5**k for k in range(6)])


@pytest.mark.parametrize(("second", "third", "reason"), [
    ((1.1, 11.0), (1.2, 12.0), "diverged"),
    ((1.04, 10.4), (1.08, 10.8), "maxit"),  # both within the slack
    ((1.1, 11.0), (1.2, 11.1), "maxit"),  # the rms alone
    ((1.1, 11.0), (1.11, 12.0), "maxit"),  # the peak alone
], ids=str)  # fmt: skip
def test_only_rms_and_peak_beyond_the_slack_are_a_rise(second, third, reason):
    steps = Scripted([(1.0, 10.0), second, third, (0.1, 1.0)])
    assert go(steps, rmsfactor=0.0).reason == reason


def test_rises_below_the_start_are_no_divergence():
    """The residual of a first, unfinished minimisation may be lower than that of its optimum."""
    steps = Scripted([(0.5, 5.0), (0.7, 7.0), (0.9, 9.0), (0.1, 1.0)])
    assert go(steps, rmsfactor=0.0).reason == "maxit"
    assert steps.model == 3


def test_only_an_improvement_is_kept():
    steps = Scripted([(0.5, 5.0), (0.503, 4.0), (0.4, 4.0)])
    go(steps)
    assert steps.log == [
        "keep", "minimise", "measure", "keep", "minimise", "measure", "minimise", "measure", "keep",
    ]  # fmt: skip


# Numbers that are none


@pytest.mark.parametrize("rms", [float("nan"), float("inf")])
def test_a_residual_that_is_not_finite_ends_the_run(rms):
    message = rf"residual of major cycle 1 has an rms of {rms} .* lower --gamma"
    with pytest.raises(PfbError, match=message):
        go(Scripted([(0.5, 5.0), (rms, 5.0)]))


@pytest.mark.parametrize("change", [float("nan"), float("inf")])
def test_a_model_that_is_not_finite_ends_the_run(change):
    with pytest.raises(PfbError, match=f"after a change of {change}"):
        go(Scripted(falling(2), changes=[change, 1.0]))


# Thresholds and reports


def test_the_first_threshold_follows_the_start():
    steps = Scripted(falling(3))
    run(steps, Progress.begin(Statistics(5.0, 1.0, 0.8)), Options(maxit=1, tol=0.0, rmsfactor=0.5, peakfactor=0.0), print)
    assert steps.thresholds == pytest.approx([0.5])


def test_the_threshold_falls_slowly():
    steps = Scripted([(0.1, 1.0), (0.1, 1.0), (0.1, 1.0), (0.3, 1.0)])
    go(steps, rmsfactor=1.0, fall=0.4)
    assert steps.thresholds == pytest.approx([1.0, 0.4, 0.16, 0.1])


def test_the_threshold_is_a_fraction_of_the_peak_at_least():
    steps = Scripted([(0.5, 8.0), (0.25, 4.0), (0.2, 0.1)])
    go(steps, rmsfactor=1.0, peakfactor=0.2)
    assert steps.thresholds == pytest.approx([2.0, 1.6, 0.8])


def test_the_threshold_is_held_where_noise_would_be_fitted():
    """The threshold follows the noise of the visibilities, whatever the rms of the image is."""
    steps = Scripted([(0.5, 1.0, 0.4), (0.9, 0.1, 0.2), (0.41, 0.1, 0.4)])
    go(steps, rmsfactor=0.5, overfit=1.25)
    assert steps.thresholds == pytest.approx([0.5, 0.25, 0.125])


def test_the_defaults():
    """A fiftieth of the peak at least, never less than 0.6 of the one before."""
    steps = Scripted([(0.1, 10.0), (0.01, 0.1), (0.01, 0.1)])
    run(steps, Progress.begin(START), Options(maxit=3, tol=0.0, rmsfactor=1.0), lambda cycle: None)
    assert steps.thresholds == pytest.approx([1.0, 0.6, 0.36])
    steps = Scripted([(0.1, 40.0), (0.01, 0.1)])
    run(steps, Progress.begin(Statistics(0.1, 50.0)), Options(maxit=2, tol=0.0, rmsfactor=1.0), lambda cycle: None)
    assert steps.thresholds == pytest.approx([1.0, 0.8])


def test_every_cycle_is_reported_when_it_is_done():
    told, steps = [], Scripted(falling(3))
    options = Options(maxit=3, tol=0.0, rmsfactor=1.0)
    outcome = run(steps, Progress.begin(START), options, lambda c: told.append((c, list(steps.log))))
    assert [cycle for cycle, _ in told] == outcome.history
    assert [log.count("measure") for _, log in told] == [1, 2, 3]
    first = told[0][0]
    assert isinstance(first, Cycle)
    assert (first.peak, first.rms, first.threshold, first.objective, first.inner, first.change) == (5.0, 0.5, 1.0, 100.0, 5, 1.0)
    assert first.seconds >= 0


def test_a_cycle_that_rises_is_reported_as_it_was():
    told = []
    run(Scripted([(2.0, 20.0)] * 2), Progress.begin(START), Options(maxit=2, tol=0.0, rmsfactor=1.0), told.append)
    assert [cycle.rms for cycle in told] == [2.0, 2.0]


# Weights that are renewed


def test_the_threshold_follows_the_residual_with_the_new_weights():
    steps = Scripted(falling(3), reweighed={1: (7.0, 70.0)})
    go(steps)
    assert steps.thresholds == [2.0, 14.0, 0.5]
    assert [progress.reweightings for progress in steps.saved] == [0, 1, 1, 1]
    assert steps.saved[1].start == steps.saved[1].best == Statistics(7.0, 70.0)
    assert steps.log[:6] == ["keep", "minimise", "measure", "keep", "reweigh 0", "keep"]


@pytest.mark.parametrize("changes", [[1.0, 9e-4, 1.0], [9e-4, 9e-4, 1.0]])
def test_a_run_that_would_end_goes_on_with_new_weights(changes):
    ended = changes.index(9e-4) + 1
    steps = Scripted(falling(3), changes=changes, reweighed={ended: (7.0, 70.0)})
    outcome = go(steps, fall=0.0, rmsfactor=20.0)
    assert outcome.history[ended - 1].change < 1e-3
    assert len(outcome.history) > ended


def test_weights_are_not_renewed_for_no_cycle_to_come():
    steps = Scripted(falling(2), reweighed={2: (7.0, 70.0)})
    assert go(steps).reason == "maxit"
    assert not any(line.startswith("reweigh") for line in steps.log)


def test_weights_are_renewed_with_the_best_model():
    steps = Scripted([(0.5, 5), (20.0, 200), (0.3, 3)], reweighed={2: (7.0, 70.0)})
    go(steps)
    assert steps.log[-6:] == ["revert", "reweigh 0", "keep", "minimise", "measure", "keep"]
    assert steps.saved[2].rises == 0


def test_residuals_are_not_compared_across_new_weights():
    """Twice higher than before, but the first time the weights are others."""
    steps = Scripted([(0.5, 5), (0.4, 4), (20.0, 200), (0.2, 2)], reweighed={2: (10.0, 100.0)})
    outcome = go(steps)
    assert (outcome.reason, len(outcome.history)) == ("maxit", 4)
    assert steps.saved[3].rises == 1


def test_a_run_that_diverges_is_not_saved_by_new_weights():
    steps = Scripted([(0.5, 5), (20.0, 200), (30.0, 300), (0.2, 2)], reweighed={3: (1.0, 10.0)})
    assert go(steps).reason == "diverged"
    assert "revert" in steps.log
