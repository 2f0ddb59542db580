"""`pfb check` foretells what `pfb clean` does, names what is odd, writes nothing and reads little."""

import json
import os
import shutil
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
from astropy.io import fits

from pfb.config import Check
from pfb.io.simulated_set import CIRCULAR
from pfb.io.sky import write_sky
from pfb.pipeline import budget, check, sampling, session
from pfb.pipeline.reporting import Silent
from tests.observations import change, small_set, to_store

FEW = ["--npix", 20, "--nband", 2, "--niter", 1, "--pd-maxit", 2, "--bases", "self", "--checkpoint", 0]
SMALL = dict(nant=5, nchan=4, scan_length=1.0)

# Parameters of the set, and what the check says of it: name, verdict and a part of the detail.
DEFECTS = {
    "none": ({}, []),
    "circular feeds": (dict(feeds=CIRCULAR), []),
    "turned feeds": (dict(receptor_angle=0.5), []),
    "one hand": (dict(feeds=(9,)), [("selection and image", "fails", "Stokes I needs XX and YY")]),
    "old frame": (dict(frame="B1950"), [("baselines", "ok", "in an old frame")]),
    "unknown frame": (dict(frame="GALACTIC"), [("selection and image", "fails", "J2000, ICRS or B1950 is needed")]),
    "windows of two sizes": (dict(channels=(3, 5)), [("channels", "ok", "8 in 2 spectral windows")]),
    "one channel": (dict(nchan=1), [("selection and image", "fails", "--nband is 2 but the selection has 1 channel")]),
    "descending": (dict(descending=True), [("channels", "ok", "1 of them descending")]),
    "unused descriptions": (dict(unused_descriptions=True), [("rows", "ok", "2 data descriptions own none")]),
    "autocorrelations": (dict(autocorrelations=True), [("rows", "ok", "20 of them autocorrelations")]),
    "shuffled": (dict(shuffled=True), []),
    "flagged channel": (dict(flagged_channels=(1,)), []),
    "flagged cross hands": (dict(flagged_correlations=(1, 2)), []),
    "flagged hand": (dict(flagged_correlations=(3,)), [("samples", "fails", "all selected samples are flagged or have weight")]),
    "flagged window": (
        dict(nspw=2, flagged_windows=(1,)),
        [("samples", "warning", "band 1 (1284 - 1712 MHz) has none of use"), ("samples", "warning", "%, 0%")],
    ),
    "all flagged": (dict(all_flagged=True), [("selection and image", "fails", "are flagged; select others")]),
    "flagged rows": (dict(flagged_rows=True, nan_in_flagged=True), []),
    "some not finite": (dict(nan_unflagged=True), [("visibilities", "warning", "are not finite, not flagged, and left out")]),
    "some without uvw": (dict(nan_uvw=True), []),
    "weights of zero": (dict(weight_spectrum="zero"), [("selection and image", "ok", "because WEIGHT_SPECTRUM is all zero")]),
    "no weights": (dict(weight_spectrum="zero", weight="zero"), [("selection and image", "fails", "has no usable weights")]),
    "weights of one": (dict(weight_spectrum="one"), [("selection and image", "ok", "because WEIGHT_SPECTRUM is all one")]),
    "negative weights": (dict(weight_spectrum="negative"), [("weights", "warning", "25% are negative, and left out")]),
    "infinite weights": (dict(infinite_weight=(1, 2)), [("weights", "warning", "50% are not finite, and left out")]),
    "infinite weights of a hand": (
        dict(infinite_weight=(0,)), [("samples", "fails", "all selected samples are flagged or have weight zero")]
    ),
    "weights of another scale": (dict(weight_factor=4.0), [("weights", "warning", "WEIGHT is 4 times 1 / SIGMA^2")]),
    "weights without cells": (dict(empty_columns=("WEIGHT_SPECTRUM",)), [("selection and image", "ok", "has empty cells")]),
    "no corrected data": (dict(corrected_data=False), [("selection and image", "ok", "column DATA is imaged (it has no usable")]),
    "no data": (dict(empty_columns=("DATA", "CORRECTED_DATA")), [("selection and image", "fails", "DATA of")]),
    "model of a wrong shape": (dict(model_data=True), []),
    "zero data": (dict(zero_columns=("CORRECTED_DATA",)), [("visibilities", "warning", "all are zero: was the column")]),
    "interference": (dict(unflagged_rfi=0.1), []),
    "no short baselines": (dict(flagged_below=500.0), []),
    "no baselines": (dict(flagged_below=1e6), [("selection and image", "fails", "are flagged; select others")]),
    "uvw in wavelengths": (dict(uvw_factor=(5.0, 5.0, 5.0)), [("baselines", "warning", "5 times as long as the antennas")]),
    "uvw turned round": (dict(uvw_factor=(-1, -1, -1)), [("baselines", "warning", "which MeerKAT does not write")]),
    "uvw turned round elsewhere": (
        dict(uvw_factor=(-1, -1, -1), telescope="LOFAR"), [("baselines", "ok", "second minus first antenna")]
    ),
    "u mirrored": (dict(uvw_factor=(-1, 1, 1)), [("baselines", "warning", "u of UVW have the opposite sign")]),
    "zero uvw": (dict(uvw_factor=(0, 0, 0)), [("selection and image", "fails", "UVW is zero in all selected rows")]),
    "another centre": (dict(centre_error=5.0), [("baselines", "warning", "phase centre say, by about 4.")]),
    "late times": (dict(time_shift=3600.0), [("baselines", "warning", "UVW point elsewhere")]),
    "unix times": (dict(time_shift=-3506716800.0), [("times", "warning", "but a Unix time")]),
    "rows twice": (dict(duplicated_rows=True), [("rows", "warning", "4 rows have time, antennas, field and window of another")]),
    "no widths": (
        dict(zero_widths=True), [("channels", "warning", "CHAN_WIDTH is zero"), ("selection and image", "ok", "no CHAN_WIDTH")]
    ),
    "no width of one channel": (dict(nchan=1, zero_widths=True), [("selection and image", "fails", "channels of no width")]),
    "dishes of no size": (dict(dish_diameter=False), [("antennas", "warning", "DISH_DIAMETER is not known")]),
    "no telescope": (dict(telescope=""), [("tables", "warning", "OBSERVATION names no telescope")]),
    "tables that are missing": (
        dict(missing_tables=("OBSERVATION", "HISTORY")),
        [("tables", "warning", "without OBSERVATION some of"), ("tables", "warning", "some of")],
    ),
    "no fields": (dict(missing_tables=("FIELD",)), [("selection and image", "fails", "has no sub-table FIELD")]),
    "read only": (dict(read_only=True), []),
    "several fields": (dict(calibrators=True), [("selection and image", "ok", "the only one observed as a target")]),
}  # fmt: skip


