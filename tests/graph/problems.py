"""A small deconvolution, in one process and as graphs; its arrays are made in tasks, so that workers can make them too."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pfb.graph.blocks import Blocks
from pfb.graph.names import Names, token
from pfb.graph.primal_dual import Data, PrimalDual
from pfb.graph.tasks import add
from pfb.operators.constraints import Constraint
from pfb.operators.hessian import PsfHessian
from pfb.operators.preconditioner import Preconditioner
from pfb.operators.regularisers import JointPrior
from pfb.operators.wavelets import Dictionary
from pfb.solvers import primal_dual
from pfb.solvers.primal_dual import Gate, step_sizes


def draw(shape, *seed):
    """An image of noise, the same wherever it is made."""
    return np.random.default_rng(seed).standard_normal(shape)


def make_hessian(shape, band):
    """Of a PSF with sidelobes, the more of them the higher the band."""
    padded = [2 * n - n // 3 for n in shape]
    x, y = np.meshgrid(*(np.arange(n) - n // 2 for n in padded), indexing="ij")
    psf = np.exp(-(x**2 + y**2) / 3) + 0.1 * np.cos(0.9 * x + 0.3 * band * y) / (1 + np.hypot(x, y))
    return PsfHessian(psf / (1 + 0.2 * band), tuple(shape), 1.5, eta=1e-2)


def make_target(shape, band):
    """Half of the pixels have emission in all bands; noise makes some others negative in some bands."""
    return (1 + 0.1 * band) * np.maximum(2 * draw(shape, 1), 0) + 0.3 * draw(shape, 2, band) - 0.2


def make_before(shape, band):
    """The model to start from: something, but not where the emission is."""
    return 0.5 * np.maximum(draw(shape, 4, band), 0)


def make_slope(shape, band, gamma):
    """Minus the gradient at the start of a data term that has its minimum at the target."""
    return make_hessian(shape, band).dot(make_target(shape, band) - make_before(shape, band)) / gamma


def make_preconditioner(shape, band, gamma, shift):
    return Preconditioner(make_hessian(shape, band), gamma, shift)


def make_weight(size, first, last):
    """Weights of the prior, some of them zero."""
    rng = np.random.default_rng(3)
    return np.maximum(rng.uniform(-0.2, 2.0, size), 0)[first:last]


def make_mask(shape):
    mask = np.ones(shape, bool)
    mask[2:5, 3:7] = False
    return mask


class Found(NamedTuple):
    """A solution."""

    models: np.ndarray
    """(nband, nx, ny), within the constraint."""
    x: np.ndarray
    """(nband, nx, ny), as the iteration left them."""
    dual: np.ndarray
    """(nbasis, nband, ncoefficient)."""
    bounds: np.ndarray
    """The dual of the constraint, (nband, nx, ny); no bands if there is none."""
    gate: Gate


class Polar:
    """Images of all bands less their projection onto the constraint; remembers its calls.

    The first call adds `bounds`, so that a solver that knows no start but zero begins with them.
    """

    def __init__(self, constraint, mask, bounds, products=""):
        self.constraint, self.mask, self.bounds, self.products = constraint, mask, bounds, products
        self.calls = []

    def polar(self, x):
        if not self.products:
            return self.constraint.polar(x, self.mask, list(x < 0))
        negatives = [image < 0 for image, product in zip(x, self.products, strict=True) if product == "I"]
        pairs = zip(x, self.products, strict=True)
        return np.array([self.constraint.of(product).polar(image, self.mask, negatives) for image, product in pairs])

    def __call__(self, images):
        x = np.array(images)
        if not self.calls:
            x += self.bounds
        out = self.polar(x)
        self.calls.append((x, out))
        return list(out)


@dataclass(frozen=True)
class Problem:
    """What is minimised."""

    shape: tuple = (12, 9)
    nband: int = 5
    bases: tuple = ("self", "db1", "db2")
    prior: str = "l21"
    positivity: str = "clip"
    weighted: bool = False
    masked: bool = False
    radius: float = 0.03
    gamma: float = 0.9
    shift: float = 0.6
    tol: float = 4e-2
    products: str = ""
    """The Stokes product of every band, if these are several."""

    @property
    def dictionary(self):
        return Dictionary(self.shape, self.bases, 2)

    @property
    def numbers(self):
        return tuple(sorted(set(self.products)).index(letter) for letter in self.products)

    @property
    def constraint(self):
        return Constraint(self.positivity, self.masked)

    @property
    def steps(self):
        return step_sizes(self.shift, self.dictionary.norm_squared, self.constraint.active)

    def blocks(self, **chunks):
        return Blocks(self.nband, *self.dictionary.codomain, **chunks)

    def solver(self, nworker=1, cycle=0, **chunks):
        blocks = self.blocks(**chunks)
        names = Names(token("problem", self, nworker, sorted(chunks.items()))).within("cycle", cycle)
        return PrimalDual(
            names, blocks, self.dictionary, JointPrior(self.prior, self.nband, products=self.numbers),
            self.steps, self.radius, self.gamma,
            self.constraint, self.tol, nworker, products=self.products,
        )  # fmt: skip

    def data(self, graph, solver):
        """Add the tasks that make what is resident; returns its keys."""
        names, blocks = solver.names.within("data"), solver.blocks
        bands = range(self.nband)
        hessians = [add(graph, names.key("hessian", v), make_hessian, self.shape, v) for v in bands]
        before = [add(graph, names.key("model", v), make_before, self.shape, v) for v in bands]
        slopes = [add(graph, names.key("slope", v), make_slope, self.shape, v, self.gamma) for v in bands]
        preconditioners = [
            add(graph, names.key("precondition", v), make_preconditioner, self.shape, v, self.gamma, self.shift) for v in bands
        ]
        weights = mask = None
        if self.weighted:
            size = self.dictionary.codomain
            weights = [add(graph, names.key("reweight", b), make_weight, size, *part) for b, part in enumerate(blocks.bases)]
        if self.masked:
            mask = add(graph, names.key("mask"), make_mask, self.shape)
        return Data(hessians, before, slopes, preconditioners, weights, mask)

    def eager(self, maxit, start=None, tau=None):
        """Solve in this process, from zero duals or from what was `Found` before; with a number in place of T if there is one."""
        bands = range(self.nband)
        hessians, before = ([make(self.shape, v) for v in bands] for make in (make_hessian, make_before))
        slopes = [make_slope(self.shape, v, self.gamma) for v in bands]
        preconditioners = [make_preconditioner(self.shape, v, self.gamma, self.shift) for v in bands]
        nbasis, ncoefficient = size = self.dictionary.codomain
        prior = JointPrior(self.prior, self.nband, make_weight(size, 0, nbasis) if self.weighted else None, self.numbers)
        x, dual, bounds = before, np.zeros((nbasis, self.nband, ncoefficient)), 0
        if start is not None:
            x, dual, bounds = list(start.models), start.dual, start.bounds
        polar = Polar(self.constraint, make_mask(self.shape) if self.masked else None, bounds, self.products)
        minimisation = primal_dual.Minimisation(
            lambda v, image: hessians[v].dot(image - before[v]) / self.gamma - slopes[v],
            lambda v, image: preconditioners[v].dot(image) if tau is None else tau * image,
            self.dictionary, prior, polar if self.constraint.active else None,
        )  # fmt: skip
        solution = primal_dual.solve(
            minimisation, x, dual, radius=self.radius, shift=self.shift, tol=self.tol, maxit=maxit,
        )  # fmt: skip
        models = np.array(solution.x)
        if not self.constraint.active:
            return Found(models, models, solution.dual, models[:0], solution.gate)
        # The last call made the models, the one before the last dual.
        (_, bounds), (x, _) = polar.calls[-2:]
        return Found(models, x, solution.dual, bounds, solution.gate)


def build(problem, solver, cuts):
    """Return the graphs of blocks of iterations that end at `cuts`, the resident data in the first one."""
    graph = {}
    data = problem.data(graph, solver)
    solver.start(graph, list(data.before), None)
    graphs, first = [], 0
    for last in cuts:
        solver.iterations(graph, data, first, last)
        graphs.append(graph)
        graph, first = {}, last
    return graphs, data


def keys_of(data):
    """All keys of the resident data."""
    mask = [] if data.mask is None else [data.mask]
    return [*data.hessians, *data.before, *data.slopes, *data.preconditioners, *(data.weights or []), *mask]


def run(problem, engine, solver, cuts):
    """Run blocks of iterations that end at `cuts` as a pipeline does, and leave the result resident."""
    graphs, data = build(problem, solver, cuts)
    kept = keys_of(data)
    for graph, last in zip(graphs, cuts, strict=True):
        engine.submit(graph, solver.state(last) + kept)
        kept = []
    return data


def finish(engine, solver, data, last):
    """Make the models of single bands after some iterations; returns their keys."""
    graph = {}
    models = solver.finish(graph, last, data.mask)
    engine.run(graph, models)
    return models


def collect(engine, solver, data, last):
    """Bring the state after some iterations here."""
    models = np.array(engine.fetch(finish(engine, solver, data, last)))
    x = np.array(engine.fetch(solver.primal(last)))
    dual = np.concatenate([np.concatenate(engine.fetch(row), axis=1) for row in solver.dual(last)])
    bounds = np.array(engine.fetch(solver.bounds(last)) or models[:0])
    return Found(models, x, dual, bounds, engine.fetch([solver.gate(last)])[0])


def assert_same(found, expected):
    """To the bit; but for the change of the dual, which has sums of its own."""
    for field in ("models", "x", "dual", "bounds"):
        np.testing.assert_array_equal(getattr(found, field), getattr(expected, field), err_msg=field)
    assert found.gate[:3] == expected.gate[:3]


class Careful(pickle.Pickler):
    """A pickler that allows no array."""

    def persistent_id(self, obj):
        assert not isinstance(obj, np.ndarray), f"an array of shape {obj.shape} is in the graph"
