"""Runs whose outliers are weighed down: what they gain, what follows from the weights, and how they go on after an end."""

import numpy as np
import pytest

from pfb.config import Clean
from pfb.graph import imaging
from pfb.graph.engine import ThreadEngine
from pfb.io.measurement_set import Selection, select
from pfb.kernels import robust
from pfb.pipeline import clean
from pfb.pipeline.imaging import names_of
from pfb.pipeline.planning import make
from pfb.pipeline.reporting import Silent
from pfb.pipeline.weighting import scheme_of
from tests.observations import change, small_set
from tests.pipeline.small_runs import CELL, FEW, NEAR, same, sky, stokes_i
from tests.pipeline.test_checkpoint import killed

C = 299792458.0
ARCSEC = np.deg2rad(1 / 3600)


def spoil(data):
    """Interference that nobody has flagged, in one of a hundred samples."""
    rng = np.random.default_rng(3)
    n = data.shape[:2]
    strong = (rng.random(n) < 0.01) * 10 ** rng.uniform(0.5, 2.5, n) * np.exp(2j * np.pi * rng.random(n))
    return data + strong[..., None]


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    """A set that is good, and the same with interference."""
    folder = tmp_path_factory.mktemp("sets")
    made = [small_set(folder / name, sky=sky(NEAR), nant=16, scan_length=4.0, sefd=2_000.0).path for name in ("a.ms", "b.ms")]
    change(made[1], "CORRECTED_DATA", spoil)
    return made


@pytest.fixture
def cleaned(dataset_only, tmp_path):
    def run(path, report=None, **options):
        name = tmp_path / f"out{len(list(tmp_path.iterdir()))}"
        config = Clean(output=str(name), **(FEW | dict(nband=2) | options))
        clean.run((path,), config, report or Silent())
        return stokes_i(f"{name}.zarr", needs="clean").load()

    return run


def rms(ds):
    return float((ds.residual.sum("band") / ds.wsum.sum()).values.std())


def test_interference_is_weighed_down(sets, cleaned, recorder):
    options = dict(npix="64", niter=14)
    good, bad = (cleaned(path, **options) for path in sets)
    robust_ = cleaned(sets[1], recorder, robust_reweight_at="1,4", **options)
    assert rms(bad) > 20 * rms(good)
    assert rms(robust_) < 2 * rms(good)
    off = [float(np.abs(ds.model.sum("band") - good.model.sum("band")).values.sum()) for ds in (bad, robust_)]
    assert off[1] < 0.5 * off[0]
    said = [text for text in recorder.messages if text.startswith("outliers are weighed down")]
    assert [text[:33] for text in said] == ["outliers are weighed down (1 of 2", "outliers are weighed down (2 of 2"]
    assert sum("the thermal noise is" in text for text in recorder.messages) == 3
    # What else a run knows of noise goes with the weights it ends with.
    assert float(robust_.thermal[0]) != pytest.approx(float(bad.thermal[0]), rel=1e-3)


def samples_of(path, config):
    """Natural and imaging weights of every band as a run begins with them."""
    plan = make(select((path,), Selection()), config)
    graph, names = {}, names_of((path,), config)
    loaded = imaging.load(graph, names, plan.loaders, 0.0)
    weighed = imaging.weigh(graph, names, loaded, scheme_of(config, plan.geometry))
    engine = ThreadEngine(1)
    engine.run(graph, loaded + weighed)
    found = engine.fetch(loaded), engine.fetch(weighed)
    engine.close()
    return found