@pytest.fixture
def both(pfb, contents, tmp_path, dataset_only):
    """Check and clean with the same words; returns the record of the check once both agree whether it can work."""

    def run(*words, output=tmp_path / "out"):
        before = contents(tmp_path)
        answer = pfb("check", *FEW, *words, "-o", output, "--json")
        assert answer.err == ""
        assert contents(tmp_path) == before, "something was written"
        record = json.loads(answer.out)
        cleaned = pfb("clean", *FEW, *words, "-o", output)
        assert answer.code == cleaned.code, (record, cleaned)
        assert (record["verdict"] == "fails") == (cleaned.code == 2)
        if cleaned.code:
            assert cleaned.err.removeprefix("pfb: ").strip() in [r["detail"] for r in record["checks"] if r["verdict"] == "fails"]
        return record

    return run


def found(record, check):
    (line,) = [r for r in record["checks"] if r["check"] == check]
    return line["verdict"], line["detail"]


@pytest.mark.parametrize("case", DEFECTS)
def test_every_defect(both, tmp_path, case):
    defects, expected = DEFECTS[case]
    record = both(small_set(tmp_path / "a.ms", **SMALL | defects).path)
    for name, verdict, words in expected:
        assert found(record, name)[0] == verdict, record
        assert words in found(record, name)[1]
    if not expected:
        assert [r for r in record["checks"] if r["verdict"] not in ("ok", "not tried")] == []


def test_all_defects_are_tried():
    from pfb.io.simulated_set import Defects

    tried = {name for defects, _ in DEFECTS.values() for name in defects}
    assert set(Defects.__dataclass_fields__) <= tried


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return small_set(tmp_path_factory.mktemp("good") / "a.ms", **SMALL).path


