import numpy as np
import pytest

from pfb.errors import ShapeError
from pfb.operators.hessian import PsfHessian, VisibilityHessian
from pfb.operators.measurement import Gridder
from pfb.operators.primary_beam import Screened
from pfb.types import Visibilities


def matrix(operator):
    """The operator applied to every unit image."""
    columns = [operator.dot(e.reshape(operator.domain)).ravel() for e in np.eye(int(np.prod(operator.domain)))]
    return np.array(columns).T


def test_it_is_its_matrix(rng):
    psf = rng.standard_normal((9, 11))
    plain, eta = PsfHessian(psf + psf[::-1, ::-1], (4, 5), 3.0), 0.25
    screen = rng.uniform(0, 2, (4, 5))
    screen[0, 0] = 0
    diagonal = np.diag(screen.ravel())
    expected = diagonal @ matrix(plain) @ diagonal + eta * np.eye(20)
    whole = PsfHessian(psf + psf[::-1, ::-1], (4, 5), 3.0, eta=eta)
    np.testing.assert_allclose(matrix(Screened(whole, screen, eta)), expected, atol=1e-12)
    np.testing.assert_allclose(matrix(Screened(plain, screen)), expected - eta * np.eye(20), atol=1e-12)


def test_a_band_behind_a_beam_is_its_explicit_sum(rng):
    """R P on the left and the right of the weights, with R the sum over pixels of fringes."""
    shape, cell, freq = (6, 5), 1e-3, np.array([1.0e9, 1.1e9])
    uvw = 100 * rng.standard_normal((9, 3))
    weight, beam = rng.uniform(0.5, 2, (9, 2)), rng.uniform(0.1, 1, shape)
    i, j = np.mgrid[: shape[0], : shape[1]]
    l, m = -(i - shape[0] // 2) * cell, (j - shape[1] // 2) * cell
    n = np.sqrt(1 - l**2 - m**2)
    phase = np.einsum("rk,kxy->rxy", uvw, np.stack([l, m, n - 1]))
    fringe = np.exp(2j * np.pi / 299792458.0 * freq[None, :, None, None] * phase[:, None])
    x = rng.standard_normal(shape)
    vis = np.einsum("rfxy,xy->rf", fringe, beam * x)
    expected = beam * np.einsum("rfxy,rf->xy", fringe.conj(), weight * vis).real / weight.sum() + 0.1 * x
    part = Visibilities(uvw, freq, np.zeros((9, 2), complex), weight)
    hessian = VisibilityHessian([part], Gridder(shape, cell), weight.sum(), eta=0.1, w_accuracy=1e-4, step=0)
    np.testing.assert_allclose(Screened(hessian, beam, 0.1).dot(x), expected, atol=3e-3 * np.abs(expected).max())


def test_a_screen_of_another_shape_is_refused():
    with pytest.raises(ShapeError, match=r"the screen has shape \(5, 4\) but the operator takes images of \(4, 5\)"):
        Screened(PsfHessian(np.ones((8, 10)), (4, 5), 1.0), np.ones((5, 4)))
