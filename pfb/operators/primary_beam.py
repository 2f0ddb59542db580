"""Operators seen through a screen, as that of a band is through its primary beam."""

from __future__ import annotations

from typing import Any

from pfb.errors import ShapeError
from pfb.types import LinearOperator, Real


class Screened:
    r"""Apply an operator between two screens, :math:`y = D A D x + \eta (1 - D^2) x`.

    With :math:`A = H + \eta` that is :math:`D H D x + \eta x`.

    Parameters
    ----------
    operator : LinearOperator
        A, of images; self-adjoint if the result shall be.
    screen : (nx, ny) float
        The diagonal of D, e.g. a primary beam.
    eta : float
        What of A is to be outside of the screens.

    Attributes
    ----------
    domain, codomain, dtype
        Those of A.

    Raises
    ------
    ShapeError
        If the screen has another shape than the images.
    """

    def __init__(self, operator: LinearOperator, screen: Real, eta: float = 0.0) -> None:
        if screen.shape != operator.domain:
            raise ShapeError(f"the screen has shape {screen.shape} but the operator takes images of {operator.domain}")
        self.domain, self.codomain, self.dtype = operator.domain, operator.codomain, operator.dtype
        self.eta = eta
        self._operator, self._screen = operator, screen

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as what it was made of."""
        return Screened, (self._operator, self._screen, self.eta)

    def dot(self, x: Real) -> Real:
        """Apply the operator to an image; the result has the precision of the image."""
        screen = self._screen.astype(x.dtype, copy=False)
        out = screen * self._operator.dot(screen * x)
        if self.eta:
            out += self.eta * (1 - screen * screen) * x
        return out

    def hdot(self, y: Real) -> Real:
        """Apply the adjoint."""
        screen = self._screen.astype(y.dtype, copy=False)
        out = screen * self._operator.hdot(screen * y)
        if self.eta:
            out += self.eta * (1 - screen * screen) * y
        return out
