"""The primal-dual iteration: step sizes inside their bound, and multi-band optima that a dual certificate confirms."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import nnls

from pfb.operators.regularisers import JointPrior
from pfb.operators.wavelets import Dictionary
from pfb.solvers import primal_dual
from pfb.solvers.primal_dual import Change, Gate, advance, relative, solve, step_sizes

SHAPE, NPIX = (5, 4), 20
BASES = ("self", "db1", "db2", "db3")
RADIUS = 0.1
LONG = 2000
GAP = 2e-5
"""Of the objective, after LONG iterations: the iteration gains about 1 / k, and more only once it knows what is zero."""


@pytest.mark.parametrize("lipschitz", [1e-8, 1e-3, 1.0, 17.3, 1e4])
@pytest.mark.parametrize("norm_squared", [1.0, 2.0, 4.0, 5.0, 9.0])
def test_default_steps_satisfy_the_bound_strictly(lipschitz, norm_squared):
    """Condat 2013, theorem 3.1. The slack is 2 % of 1 / tau: the steps are not needlessly short either."""
    tau, sigma = step_sizes(lipschitz, norm_squared)
    slack = 1 / tau - sigma * norm_squared - lipschitz / 2
    assert 0.01 / tau < slack < 0.03 / tau
    assert sigma * norm_squared == pytest.approx(lipschitz / 2, rel=1e-15)


@pytest.mark.parametrize("nbasis", [2, 4, 9])
def test_steps_for_a_norm_of_one_violate_the_bound_of_several_bases(nbasis):
    tau, sigma = step_sizes(1.0, 1.0)
    assert 1 / tau - sigma * nbasis < 0.5


class Toy:
    """Bands with dense Hessians of different scale and pixels bright and faint, small enough for linear algebra."""

    def __init__(self, prior, positive, rng, nband=3, weight=None):
        self.name, self.positive, self.nband, self.weight = prior, positive, nband, weight
        self.dictionary = Dictionary(SHAPE, BASES, 2)
        self.nbasis, self.ncoefficient = self.dictionary.codomain
        self.prior = JointPrior(prior, nband, weight)
        self.hessians = [scale * self.positive_matrix(rng) for scale in np.linspace(1, 0.4, nband)]
        self.lipschitz = max(np.linalg.eigvalsh(h)[-1] for h in self.hessians)
        bright = 3 * (rng.random(NPIX) < 0.2)
        self.target = [bright * (1 + 0.2 * b) + 0.3 * rng.standard_normal(NPIX) for b in range(nband)]
        # Column by column, so that the certificate below needs no operator.
        self.matrix = np.stack([self.dictionary.dot(unit.reshape(SHAPE)).ravel() for unit in np.eye(NPIX)], axis=1)

    @staticmethod
    def positive_matrix(rng):
        q, _ = np.linalg.qr(rng.standard_normal((NPIX, NPIX)))
        return (q * np.geomspace(1, 0.3, NPIX)) @ q.T

    def gradient(self, band, x):
        return (self.hessians[band] @ (x.ravel() - self.target[band])).reshape(SHAPE)

    def constrain(self, images):
        return [np.maximum(image, 0) for image in images] if self.positive else images

    def solve(self, maxit, tol=0.0, dual=None, x=None):
        x = [np.zeros(SHAPE)] * self.nband if x is None else x
        dual = np.zeros((self.nbasis, self.nband, self.ncoefficient)) if dual is None else dual
        return solve(
            self.gradient, self.dictionary, self.prior, self.constrain, x, dual,
            radius=RADIUS, lipschitz=self.lipschitz, tol=tol, maxit=maxit,
        )  # fmt: skip

    def objective(self, images):
        x = [image.ravel() for image in images]
        data = sum(0.5 * (a - t) @ h @ (a - t) for a, t, h in zip(x, self.target, self.hessians, strict=True))
        a = np.array([self.matrix @ image for image in x])
        norms = self.norms(a)
        w = 1 if self.weight is None else self.weight.ravel()
        return data + RADIUS * float((w * sum(norms)).sum())

    def norms(self, a):
        """The norms over the bands (the first axis) that the prior adds up."""
        if self.name == "l21":
            return [np.sqrt((a**2).sum(axis=0))]
        return [np.abs(a.sum(axis=0)) / np.sqrt(self.nband), np.sqrt(((a - a.mean(axis=0)) ** 2).sum(axis=0))]

    def bound(self, dual):
        """Return the dual objective, which for every dual in the ball is below the minimum of the primal one."""
        v = dual.transpose(1, 0, 2).reshape(self.nband, -1)
        w = 1 if self.weight is None else self.weight.ravel()
        for norm in self.norms(v):
            assert (norm <= RADIUS * w * (1 + 1e-11)).all(), "the dual left its ball"
        total = 0.0
        for h, t, row in zip(self.hessians, self.target, v, strict=True):
            right = h @ t - self.matrix.T @ row
            if self.positive:
                lower = np.linalg.cholesky(h)
                x, _ = nnls(lower.T, np.linalg.solve(lower, right))
            else:
                x = np.linalg.solve(h, right)
            total += 0.5 * x @ h @ x - right @ x + 0.5 * t @ h @ t
        return total

    def gap(self, solution):
        """How far a solution may be above the minimum."""
        return self.objective(solution.x) - self.bound(solution.dual)


@pytest.fixture(params=["l21", "mean21"])
def prior(request):
    return request.param


@pytest.fixture
def toy(prior, rng):
    return Toy(prior, True, rng)


@pytest.fixture(scope="module", params=[(p, s) for p in ("l21", "mean21") for s in (False, True)], ids=str)
def solved(request):
    """A problem of three bands, of any sign and positive, and its solution after many iterations."""
    toy = Toy(*request.param, np.random.default_rng(20_190_627))
    return toy, toy.solve(LONG)


def test_several_bands_converge_to_the_optimum(solved):
    toy, solution = solved
    least = toy.objective(solution.x)
    assert abs(toy.gap(solution)) < GAP * least
    # Not trivial: there is emission, the prior shapes it, and some constraints hold with equality.
    x = np.array(solution.x)
    assert x.max() > 1
    assert np.abs(x.reshape(3, -1) - toy.target).max() > 0.2
    assert (x == 0).any() == toy.positive


def test_the_objective_comes_down_to_the_minimum(solved):
    toy, solution = solved
    least = toy.objective(solution.x)
    above = [toy.objective(toy.solve(n).x) - least for n in (1, 5, 25, 125, 625)]
    assert sorted(above, reverse=True) == above
    assert above[0] > 0.1
    assert -GAP * least < above[-1] < 1e-4 * least


def test_a_warm_dual_gives_the_same_optimum_sooner(solved):
    toy, cold = solved
    least = toy.bound(cold.dual)
    few = {kind: toy.solve(10, **start) for kind, start in
           (("cold", {}), ("images", dict(x=cold.x)), ("warm", dict(x=cold.x, dual=cold.dual)))}  # fmt: skip
    gaps = {kind: toy.objective(solution.x) - least for kind, solution in few.items()}
    assert gaps["warm"] < GAP * least
    assert gaps["warm"] < 1e-2 * min(gaps["cold"], gaps["images"])
    # A dual from elsewhere is no obstacle.
    other = toy.solve(LONG, dual=np.full(cold.dual.shape, 5.0))
    assert abs(toy.gap(other)) < GAP * least
    np.testing.assert_allclose(other.x, cold.x, atol=2e-3)


def test_steps_for_a_norm_of_one_do_not_converge(solved):
    toy, solution = solved
    wrong = Toy(toy.name, toy.positive, np.random.default_rng(20_190_627))
    wrong.dictionary.norm_squared = 1.0
    assert wrong.gap(wrong.solve(500)) > 0.01 * toy.objective(solution.x)


def test_weights_of_the_prior_count(prior, rng):
    size = Dictionary(SHAPE, BASES, 2).codomain
    toy = Toy(prior, True, rng, weight=rng.uniform(0.0, 2.0, size))
    solution = toy.solve(LONG)
    assert abs(toy.gap(solution)) < GAP * toy.objective(solution.x)


@pytest.mark.parametrize("nband", [1, 2, 5])
def test_any_number_of_bands_converges(nband, prior, rng):
    toy = Toy(prior, True, rng, nband=nband)
    solution = toy.solve(LONG)
    assert abs(toy.gap(solution)) < GAP * toy.objective(solution.x)


def test_without_a_prior_the_target_comes_back(rng):
    toy = Toy("l21", False, rng, weight=np.zeros(Dictionary(SHAPE, BASES, 2).codomain))
    np.testing.assert_allclose(np.reshape(toy.solve(500).x, (3, -1)), toy.target, atol=1e-12)


def test_one_basis_and_a_diagonal_hessian_have_a_closed_form(prior, rng):
    """Then the minimum is the proximal map of the prior at the target."""
    target = rng.standard_normal((3, *SHAPE))
    dictionary = Dictionary(SHAPE, ("self",), 1)
    g = JointPrior(prior, 3)
    solution = solve(
        lambda band, x: 2 * (x - target[band]), dictionary, g, lambda x: x, [np.zeros(SHAPE)] * 3, np.zeros((1, 3, NPIX)),
        radius=2.0, lipschitz=2.0, tol=1e-15, maxit=2000,
    )  # fmt: skip
    expected = g.prox(target.reshape(1, 3, NPIX), 1.0)
    np.testing.assert_allclose(np.reshape(solution.x, (1, 3, NPIX)), expected, atol=1e-12)
    assert 0.1 < np.mean(expected == 0) < 0.9


def test_it_stops_at_the_tolerance_and_at_the_limit(toy):
    stopped = toy.solve(3000, tol=1e-3)
    assert stopped.gate.done
    assert stopped.gate.primal < 1e-3
    one_less = toy.solve(stopped.gate.iterations - 1, tol=1e-3)
    assert one_less.gate == (False, stopped.gate.iterations - 1, one_less.gate.primal, one_less.gate.dual)
    assert one_less.gate.primal >= 1e-3
    a, b = (np.array(s.x) for s in (stopped, one_less))
    assert stopped.gate.primal == pytest.approx(np.linalg.norm(a - b) / np.linalg.norm(a), rel=1e-12)
    assert stopped.gate.dual == pytest.approx(
        np.linalg.norm(stopped.dual - one_less.dual) / np.linalg.norm(stopped.dual), rel=1e-12
    )


def test_no_iteration_returns_the_start(toy):
    solution = toy.solve(0)
    assert solution.gate == Gate()
    assert not np.any(solution.x)


def test_inputs_are_not_changed(toy, rng):
    x = [rng.standard_normal(SHAPE) for _ in range(3)]
    dual = rng.standard_normal((toy.nbasis, 3, toy.ncoefficient))
    before = np.copy(x), dual.copy()
    toy.solve(3, x=x, dual=dual)
    np.testing.assert_array_equal(x, before[0])
    np.testing.assert_array_equal(dual, before[1])


def test_the_pieces_equal_their_formulas(rng):
    """On the first band of two; matrices instead of operators."""
    toy = Toy("l21", False, rng, nband=2)
    psi, sigma, tau = toy.matrix, 0.3, 0.2
    x, previous, grad = rng.standard_normal((3, 2, *SHAPE))
    dual = rng.standard_normal((toy.nbasis, 2, toy.ncoefficient))
    v = dual[:, 0].ravel() + sigma * psi @ (2 * x[0] - previous[0]).ravel()
    np.testing.assert_allclose(primal_dual.ascend(dual, x, previous, toy.dictionary, sigma)[:, 0].ravel(), v, atol=1e-14)
    image = psi.T @ dual[:, 0].ravel()
    np.testing.assert_allclose(primal_dual.synthesise(dual, toy.dictionary)[0].ravel(), image, atol=1e-14)
    image = image.reshape(SHAPE)
    np.testing.assert_allclose(primal_dual.descend(x[0], grad[0], image, tau), x[0] - tau * (grad[0] + image), atol=1e-14)


def test_single_precision_is_kept(rng):
    toy = Toy("mean21", True, rng)
    x = [np.zeros(SHAPE, np.float32)] * 3
    dual = np.zeros((toy.nbasis, 3, toy.ncoefficient), np.float32)
    hessians, targets = np.float32(toy.hessians), np.float32(toy.target)
    toy.hessians, toy.target = list(hessians), list(targets)
    solution = toy.solve(100, x=x, dual=dual)
    assert {image.dtype for image in solution.x} | {solution.dual.dtype} == {np.dtype(np.float32)}
    np.testing.assert_allclose(solution.x, toy.solve(100).x, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([], 0.0),
        ([(0.0, 0.0)], 0.0),
        ([(1.0, 0.0)], np.inf),
        ([(0.0, 4.0), (0.0, 0.0)], 0.0),
        ([(1.0, 20.0), (3.0, 80.0)], 0.2),
        ([(float("nan"), 1.0)], np.nan),
    ],
)
def test_relative_change(changes, expected):
    assert relative([Change(*c) for c in changes]) == pytest.approx(expected, rel=1e-15, nan_ok=True)


def test_change_is_of_squares(rng):
    a, b = rng.standard_normal((2, *SHAPE))
    assert primal_dual.change(a, b) == pytest.approx((((a - b) ** 2).sum(), (a**2).sum()), rel=1e-14)


def test_a_shut_gate_stays_as_it_is():
    shut = Gate(True, 7, 1e-5, 1e-4)
    assert advance(shut, [Change(1.0, 1.0)], [Change(1.0, 1.0)], 0.5) is shut


def test_the_gate_shuts_below_the_tolerance_only():
    moved = [Change(1.0, 4.0)]
    assert advance(Gate(), moved, moved, 0.5) == Gate(False, 1, 0.5, 0.5)
    assert advance(Gate(), moved, moved, 0.5000001) == Gate(True, 1, 0.5, 0.5)
    assert not advance(Gate(), [Change(float("nan"), 4.0)], [], 0.5).done
