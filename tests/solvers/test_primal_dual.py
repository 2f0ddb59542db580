"""The primal-dual iteration: steps inside their bound, and multi-band optima that a dual certificate confirms."""

import numpy as np
import pytest
from scipy.optimize import nnls

from pfb.operators.constraints import Constraint
from pfb.operators.regularisers import JointPrior
from pfb.operators.wavelets import Dictionary
from pfb.solvers.primal_dual import (
    CONSTRAINED,
    Change,
    Gate,
    Minimisation,
    advance,
    change,
    extrapolate,
    press,
    relative,
    solve,
    step_sizes,
)

SHAPE, NPIX = (5, 4), 20
BASES = ("self", "db1", "db2", "db3")
RADIUS = 0.1
SHIFT = 0.5
"""Half of the largest eigenvalue of a Hessian, as for a step that is a number."""
MASK = np.ones(SHAPE, bool)
MASK[0], MASK[2, 1] = False, False
FREE, CLIP, JOINT = Constraint(), Constraint("clip"), Constraint("joint")
MASKED, CLIP_MASKED, JOINT_MASKED = (Constraint(name, masked=True) for name in ("none", "clip", "joint"))
LONG = 2000
GAP = 2e-5
"""Of the objective, after LONG iterations: the iteration gains about 1 / k, and more only once it knows what is zero."""


@pytest.mark.parametrize("shift", [1e-8, 1e-3, 1.0, 17.3, 1e4])
@pytest.mark.parametrize("norm_squared", [1.0, 2.0, 4.0, 5.0, 9.0])
@pytest.mark.parametrize("constrained", [False, True])
def test_steps_use_the_shift_up(constrained, norm_squared, shift):
    sigma, theta = step_sizes(shift, norm_squared, constrained)
    assert sigma * norm_squared + theta == pytest.approx(shift, rel=1e-15)
    assert theta == pytest.approx(CONSTRAINED * shift if constrained else 0, rel=1e-15)
    assert sigma > 0


@pytest.mark.parametrize("shape", [(1, 1), (16, 5), (53, 4), (40, 1000)], ids=str)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_passes_in_runs_are_their_definitions(shape, dtype, rng):
    """Images of any number of rows, longer than a run or not; nothing given is changed."""
    x, previous, bound = (rng.standard_normal(shape).astype(dtype) for _ in range(3))
    before = x.copy(), previous.copy(), bound.copy()
    found = extrapolate(x, previous)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, 2 * x - previous)
    np.testing.assert_array_equal(press(bound, found, 0.5), bound + np.asarray(0.5, dtype) * found)
    difference, norm = change(x, previous)
    wide, old = x.astype("f8"), previous.astype("f8")
    assert difference == pytest.approx(((wide - old) ** 2).sum(), rel=1e-5)
    assert norm == pytest.approx((wide**2).sum(), rel=1e-5)
    for now, then in zip((x, previous, bound), before, strict=True):
        np.testing.assert_array_equal(now, then)


