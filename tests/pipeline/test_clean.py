"""`pfb clean`, from a measurement set to a model, on threads and on clusters."""

import os
import re
import signal
import subprocess
import sys
import time
import warnings
from dataclasses import fields
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr
from astropy.io import fits

from pfb.config import Clean, Image
from pfb.config.components import Components
from pfb.io import dataset
from pfb.io.measurement_set import Selection, select
from pfb.operators.hessian import VisibilityHessian
from pfb.pipeline import clean
from pfb.pipeline.reporting import Silent
from pfb.solvers.major_cycle import Cycle, Outcome
from tests.observations import ROOT, read_window, small_set
from tests.pipeline.small_runs import ARCSEC, CELL, NEAR, same, sky, stokes_i

C = 299792458.0
N = 64
KINDS = ("dirty", "psf", "model", "residual", "image")
# Pixels right and up of the centre, Jy at 1.284 GHz, spectral index, FWHM in arcsec.
SOURCES = [(-18, 11, 1.0, -0.7, 8.0), (13, 17, 0.5, 0.4, 6.0), (13, -15, 0.3, 0.0, 5.0)]
SETTINGS = dict(
    npix=f"{N}", cell=CELL, nband=3, bases="self,db2", rmsfactor=0.5, niter=12, pd_maxit=40, threads_per_worker=2,
)  # fmt: skip


def truth(source, freq):
    return source[2] * (freq / 1.284e9) ** source[3]


