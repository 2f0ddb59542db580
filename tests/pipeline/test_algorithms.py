"""The algorithms of `pfb clean` beside SARA, run on small sets whose sky is known."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from astropy.io import fits
from distributed import LocalCluster

from pfb.config import Clean
from pfb.errors import InputError, Stopped
from pfb.io.dataset import open_dataset
from pfb.pipeline import clean
from pfb.pipeline.checkpoint import Safety
from pfb.pipeline.reporting import Silent
from pfb.solvers.major_cycle import Cycle, Outcome
from tests.observations import small_set
from tests.pipeline.small_runs import CELL, sky
from tests.pipeline.test_checkpoint import killed

ALL = ("hogbom", "clark", "multiscale", "nnls")
POINTS = [(-8, 5, 1.0, -0.7, 0.0), (6, 9, 0.4, 0.5, 0.0), (4, -11, -0.3, 0.0, 0.0)]
BLOB = [(0, 0, 1.0, 0.0, 20.0), (14, 9, 0.2, 0.0, 0.0)]
GRID = dict(npix="48,45", cell=CELL, nband=3, threads_per_worker=2, psf_oversize=2.0)


@pytest.fixture(scope="module")
def points(tmp_path_factory):
    """Two points that are positive and one that is not, with little noise."""
    return small_set(tmp_path_factory.mktemp("points") / "a.ms", sky=sky(POINTS), nant=24, sefd=20.0).path


@pytest.fixture(scope="module")
def blob(tmp_path_factory):
    """A Gaussian much larger than the beam, and a point."""
    return small_set(tmp_path_factory.mktemp("blob") / "a.ms", sky=sky(BLOB), nant=24, sefd=200.0).path


@pytest.fixture
def run(dataset_only, tmp_path):
    """Clean a set and return its dataset."""

    def make(path, report=None, name="out", **options):
        config = Clean(output=str(tmp_path / name), **(GRID | options))
        clean.run((str(path),), config, report or Silent())
        return open_dataset(tmp_path / f"{name}.zarr", needs="clean").load().squeeze("stokes")

    return make


def flux(ds, x, y, reach=2):
    """Flux in a box around a pixel, of every band."""
    nx, ny = ds.model.shape[1:]
    a, b = nx // 2 + x, ny // 2 + y
    return ds.model.values[:, a - reach : a + reach + 1, b - reach : b + reach + 1].sum(axis=(1, 2))


def rms(ds):
    return float((ds.residual.sum("band") / ds.wsum.sum()).std())


@pytest.mark.parametrize("algorithm", ALL[:3])
def test_points_have_their_fluxes(algorithm, points, run, recorder):
    ds = run(points, recorder, algorithm=algorithm)
    for x, y, total, alpha, _ in POINTS:
        expected = total * (ds.freq.values / 1.284e9) ** alpha
        np.testing.assert_allclose(flux(ds, x, y), expected, rtol=0.01)
    assert rms(ds) < 1e-3  # the sources lie between pixels
    assert ds.attrs["outcome"] == "threshold"
    assert "does not stand out of the threshold" in " ".join(recorder.messages)
    assert "dual" not in ds
    assert set(recorder.rows[0]) >= {"cleaned to", "components"}
    assert ds.history_inner.values.sum() > 20


def test_the_same_without_a_prior(points, run):
    ds = run(points, algorithm="nnls", niter=6)
    assert (ds.model.values >= 0).all()
    for x, y, total, alpha, _ in POINTS[:2]:
        np.testing.assert_allclose(flux(ds, x, y), total * (ds.freq.values / 1.284e9) ** alpha, rtol=0.05)
    both = run(points, name="joint", algorithm="nnls", niter=1, nnls_iterations=15, positivity="joint").model.values > 0
    assert (both.any(axis=0) == both.all(axis=0)).all()
    assert both.any()


def test_scales_find_what_is_extended(blob, run):
    """The model is as smooth as the sky; points would make a bed of nails of it."""
    many = run(blob, algorithm="multiscale", positivity="clip")
    one = run(blob, name="one", algorithm="multiscale", scales="0")
    same = run(blob, name="same", algorithm="clark")
    np.testing.assert_array_equal(one.model.values, same.model.values)
    found, nails = (ds.model.values.mean(axis=0) for ds in (many, one))
    x, y = np.indices(found.shape)
    r2 = ((x - 24) ** 2 + (y - 22) ** 2) * CELL**2
    truth = np.exp(-4 * np.log(2) * r2 / 20**2)
    truth *= 1.0 / truth.sum()
    inner = r2 < 20**2
    assert np.abs(found - truth)[inner].mean() < 0.25 * truth[inner].mean()
    assert np.abs(nails - truth)[inner].mean() > 0.5 * truth[inner].mean()
    assert rms(many) < 1.05 * rms(one)
    np.testing.assert_allclose(flux(many, 14, 9, 1), 0.2, rtol=0.05)


@pytest.mark.parametrize("algorithm", ALL)
@pytest.mark.parametrize("positivity", ["clip", "joint"])
def test_a_model_may_be_kept_positive(algorithm, positivity, points, run):
    values = run(points, algorithm=algorithm, positivity=positivity, niter=3).model.values
    assert (values >= 0).all()
    assert values.max() > 0.2


@pytest.mark.parametrize("algorithm", ALL)
def test_a_model_stays_within_its_mask(algorithm, blob, run, tmp_path):
    inside = np.zeros((48, 45), bool)
    inside[15:40, 10:33] = True
    fits.writeto(tmp_path / "mask.fits", inside.T.astype("f4"))
    ds = run(blob, algorithm=algorithm, mask=str(tmp_path / "mask.fits"), niter=4)
    assert (ds.model.values[:, ~inside] == 0).all()
    assert (ds.model.values[:, inside] != 0).any()
    found = run(blob, name="auto", algorithm=algorithm, auto_mask=5.0, auto_mask_box=4.0, auto_mask_at="0,2", niter=4).model
    assert 0.01 < float((found != 0).mean()) < 0.6


@pytest.mark.parametrize("algorithm", ALL)
def test_a_band_without_data_is_left_out(algorithm, run, tmp_path):
    made = small_set(
        tmp_path / "a.ms", sky=sky(POINTS[:1]), nant=16, channels=(2, 2, 2), flagged_windows=(1,), rfi=0.0, sefd=20.0
    )  # fmt: skip
    ds = run(made.path, algorithm=algorithm, spectral_terms=2 if algorithm != "nnls" else None, niter=4, npix="31,64")
    assert float(ds.wsum[1]) == 0
    assert np.isnan(ds.residual[1]).all()
    assert np.isfinite(ds.model.values).all()
    np.testing.assert_allclose(flux(ds, -8, 5)[[0, 2]], (ds.freq.values[[0, 2]] / 1.284e9) ** -0.7, rtol=0.03)


@pytest.mark.parametrize("terms", [1, 2])
def test_fluxes_may_be_smooth_in_frequency(terms, points, run):
    ds = run(points, algorithm="clark", spectral_terms=terms)
    used = ds.model.values[:, (ds.model.values != 0).any(axis=0)]
    fit = np.polynomial.polynomial.polyfit(ds.freq.values / 1e9, used, terms - 1)
    expected = np.polynomial.polynomial.polyval(ds.freq.values / 1e9, fit).T
    np.testing.assert_allclose(used, expected, atol=1e-5)
    assert used.shape[1] > 2


def test_thresholds_limits_and_gains(points, run, recorder):
    ds = run(points, recorder, algorithm="clark", threshold=0.05)
    assert float(ds.history_lambda[-1]) == pytest.approx(0.05)
    assert 0.02 < float(ds.history_peak[-1]) < 0.07
    few = run(points, recorder, name="few", algorithm="hogbom", minor_iterations=7)
    assert few.history_inner.values.sum() == 7
    assert few.attrs["outcome"] == "iterations"
    assert "7 components are taken off" in " ".join(recorder.messages)
    slow = run(points, name="slow", algorithm="clark", major_gain=0.3, niter=1)
    fast = run(points, name="fast", algorithm="clark", niter=1)
    assert float(slow.history_lambda[0]) / 0.7 == pytest.approx(float(fast.history_lambda[0]) / 0.2, rel=1e-5)
    whole = run(points, name="whole", algorithm="hogbom", gain=1.0, niter=1)
    assert float(whole.history_inner[0]) <= 4  # a point goes in one step
    local = run(points, name="local", algorithm="clark", local_noise=True, auto_threshold=6.0, auto_mask_box=3.0)
    deep = run(points, name="deep", algorithm="clark", auto_threshold=3.0)
    assert float(local.history_lambda[-1]) > float(deep.history_lambda[-1])


@pytest.mark.parametrize("algorithm", ["clark", "nnls"])
def test_a_mop_fits_what_is_left_in_the_support(algorithm, points, run, recorder):
    options = dict(algorithm=algorithm, niter=2) | (dict(minor_iterations=20) if algorithm == "clark" else {})
    before = run(points, **options)
    after = run(points, recorder, name="mopped", mop=True, **options)
    assert any("fitted at once" in told for told in recorder.messages + recorder.warnings)
    assert rms(after) <= (0.5 if algorithm == "clark" else 1.0) * rms(before)
    assert ((after.model.values != 0) <= (before.model.values != 0)).all()


@pytest.mark.parametrize("algorithm", ALL)
def test_a_run_that_was_killed_ends_at_the_same_bits(algorithm, blob, run, dataset_only, tmp_path):
    options = dict(algorithm=algorithm, niter=3, auto_mask=4.0, auto_mask_box=4.0)
    expected = run(blob, **options)
    config = Clean(output=str(tmp_path / "killed"), checkpoint=1, **(GRID | options))
    with killed(2):
        clean.run((str(blob),), config, Silent())
    found = run(blob, name="killed", checkpoint=1, resume=True, **options)
    for name in ("model", "residual", "history_peak", "history_inner"):
        np.testing.assert_array_equal(found[name].values, expected[name].values)


@pytest.mark.parametrize("algorithm", ALL)
def test_a_run_that_is_asked_to_end_goes_on_from_the_beginning_of_its_cycle(algorithm, blob, run, dataset_only, tmp_path):
    options = dict(algorithm=algorithm, niter=3)
    expected = run(blob, **options)
    config = Clean(output=str(tmp_path / "asked"), **(GRID | options))
    questions = 0

    def stopping():
        nonlocal questions
        questions += 1
        return questions > 5  # the first cycle is over then

    with patch.object(Safety, "stopping", property(lambda self: stopping, lambda self, value: None), create=True):
        with pytest.raises(Stopped, match="go on with --resume"):
            clean.run((str(blob),), config, Silent())
    found = run(blob, name="asked", resume=True, **options)
    np.testing.assert_array_equal(found.model.values, expected.model.values)


def test_workers_find_the_same(blob, run):
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", memory_limit=0) as cluster:
        for algorithm in ALL:
            options = dict(algorithm=algorithm, niter=2)
            here = run(blob, name=f"{algorithm}-here", **options)
            there = run(
                blob, name=f"{algorithm}-there", scheduler=cluster.scheduler_address, threads_per_worker=None, **options
            )  # fmt: skip
            np.testing.assert_array_equal(here.model.values, there.model.values)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--algorithm", "hogbom", "--bases", "self"], "--bases is an option of sara, not of --algorithm hogbom: leave it out"),
        (["--gain", 0.2], "--gain is an option of hogbom and clark and multiscale, not of --algorithm sara"),
        (["--algorithm", "clark", "--scales", "0,4"], "--scales is an option of multiscale"),
        (["--algorithm", "multiscale", "--scales", "0,x"], "cannot read 'x' of '0,x' as a width"),
        (["--algorithm", "multiscale", "--scales", "-3"], "cannot read '-3'"),
        (["--algorithm", "multiscale", "--scales", "40px"], "40 pixels, which does not fit 48 x 45 pixels"),
        (["--algorithm", "clark", "--spectral-terms", 4], "--spectral-terms is 4 but there are 3 bands"),
        (["--algorithm", "nnls", "--threshold", 0.1], "--threshold is an option of"),
    ],
)  # fmt: skip
def test_options_that_make_no_sense_are_refused(words, sentence, blob, refused, tmp_path):
    grid = ["--npix", "48,45", "--cell", CELL, "--nband", 3]
    assert sentence in refused("clean", blob, "-o", tmp_path / "out", *grid, *words, folder=tmp_path)


def test_a_default_that_is_spelled_out_is_no_offence():
    Clean(output="x", algorithm="clark", bases="self,db1,db2,db3")
    with pytest.raises(InputError, match="--pd-maxit is an option of sara"):
        Clean(output="x", algorithm="clark", pd_maxit=3)


@pytest.mark.parametrize("reason", ["threshold", "iterations", "maxit", "diverged"])
def test_how_clean_ended_is_said(reason, recorder):
    line = Cycle(19, 2.0, 0.9, 1.0, 0.1, 5.0, 25, 1e-4, 1.0)
    clean.conclude(Outcome(reason, [line]), Clean(output="x", algorithm="clark"), recorder)
    (sentence,) = recorder.messages + recorder.warnings
    said = {"threshold": "threshold of 0.1 Jy", "iterations": "--minor-iterations", "maxit": "--niter 20", "diverged": "--gain"}
    assert said[reason] in sentence


@pytest.mark.parametrize("algorithm", ALL)
def test_a_plan_is_made(algorithm, blob, pfb):
    answer = pfb("plan", blob, "--npix", 512, "--cell", CELL, "--algorithm", algorithm, "--workers", 2)
    assert answer.code == 0
    assert "minor cycle" in answer.out