class Toy:
    """Bands with dense Hessians of different scale and pixels bright and faint, small enough for linear algebra."""

    def __init__(self, prior, constraint, rng, *, step="operator", nband=3, weight=None):
        self.constraint, self.nband, self.weight = constraint, nband, weight
        self.dictionary = Dictionary(SHAPE, BASES, 2)
        self.nbasis, self.ncoefficient = self.dictionary.codomain
        self.prior = JointPrior(prior, nband, weight)
        self.hessians = [scale * self.positive_matrix(rng) for scale in np.linspace(1, 0.4, nband)]
        bright = 3 * (rng.random(NPIX) < 0.2)
        self.target = [bright * (1 + 0.2 * b) + 0.3 * rng.standard_normal(NPIX) for b in range(nband)]
        lipschitz = max(np.linalg.eigvalsh(h)[-1] for h in self.hessians)
        halves = [h / 2 if step == "operator" else lipschitz / 2 * np.eye(NPIX) for h in self.hessians]
        # 2 % below the bound.
        self.steps = [0.98 * np.linalg.inv(half + SHIFT * np.eye(NPIX)) for half in halves]
        # Column by column, so that the certificate below needs no operator.
        self.matrix = np.stack([self.dictionary.dot(unit.reshape(SHAPE)).ravel() for unit in np.eye(NPIX)], axis=1)

    @staticmethod
    def positive_matrix(rng):
        q, _ = np.linalg.qr(rng.standard_normal((NPIX, NPIX)))
        return (q * np.geomspace(1, 0.3, NPIX)) @ q.T

    @property
    def inside(self):
        """Pixels that may differ from zero."""
        return MASK.ravel() if self.constraint.masked else np.ones(NPIX, bool)

    def gradient(self, band, x):
        return (self.hessians[band] @ (x.ravel() - self.target[band])).reshape(SHAPE)

    def precondition(self, band, x):
        return (self.steps[band] @ x.ravel()).reshape(SHAPE)

    def polar(self, images):
        cube = np.stack(images)
        return list(self.constraint.polar(cube, MASK if self.constraint.masked else None, list(cube < 0)))

    def solve(self, maxit, tol=0.0, dual=None, x=None):
        x = [np.zeros(SHAPE)] * self.nband if x is None else x
        dual = np.zeros((self.nbasis, self.nband, self.ncoefficient)) if dual is None else dual
        polar = self.polar if self.constraint.active else None
        problem = Minimisation(self.gradient, self.precondition, self.dictionary, self.prior, polar)
        return solve(problem, x, dual, radius=RADIUS, shift=SHIFT, tol=tol, maxit=maxit)

    def objective(self, images):
        x = [image.ravel() for image in images]
        data = sum(0.5 * (a - t) @ h @ (a - t) for a, t, h in zip(x, self.target, self.hessians, strict=True))
        a = np.array([self.matrix @ image for image in x])
        w = 1 if self.weight is None else self.weight.ravel()
        return data + RADIUS * float((w * sum(self.norms(a))).sum())

    def norms(self, a):
        """The norms over the bands (the first axis) that the prior adds up."""
        if self.prior.name == "l21":
            return [np.sqrt((a**2).sum(axis=0))]
        return [np.abs(a.sum(axis=0)) / np.sqrt(self.nband), np.sqrt(((a - a.mean(axis=0)) ** 2).sum(axis=0))]

    def bound(self, dual):
        """Return the dual objective, which for every dual in the ball is below the minimum of the primal one."""
        v = dual.transpose(1, 0, 2).reshape(self.nband, -1)
        w = 1 if self.weight is None else self.weight.ravel()
        for norm in self.norms(v):
            assert (norm <= RADIUS * w * (1 + 1e-11)).all(), "the dual left its ball"
        total = 0.0
        for band, row in enumerate(v):
            h, t = self.hessians[band], self.target[band]
            right = h @ t - self.matrix.T @ row
            x = self.least(h, right)
            total += 0.5 * x @ h @ x - right @ x + 0.5 * t @ h @ t
        return total

    def least(self, h, right):
        """Minimise x h x / 2 - right x over the images that the constraint allows."""
        x, on = np.zeros(NPIX), self.inside
        h, right = h[np.ix_(on, on)], right[on]
        if self.constraint.positivity == "clip":
            lower = np.linalg.cholesky(h)
            x[on], _ = nnls(lower.T, np.linalg.solve(lower, right))
        else:
            x[on] = np.linalg.solve(h, right)
        return x

    def gap(self, solution):
        """How far a solution may be above the minimum."""
        return self.objective(solution.x) - self.bound(solution.dual)


@pytest.fixture(params=["l21", "mean21"])
def prior(request):
    return request.param


@pytest.fixture
def toy(prior, rng):
    return Toy(prior, CLIP, rng)


PROBLEMS = {
    "free-number": (FREE, "number"),
    "free-operator": (FREE, "operator"),
    "clip-number": (CLIP, "number"),
    "clip-operator": (CLIP, "operator"),
    "masked-operator": (MASKED, "operator"),
    "clip-masked-operator": (CLIP_MASKED, "operator"),
}


