import numpy as np
import pytest

from pfb.config import Image
from pfb.errors import InputError
from pfb.io import window
from pfb.io.measurement_set import Selection, release, select
from pfb.pipeline import info, planning
from tests.observations import read_window, small_set, unpack_real

C = 299792458.0


@pytest.fixture(autouse=True)
def _close_everything():
    yield
    release()


def table(report, title):
    """A table of the report as a list of dictionaries."""
    _, columns, rows = next(t for t in report.tables() if t[0].startswith(title))
    assert all(len(row) == len(columns) and all(isinstance(cell, str) for cell in row) for row in rows)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def overview(report):
    return dict(report.tables()[0][2])


def test_the_report_says_what_is_in_the_set(tmp_path):
    made = small_set(tmp_path / "a.ms", calibrators=True, nspw=2, autocorrelations=True, scans=2)
    report = info.run(made.path)
    said = overview(report)
    assert said["telescope"] == "MeerKAT"
    assert said["antennas"] == "8, diameter 13.5 m"
    assert said["scans"] == "1~5"
    assert said["rows"] == f"{made.layout.rows}, {2 * 28 * 8} of them autocorrelations"
    assert said["time"] == "2024-06-10T06:00:08 to 2024-06-10T06:08:40 UTC"
    scans = table(report, "Scans")
    assert [s["scan"] for s in scans] == list("12345")
    assert (scans[2]["field"], scans[2]["spectral windows"], scans[2]["rows"]) == ("1 (T0413-4500)", "0~1", str(2 * 8 * 36))
    # What is shown of a scan selects it.
    own = select([made.path], Selection(time=f"{scans[4]['start UTC']}~{scans[4]['end UTC']}", field="1")).windows
    assert [w.rows for w in own] == [8 * 28] * 2
    target = table(report, "Fields")[1]
    assert (target["name"], target["RA"], target["Dec"]) == ("T0413-4500", "04h13m26.40s", "-45d00m00.00s")
    assert (target["frame"], target["intent"], target["rows"]) == ("FK5", "TARGET", str(2 * 2 * 8 * 36))
    low, high = table(report, "Spectral windows")
    assert (low["channels"], low["correlations"], low["rows"]) == ("8", "XX XY YX YY", str(made.layout.rows // 2))
    assert low["MHz"] == "882.750 to 1257.250"
    assert high["width kHz"] == "53500"
    assert {c["name"] for c in table(report, "Columns") if c["holds data"] == "yes"} >= {"DATA", "CORRECTED_DATA", "FLAG"}


def test_flags_baselines_and_grid_are_those_of_the_samples(tmp_path):
    made = small_set(tmp_path / "a.ms", nspw=2, flagged_channels=(2,), rfi=0.3, flagged_rows=True, autocorrelations=True)
    report = info.run(made.path)
    windows = select([made.path], Selection()).windows
    flagged = [float((read_window(w)[2] == 0).mean()) for w in windows]
    assert 0.5 < flagged[0] < 0.8
    assert report.flagged == pytest.approx(dict(enumerate(flagged)))
    assert [w["flagged"] for w in table(report, "Spectral windows")] == [f"{100 * f:.1f}%" for f in flagged]
    assert not report.sampled
    samples = [read_window(w) for w in windows]
    longest = max(np.hypot(*uvw[(weight > 0).any(axis=(1, 2)), :2].T).max() for uvw, _, weight in samples)
    assert report.longest_baseline == pytest.approx(longest)
    lengths = [np.hypot(*uvw[(weight > 0).any(axis=(1, 2)), :2].T) for uvw, _, weight in samples]
    assert report.shortest.metres == pytest.approx(min(m[m > 0].min() for m in lengths))
    assert report.shortest.wavelengths == pytest.approx(report.shortest.metres * made.layout.windows[0].freq[0] / C)
    top = made.layout.windows[1].freq[-1]
    assert report.longest_baseline_wavelengths == pytest.approx(longest * top / C)
    s = report.suggestion
    cell = np.rad2deg(C / (2 * longest * top) / 2) * 3600
    assert 0.99 * cell < s.cell <= cell
    assert float(f"{s.cell:.3g}") == pytest.approx(s.cell, rel=1e-12)
    assert s.fov == pytest.approx(np.rad2deg(2.44 * C / (made.layout.windows[0].freq[0] + top) * 2 / 13.5))
    assert s.fov * 3600 / s.cell <= s.npix < 1.1 * s.fov * 3600 / s.cell
    assert s.npix % 2 == 0
    assert overview(report)["suggested cell"] == f"{s.cell:.3g} arcsec"
    assert overview(report)["suggested size"] == f"{s.npix} pixels, {s.fov:.3g} deg"


def test_the_suggestion_is_what_imaging_does_by_default(tmp_path):
    made = small_set(tmp_path / "a.ms", channels=(5, 9))
    geometry, _ = planning.image_geometry(select([made.path], Selection()), Image(output="unused"))
    s = info.run(made.path).suggestion
    assert geometry.shape == (s.npix, s.npix)
    assert np.rad2deg(geometry.cell) * 3600 == pytest.approx(s.cell, rel=1e-12)


def test_flags_of_a_large_set_are_sampled(tmp_path, monkeypatch):
    made = small_set(tmp_path / "a.ms", dump=2.0)
    whole = info.run(made.path)
    monkeypatch.setattr(window, "_SURVEYED_BYTES", 16 * 32 * 20)
    part = info.run(made.path)
    assert part.sampled
    assert part.flagged[0] != whole.flagged[0]
    assert part.flagged[0] == pytest.approx(whole.flagged[0], abs=0.02)
    assert "flagged (of a sample)" in table(part, "Spectral windows")[0]


def test_a_set_that_is_all_flagged_is_described(tmp_path):
    report = info.run(small_set(tmp_path / "a.ms", all_flagged=True).path)
    assert (report.longest_baseline, report.suggestion) == (None, None)
    assert overview(report)["longest baseline"] == "none: all samples are flagged"
    assert table(report, "Spectral windows")[0]["flagged"] == "100.0%"


def test_windows_without_rows_and_of_one_channel_are_described(tmp_path):
    made = small_set(tmp_path / "a.ms", unused_descriptions=True, channels=(1, 5))
    rows = table(info.run(made.path), "Spectral windows")
    shown = [(r["channels"], r["rows"], bool(r["flagged"])) for r in rows]
    assert shown == [("3", "0", False), ("5", "224", True), ("1", "224", True)]
    assert rows[2]["MHz"] == "927.333"


def test_without_a_dish_diameter_no_size_is_suggested(tmp_path):
    made = small_set(tmp_path / "a.ms", dish_diameter=False)
    report = info.run(made.path)
    assert (report.suggestion.fov, report.suggestion.npix) == (None, None)
    assert "suggested size" not in overview(report)
    assert overview(report)["antennas"] == "8"


@pytest.mark.parametrize(
    ("degrees", "text"),
    [(-0.0001, "-00d00m00.36s"), (59.99999999, "+60d00m00.00s"), (12.5, "+12d30m00.00s"), (-90.0, "-90d00m00.00s")],
)
def test_angles_carry_and_keep_their_sign(degrees, text):
    assert info._sexagesimal(degrees, "dms", sign=True) == text


def test_what_is_no_set_is_refused(tmp_path):
    with pytest.raises(InputError, match="does not exist; give the path of a measurement set"):
        info.run(str(tmp_path / "none.ms"))


@pytest.mark.real
def test_a_vlbi_set_is_not_offered_its_whole_primary_beam(tmp_path):
    report = info.run(unpack_real("3c345_vlba_43ghz", tmp_path))
    assert report.suggestion.cell == pytest.approx(4.76e-5)
    assert "that of your source" in overview(report)["suggested size"]


def test_baselines_without_length_suggest_nothing(tmp_path):
    made = small_set(tmp_path / "a.ms", uvw_factor=(0, 0, 0))
    report = info.run(made.path)
    assert (report.longest_baseline, report.suggestion) == (0, None)
    assert overview(report)["longest baseline"] == "0 m: UVW is zero in all rows"
