"""What is selected, what is said about it, and what is refused."""

from dataclasses import fields
from pathlib import Path

import arcae
import numpy as np
import pytest

from pfb import config
from pfb.errors import InputError
from pfb.io import window
from pfb.io.measurement_set import Selection, describe, release, select
from pfb.io.selection import list_ranges, parse_ranges
from tests.observations import change, read_window, small_set

C = 299792458.0


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    """Return a function that gives a set of some layout, written once."""
    folder, made = tmp_path_factory.mktemp("layouts"), {}

    def get(layout):
        key = repr(sorted(layout.items()))
        if key not in made:
            (folder / str(len(made))).mkdir()
            made[key] = small_set(folder / str(len(made)) / "a.ms", **layout)
        return made[key]

    return get


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return small_set(tmp_path_factory.mktemp("plain") / "plain.ms", calibrators=True, nspw=2, scans=2, autocorrelations=True)


def test_selection_is_that_of_the_command_line():
    assert {f.name for f in fields(Selection)} <= {f.name for f in fields(config.Selection)}
    assert all(f.default is None for f in fields(Selection))


def test_the_only_target_is_imaged_and_said_so(plain):
    data = select([plain.path], Selection())
    assert all(w.fields == (1,) for w in data.windows)
    assert f"{plain.path}: field 1 (T0413-4500) is imaged, the only one observed as a target" in data.notes
    np.testing.assert_allclose([data.ra, data.dec], np.deg2rad([63.36, -45.0]), rtol=1e-14)
    assert (data.frame, data.dish_diameter) == ("FK5", 13.5)
    o = data.observation
    assert (o.telescope, o.object, o.observer) == ("MeerKAT", "T0413-4500", "pfb")
    # The target's first integration, MJD 60471.25 plus two minutes of calibrators, two slews of 20 s and half a dump.
    assert o.start == pytest.approx(60471.25 * 86400 + 2 * 64 + 2 * 20 + 8)


@pytest.mark.parametrize(
    ("field", "chosen"), [("0", (0,)), ("J0408-6545", (2,)), (" 2 ", (2,)), ("1~1", (1,)), ("1,T0413-4500", (1,))]
)
def test_fields_are_chosen_by_id_or_name(plain, field, chosen):
    assert {w.fields for w in select([plain.path], Selection(field=field)).windows} == {chosen}


def test_spectral_windows_and_scans_are_chosen(plain):
    (w,) = select([plain.path], Selection(spw="1", scan="4~9")).windows
    assert (w.spw, w.scans, w.rows) == (1, (5,), 8 * 28)
    np.testing.assert_allclose(w.freq, plain.layout.windows[1].freq)
    (w,) = select([plain.path], Selection(spw="0", field="2", scan="2,4")).windows
    assert w.scans == (2, 4)


def test_channels_are_chosen_in_every_window(tmp_path):
    made = small_set(tmp_path / "a.ms", channels=(2, 9))
    data = select([made.path], Selection(chan="3~5,8"))
    (w,) = data.windows
    np.testing.assert_array_equal(w.channels, [3, 4, 5, 8])
    np.testing.assert_array_equal(w.freq, made.layout.windows[1].freq[[3, 4, 5, 8]])
    assert any("--chan leaves nothing of spectral window 0" in note for note in data.notes)


@pytest.mark.parametrize(("frame", "header"), [("J2000", "FK5"), ("ICRS", "ICRS"), ("B1950", "FK4"), ("B1950_VLA", "FK4")])
def test_the_frame_is_that_of_the_field_table(tmp_path, frame, header):
    assert select([small_set(tmp_path / "a.ms", frame=frame).path], Selection()).frame == header


@pytest.mark.parametrize(("ra", "dec"), [(0.0, -90.0), (359.9999, -89.9), (0.0, 30.0)])
def test_right_ascension_is_within_a_turn(tmp_path, ra, dec):
    data = select([small_set(tmp_path / "a.ms", ra=ra, dec=dec).path], Selection())
    assert 0 <= data.ra < 2 * np.pi
    np.testing.assert_allclose([data.ra, data.dec], np.deg2rad([ra, dec]), atol=1e-14)