@pytest.fixture(scope="module", params=[(p, name) for p in ("l21", "mean21") for name in PROBLEMS], ids="-".join)
def solved(request):
    """A problem of three bands and its solution after many iterations."""
    prior, name = request.param
    constraint, step = PROBLEMS[name]
    toy = Toy(prior, constraint, np.random.default_rng(20_190_627), step=step)
    return toy, toy.solve(LONG)


# The bound


@pytest.mark.parametrize("step", ["number", "operator"])
@pytest.mark.parametrize("constraint", [FREE, CLIP], ids=["free", "clip"])
def test_steps_satisfy_the_bound_strictly_only_for_the_square_of_the_norm(constraint, step, rng):
    """Condat 2013, theorem 3.1, with an operator as the step: T^-1 - sigma Psi Psi^H - theta >= H / 2 in every band."""
    toy = Toy("l21", constraint, rng, step=step)

    def least(norm_squared):
        sigma, theta = step_sizes(SHIFT, norm_squared, constraint.active)
        taken = sigma * toy.matrix.T @ toy.matrix + theta * np.eye(NPIX)
        slack = [np.linalg.inv(t) - taken - h / 2 for t, h in zip(toy.steps, toy.hessians, strict=True)]
        return min(np.linalg.eigvalsh(s)[0] for s in slack)

    assert toy.dictionary.norm_squared == len(BASES)
    assert 0.01 * SHIFT < least(toy.dictionary.norm_squared) < 0.05
    assert least(np.sqrt(len(BASES))) < 0
    assert least(1.0) < 0


def test_steps_for_a_norm_of_one_do_not_converge(solved, monkeypatch):
    toy, solution = solved
    monkeypatch.setattr(toy.dictionary, "norm_squared", 1.0)
    assert toy.gap(toy.solve(500)) > 0.01 * toy.objective(solution.x)


@pytest.mark.parametrize("nband", [1, 4])
def test_a_step_beyond_the_bound_does_not_converge(nband, prior, rng):
    toy = Toy(prior, CLIP, rng, nband=nband)
    least = toy.objective(toy.solve(LONG).x)
    toy.steps = [2.2 * step for step in toy.steps]
    assert toy.objective(toy.solve(500).x) > 1.1 * least


# The optimum


def test_several_bands_converge_to_the_optimum(solved):
    toy, solution = solved
    least = toy.objective(solution.x)
    assert abs(toy.gap(solution)) < GAP * least
    # Not trivial: there is emission, the prior shapes it, and some constraints hold with equality.
    x = np.reshape(solution.x, (3, NPIX))
    assert x.max() > 1
    assert np.abs(x - toy.target).max() > 0.2
    assert (x[:, toy.inside] == 0).any() == (toy.constraint.positivity == "clip")


def test_the_result_obeys_the_constraint_exactly(solved):
    toy, solution = solved
    for images in (toy.solve(1).x, toy.solve(10).x, solution.x):
        x = np.reshape(images, (3, NPIX))
        assert (x[:, ~toy.inside] == 0).all()
        assert toy.constraint.positivity == "none" or (x >= 0).all()


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
    assert gaps["warm"] < min(gaps["cold"], gaps["images"])
    if not toy.constraint.active:  # else the dual of the constraint starts anew
        assert gaps["warm"] < GAP * least
        assert gaps["warm"] < 1e-2 * min(gaps["cold"], gaps["images"])


def test_a_dual_from_elsewhere_is_no_obstacle(solved):
    toy, cold = solved
    other = toy.solve(LONG, dual=np.full(cold.dual.shape, 5.0))
    assert abs(toy.gap(other)) < GAP * toy.objective(cold.x)
    np.testing.assert_allclose(other.x, cold.x, atol=2e-3)


@pytest.mark.parametrize(("nband", "weighted"), [(1, False), (2, False), (5, False), (3, True)])
def test_any_number_of_bands_and_any_weights_converge(nband, weighted, prior, rng):
    size = Dictionary(SHAPE, BASES, 2).codomain
    toy = Toy(prior, CLIP, rng, nband=nband, weight=rng.uniform(0.0, 2.0, size) if weighted else None)
    solution = toy.solve(LONG)
    assert abs(toy.gap(solution)) < GAP * toy.objective(solution.x)


