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
from pfb.operators.hessian import PsfHessian
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


def make_weight(size, first, last):
    """Weights of the prior, some of them zero."""
    rng = np.random.default_rng(3)
    return np.maximum(rng.uniform(-0.2, 2.0, size), 0)[first:last]


def make_mask(shape):
    mask = np.ones(shape, bool)
    mask[2:5, 3:7] = False
    return mask


class Found(NamedTuple):
    """A solution: images (nband, nx, ny), dual (nbasis, nband, ncoefficient) and the gate."""

    x: np.ndarray
    dual: np.ndarray
    gate: Gate


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
    tol: float = 4e-2

    @property
    def dictionary(self):
        return Dictionary(self.shape, self.bases, 2)

    @property
    def lipschitz(self):
        return max(make_hessian(self.shape, band).bound for band in range(self.nband)) / self.gamma

    def blocks(self, **chunks):
        return Blocks(self.nband, *self.dictionary.codomain, **chunks)

    def solver(self, nworker=1, cycle=0, **chunks):
        blocks = self.blocks(**chunks)
        names = Names(token("problem", self, nworker, sorted(chunks.items()))).within("cycle", cycle)
        steps = step_sizes(self.lipschitz, self.dictionary.norm_squared)
        return PrimalDual(
            names, blocks, self.dictionary, JointPrior(self.prior, self.nband), steps, self.radius, self.gamma,
            self.positivity, self.tol, nworker,
        )  # fmt: skip

    def data(self, graph, solver):
        """Add the tasks that make what is resident; returns its keys and the start."""
        names, blocks = solver.names.within("data"), solver.blocks
        bands = range(self.nband)
        hessians = [add(graph, names.key("hessian", v), make_hessian, self.shape, v) for v in bands]
        targets = [add(graph, names.key("target", v), make_target, self.shape, v) for v in bands]
        start = [add(graph, names.key("model", v), np.zeros, self.shape) for v in bands]
        weights = mask = None
        if self.weighted:
            size = self.dictionary.codomain
            weights = [add(graph, names.key("reweight", b), make_weight, size, *part) for b, part in enumerate(blocks.bases)]
        if self.masked:
            mask = add(graph, names.key("mask"), make_mask, self.shape)
        return Data(hessians, targets, weights, mask), start

    def constrain(self, images):
        out = [image * make_mask(self.shape) for image in images] if self.masked else images
        if self.positivity == "clip":
            return [np.maximum(image, 0) for image in out]
        if self.positivity == "joint":
            negative = np.any([image < 0 for image in out], axis=0)
            return [np.where(negative, 0, image) for image in out]
        return out

    def eager(self, maxit, start=None):
        """Solve in this process, from zero or from what was `Found` before."""
        hessians = [make_hessian(self.shape, band) for band in range(self.nband)]
        targets = [make_target(self.shape, band) for band in range(self.nband)]
        size = self.dictionary.codomain
        prior = JointPrior(self.prior, self.nband, make_weight(size, 0, size[0]) if self.weighted else None)
        x = [np.zeros(self.shape)] * self.nband if start is None else list(start.x)
        dual = np.zeros((size[0], self.nband, size[1])) if start is None else start.dual
        solution = primal_dual.solve(
            lambda band, image: hessians[band].dot(image - targets[band]) / self.gamma, self.dictionary, prior, self.constrain,
            x, dual, radius=self.radius, lipschitz=self.lipschitz, tol=self.tol, maxit=maxit,
        )  # fmt: skip
        return Found(np.array(solution.x), solution.dual, solution.gate)


def build(problem, solver, cuts):
    """Return the graphs of blocks of iterations that end at `cuts`, the resident data in the first one."""
    graph = {}
    data, start = problem.data(graph, solver)
    solver.start(graph, start, None)
    graphs, first = [], 0
    for last in cuts:
        solver.iterations(graph, data, first, last)
        graphs.append(graph)
        graph, first = {}, last
    return graphs, data


def keys_of(data):
    """All keys of the resident data."""
    mask = [] if data.mask is None else [data.mask]
    return [*data.hessians, *data.targets, *(data.weights or []), *mask]


def run(problem, engine, solver, cuts):
    """Run blocks of iterations that end at `cuts` as a pipeline does, and leave the result resident."""
    graphs, data = build(problem, solver, cuts)
    kept = keys_of(data)
    for graph, last in zip(graphs, cuts, strict=True):
        engine.submit(graph, solver.state(last) + kept)
        kept = []
    return data


def collect(engine, solver, last):
    """Bring the state after some iterations here."""
    x = np.concatenate(engine.fetch(solver.primal(last)))
    dual = np.concatenate([np.concatenate(engine.fetch(row), axis=1) for row in solver.dual(last)])
    return Found(x, dual, engine.fetch([solver.gate(last)])[0])


class Careful(pickle.Pickler):
    """A pickler that allows no array."""

    def persistent_id(self, obj):
        assert not isinstance(obj, np.ndarray), f"an array of shape {obj.shape} is in the graph"