def test_sets_with_one_centre_are_imaged_together(tmp_path):
    a = small_set(tmp_path / "a.ms", nchan=4, start="2024-06-10T06:00:00")
    b = small_set(tmp_path / "b.ms", nchan=8, start="2024-06-10T08:00:00", calibrators=True)
    data = select([a.path, b.path + "/"], Selection(scan="1~9"))
    assert [(Path(w.path).name, w.fields, len(w.freq)) for w in data.windows] == [("a.ms", (0,), 4), ("b.ms", (1,), 8)]
    assert data.observation.start == pytest.approx(a.layout.blocks[0].times[0])
    longest = [select([x.path], Selection()).longest_baseline_wavelengths for x in (a, b)]
    assert data.longest_baseline_wavelengths == max(longest)
    # An id or name that only one of them has is no error, but one that none has is.
    assert len(select([a.path, b.path], Selection(field="1,T0413-4500")).windows) == 2
    with pytest.raises(InputError, match=r"--scan 8~9 matches nothing: .*a.ms has 1; .*b.ms has 1~3"):
        select([a.path, b.path], Selection(scan="1,8~9"))


@pytest.mark.parametrize(
    ("notes", "layout", "columns"),
    [
        ("column CORRECTED_DATA is imaged", {}, ("CORRECTED_DATA", "WEIGHT_SPECTRUM")),
        ("column DATA is imaged (it has no usable CORRECTED_DATA)", dict(corrected_data=False), ("DATA", "WEIGHT_SPECTRUM")),
        ("because WEIGHT_SPECTRUM does not exist", dict(weight_spectrum="absent"), ("CORRECTED_DATA", "WEIGHT")),
        ("because WEIGHT_SPECTRUM has empty cells", dict(empty_columns=("WEIGHT_SPECTRUM",)), ("CORRECTED_DATA", "WEIGHT")),
        ("because WEIGHT_SPECTRUM is all zero", dict(weight_spectrum="zero"), ("CORRECTED_DATA", "WEIGHT")),
        ("because WEIGHT_SPECTRUM is all one", dict(weight_spectrum="one"), ("CORRECTED_DATA", "WEIGHT")),
        ("", dict(weight="zero"), ("CORRECTED_DATA", "WEIGHT_SPECTRUM")),
    ],
)
def test_default_columns_are_said(sets, notes, layout, columns):
    data = select([sets(layout).path], Selection())
    assert {(w.data_column, w.weight_column) for w in data.windows} == {columns}
    assert any(notes in note for note in data.notes)


def test_the_weight_column_that_is_asked_for_is_used(tmp_path):
    made = small_set(tmp_path / "a.ms", weight_spectrum="one")
    (w,) = select([made.path], Selection(weight_column="WEIGHT_SPECTRUM")).windows
    assert set(np.unique(read_window(w)[2])) == {0, 1}


def test_a_few_rows_without_weight_condemn_no_column(tmp_path):
    made = small_set(tmp_path / "a.ms", dump=2.0)
    rows = made.layout.rows
    few = np.linspace(0, rows - 1, 128).astype(int)

    def zero(values):
        return np.where(np.isin(np.arange(rows), few)[:, None, None], 0, values)

    assert rows > 1000
    change(made.path, "WEIGHT_SPECTRUM", zero)
    assert select([made.path], Selection()).windows[0].weight_column == "WEIGHT_SPECTRUM"


def test_unit_weights_in_both_columns_are_used(tmp_path):
    made = small_set(tmp_path / "a.ms", weight_spectrum="one")
    change(made.path, "WEIGHT", np.ones_like)
    (w,) = select([made.path], Selection()).windows
    assert (w.weight_column, read_window(w)[2].max()) == ("WEIGHT", 1)


def flag_longest(made, count):
    """Flag the rows of a set's `count` longest baselines, half of them in FLAG_ROW only."""
    uvw = arcae.table(made.path).getcol("UVW")
    order = np.argsort(-np.hypot(uvw[:, 0], uvw[:, 1]))[:count]

    def flag(values):
        values = values.copy()
        values[order[::2]] = 1
        return values

    def flag_row(values):
        values = values.copy()
        values[order[1::2]] = 1
        return values

    change(made.path, "FLAG", flag)
    change(made.path, "FLAG_ROW", flag_row)