def test_options_that_cannot_be_had(both, good, tmp_path, monkeypatch):
    monkeypatch.setattr(session, "CONNECT_TIMEOUT", 0.3)
    for words, name, sentence in [
        (["--field", "3C999"], "selection and image", "is no id and no name of a field"),
        (["--mask", "none.fits"], "dictionary and mask", "cannot be read as FITS"),
        (["--bases", "haar"], "dictionary and mask", "bases are haar but must be different ones"),
        (["--cluster", "local"], "workers", "must know how many workers to start"),
        (["--workers", 2, "--cluster", "local", "--cluster-options", "{x: 1}"], "workers", "have no 'x'"),
        (["--scheduler", "tcp://127.0.0.1:9"], "workers", "there is no dask scheduler at 'tcp://127.0.0.1:9'"),
        (["--cell", "10000"], "samples", "is too large for any of the baselines"),
        (["--weight-column", "SIGMA2"], "selection and image", "has no weight column SIGMA2"),
    ]:
        verdict, detail = found(both(good, *words), name)
        assert verdict == "fails"
        assert sentence in detail
    fits.PrimaryHDU(np.zeros((20, 20), "f4")).writeto(tmp_path / "m.fits")
    assert "is zero everywhere" in found(both(good, "--mask", tmp_path / "m.fits"), "dictionary and mask")[1]


def test_places_that_cannot_be_written(both, good, tmp_path, monkeypatch):
    assert "does not exist; create it" in found(both(good, output=tmp_path / "nowhere" / "out"), "output")[1]
    (tmp_path / "out.zarr").mkdir()
    assert "exists already" in found(both(good), "output")[1]
    (tmp_path / "out.zarr").rmdir()
    (tmp_path / "out.checkpoint").mkdir()
    (tmp_path / "out.checkpoint" / "manifest.json").write_text("{}")
    assert "is the checkpoint of a run that has not ended" in found(both(good), "checkpoint")[1]
    shutil.rmtree(tmp_path / "out.checkpoint")
    access = os.access
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda path, mode: access(path, mode) and not (mode & os.W_OK and Path(path) == tmp_path))
        assert "is not writable; write elsewhere" in found(both(good), "output")[1]