@pytest.mark.parametrize("constraint", [FREE, CLIP, MASKED, CLIP_MASKED], ids=str)
def test_without_a_prior_every_band_is_least_squares_within_the_constraint(constraint, rng):
    toy = Toy("l21", constraint, rng, weight=np.zeros(Dictionary(SHAPE, BASES, 2).codomain))
    expected = [toy.least(h, h @ t) for h, t in zip(toy.hessians, toy.target, strict=True)]
    np.testing.assert_allclose(np.reshape(toy.solve(1000).x, (3, -1)), expected, atol=1e-10)


def test_one_basis_and_a_diagonal_hessian_have_a_closed_form(prior, rng):
    """Then the minimum is the proximal map of the prior at the target."""
    target = rng.standard_normal((3, *SHAPE))
    dictionary = Dictionary(SHAPE, ("self",), 1)
    g = JointPrior(prior, 3)
    problem = Minimisation(lambda band, x: 2 * (x - target[band]), lambda band, x: 0.49 * x, dictionary, g)
    solution = solve(
        problem, [np.zeros(SHAPE)] * 3, np.zeros((1, 3, NPIX)), radius=2.0, shift=1.0, tol=1e-15, maxit=2000,
    )  # fmt: skip
    expected = g.prox(target.reshape(1, 3, NPIX), 1.0)
    np.testing.assert_allclose(np.reshape(solution.x, (1, 3, NPIX)), expected, atol=1e-12)
    assert 0.1 < np.mean(expected == 0) < 0.9


# Joint positivity: the set is not convex, so the conditions are those of a point at which the iteration rests.


@pytest.mark.parametrize("constraint", [JOINT, JOINT_MASKED], ids=str)
def test_joint_positivity_without_a_prior_keeps_the_pixels_of_one_sign(constraint, rng):
    """With Hessians that do not mix pixels, those that are negative in any band become zero in all of them."""
    toy = Toy("l21", constraint, rng, weight=np.zeros(Dictionary(SHAPE, BASES, 2).codomain))
    diagonals = rng.uniform(0.3, 1, (3, NPIX))
    toy.hessians = [np.diag(d) for d in diagonals]
    toy.steps = [np.diag(0.98 / (d / 2 + SHIFT)) for d in diagonals]
    target = np.array(toy.target)
    kept = (target >= 0).all(axis=0) & toy.inside
    x = np.reshape(toy.solve(LONG).x, (3, NPIX))
    np.testing.assert_allclose(x, np.where(kept, target, 0), atol=1e-10)
    assert (x[:, ~kept] == 0).all()
    assert 2 < kept.sum() < NPIX - 5


@pytest.mark.parametrize("step", ["number", "operator"])
@pytest.mark.parametrize("constraint", [JOINT, JOINT_MASKED], ids=str)
def test_joint_positivity_comes_to_rest(constraint, step, prior, rng):
    """No pixel that is kept is pulled anywhere; one that is pulled below zero in some band is cleared in all."""
    toy = Toy(prior, constraint, rng, step=step)
    solution = toy.solve(LONG)
    x = np.reshape(solution.x, (3, NPIX))
    pull = -np.reshape(
        [toy.gradient(b, image) + toy.dictionary.hdot(solution.dual[:, b]) for b, image in enumerate(solution.x)], (3, NPIX)
    )
    assert (x[:, ~toy.inside] == 0).all()
    assert (x >= 0).all()
    pulled = (np.abs(pull) > 1e-4).any(axis=0) & toy.inside
    assert (x[:, pulled] < 1e-4).all()
    assert (pull[:, pulled].min(axis=0) < 0).all()
    assert pulled.sum() > 2
    assert ((x > 1).all(axis=0) & ~pulled).sum() > 2


# The pieces