def around(source, half):
    """The pixels around a source."""
    return tuple(slice(N // 2 + p - half, N // 2 + p + half + 1) for p in source[:2])


def rms(image):
    return float(np.sqrt(np.mean(np.square(image))))


@pytest.fixture(scope="module")
def field(tmp_path_factory):
    """Three sources that 32 dishes see with 2 mJy of noise in the image."""
    return small_set(tmp_path_factory.mktemp("field") / "a.ms", sky=sky(SOURCES), nant=32, sefd=10_000.0).path


@pytest.fixture(scope="module")
def cleaned(field, tmp_path_factory):
    """One run with all its products."""
    prefix = tmp_path_factory.mktemp("cleaned") / "out"
    clean.run((field,), Clean(output=str(prefix), **SETTINGS), Silent())
    ds = stokes_i(f"{prefix}.zarr", needs="clean").load()
    return SimpleNamespace(prefix=prefix, ds=ds, total=float(ds.wsum.sum()))


def fits_of(cleaned, kind, form):
    with fits.open(f"{cleaned.prefix}-{kind}-{form}.fits") as hdus:
        return hdus[0].data[0].astype(float), hdus[0].header


# What comes out


def test_the_model_has_the_fluxes_and_spectra_of_the_sky(cleaned):
    ds = cleaned.ds
    for source in SOURCES:
        x, y = around(source, 6)
        found = ds.model.values[:, x, y].sum(axis=(1, 2))
        np.testing.assert_allclose(found, truth(source, ds.freq.values), rtol=0.06)
    outside = ds.model.values.copy()
    for source in SOURCES:
        outside[(slice(None), *around(source, 6))] = 0
    assert outside.sum(axis=(1, 2)).max() < 0.1


def test_restored_images_have_the_fluxes_of_the_sky(cleaned):
    ds = cleaned.ds
    cube, _ = fits_of(cleaned, "image", "cube")
    area = np.pi / (4 * np.log(2)) * ds.beam.values[:, 0] * ds.beam.values[:, 1] / (CELL * ARCSEC) ** 2
    for source in SOURCES:
        x, y = around(source, 11)
        np.testing.assert_allclose(cube[:, y, x].sum(axis=(1, 2)) / area, truth(source, ds.freq.values), rtol=0.05)


def test_single_precision_ends_at_the_same_model(cleaned, field, tmp_path):
    """To 1e-4 of the peak, though images and coefficients have half the digits while minimising."""
    assert Clean(output="out").precision == "single"
    clean.run((field,), Clean(output=str(tmp_path / "out"), precision="double", **SETTINGS), Silent())
    double = stokes_i(tmp_path / "out.zarr").load()
    difference = np.abs(cleaned.ds.model.values - double.model.values).max()
    assert 0 < difference < 1e-4 * np.abs(double.model.values).max()
    assert (double.model.values.astype("f4") != double.model.values).any()
    assert (cleaned.ds.model.values.astype("f4") == cleaned.ds.model.values).all()
    # The exact residual is that of the model in either.
    assert np.abs(cleaned.ds.residual.values.astype("f4") - cleaned.ds.residual.values).max() > 0


def test_a_point_between_pixels_stays_a_point(tmp_path):
    """At 8 arcsec, about the resolution of the data; from an empty model the point is spread over a few pixels."""
    n, x, y = 96, 5.5, 3.5
    made = small_set(tmp_path / "a.ms", sky=sky([(x, y, 1.0, 0.0, 0.0)]), nant=32, sefd=2000.0)
    u, v = np.fft.fftfreq(n, CELL)[:, None], np.fft.fftfreq(n, CELL)
    taper = np.exp(-((np.pi * 8) ** 2) / (4 * np.log(2)) * (u**2 + v**2))
    expected = taper * np.exp(-2j * np.pi * CELL * (u * x + v * y))

    def error(**options):
        config = Clean(output=str(tmp_path / "out"), overwrite=True, npix=str(n), cell=CELL, nband=1, niter=10, **options)
        clean.run((made.path,), config, Silent())
        model = np.fft.ifftshift(stokes_i(tmp_path / "out.zarr").model[0].values)
        return np.linalg.norm(taper * np.fft.fft2(model) - expected) / np.linalg.norm(expected)

    assert error() < 0.015
    assert error(start_level=1.0) > 0.03


def test_the_residual_drops_to_the_noise(cleaned):
    ds = cleaned.ds
    dirty, residual = (ds[name].values.sum(axis=0) / cleaned.total for name in ("dirty", "residual"))
    assert rms(dirty) > 0.04
    # Of imaging weights W the noise is sqrt(sum W^2 / w) / sum W; with Briggs' it is about 2.5 mJy.
    assert rms(residual) < 0.003
    assert float(ds.history_noise[-1]) == pytest.approx(rms(residual), rel=0.3)
    assert np.abs(residual).max() < 0.1 * np.abs(dirty).max()


def test_the_residual_is_the_exact_one(tmp_path):
    """Data less the visibilities of the model, by explicit sums and with no PSF in between."""
    made = small_set(tmp_path / "a.ms", sky=sky(NEAR), rfi=0.0, nchan=6)
    config = Clean(
        output=str(tmp_path / "out"), npix="24,19", cell=CELL, nband=2, niter=6, pd_maxit=30, weighting="natural", rmsfactor=0.3
    )
    clean.run((made.path,), config, Silent())
    ds = stokes_i(tmp_path / "out.zarr")
    (w,) = select([made.path], Selection()).windows
    uvw, raw, weight = read_window(w)
    vis = raw[..., [0, 3]].astype(complex).mean(axis=-1)
    weight = 4 / (1 / weight[..., 0].astype(float) + 1 / weight[..., 3])
    l = -(np.arange(24) - 12)[:, None] * CELL * ARCSEC
    m = (np.arange(19) - 9)[None] * CELL * ARCSEC
    lmn = np.stack(np.broadcast_arrays(l, m, np.sqrt(1 - l**2 - m**2) - 1)).reshape(3, -1)
    assert np.abs(ds.model).max() > 0.01
    for b in range(2):
        expected = np.zeros(24 * 19)
        for k in np.flatnonzero((w.freq > float(ds.freq_min[b])) & (w.freq < float(ds.freq_max[b]))):
            fringe = np.exp(2j * np.pi * (uvw @ lmn) * w.freq[k] / C)
            left = vis[:, k] - fringe @ ds.model[b].values.ravel()
            expected += (fringe.conj().T @ (weight[:, k] * left)).real
        wsum = float(ds.wsum[b])
        np.testing.assert_allclose(ds.residual[b] / wsum, expected.reshape(24, 19) / wsum, atol=1e-6)


def test_products_and_their_units(cleaned):
    names = {f"out-{kind}-{form}.fits" for kind in KINDS for form in ("mfs", "cube")} | {"out-quicklook.png", "out.zarr"}
    assert {p.name for p in cleaned.prefix.parent.iterdir()} == names
    ds = cleaned.ds
    wsum = ds.wsum.values[:, None, None]
    for kind in KINDS:
        unit = "Jy/pixel" if kind == "model" else "Jy/beam"
        for form, planes in (("mfs", 1), ("cube", 3)):
            data, header = fits_of(cleaned, kind, form)
            assert header["BUNIT"] == unit
            assert data.shape[0] == header["NAXIS3"] == planes
            assert np.isfinite(data).all()
            assert ("BMAJ" in header) == (kind != "model")
            assert header["CTYPE3"] == "FREQ"
        if kind == "image":
            continue
        scale = 1 if kind == "model" else wsum
        np.testing.assert_allclose(data, (ds[kind].values / scale).swapaxes(1, 2), atol=1e-5)
    with fits.open(f"{cleaned.prefix}-image-cube.fits") as hdus:
        np.testing.assert_allclose(hdus["BEAMS"].data["BMAJ"], ds.beam.values[:, 0] / ARCSEC, rtol=1e-5)
        np.testing.assert_allclose(hdus["BANDS"].data["FREQ"], ds.freq.values)
    with open(f"{cleaned.prefix}-quicklook.png", "rb") as file:
        assert file.read(8) == b"\x89PNG\r\n\x1a\n"


def test_the_dataset_opens_with_xarray_and_holds_everything(cleaned):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ds = xr.open_zarr(f"{cleaned.prefix}.zarr", chunks=None)
    expected = {name for name, variable in dataset.SCHEMA.items() if "clean" in variable.makers}
    assert expected <= set(ds.variables)
    assert all(np.isfinite(ds[name]).all() for name in expected)
    for name in expected:
        assert ds[name].attrs["units"] == dataset.SCHEMA[name].units
    assert ds.attrs["bases"] == ["self", "db2"]
    assert ds.attrs["nlevels"] == 5
    assert ds.attrs["outcome"] in ("converged", "noise", "maxit")
    assert set(ds.attrs["options"]) == {f.name for f in fields(Clean)}
    assert ds.dual.shape[:3] == (2, 1, 3)
    assert float(np.abs(ds.dual).max()) > 0
    assert float(np.abs(ds["update"]).max()) > 0


def test_the_history_is_that_of_the_residual(cleaned):
    ds = cleaned.ds
    assert 2 <= ds.sizes["cycle"] <= 12
    assert all(np.isfinite(ds[f"history_{name}"]).all() for name in dataset.HISTORY)
    found, peak, noise, threshold = (ds[f"history_{name}"].values for name in ("rms", "peak", "noise", "lambda"))
    residual = ds.residual.values.sum(axis=0) / cleaned.total
    assert found[-1] == pytest.approx(rms(residual), rel=1e-9)
    assert peak[-1] == pytest.approx(np.abs(residual).max(), rel=1e-9)
    last = threshold[0]
    for k, (level, top) in enumerate(zip(1.25 * noise[:-1], peak[:-1], strict=True)):
        last = max(0.5 * level, 0.02 * top, 0.6 * last)
        assert threshold[k + 1] == pytest.approx(last, rel=1e-9)
    assert (np.diff(found) < 0.02 * found[:-1]).all(), "a cycle made the residual larger"
    assert float(ds.history_change[-1]) < 0.5 * float(ds.history_change[0])
    assert (ds.history_inner <= 40).all()


@pytest.mark.parametrize(
    ("reason", "said"),
    [("converged", "changed the model by 1.00e-04, less than --tol"), ("noise", "down to its noise: 0.9 Jy/beam .* make 1$"),
     ("maxit", r"--niter 20 cycles done; .* above --tol"), ("diverged", "rose twice in a row: the best model is kept")],
)  # fmt: skip
def test_how_it_ended_is_said(reason, said, recorder):
    line = Cycle(19, 2.0, 0.9, 1.0, 0.1, 5.0, 25, 1e-4, 1.0)
    clean.conclude(Outcome(reason, [line]), Clean(output="x"), recorder)
    (sentence,) = recorder.messages + recorder.warnings
    assert re.search(said, sentence)


def test_what_is_said(pfb, small, tmp_path):
    words = ["--nband", 2, "--npix", 32, "--cell", CELL, "--niter", 2, "--pd-maxit", 10, "--rmsfactor", 0.3]
    answer = pfb("clean", small, "-o", tmp_path / "out", *words)
    assert answer.code == 0
    lines = answer.out.splitlines()
    (header,) = [line for line in lines if line.startswith("cycle")]
    assert all(word in header for word in ("peak", "rms", "lambda", "objective", "inner", "seconds"))
    rows = lines[lines.index(header) + 1 :][:2]
    assert [row.split()[0] for row in rows] == ["0", "1"]
    assert all(f"out-{kind}-{form}.fits" in answer.out for kind in KINDS for form in ("mfs", "cube"))
    assert "out-quicklook.png" in answer.out
    assert str(tmp_path / "out.zarr") in answer.out


# Options, on few pixels of a small set, without the images


def test_the_same_inputs_give_the_same_bits(run):
    one = run()
    assert same(one, run()) == []
    assert "model" in same(one, run(pd_maxit=29))


def test_bits_do_not_depend_on_the_number_of_threads(run):
    assert same(run(threads_per_worker=1), run(threads_per_worker=3)) == []


def write_mask(path, mask):
    fits.PrimaryHDU(np.asarray(mask, "f4").T).writeto(path)
    return str(path)


def test_the_model_is_zero_outside_the_mask(run, tmp_path, recorder):
    mask = np.zeros((30, 27))
    mask[14:, 4:] = 1  # two of the sources; x falls with right ascension
    mask[20, 20] = np.nan
    mask[21, 21] = -3.0
    ds = run(mask=write_mask(tmp_path / "m.fits", mask), report=recorder)
    inside = (mask != 0) & ~np.isnan(mask)
    assert (ds.model.values[:, ~inside] == 0).all()
    assert np.abs(ds.model.values[:, inside]).max() > 0.01
    assert (run().model.values[:, ~inside] != 0).any()
    assert f"--mask {tmp_path / 'm.fits'} leaves {100 * inside.mean():.3g}% of the image to the model" in recorder.messages


@pytest.mark.parametrize("positivity", ["none", "joint"])
def test_masks_apply_whatever_the_positivity(run, tmp_path, positivity):
    mask = np.zeros((30, 27))
    mask[:17] = 1
    ds = run(mask=write_mask(tmp_path / "m.fits", mask), positivity=positivity, prior="l21")
    assert (ds.model.values[:, 17:] == 0).all()
    assert np.abs(ds.model.values[:, :17]).max() > 0.01


def test_positivity(run):
    models = {mode: run(positivity=mode, rmsfactor=0.1).model.values for mode in ("none", "clip", "joint")}
    assert models["none"].min() < -1e-4
    assert models["clip"].min() == models["joint"].min() == 0
    lit = {mode: (model > 0).sum(axis=0) for mode, model in models.items()}
    # Clipped bands are lit each by itself, joint ones all together or not at all.
    assert {1, 2} & set(lit["clip"].ravel().tolist())
    assert set(lit["joint"].ravel().tolist()) == {0, 3}


def test_priors_couple_the_bands(run):
    """Deviations from the mean over the bands are thresholded by themselves, or together with it."""
    models = {prior: run(prior=prior).model.values for prior in ("l21", "mean21")}
    assert all(np.abs(model).max() > 1e-3 for model in models.values())

    def relative_deviation(model):
        deviation = model - model.mean(axis=0)
        return np.linalg.norm(deviation) / np.linalg.norm(model)

    assert relative_deviation(models["mean21"]) < relative_deviation(models["l21"])


def test_bases_and_levels(run):
    for bases, nlevels in (("self", 3), ("self,db1, db4", 2), ("db2", 1)):
        ds = run(bases=bases, nlevels=nlevels, niter=1, pd_maxit=3)
        names = [name.strip() for name in bases.split(",")]
        assert ds.attrs["bases"] == names
        assert ds.attrs["nlevels"] == nlevels
        assert ds.sizes["basis"] == len(names)
        assert ds.sizes["coefficient"] >= 30 * 27
        assert all(np.abs(ds.dual.values[b]).max() > 0 for b in range(len(names)))


def test_the_first_model_is_as_deep_as_is_asked_for(run, recorder):
    deep, shallow, empty = (run(start_level=level, report=recorder) for level in (0.1, 0.9, 1.0))
    assert "model" in same(deep, shallow)
    assert "model" in same(shallow, empty)
    said = [text for text in recorder.messages if text.endswith("make the first model")]
    counts = [int(text.split()[0]) for text in said]
    assert counts[0] > counts[1] > counts[2] == 0
    assert float(deep.history_rms[0]) < float(empty.history_rms[0])
    # The highest peak that is left is what the first threshold is a fiftieth of.
    assert float(deep.history_lambda[0]) < 0.5 * float(empty.history_lambda[0])


def test_reweighting_starts_at_the_cycle_that_is_asked_for(run):
    never, late, weighted = (run(rmsfactor=1.0, niter=6, l1_reweight_from=first) for first in (-1, 6, 1))
    assert same(never, late) == []
    assert "model" in same(never, weighted)
    # What is bright is shrunk less, so less of it is left.
    assert float(weighted.history_rms[-1]) < float(never.history_rms[-1])
    assert "model" in same(weighted, run(rmsfactor=1.0, niter=6, l1_reweight_from=1, alpha=4.0))


def test_thresholds_follow_rmsfactor(run):
    ds = [run(rmsfactor=factor, niter=1, pd_maxit=100, start_level=1.0) for factor in (1.0, 2.0, 1e3)]
    found = [float(one.history_lambda[0]) for one in ds]
    assert found[1] == pytest.approx(2 * found[0]) == pytest.approx(found[2] / 500)
    assert ds[0].model.values.sum() > ds[1].model.values.sum() > 0
    assert np.abs(ds[2].model.values).max() < 1e-3 * np.abs(ds[1].model.values).max()


def test_iterations_end_where_the_options_say(run, recorder):
    ds = run(niter=3, tol=0.0, pd_maxit=7, pd_tol=0.0)
    assert ds.sizes["cycle"] == 3
    assert (ds.history_inner == 7).all()
    assert ds.attrs["outcome"] == "maxit"
    ds = run(niter=30, tol=1e9, pd_tol=1e9, rmsfactor=1.0, report=recorder)
    assert ds.sizes["cycle"] == 1
    assert float(ds.history_inner[0]) == 1
    assert ds.attrs["outcome"] == "converged"
    assert any(text.startswith("converged: the last cycle changed the model by") for text in recorder.messages)


@pytest.mark.parametrize(
    ("options", "changed"),
    [
        (dict(gamma=0.7), ["model", "update"]),
        (dict(eta=0.1), ["model", "update"]),
        (dict(psf_oversize=2.0), ["model", "update"]),
        (dict(cg_maxit=2), ["update"]),
        (dict(cg_tol=0.3), ["update"]),
    ],
    ids=str,
)
def test_numerical_options_reach_the_solvers(run, options, changed):
    assert same(run(niter=1), run(niter=1, **options), ("dirty", "model", "update")) == changed


def test_a_run_that_diverges_keeps_its_best_model(run, recorder, monkeypatch):
    """With a Hessian that is far too small every step is far too long."""
    honest = VisibilityHessian.dot
    monkeypatch.setattr(VisibilityHessian, "dot", lambda self, x: honest(self, x) / 20)
    monkeypatch.setattr("pfb.operators.preconditioner.neighbourhood_maximum", lambda transfer, padded: transfer / 20)
    ds = run(niter=20, pd_maxit=100, rmsfactor=1e-3, eta=0.0, l1_reweight_from=-1, report=recorder)
    assert ds.attrs["outcome"] == "diverged"
    assert any("rms and peak of the residual rose" in text for text in recorder.warnings)
    residual = ds.residual.values.sum(axis=0) / float(ds.wsum.sum())
    history = ds.history_rms.values
    assert history[-1] > 1.01 * rms(residual)
    assert rms(residual) <= 1.01 * history.min()
    assert np.isfinite(ds.model.values).all()


def test_options_of_clean_are_all_tried():
    tried = {
        "resume", "checkpoint",  # in test_checkpoint
        "beam_model", "beam_cutoff", "beam_average", "beam_use",  # in test_primary_beam
        "model",  # in test_transfer
        "mask_reproject", "auto_mask", "auto_mask_grow", "auto_mask_box", "auto_mask_at",  # in test_masking
        "robust_reweight_at", "robust_nu",  # in test_robust
        "restoring_beam", "common_beam",  # in test_restore
        "mask", "bases", "nlevels", "prior", "start_level", "rmsfactor", "niter", "tol", "gamma", "eta", "cg_tol", "cg_maxit",
        "pd_tol", "pd_maxit", "precision", "positivity", "l1_reweight_from", "alpha",
        "algorithm", *(f.name for f in fields(Components)),  # in test_algorithms
    }  # fmt: skip
    assert {f.name for f in fields(Clean)} - {f.name for f in fields(Image)} == tried


@pytest.mark.parametrize("empty", [0, 1, 2])
def test_a_band_without_data_has_a_model_and_nothing_else(tmp_path, field, pfb, empty, no_picture):
    made = small_set(tmp_path / "a.ms", sky=sky(SOURCES), nant=16, channels=(2, 2, 2), flagged_windows=(empty,), rfi=0.0)
    words = ["--npix", 64, "--cell", CELL, "--nband", 3, "--niter", 2, "--pd-maxit", 20, "--bases", "self"]
    answer = pfb("clean", made.path, "-o", tmp_path / "out", *words)
    assert answer.code == 0
    assert f"warning: band {empty} (" in answer.out
    ds = stokes_i(tmp_path / "out.zarr")
    full = [b for b in range(3) if b != empty]
    assert float(ds.wsum[empty]) == 0
    for name in ("dirty", "psf", "residual", "update", "beam"):
        assert np.isnan(ds[name][empty]).all()
        assert np.isfinite(ds[name][full]).all()
    assert np.isfinite(ds.dual[:, full]).all()
    assert np.isfinite(ds.model).all()
    assert float(ds.model[full].max()) > 0.01
    # Linear in frequency between neighbours, the nearest one beyond the ends.
    f = (ds.freq[1] - ds.freq[0]) / (ds.freq[2] - ds.freq[0])
    expected = {0: ds.model[1], 1: (1 - f) * ds.model[0] + f * ds.model[2], 2: ds.model[1]}[empty]
    np.testing.assert_allclose(ds.model[empty], expected, atol=1e-7 * float(ds.model.max()))
    for kind in KINDS:
        with fits.open(tmp_path / f"out-{kind}-cube.fits") as hdus:
            blank = np.isnan(hdus[0].data[0]).all(axis=(1, 2))
        assert blank.tolist() == [b == empty and kind != "model" for b in range(3)]
        with fits.open(tmp_path / f"out-{kind}-mfs.fits") as hdus:
            assert np.isfinite(hdus[0].data).all()


def test_the_place_of_an_empty_band_does_not_matter(run, tmp_path):
    """An empty band before, between or after those with data changes nothing about them."""
    for empty in range(3):
        made = small_set(tmp_path / f"{empty}.ms", sky=sky(NEAR), nspw=3, nchan=2, rfi=0.0, flagged_windows=(empty,))
        full = [b for b in range(3) if b != empty]
        among, alone = run(made.path), run(made.path, nband=2, spw=",".join(map(str, full)))
        for name in ("model", "residual"):
            np.testing.assert_array_equal(among[name].values[full], alone[name].values)
        assert np.abs(alone.model.values).max() > 0.01


def test_data_that_are_all_zero_give_images_that_are(run, small, tmp_path, recorder):
    made = small_set(tmp_path / "a.ms", zero_columns=("CORRECTED_DATA",))
    ds = run(made.path, report=recorder)
    assert recorder.warnings == [
        f"CORRECTED_DATA of {made.path} holds only zeros: choose another column with --data-column, or fill it"
    ]
    assert not ds.model.values.any()
    assert not ds.residual.values.any()
    assert (ds.wsum.values > 0).all()


def test_defaults_on_four_bands_an_odd_image_an_empty_band_and_nan_under_zero_weights(dataset_only, tmp_path):
    made = small_set(
        tmp_path / "a.ms", sky=sky(NEAR), nant=12, channels=(2, 2, 2, 2), flagged_windows=(1,), nan_in_flagged=True
    )  # fmt: skip
    clean.run((made.path,), Clean(output=str(tmp_path / "out"), npix="31,27", cell=CELL, nband=4), Silent())
    ds = stokes_i(tmp_path / "out.zarr", needs="clean").load()
    full = [0, 2, 3]
    assert float(ds.wsum[1]) == 0
    assert np.isnan(ds.residual[1]).all()
    assert np.isfinite(ds.model).all()
    dirty, residual = (ds[name].values[full].sum(axis=0) / float(ds.wsum.sum()) for name in ("dirty", "residual"))
    assert rms(residual) < 0.05 * rms(dirty)
    assert float(ds.history_noise[-1]) == pytest.approx(rms(residual), rel=0.5)
    np.testing.assert_allclose(ds.model.values.sum(axis=(1, 2)), [1.8] * 4, rtol=0.15)


def test_yaml_and_command_line_give_the_same_model(pfb, small, tmp_path, dataset_only):
    file = tmp_path / "clean.yaml"
    file.write_text(
        "npix: [30, 27]\ncell: 2\nnband: 3\nbases: [self, db1]\nniter: 2\npd-maxit: 30\n"
        "positivity: none\nrmsfactor: 5e-1\nwgridding: no\n"
    )
    words = "--npix 30,27 --cell 2 --nband 3 --bases self,db1 --niter 2 --pd-maxit 30"
    words += " --positivity none --rmsfactor .5 --no-wgridding"
    assert pfb("clean", small, "-o", tmp_path / "a", "--config", file).code == 0
    assert pfb("clean", small, "-o", tmp_path / "b", *words.split()).code == 0
    one, other = (stokes_i(tmp_path / f"{name}.zarr").load() for name in "ab")
    assert same(one, other) == []
    options = [{k: v for k, v in ds.attrs["options"].items() if k != "output"} for ds in (one, other)]
    assert options[0] == options[1]


# On clusters


CLUSTERED = dict(bases="self,db2", pd_maxit=12, l1_reweight_from=1, positivity="joint")


@pytest.mark.cluster
@pytest.mark.parametrize(("workers", "threads"), [(1, 2), (2, 1)])
def test_clusters_give_the_bits_that_threads_give(run, workers, threads):
    assert same(run(**CLUSTERED), run(**CLUSTERED, workers=workers, threads_per_worker=threads)) == []


@pytest.mark.cluster
def test_a_running_scheduler_is_joined_and_left_as_it_was(run, recorder, cluster):
    """It has more workers than there are bands."""
    ds = run(**CLUSTERED, nband=1, scheduler=cluster.scheduler_address, threads_per_worker=None, report=recorder)
    assert same(run(**CLUSTERED, nband=1, threads_per_worker=1), ds) == []
    assert any(text.startswith("dashboard: http://") for text in recorder.messages)
    deadline = time.monotonic() + 10
    while cluster.scheduler.tasks and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not cluster.scheduler.tasks, "the run left tasks behind"
    assert len(cluster.scheduler.workers) == 2


# Runs that end before their time


def start(path, prefix, *words):
    """Start a run in another process that will not end by itself for long, and wait until it works."""
    words = [*words, *"--npix 64 --cell 2 --nband 3 --niter 10000 --tol 0 --pd-tol 0 --pd-maxit 20 --rmsfactor 0.001".split()]
    process = subprocess.Popen(
        [sys.executable, "-c", "import sys; from pfb.cli import main; sys.exit(main())", "clean", path, "-o", prefix, *words],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    for line in process.stdout:
        if line.startswith("    0 "):  # the first major cycle is done
            return process
    raise AssertionError(process.communicate()[1])


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [(signal.SIGINT, 130, "pfb: interrupted"), (signal.SIGTERM, 143, "pfb: terminated before its products were written")],
)
def test_an_interrupt_leaves_nothing(small, tmp_path, number, code, said):
    """Without checkpoints, that is; those are for tests of their own."""
    process = start(small, tmp_path / "out", "--checkpoint", "0")
    assert [p.name.startswith(".") for p in tmp_path.iterdir()] == [True, True]
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err.strip()) == (code, said)
    assert not os.listdir(tmp_path)


def test_an_interrupt_says_how_to_go_on(small, tmp_path):
    process = start(small, tmp_path / "out", "--checkpoint", "1")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err.strip()) == (130, "pfb: interrupted")
    assert out.rstrip().endswith(f"{tmp_path / 'out.checkpoint'} holds what was done: go on with --resume")
    assert os.listdir(tmp_path) == ["out.checkpoint"]


def test_what_a_killed_run_left_is_removed_by_the_next(pfb, small, tmp_path, no_picture):
    process = start(small, tmp_path / "out", "--checkpoint", "0")
    process.kill()
    process.communicate()
    left = set(os.listdir(tmp_path))
    assert len(left) == 2
    assert pfb("clean", small, "-o", tmp_path / "other", "--npix", 16, "--niter", 1, "--pd-maxit", 2).code == 0
    assert left < set(os.listdir(tmp_path))
    assert pfb("clean", small, "-o", tmp_path / "out", "--npix", 16, "--niter", 1, "--pd-maxit", 2).code == 0
    assert not left & set(os.listdir(tmp_path))
    assert stokes_i(tmp_path / "out.zarr").sizes["x"] == 16