def test_too_little_of_anything(both, good, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(budget, "limit", lambda: 2**20)
        assert "of memory but there are" in found(both(good), "memory")[1]
    with monkeypatch.context() as patch:
        patch.setattr(budget.shutil, "disk_usage", lambda _: namedtuple("Usage", "free")(100))
        assert "the products need about" in found(both(good), "disk")[1]


@pytest.mark.parametrize(
    ("defects", "column", "sentence"),
    [
        ({}, "MODEL_DATA", ""),
        (dict(model_data=True), "MODEL_DATA", "has cells of shape (5, 4) in spectral window 0, which needs (4, 4); remove it"),
        ({}, "CORRECTED_DATA", "has a column CORRECTED_DATA already; choose another name"),
        ({}, "WEIGHT", "holds float and no visibilities"),
    ],
)
def test_a_column_that_predict_would_write(pfb, tmp_path, defects, column, sentence):
    made = small_set(tmp_path / "a.ms", **SMALL | defects)
    answer = pfb("check", made.path, *FEW, "--model-column", column, "--json")
    verdict, detail = found(json.loads(answer.out), f"column {column}")
    assert (answer.code, verdict) == ((2, "fails") if sentence else (0, "ok"))
    assert sentence in detail
    write_sky(str(tmp_path / "sky.ecsv"), made.sky)
    predicted = pfb("predict", made.path, "--model", tmp_path / "sky.ecsv", "--column", column)
    assert predicted.code == answer.code, predicted


def test_sets_that_do_not_go_together(both, good, tmp_path):
    other = small_set(tmp_path / "b.ms", **SMALL, ra=10.0).path
    record = both(good, other)
    assert "have different phase centres" in found(record, "selection and image")[1]
    assert {"rows of a.ms", "rows of b.ms"} <= {r["check"] for r in record["checks"]}
    assert "does not exist" in found(both(tmp_path / "none.ms"), "selection and image")[1]


def test_a_store_is_looked_at_like_a_set(both, good, tmp_path):
    pytest.importorskip("xarray_ms")
    record = both(to_store(good, tmp_path / "a.zarr"))
    assert found(record, "tables")[1] == "an MSv4 store of MeerKAT"
    assert found(record, "baselines")[0] == "ok"


def test_it_prints_a_table_and_a_verdict(pfb, good, tmp_path):
    answer = pfb("check", good, *FEW)
    assert answer.code == 0
    lines = answer.out.splitlines()
    assert lines[0].split()[:2] == ["look", "2/2"]
    assert lines[1] == good
    assert lines[2].split() == ["check", "verdict", "detail"]
    assert lines[-1] == "pfb clean can work"
    assert any(line.split()[:3] == ["output", "not", "tried"] for line in lines)
    answer = pfb("check", small_set(tmp_path / "a.ms", **SMALL, all_flagged=True).path, *FEW, "-o", tmp_path / "out")
    assert answer.code == 2
    assert answer.out.splitlines()[-1] == "pfb clean cannot work: 1 of these checks fails"
    assert "selection and image" in answer.out


def test_the_workers_of_a_scheduler_are_counted(cluster, good):
    config = Check(npix="20", nband=2, scheduler=cluster.scheduler_address)
    found = {r.check: r for r in check.run((good,), config, Silent()).remarks}
    assert found["workers"].verdict == "ok"
    assert "of memory per worker will be used" in found["memory"].detail
    assert " per iteration; at most 20 cycles" in found["memory"].detail


REAL = {
    "meerkat_cdfs25_lband_tDish": ([], 2, "selection and image", "are flagged; select others or unflag some"),
    "alma_mssel_test_small": (["--field", "0"], 2, "selection and image", "are flagged; select others or unflag some"),
    "3c345_vlba_43ghz": ([], 0, "baselines", "UVW agree with positions, times and phase centre to 0.0001, first minus second"),
    "ngc5921_vla_hi": (["--field", "2"], 0, "baselines", "UVW agree with positions, times and phase centre"),
    "3c273_vla_8ghz": ([], 0, "baselines", "as long as the antennas are apart"),
    "m87_eht_227ghz": ([], 0, "baselines", "UVW are 0.969 times as long"),
}


@pytest.mark.real
@pytest.mark.parametrize("name", REAL)
def test_real_observations(pfb, real_set, name):
    words, code, line, detail = REAL[name]
    answer = pfb("check", real_set(name), *FEW, "--nband", 1, *words, "--json")
    assert answer.code == code
    assert detail in found(json.loads(answer.out), line)[1]


def test_large_sets_are_sampled(tmp_path, monkeypatch):
    made = small_set(tmp_path / "a.ms", nant=12, nspw=2, scan_length=8.0)
    config = Check(npix="20", nband=2)
    whole = dict((r.check, r) for r in check.run((made.path,), config, Silent()).remarks)["samples"]
    monkeypatch.setattr(sampling, "SAMPLES", 20_000)
    some = dict((r.check, r) for r in check.run((made.path,), config, Silent()).remarks)["samples"]
    assert "that were looked at" not in whole.detail
    assert "that were looked at can be used" in some.detail
    looked, all_of_them = (int(r.detail.split(" of ")[1].split()[0]) for r in (some, whole))
    assert 2000 < looked < 6000 < all_of_them
    assert all(40 < float(part.rstrip("%")) < 100 for part in some.detail.split("by band ")[1].split(", "))
    # What is not seen whole is not condemned.
    change(made.path, "CORRECTED_DATA", lambda v: np.full_like(v, np.nan))
    found = check.run((made.path,), config, Silent())
    assert {r.check: r.verdict for r in found.remarks}["samples"] == "warning"
    assert found.exit_code == 0


def test_gaps_and_overlaps_of_channels():
    from pfb.io.channels import oddities, usable_widths

    freq, width = np.array([1e9, 1.1e9, 1.2e9, 1.3e9]), np.full(4, 1e8)
    assert oddities(freq, width) == oddities(freq[::-1], -width) == []
    assert oddities(freq + [0, 0, 5e7, 5e7], width) == ["1 gaps between channels, the widest of 50 MHz above 1100 MHz"]
    assert oddities(freq - [0, 0, 5e7, 5e7], width) == ["1 channels overlap the next"]
    assert oddities(freq[[1, 0, 2, 3]], width) == ["channels are in no order of frequency"]
    assert oddities(freq, width * [1, -1, 1, 1]) == ["CHAN_WIDTH has both signs"]
    assert oddities(freq * [0, 1, 1, 1], width)[0] == "1 channels have no positive frequency"
    np.testing.assert_array_equal(usable_widths(freq[::-1], -width), width)
    np.testing.assert_allclose(usable_widths(np.array([1.3e9, 1e9, 1.1e9]), np.zeros(3)), [2e8, 1e8, 1e8])
    np.testing.assert_array_equal(usable_widths(freq[:1], np.zeros(1)), [0])