@pytest.mark.parametrize("constraint", [FREE, CLIP], ids=["free", "clip"])
def test_it_stops_at_the_tolerance_and_at_the_limit(constraint, prior, rng):
    toy = Toy(prior, constraint, rng)
    stopped = toy.solve(3000, tol=1e-3)
    assert stopped.gate.done
    assert stopped.gate.primal < 1e-3
    one_less = toy.solve(stopped.gate.iterations - 1, tol=1e-3)
    assert one_less.gate == (False, stopped.gate.iterations - 1, one_less.gate.primal, one_less.gate.dual)
    assert one_less.gate.primal >= 1e-3
    if not toy.constraint.active:  # else the images were projected since
        a, b = (np.array(s.x) for s in (stopped, one_less))
        assert stopped.gate.primal == pytest.approx(np.linalg.norm(a - b) / np.linalg.norm(a), rel=1e-12)
    assert stopped.gate.dual == pytest.approx(
        np.linalg.norm(stopped.dual - one_less.dual) / np.linalg.norm(stopped.dual), rel=1e-12
    )


def test_no_iteration_returns_the_start_within_the_constraint(toy, rng):
    start = list(rng.standard_normal((3, *SHAPE)))
    solution = toy.solve(0, x=start)
    assert solution.gate == Gate()
    np.testing.assert_array_equal(solution.x, np.maximum(start, 0))


def test_inputs_are_not_changed(toy, rng):
    x = [rng.standard_normal(SHAPE) for _ in range(3)]
    dual = rng.standard_normal((toy.nbasis, 3, toy.ncoefficient))
    before = np.copy(x), dual.copy()
    toy.solve(3, x=x, dual=dual)
    np.testing.assert_array_equal(x, before[0])
    np.testing.assert_array_equal(dual, before[1])


@pytest.mark.parametrize("constraint", [FREE, CLIP, JOINT_MASKED], ids=str)
def test_two_iterations_equal_their_formulas(constraint, prior, rng):
    toy = Toy(prior, constraint, rng)
    sigma, theta = step_sizes(SHIFT, len(BASES), constraint.active)
    start, v = rng.standard_normal((3, *SHAPE)), rng.standard_normal((toy.nbasis, 3, toy.ncoefficient))
    x = previous = start
    u, dual = np.zeros_like(start), v
    for _ in range(2):
        ahead = 2 * x - previous
        v = v + sigma * np.stack([toy.dictionary.dot(image) for image in ahead], axis=1)
        v = v - toy.prior.prox(v, RADIUS)
        u = np.stack(toy.polar(u + theta * ahead)) if constraint.active else u
        down = [toy.gradient(b, x[b]) + toy.dictionary.hdot(v[:, b]) + u[b] for b in range(3)]
        x, previous = x - np.stack([toy.precondition(b, image) for b, image in enumerate(down)]), x
    expected = x - np.stack(toy.polar(x)) if constraint.active else x
    found = toy.solve(2, x=list(start), dual=dual)
    np.testing.assert_allclose(found.x, expected, atol=1e-13)
    np.testing.assert_allclose(found.dual, v, atol=1e-13)


@pytest.mark.parametrize("constraint", [FREE, CLIP, JOINT_MASKED], ids=str)
def test_single_precision_is_kept(constraint, rng):
    toy = Toy("mean21", constraint, rng)
    x = [np.zeros(SHAPE, np.float32)] * 3
    dual = np.zeros((toy.nbasis, 3, toy.ncoefficient), np.float32)
    for name in ("hessians", "target", "steps"):
        setattr(toy, name, list(np.float32(getattr(toy, name))))
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


def test_a_shut_gate_stays_as_it_is():
    shut = Gate(True, 7, 1e-5, 1e-4)
    assert advance(shut, [Change(1.0, 1.0)], [Change(1.0, 1.0)], 0.5) is shut


def test_the_gate_shuts_below_the_tolerance_only():
    moved = [Change(1.0, 4.0)]
    assert advance(Gate(), moved, moved, 0.5) == Gate(False, 1, 0.5, 0.5)
    assert advance(Gate(), moved, moved, 0.5000001) == Gate(True, 1, 0.5, 0.5)
    assert not advance(Gate(), [Change(float("nan"), 4.0)], [], 0.5).done