@pytest.mark.parametrize("count", [0, 1, 40, 220])
@pytest.mark.parametrize("tries", [(64, 1024), (1,), (5, 7)], ids=str)
def test_the_longest_baseline_is_that_of_unflagged_rows(tmp_path, monkeypatch, count, tries):
    monkeypatch.setattr(window, "_TRIES", tries)
    made = small_set(tmp_path / "a.ms")
    flag_longest(made, count)
    data = select([made.path], Selection(chan="2~4"))
    uvw, _, weight = read_window(data.windows[0])
    longest = np.hypot(uvw[:, 0], uvw[:, 1])[(weight > 0).any(axis=(1, 2))].max()
    assert data.longest_baseline_wavelengths == pytest.approx(longest * data.windows[0].freq[-1] / C, rel=1e-12)
    everything = np.hypot(uvw[:, 0], uvw[:, 1]).max()
    assert (longest < everything) == (count > 0)


def test_rows_without_uvw_have_no_baseline(tmp_path, monkeypatch):
    monkeypatch.setattr(window, "_TRIES", (1,))
    made = small_set(tmp_path / "a.ms", nan_uvw=True)
    change(made.path, "FLAG", lambda flag: np.where(np.arange(len(flag))[:, None, None] % 5 == 0, flag, 1).astype(flag.dtype))
    with pytest.raises(InputError, match="are flagged"):
        select([made.path], Selection())


def test_a_wholly_flagged_window_is_kept_and_said(tmp_path):
    data = select([small_set(tmp_path / "a.ms", nspw=2, flagged_windows=(1,)).path], Selection())
    assert len(data.windows) == 2
    assert any("all selected samples of spectral window 1 are flagged" in note for note in data.notes)
    assert not read_window(data.windows[1])[2].any()


# What is refused


def remove(path, name):
    for f in Path(path).glob(f"{name}/*"):
        f.unlink()


