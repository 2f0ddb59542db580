"""The Hessian of a band: the convolution with its PSF, and the one through its visibilities."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

from pfb.errors import ShapeError
from pfb.kernels.merging import merge
from pfb.kernels.samples import Streamed, coordinates
from pfb.kernels.sampling import sampling
from pfb.operators import hessian
from pfb.operators.hessian import ACCURACY, W_ACCURACY, PsfHessian, VisibilityHessian
from pfb.operators.measurement import Gridder
from pfb.testing import check_adjoint
from pfb.types import LIGHTSPEED, Visibilities
from tests.operators.bands import wsum

SHAPES = [(8, 8), (7, 9), (10, 7)]
CELL = 1e-3


def matrix_of(op):
    """The operator applied to every pixel in turn."""
    units = np.eye(int(np.prod(op.domain))).reshape(-1, *op.domain)
    return np.stack([op.dot(unit).ravel() for unit in units], axis=1)


def even_symmetric(shape, rng):
    """A PSF on an even grid whose transform is real and positive: a sum of cosines that fit the grid."""
    spectrum = rng.uniform(0, 1, (shape[0], shape[1]))
    return np.fft.fftshift(np.fft.fft2(spectrum).real)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_it_convolves_with_a_psf_of_positive_transform(shape, rng):
    """Element (i, j) of the matrix is the PSF at i - j, over wsum, and eta on the diagonal."""
    padded = tuple(2 * n for n in shape)
    psf = even_symmetric(padded, rng)
    expected = np.empty((*shape, *shape))
    for index in np.ndindex(expected.shape):
        x, y, i, j = index
        expected[index] = psf[x - i + padded[0] // 2, y - j + padded[1] // 2]
    size = int(np.prod(shape))
    expected = expected.reshape(size, size) / 3 + 0.25 * np.eye(size)
    np.testing.assert_allclose(matrix_of(PsfHessian(psf, shape, 3.0, eta=0.25)), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_it_is_gridding_after_degridding_where_the_psf_is_compact(shape, rng):
    """R^H W R / w, of a flat array whose PSF is a Gaussian of 1.5 pixels: nothing is cut off, and its transform is positive."""
    u, v = np.meshgrid(np.linspace(-0.5, 0.5, 41), np.linspace(-0.5, 0.5, 41))  # per pixel
    uvw = np.stack([u.ravel(), v.ravel(), 0 * u.ravel()], axis=1) * LIGHTSPEED / 1e9 / CELL
    weight = np.exp(-0.5 * (2 * np.pi * 1.5) ** 2 * (u**2 + v**2)).reshape(-1, 1)
    band = (Visibilities(uvw, np.array([1e9]), np.zeros(weight.shape, complex), weight),)
    gridder = Gridder(shape, CELL, epsilon=1e-10)
    hessian = PsfHessian(gridder.psf(band, tuple(2 * n for n in shape)), shape, wsum(band))
    x = rng.standard_normal(shape)
    np.testing.assert_allclose(hessian.dot(x), -gridder.residual(band, x).image / wsum(band), rtol=0, atol=1e-4)


@pytest.mark.parametrize("padded", [(8, 6), (11, 9), (16, 12)], ids=str)
def test_it_is_symmetric_and_positive_for_any_psf(padded, rng):
    op = PsfHessian(rng.standard_normal(padded), (8, 6), 2.0, eta=0.1)
    matrix = matrix_of(op)
    np.testing.assert_allclose(matrix, matrix.T, rtol=0, atol=1e-14)
    values = np.linalg.eigvalsh(matrix)
    assert values[0] >= 0.1 - 1e-13
    assert values[-1] <= op.bound + 1e-13


def test_the_bound_is_reached_where_nothing_is_padded(rng):
    op = PsfHessian(rng.standard_normal((8, 6)), (8, 6), 2.0, eta=0.1)
    assert np.linalg.eigvalsh(matrix_of(op))[-1] == pytest.approx(op.bound, rel=1e-13)


def test_wsum_is_that_of_all_bands(rng):
    psf, x = rng.standard_normal((16, 12)), rng.standard_normal((8, 6))
    one, four = (PsfHessian(psf, (8, 6), wsum).dot(x) for wsum in (1.0, 4.0))
    np.testing.assert_allclose(one, 4 * four, rtol=1e-13)


def test_eta_is_added_whatever_wsum_is(rng):
    x = rng.standard_normal((8, 6))
    np.testing.assert_allclose(PsfHessian(np.zeros((16, 12)), (8, 6), 4.0, eta=0.5).dot(x), 0.5 * x, rtol=1e-15)


def test_single_precision_images_stay_single_whatever_the_psf(rng):
    psf, x = rng.standard_normal((16, 12)), rng.standard_normal((8, 6)).astype("f4")
    op = PsfHessian(psf, (8, 6), 3.0, eta=0.1)
    assert op.dot(x).dtype == np.float32
    np.testing.assert_allclose(op.dot(x), op.dot(x.astype("f8")), rtol=0, atol=1e-5)
    single = PsfHessian(psf, (8, 6), 3.0, eta=0.1, dtype=np.float32)
    assert single.transfer.dtype == single.dtype == np.float32
    assert single.dot(x).dtype == np.float32
    assert single.dot(x.astype("f8")).dtype == np.float64
    np.testing.assert_allclose(single.dot(x), op.dot(x.astype("f8")), rtol=0, atol=1e-5)


def test_the_psf_is_not_kept_nor_changed(rng):
    psf, x = rng.standard_normal((16, 12)), rng.standard_normal((8, 6))
    before = psf.copy()
    op = PsfHessian(psf, (8, 6), 3.0)
    y = op.dot(x)
    assert (psf == before).all()
    psf[:] = 0
    np.testing.assert_array_equal(op.dot(x), y)


@pytest.mark.parametrize("padded", [(7, 12), (16, 5)], ids=str)
def test_a_psf_smaller_than_the_image_is_refused(padded):
    with pytest.raises(ShapeError, match=r"images of shape \(8, 6\) need one at least as large: .*--psf-oversize"):
        PsfHessian(np.zeros(padded), (8, 6), 1.0)


def test_an_image_of_another_shape_is_refused():
    with pytest.raises(ShapeError, match=r"an image of shape \(8, 6\), got \(6, 8\)"):
        PsfHessian(np.zeros((16, 12)), (8, 6), 1.0).dot(np.zeros((6, 8)))


# Through the visibilities


WIDE = 8e-3
"""Pixel size of a field so wide that the w-term turns phases by more than a radian."""
SINGLE = 50 * np.finfo("f4").eps
"""Of an operator that works in single precision."""
FINE = {"w_accuracy": 1e-5, "step": 0.0}
"""So that nothing but `ACCURACY` limits the operator."""


@pytest.fixture(params=["through samples", "as convolutions"])
def _way(request, monkeypatch):
    """Both ways, whatever the costs."""
    monkeypatch.setattr(hessian, "as_convolutions", lambda *_: request.param == "as convolutions")


def piece(rng, rows, freq):
    """Samples with large w, some of weight zero with NaN under it."""
    freq = np.asarray(freq)
    weight = rng.uniform(0.5, 2, (rows, freq.size)) * (rng.random((rows, freq.size)) > 0.2)
    uvw = rng.uniform(-1, 1, (rows, 3)) * [8, 8, 60]
    return Visibilities(uvw, freq, np.where(weight > 0, 0j, np.nan), weight)


@pytest.fixture
def band(rng, _way):
    """Two spectral windows of different size, one of them of one channel, and a piece without rows."""
    return piece(rng, 60, [0.9e9, 1.0e9, 1.1e9]), piece(rng, 40, [1.3e9]), piece(rng, 0, [1.4e9, 1.5e9])


def exact(band, gridder, x, total, eta):
    """From the residual in double precision without data, which is what the next major cycle sees."""
    empty = [p._replace(vis=np.zeros_like(p.vis)) for p in band]
    return -gridder.residual(empty, x).image / total + eta * x


def error(found, expected):
    return np.linalg.norm(found - expected) / np.linalg.norm(expected)


@pytest.mark.parametrize("shape", [(24, 24), (20, 30), (13, 17), (1, 9), (23, 2), (1, 1)], ids=str)
@pytest.mark.parametrize("eta", [0.0, 0.1])
def test_it_is_what_the_residual_changes_by(eta, shape, band, rng):
    """For every part, with the w-term, up to the edges of images of any size."""
    gridder = Gridder(shape, WIDE, epsilon=1e-9)
    total = 3 * wsum(band)
    op = VisibilityHessian(band, gridder, total, eta=eta, **FINE)
    for x in (rng.standard_normal(shape), np.eye(1, shape[0] * shape[1]).reshape(shape)):
        assert error(op.dot(x), exact(band, gridder, x, total, eta)) < 10 * ACCURACY


def test_the_w_term_is_not_negligible_here(band, rng):
    """What the test above would miss if it were."""
    x = np.eye(1, 24 * 24).reshape(24, 24)
    flat = VisibilityHessian(band, Gridder((24, 24), WIDE, wgridding=False), wsum(band))
    assert error(flat.dot(x), exact(band, Gridder((24, 24), WIDE, epsilon=1e-9), x, wsum(band), 0)) > 0.1


def test_a_source_at_the_edge_is_as_the_definition_has_it(band):
    """A sum of cosines, one a sample, that the gridder has no part in."""
    shape, place, flux = (16, 14), (0, 11), 2.0
    x = np.zeros(shape)
    x[place] = flux
    l = -(np.arange(16) - 8)[:, None] * WIDE
    m = (np.arange(14) - 7)[None, :] * WIDE
    sky = np.stack(np.broadcast_arrays(l, m, np.sqrt(1 - l**2 - m**2) - 1))
    expected = np.zeros(shape)
    for part in band:
        for row, weights in zip(part.uvw, part.weight, strict=True):
            for nu, weight in zip(part.freq, weights, strict=True):
                path = np.tensordot(row, sky - sky[:, place[0], place[1]][:, None, None], 1)
                expected += weight * flux * np.cos(2 * np.pi * nu / LIGHTSPEED * path)
    expected = expected / wsum(band) + 0.25 * x
    op = VisibilityHessian(band, Gridder(shape, WIDE), wsum(band), eta=0.25, **FINE)
    np.testing.assert_allclose(op.dot(x), expected, rtol=0, atol=10 * ACCURACY * flux)


@pytest.mark.parametrize("shape", [(12, 10), (7, 9), (1, 5)], ids=str)
def test_through_visibilities_it_is_symmetric_and_positive(shape, band, rng):
    op = VisibilityHessian(band, Gridder(shape, WIDE), wsum(band), eta=0.01, **FINE)
    check_adjoint(op, rng, rtol=SINGLE)
    matrix = matrix_of(op)
    np.testing.assert_allclose(matrix, matrix.T, rtol=0, atol=SINGLE)
    values = np.linalg.eigvalsh((matrix + matrix.T) / 2)
    assert values[0] > 0.01 - 10 * ACCURACY
    # The trace: every pixel sees the sum of the weights.
    np.testing.assert_allclose(np.diag(matrix), 1.01, rtol=10 * ACCURACY)


def test_parts_add_up(band, rng):
    gridder, x = Gridder((12, 10), WIDE), rng.standard_normal((12, 10))
    whole = VisibilityHessian(band, gridder, 7.0, eta=0.5, **FINE).dot(x)
    parts = sum(VisibilityHessian([part], gridder, 7.0, **FINE).dot(x) for part in band)
    np.testing.assert_allclose(whole, parts + 0.5 * x, rtol=0, atol=1e-4 * np.abs(whole).max())


def test_samples_that_see_the_image_alike_are_one(rng):
    """Of a short baseline that is read every eight seconds; the operator stays positive and within a per cent."""
    angle = np.linspace(0, 1.2, 600)
    uvw = np.stack([8 * np.cos(angle), 5 * np.sin(angle), 20 + 10 * np.sin(angle)], axis=1)
    weight = rng.uniform(0.5, 2, (600, 1))
    part = Visibilities(uvw, np.array([1.0e9]), np.zeros((600, 1), complex), weight)
    gridder = Gridder((20, 16), WIDE)
    every, few = (VisibilityHessian([part], gridder, weight.sum(), w_accuracy=1e-5, step=step) for step in (0.0, 0.1))
    assert merge(coordinates(part), weight[:, 0], (20, 16), WIDE, 0.1)[1].size < 150
    a, b = matrix_of(every), matrix_of(few)
    assert 1e-4 < error(b, a) < 0.01
    assert np.linalg.eigvalsh(b).min() > -1e-5 * np.linalg.eigvalsh(b).max()


def test_by_default_the_w_term_is_good_enough_for_major_cycles(band, rng):
    """They contract the error, and converge where H <= 2 (its approximation)."""
    exact, coarse = (
        matrix_of(VisibilityHessian(band, Gridder((24, 20), WIDE), wsum(band), w_accuracy=accuracy))
        for accuracy in (1e-5, W_ACCURACY)
    )
    assert 1e-3 < error(coarse, exact) < 0.05
    assert np.linalg.eigvalsh(2 * coarse - exact)[0] > -3e-3 * np.linalg.eigvalsh(exact)[-1]


def test_threads_may_share_it(band, rng):
    """As tasks of one worker do."""
    op = VisibilityHessian(band, Gridder((64, 60), WIDE), wsum(band))
    images = rng.standard_normal((40, 64, 60))
    expected = [op.dot(x) for x in images]
    with ThreadPoolExecutor(4) as pool:
        np.testing.assert_array_equal(list(pool.map(op.dot, images)), expected)


@pytest.mark.parametrize("n", [30, 30_000])
def test_many_samples_are_worked_on_as_convolutions(n, rng):
    """Unless that takes more memory than it may."""
    uvw = rng.uniform(-20, 20, (3, n))
    uvw[2] = rng.uniform(0, 400, n)
    seen = sampling(uvw, (40, 40), WIDE, 1e-3, 0.3)
    assert hessian.as_convolutions(seen, 10**9) == (n > 1000)
    assert not hessian.as_convolutions(seen, 10**5)


def test_it_is_the_convolution_with_the_psf_on_a_small_field(band, rng):
    """Where the w-term does not matter, with a PSF twice the image."""
    gridder = Gridder((9, 8), 1e-4, epsilon=1e-9)
    x = rng.standard_normal((9, 8))
    through = VisibilityHessian(band, gridder, wsum(band), eta=0.1)
    # The sum itself, because `PsfHessian` takes the modulus of the transform.
    psf = gridder.psf(band, (18, 16)) / wsum(band)
    expected = [[np.sum(x * psf[i + 9 - np.arange(9)][:, j + 8 - np.arange(8)]) for j in range(8)] for i in range(9)]
    np.testing.assert_allclose(through.dot(x), np.array(expected) + 0.1 * x, rtol=0, atol=10 * ACCURACY * np.abs(expected).max())


EMPTY = {
    "no piece": lambda rng: (),
    "no rows": lambda rng: (piece(rng, 0, [1e9]),),
    "no weight": lambda rng: (piece(rng, 5, [1e9])._replace(weight=np.zeros((5, 1)), vis=np.full((5, 1), np.nan + 0j)),),
}


@pytest.mark.parametrize("make", EMPTY.values(), ids=list(EMPTY))
def test_a_band_without_data_has_only_eta(make, rng):
    x = rng.standard_normal((12, 10))
    op = VisibilityHessian(make(rng), Gridder((12, 10), WIDE), 5.0, eta=0.25)
    np.testing.assert_array_equal(op.dot(x), 0.25 * x)


def test_samples_of_no_weight_do_not_count(band, rng):
    x, gridder = rng.standard_normal((12, 10)), Gridder((12, 10), WIDE)
    kept = [p._replace(uvw=p.uvw[(p.weight > 0).all(axis=1)], weight=p.weight[(p.weight > 0).all(axis=1)]) for p in band]
    masked = [p._replace(weight=p.weight * (p.weight > 0).all(axis=1)[:, None]) for p in band]
    a, b = (VisibilityHessian(parts, gridder, 50.0).dot(x) for parts in (kept, masked))
    assert error(a, b) < ACCURACY


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_the_result_has_the_precision_of_the_image(dtype, band, rng):
    x = rng.standard_normal((12, 10)).astype(dtype)
    before = x.copy()
    op = VisibilityHessian(band, Gridder((12, 10), WIDE), wsum(band), eta=0.1)
    out = op.dot(x)
    assert out.dtype == dtype
    assert (x == before).all()
    assert error(out, op.dot(x.astype("f8"))) < SINGLE


def test_a_gridder_that_is_less_accurate_still_stays_so(band, rng, monkeypatch):
    monkeypatch.setattr(hessian, "as_convolutions", lambda *_: False)
    x = rng.standard_normal((12, 10))
    coarse, fine, finest = (
        VisibilityHessian(band, Gridder((12, 10), WIDE, epsilon=epsilon), wsum(band)).dot(x) for epsilon in (1e-2, 1e-4, 1e-12)
    )
    np.testing.assert_array_equal(fine, finest)
    assert 0 < error(coarse, fine) < 0.1


def test_it_travels_without_the_visibilities(band, rng):
    """Its size is that of coordinates and weights, whatever the visibilities are."""
    part = piece(rng, 2000, np.linspace(1e9, 1.1e9, 20))
    op = VisibilityHessian([part], Gridder((12, 10), WIDE), wsum([part]), eta=0.1)
    packed = pickle.dumps(op)
    size = part.uvw.nbytes + part.freq.nbytes + part.weight.nbytes
    assert size < len(packed) < size + 2000
    x = rng.standard_normal((12, 10))
    np.testing.assert_array_equal(pickle.loads(packed).dot(x), op.dot(x))


def test_the_band_is_not_changed(band, rng):
    before = [(p.uvw.copy(), p.weight.copy(), p.vis.copy()) for p in band]
    VisibilityHessian(band, Gridder((12, 10), WIDE), wsum(band)).dot(rng.standard_normal((12, 10)))
    for (uvw, weight, vis), p in zip(before, band, strict=True):
        np.testing.assert_array_equal(p.uvw, uvw)
        np.testing.assert_array_equal(p.weight, weight)
        np.testing.assert_array_equal(p.vis, vis)


def test_visibilities_of_an_image_of_another_shape_are_refused(band):
    op = VisibilityHessian(band, Gridder((8, 6), WIDE), wsum(band))
    with pytest.raises(ShapeError, match=r"VisibilityHessian takes an image of shape \(8, 6\), got \(6, 8\)"):
        op.dot(np.zeros((6, 8)))


# Of a band that is streamed


def streamed(parts):
    return Streamed([partial(tuple.__getitem__, tuple(parts), i) for i in range(len(parts))])


@pytest.mark.parametrize("step", [0.0, 0.1])
def test_a_streamed_band_gives_the_same_products(step, band, rng):
    parts = [p._replace(uvw=p.uvw[i::3], vis=p.vis[i::3], weight=p.weight[i::3]) for p in band for i in range(3)]
    gridder, x = Gridder((24, 20), WIDE), rng.standard_normal((24, 20))
    one, other = (VisibilityHessian(b, gridder, wsum(band), eta=0.1, step=step) for b in (parts, streamed(parts)))
    assert error(other.dot(x), one.dot(x)) < SINGLE
    assert error(pickle.loads(pickle.dumps(other)).dot(x), one.dot(x)) < SINGLE


def test_merged_samples_of_a_streamed_band_are_bounded(band, rng, monkeypatch):
    monkeypatch.setattr(hessian, "MOST", 0.2)
    shape = 24, 20
    uvw, weight = hessian._samples(streamed(band), shape, WIDE, 0.1)
    fine, _ = hessian._samples(band, shape, WIDE, 0.1)
    assert uvw.shape[1] == weight.size <= 0.2 * 24 * 20 < fine.shape[1]
    assert weight.sum() == pytest.approx(wsum(band))


@pytest.mark.parametrize("make", EMPTY.values(), ids=list(EMPTY))
def test_a_streamed_band_without_data_has_only_eta(make, rng):
    x = rng.standard_normal((12, 10))
    op = VisibilityHessian(streamed(make(rng)), Gridder((12, 10), WIDE), 5.0, eta=0.25)
    np.testing.assert_array_equal(op.dot(x), 0.25 * x)
