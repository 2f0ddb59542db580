"""What users of imagers have run into, where no other test shows it; docs/field-reports.md has all of it."""

import hashlib
import socket
from pathlib import Path

import numpy as np
import pytest
from astropy.io import fits

from pfb.config import Clean
from pfb.pipeline import clean
from pfb.pipeline.reporting import Silent
from tests.observations import change, small_set
from tests.pipeline.small_runs import CELL, NEAR, sky, stokes_i

OPTIONS = dict(npix="31,29", cell=CELL, bases="self,db1", niter=2, pd_maxit=10, threads_per_worker=2, checkpoint=0)


@pytest.fixture
def cleaned(tmp_path, no_picture):
    """Clean a set with a signal, with all images; returns the dataset, whose weight and model are not zero."""

    def run(path, **options):
        config = Clean(output=str(tmp_path / "out"), overwrite=True, **OPTIONS | options)
        clean.run((path,), config, Silent())
        ds = stokes_i(tmp_path / "out.zarr", needs="clean").load()
        assert float(ds.wsum.sum()) > 0
        assert np.abs(ds.model).max() > 0.01
        return ds

    return run


def near(path, **parameters):
    return small_set(path, sky=sky(NEAR), **dict(nant=8) | parameters)


def plane(folder, name):
    with fits.open(folder / f"out-{name}.fits") as hdus:
        return hdus[0].data[0], hdus[0].header


def test_rows_that_are_all_flagged_are_as_if_absent(cleaned, tmp_path):
    """A whole scan, and with it whole pieces of the set."""
    made = near(tmp_path / "a.ms", scans=2, rfi=0.0)
    half = np.arange(made.layout.rows) < made.layout.rows // 2
    change(made.path, "CORRECTED_DATA", lambda v: np.where(half[:, None, None], np.nan, v))
    change(made.path, "FLAG", lambda flag: flag | half[:, None, None].astype(flag.dtype))
    flagged = cleaned(made.path, nband=2)
    assert all(np.isfinite(plane(tmp_path, f"{kind}-cube")[0]).all() for kind in ("dirty", "psf", "model", "residual", "image"))
    chosen = cleaned(made.path, nband=2, scan="2")
    for name in ("wsum", "dirty", "model"):
        np.testing.assert_array_equal(flagged[name], chosen[name])


def test_one_channel_is_deconvolved(cleaned, tmp_path):
    ds = cleaned(near(tmp_path / "a.ms", nchan=1).path)
    assert ds.sizes["band"] == 1
    for kind in ("model", "residual", "image"):
        data, header = plane(tmp_path, f"{kind}-cube")
        assert np.isfinite(data).all()
        assert (header["NAXIS3"], header["CDELT3"]) == (1, pytest.approx(856e6))


def test_edge_channels_that_are_flagged_are_blank_and_have_a_model(cleaned, tmp_path):
    ds = cleaned(near(tmp_path / "a.ms", nchan=4, flagged_channels=(0, 3), nan_in_flagged=True).path, nband=4)
    assert (ds.wsum.values > 0).tolist() == [False, True, True, False]
    for kind in ("dirty", "residual", "image"):
        data, _ = plane(tmp_path, f"{kind}-cube")
        assert np.isnan(data).all(axis=(1, 2)).tolist() == [True, False, False, True]
        assert not np.isnan(data[1:3]).any()
        assert np.isfinite(plane(tmp_path, f"{kind}-mfs")[0]).all()
    model, _ = plane(tmp_path, "model-cube")
    assert np.isfinite(model).all()
    np.testing.assert_array_equal(model[[0, 3]], model[[1, 2]])


def test_a_set_is_never_written_to(cleaned, tmp_path):
    made = near(tmp_path / "a.ms", model_data=True)

    def digests():
        files = (p for p in Path(made.path).rglob("*") if p.is_file() and p.name != "table.lock")
        return {p: hashlib.sha256(p.read_bytes()).hexdigest() for p in files}

    before = digests()
    cleaned(made.path)
    assert len(before) > 50
    assert digests() == before


def test_weight_alone_is_enough(cleaned, tmp_path):
    tables = pytest.importorskip("casacore.tables")
    made = near(tmp_path / "a.ms", weight_spectrum="absent")
    before = cleaned(made.path)
    with tables.table(made.path, readonly=False, ack=False) as t:
        t.removecols("SIGMA")
        assert not {"SIGMA", "SIGMA_SPECTRUM", "WEIGHT_SPECTRUM"} & set(t.colnames())
    after = cleaned(made.path)
    for name in ("wsum", "dirty", "model"):
        np.testing.assert_array_equal(before[name], after[name])


@pytest.mark.parametrize("start", ["2024-06-10T06:00:00", "2035-06-10T06:00:00"])
def test_no_network_is_asked_for_anything(cleaned, tmp_path, pfb, monkeypatch, start):
    """Neither for leap seconds nor for the rotation of the Earth, of years to come either."""

    def refuse(*args, **kwargs):
        raise AssertionError(f"the network is asked for {args}")

    made = near(tmp_path / "a.ms", start=start)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    cleaned(made.path)
    assert plane(tmp_path, "image-mfs")[1]["DATE-OBS"].startswith(start[:14])
    assert pfb("check", made.path, "--npix", 16).code == 0
    assert pfb("info", made.path).code == 0


@pytest.mark.parametrize(
    "centre", [dict(ra=0.0, dec=30.0), dict(ra=359.99, dec=-30.0), dict(ra=10.0, dec=-90.0), dict(ra=10.0, dec=-89.9)]
)
def test_any_centre_is_deconvolved_on_any_size(cleaned, tmp_path, centre):
    made = small_set(tmp_path / "a.ms", nant=12, sefd=2000.0, rfi=0.0, **centre)
    model = cleaned(made.path, npix="61,53", cell=30.0, nband=1, niter=4, weighting="natural").model.values[0]
    assert model.shape == (61, 53)
    # Two points of `small_sky`, in arcminutes East and North, of two pixels each.
    for x, y, flux in [(7, 3, 1.0), (-5, 9, 0.4)]:
        around = model[30 - 2 * x - 1 : 30 - 2 * x + 2, 26 + 2 * y - 1 : 26 + 2 * y + 2]
        assert around.sum() == pytest.approx(flux, rel=0.1)
    header = plane(tmp_path, "image-mfs")[1]
    assert 0 <= header["CRVAL1"] < 360
    assert "LONPOLE" in header
    assert (header["NAXIS1"], header["NAXIS2"]) == (61, 53)


def test_a_stokes_product_whose_correlations_are_flagged_is_blank_and_named(tmp_path, no_picture, recorder):
    made = near(tmp_path / "a.ms", nchan=4, flagged_correlations=(1, 2), nan_in_flagged=True)
    config = Clean(output=str(tmp_path / "out"), stokes="IQUV", nband=2, **OPTIONS)
    clean.run((made.path,), config, recorder)
    for product in "IQUV":
        for kind in ("dirty", "residual", "image"):
            data, _ = plane(tmp_path, f"{product}-{kind}-cube")
            assert (np.isnan(data).all() if product in "UV" else np.isfinite(data).all()), product
        assert any(f"Stokes {product}" in warning for warning in recorder.warnings) == (product in "UV")
    assert np.abs(plane(tmp_path, "I-model-mfs")[0]).max() > 0.01
