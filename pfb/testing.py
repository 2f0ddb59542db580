"""Checks that the tests of every operator, regulariser and graph share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from pfb.types import LinearOperator, Real


def check_adjoint(op: LinearOperator, rng: np.random.Generator, rtol: float | None = None) -> None:
    r"""Raise AssertionError unless ``op.hdot`` is the adjoint of ``op.dot``.

    Measures :math:`|\Re\langle Ax, y\rangle - \langle x, A^H y\rangle|` against
    :math:`\lVert Ax\rVert \lVert y\rVert`. The inner product itself is no yardstick: for random
    vectors it is often near zero, by accident. The real part, because the domain is real whatever
    the codomain is. Shapes, precision and purity are checked on the way.

    Parameters
    ----------
    op : LinearOperator
        Its domain is real, its codomain real or complex.
    rng : numpy.random.Generator
        Draws x and y.
    rtol : float, optional
        50 eps of the operator's precision by default.
    """
    rtol = _rounding(op) if rtol is None else rtol
    x = _draw(op.domain, op.dtype, rng)
    x0 = x.copy()
    ax = op.dot(x)
    y = _draw(op.codomain, ax.dtype, rng)
    y0 = y.copy()
    ahy = op.hdot(y)

    assert ax.shape == op.codomain, f"{_name(op)}: dot returns shape {ax.shape}, not {op.codomain}"
    assert ahy.shape == op.domain, f"{_name(op)}: hdot returns shape {ahy.shape}, not {op.domain}"
    assert ax.real.dtype == ahy.dtype == op.dtype, f"{_name(op)} changed the precision to {ax.dtype} and {ahy.dtype}"
    assert (x == x0).all(), f"{_name(op)}: dot changed its input"
    assert (y == y0).all(), f"{_name(op)}: hdot changed its input"

    lhs = float(np.vdot(_double(ax), _double(y)).real)
    rhs = float(np.vdot(_double(x), _double(ahy)))
    error = abs(lhs - rhs) / _positive(np.linalg.norm(ax) * np.linalg.norm(y))
    ratio = rhs / lhs if lhs else float("nan")
    assert error <= rtol, (
        f"{_name(op)}: <Ax, y> = {lhs:.6g} but <x, Ahy> = {rhs:.6g} (ratio {ratio:.6g}), error {error:.1e} > {rtol:.1e}"
    )


def check_linear(op: LinearOperator, rng: np.random.Generator, rtol: float | None = None) -> None:
    r"""Raise AssertionError unless ``op.dot`` and ``op.hdot`` are linear over the reals.

    Measures :math:`\lVert A(ax + by) - aAx - bAy \rVert` against :math:`|a| \lVert Ax \rVert + |b| \lVert Ay \rVert`.

    Parameters
    ----------
    op, rng, rtol
        As for `check_adjoint`.
    """
    rtol = _rounding(op) if rtol is None else rtol
    values = op.dot(np.zeros(op.domain, op.dtype)).dtype
    a, b = 0.7, -1.3  # not of sum 1, which would let an offset pass
    for apply, shape, dtype in ((op.dot, op.domain, op.dtype), (op.hdot, op.codomain, values)):
        x, y = _draw(shape, dtype, rng), _draw(shape, dtype, rng)
        ax, ay = _double(apply(x)), _double(apply(y))
        error = np.linalg.norm(_double(apply(a * x + b * y)) - a * ax - b * ay)
        error /= _positive(abs(a) * np.linalg.norm(ax) + abs(b) * np.linalg.norm(ay))
        name = getattr(apply, "__name__", "a map")
        assert error <= rtol, f"{_name(op)}: {name} is not linear, error {error:.1e} > {rtol:.1e}"


def check_prox(
    prox: Callable[[Real, float], Real],
    value: Callable[[Real], float],
    v: Real,
    tau: float,
    rng: np.random.Generator,
    probes: int = 600,
) -> None:
    r"""Raise AssertionError unless ``prox(v, tau)`` minimises :math:`F(x) = \tau g(x) + \frac12 \lVert x - v \rVert^2`.

    F is strongly convex, so p is its minimiser exactly if :math:`F(x) \ge F(p) + \frac12 \lVert x - p \rVert^2`
    for every x. That is tried at points in random directions, along the axes, towards v and towards zero,
    at distances over four decades.

    Parameters
    ----------
    prox, value
        The map, and g.
    v : ndarray of float
        A few tens of values at most: directions are drawn at random.
    tau : float
        Step.
    rng : numpy.random.Generator
        Draws the directions.
    probes : int
        Points that are tried.
    """
    v0 = v.copy()
    p = prox(v, tau)
    assert (v == v0).all(), "the proximal map changed its input"
    made, given = (p.dtype, p.shape), (v.dtype, v.shape)
    assert made == given, f"the proximal map made an array of {made} from one of {given}"
    p, v = _double(p), _double(v)

    def cost(x: Real) -> float:
        return tau * value(x) + 0.5 * float(np.vdot(x - v, x - v))

    at_p, length = cost(p), float(np.linalg.norm(v)) + 1e-3
    rounding = 100 * np.finfo(v0.dtype).eps
    for probe in range(probes):
        d = _direction(probe, p, v, rng)
        size = float(np.linalg.norm(d))
        if size == 0:
            continue
        distance = length * 10 ** rng.uniform(-4, 0)
        at_x = cost(p + d * (distance / size))
        gain = at_p + 0.5 * distance**2 - at_x
        assert gain <= rounding * (at_p + at_x + length * distance), (
            f"not the minimiser: the cost is {at_p:.9g}, and {at_x:.9g} at a distance of {distance:.3g}, "
            f"{gain:.2g} below what strong convexity allows"
        )


def refuse(*args: object, **kwargs: object) -> NoReturn:
    """Run no task: the dask scheduler under which a builder of graphs must pass.

    Use it as ``with dask.config.set(scheduler=refuse)``.
    """
    raise AssertionError("the builder computed")


def _draw(shape: tuple[int, ...], dtype: Any, rng: np.random.Generator) -> NDArray[Any]:
    values: NDArray[Any] = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * rng.standard_normal(shape)
    return values.astype(dtype)


def _direction(probe: int, p: Real, v: Real, rng: np.random.Generator) -> Real:
    """A random direction, every other time one along which regularisers have their kinks."""
    if probe % 2:
        return rng.standard_normal(p.shape)
    if probe % 4:
        return (v - p, p - v, -p, v, -v)[probe // 4 % 5]
    axis = np.zeros(p.size)
    axis[probe // 8 % p.size] = -1 if probe % 8 else 1
    return axis.reshape(p.shape)


def _double(x: NDArray[Any]) -> NDArray[Any]:
    """Double precision, so that the check adds no error of its own."""
    return x.astype(np.result_type(x.dtype, np.float64))


def _positive(x: Any) -> float:
    return max(float(x), float(np.finfo(np.float64).tiny))


def _rounding(op: LinearOperator) -> float:
    # An FFT of 2**k points, or a sum of as many terms, loses about k eps; ten times that is allowed.
    return 50 * float(np.finfo(op.dtype).eps)


def _name(op: LinearOperator) -> str:
    return f"{type(op).__name__}{op.domain}"