def waves(part, shape):
    """exp(2 pi i phase) of every sample and pixel, where the w-term is nothing."""
    l = -(np.arange(shape[0]) - shape[0] // 2) * CELL * ARCSEC
    m = (np.arange(shape[1]) - shape[1] // 2) * CELL * ARCSEC
    scale = part.freq / C
    u, v = (part.uvw[:, i, None, None] * scale[:, None] for i in (0, 1))
    return np.exp(2j * np.pi * u * l), np.exp(2j * np.pi * v * m)


@pytest.mark.parametrize("nu", [None, 3.0])
def test_images_are_those_of_the_weights(nu, sets, cleaned):
    """PSF, dirty image, residual and sums, by explicit sums with the weights that the model of the first cycle gives."""
    options = dict(robust_reweight_at="1", robust_nu=nu, precision="double")
    first, ds = (cleaned(sets[1], niter=n, **options) for n in (1, 2))
    config = Clean(output="x", **(FEW | dict(nband=2)))
    shape = ds.model.shape[1:]
    for b, (natural, weighed) in enumerate(zip(*samples_of(sets[1], config), strict=True)):
        (part,), (imaged,) = natural, weighed
        east, north = waves(part, shape)

        def predict(model, east=east, north=north):
            return np.einsum("rcx,xy,rcy->rc", east, model, north, optimize=True)

        good = part.weight > 0
        q = part.weight * np.abs(part.vis - predict(first.model.values[b])) ** 2
        weight = imaged.weight * robust.factor(q, robust.fit([q[good]], nu))
        assert float(ds.wsum[b]) == pytest.approx(weight.sum(), rel=1e-5)
        assert float(ds.freq[b]) == pytest.approx((weight * part.freq).sum() / weight.sum(), rel=2e-5)  # without the w-term

        def grid(vis, weight=weight, east=east, north=north):
            return np.einsum("rcx,rc,rcy->xy", east.conj(), weight * vis, north.conj(), optimize=True).real / weight.sum()

        np.testing.assert_allclose(ds.dirty[b] / ds.wsum[b], grid(part.vis), atol=5e-4)
        left = grid(part.vis - predict(ds.model.values[b]))
        np.testing.assert_allclose(ds.residual[b] / ds.wsum[b], left, atol=5e-4)
        assert np.abs(left).max() > 0.02
        nx, ny = ds.psf.shape[1:]
        x0, y0 = nx // 2 - shape[0] // 2, ny // 2 - shape[1] // 2
        inner = ds.psf[b, x0 : x0 + shape[0], y0 : y0 + shape[1]] / ds.wsum[b]
        np.testing.assert_allclose(inner, grid(np.ones(part.vis.shape)), atol=5e-4)
        assert not np.allclose(inner, first.psf[b, x0 : x0 + shape[0], y0 : y0 + shape[1]] / first.wsum[b], atol=1e-3)


def test_a_run_that_ends_early_renews_its_weights_before(sets, cleaned, recorder):
    """Among so much interference one cycle leaves nothing but noise."""
    ds = cleaned(sets[1], recorder, niter=3, npix="64", robust_reweight_at="2")
    assert any(text.startswith("outliers are weighed down (1 of 1)") for text in recorder.messages)
    assert 1 == sum(text.startswith("outliers are weighed down") for text in recorder.messages)
    assert ds.history_rms[1] < 0.5 * ds.history_rms[0]
    assert ds.sizes["cycle"] == 3


STEPS = dict(niter=3, pd_maxit=20, pd_tol=0.0, robust_reweight_at="1,2")


# Saves of three cycles of twenty iterations: at the start, within each cycle, and after it, with new weights then.
@pytest.mark.parametrize("after", range(1, 8))
def test_a_run_that_was_killed_ends_at_the_same_bits(after, sets, cleaned, tmp_path):
    expected = cleaned(sets[1], **STEPS)
    options = dict(output=str(tmp_path / "killed"), checkpoint=1, **(FEW | dict(nband=2) | STEPS))
    with killed(after):
        clean.run((sets[1],), Clean(**options), Silent())
    clean.run((sets[1],), Clean(resume=True, **options), Silent())
    found = stokes_i(tmp_path / "killed.zarr", needs="clean").load()
    names = ("dirty", "psf", "model", "residual", "update", "dual", "wsum", "freq", "thermal", "beam")
    assert same(expected, found, names) == []


@pytest.mark.cluster
def test_workers_give_the_bits_that_threads_give(sets, cleaned):
    expected = cleaned(sets[1], **STEPS)
    assert same(expected, cleaned(sets[1], workers=2, threads_per_worker=1, **STEPS)) == []


def test_a_band_without_data(tmp_path, cleaned):
    path = small_set(tmp_path / "empty.ms", sky=sky(NEAR), flagged_channels=(3, 4, 5)).path
    ds = cleaned(path, nband=3, niter=3, robust_reweight_at="1")
    assert (ds.wsum > 0).values.tolist() == [True, False, True]
    assert np.isnan(ds.psf[1]).all()
    assert np.isfinite(ds.model).all()
    np.testing.assert_allclose(ds.psf.max(("x_psf", "y_psf"))[[0, 2]], ds.wsum[[0, 2]], rtol=1e-6)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--robust-reweight-at", "0"], "--robust-reweight-at '0' is no list of numbers of major cycles: write them in rising"),
        (["--robust-reweight-at", "2,1"], "--robust-reweight-at '2,1' is no list"),
        (["--robust-reweight-at", "x"], "--robust-reweight-at 'x' is no list"),
        (["--robust-nu", "3"], "--robust-nu 3 is of the weights of --robust-reweight-at: give that too"),
        (["--robust-reweight-at", "1", "--robust-nu", "0"], "--robust-nu is 0.0 but must be greater than 0"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_done_is_refused(words, sentence, refused, sets, tmp_path):
    assert sentence in refused("clean", sets[0], "-o", tmp_path / "out", *words, folder=tmp_path)