REFUSED = {
    "all flagged": (dict(all_flagged=True), {}, r"all selected samples of .*a\.ms are flagged"),
    "FLAG_ROW alone": (dict(flagged_channels=tuple(range(8))), {}, "are flagged; select others or unflag some"),
    "flagged but between": (dict(flagged_channels=(3, 5)), dict(chan="3,5"), "are flagged"),
    "unknown field": ({}, dict(field="1"), r"--field 1 is no id and no name of a field: .*a\.ms has 0 \(T0413-4500\); choose"),
    "unknown name": ({}, dict(field="3C273"), "--field 3C273 is no id and no name"),
    "several fields": (dict(calibrators=True), dict(field="0~2"), "different phase centres: .*; image them one at a time"),
    "unknown spw": (dict(nspw=2), dict(spw="2~4"), r"--spw 2~4 matches nothing: .*a\.ms has 0~1; choose among those"),
    "unknown scan": (dict(scans=3), dict(scan="1,7"), r"--scan 7 matches nothing: .* has 1~3;"),
    "not a range": ({}, dict(scan="3-5"), "--scan: cannot read '3-5'; write numbers and inclusive ranges, e.g. 0,2~4"),
    "backwards": ({}, dict(chan="5~3"), "--chan: cannot read '5~3'"),
    "nothing": ({}, dict(spw=""), "--spw: cannot read ''"),
    "beyond the last channel": (dict(channels=(5, 9)), dict(chan="3~9"), "--chan 3~9 goes beyond the last channel: .* have 5, 9"),
    "no rows": (dict(calibrators=True), dict(field="0", scan="3"), r"--field 0 with --scan 3 leaves no rows of .*; select more"),
    "unused spw": (dict(unused_descriptions=True), dict(spw="0"), "--spw 0 leaves no rows"),
    "no data column": ({}, dict(data_column="MODEL_DATA"), r"no visibility column MODEL_DATA \(it has CORRECTED_DATA, DATA\)"),
    "flags for data": ({}, dict(data_column="FLAG"), "has no visibility column FLAG"),
    "data of another shape": (dict(model_data=True), dict(data_column="MODEL_DATA"), r"MODEL_DATA of .* \(9, 4\) .* \(8, 4\)"),
    "no weight column": ({}, dict(weight_column="W"), r"no weight column W \(it has SIGMA, WEIGHT, WEIGHT_SPECTRUM\); choose"),
    "weights are flags": ({}, dict(weight_column="FLAG"), "has no weight column FLAG"),
    "weights of another shape": ({}, dict(weight_column="UVW"), r"UVW of .* shape \(3,\) .* \(8, 4\), or one weight for each"),
    "asked weights zero": (dict(weight_spectrum="zero"), dict(weight_column="WEIGHT_SPECTRUM"), "all zero, which leaves"),
    "asked weights empty": (dict(empty_columns=("WEIGHT_SPECTRUM",)), dict(weight_column="WEIGHT_SPECTRUM"), "has empty cells"),
    "all weights zero": (dict(weight_spectrum="zero", weight="zero"), {}, r"\(WEIGHT_SPECTRUM is all zero, WEIGHT is all zero\)"),
    "no weights": (dict(weight_spectrum="absent", weight="zero"), {}, r"\(WEIGHT_SPECTRUM does not exist, WEIGHT is all zero\)"),
    "strange frame": (dict(frame="AZEL"), {}, r"field 0 \(T0413-4500\) has its centre in AZEL; J2000, ICRS or B1950 is needed"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED.values(), ids=list(REFUSED))
def test_what_cannot_be_imaged_is_refused_in_one_sentence(sets, case):
    layout, selection, message = case
    made = sets(layout)
    with pytest.raises(InputError, match=message) as caught:
        select([made.path], Selection(**selection))
    assert "\n" not in str(caught.value)


def test_several_fields_without_a_target_are_listed(plain, tmp_path):
    made = small_set(tmp_path / "a.ms", calibrators=True)
    change(f"{made.path}/STATE", "OBS_MODE", lambda modes: np.full_like(modes, "UNKNOWN"))
    with pytest.raises(InputError, match=r"holds several fields: 0 \(J1939-6342\), 1 .*, 2 .*; choose one with --field"):
        select([made.path], Selection())


@pytest.mark.parametrize("difference", [dict(ra=63.36 + 1e-6), dict(frame="ICRS")], ids=["centre", "frame"])
def test_sets_with_different_centres_are_refused(tmp_path, difference):
    a, b = small_set(tmp_path / "a.ms"), small_set(tmp_path / "b.ms", **difference)
    with pytest.raises(InputError, match=r"different phase centres: .*a\.ms field 0 .*; .*b\.ms field 0 .*; image them one"):
        select([a.path, b.path], Selection())


def test_rows_of_antennas_with_themselves_alone_are_refused(tmp_path):
    made = small_set(tmp_path / "a.ms")
    change(made.path, "ANTENNA2", np.zeros_like)
    change(made.path, "ANTENNA1", np.zeros_like)
    for selection in (Selection(), Selection(field="0")):
        with pytest.raises(InputError, match="no rows of two different antennas"):
            select([made.path], selection)


def test_a_set_given_twice_is_refused(plain):
    with pytest.raises(InputError, match=r"name a set twice, .*; give each set once"):
        select([plain.path, plain.path + "/"], Selection())


def test_what_is_no_set_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"none\.ms does not exist; give the path of a measurement set"):
        select([str(tmp_path / "none.ms")], Selection())
    with pytest.raises(InputError, match=r"holds no table\.dat, so it is no measurement set"):
        describe(str(tmp_path))
    made = small_set(tmp_path / "a.ms")
    with pytest.raises(InputError, match=r"has no column UVW, .* which every measurement set has"):
        describe(f"{made.path}/ANTENNA")
    remove(made.path, "FIELD")
    with pytest.raises(InputError, match="has no sub-table FIELD"):
        describe(made.path)
    release()
    for f in Path(made.path).glob("table.f*"):
        f.unlink()
    with pytest.raises(InputError, match=r"cannot be opened as a measurement set .* is it complete\?"):
        describe(made.path)


def test_ranges_are_written_as_they_are_read():
    assert parse_ranges("0, 2~4,9", "--scan") == [(0, 0), (2, 4), (9, 9)]
    assert list_ranges([9, 2, 3, 0, 4, 4]) == "0,2~4,9"
    assert list_ranges([]) == ""
