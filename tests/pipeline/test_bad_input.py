"""What cannot be done is refused with one sentence, exit code 2, and nothing left half-written."""

import errno
import re
from pathlib import Path

import numpy as np
import pytest
from astropy.io import fits

from pfb.cli.paths import expand
from pfb.graph import imaging as graphs
from pfb.operators.measurement import Gridder
from pfb.pipeline import clean, products, session
from tests.observations import change, small_set
from tests.pipeline.small_runs import stokes_i

SIZE = ["--npix", 16, "--niter", 1, "--pd-maxit", 2]
FILES = {f"out-{kind}-{form}.fits" for kind in ("dirty", "psf", "model", "residual", "image") for form in ("mfs", "cube")}
FILES |= {"out-quicklook.png", "out.zarr"}


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return small_set(tmp_path_factory.mktemp("good") / "a.ms", nspw=2).path


@pytest.fixture
def says(refused, tmp_path):
    """Run ``pfb clean`` in a folder and check what it says when it refuses."""
    folder = tmp_path / "products"
    folder.mkdir()

    def check(path, *words, sentence):
        found = refused("clean", path, "-o", folder / "out", *SIZE, *words, folder=folder)
        assert re.search(sentence, found), found
        assert not list(folder.iterdir())

    return check


# Options

NONSENSE = {
    "nband": (["--nband", 17], r"--nband is 17 but the selection has 16 channels: use at most 16 bands$"),
    "no band": (["--nband", 0], r"--nband is 0 but must be at least 1"),
    "npix": (["--npix", "64x64"], r"--npix: cannot read '64x64' as a size; write one or two positive numbers, e\.g\. 1024"),
    "no pixels": (["--npix", "0"], r"--npix: cannot read '0' as a size"),
    "cell": (["--cell", "-2"], r"--cell is -2.0 but must be greater than 0$"),
    "cell that is no number": (["--cell", "nan"], r"--cell is nan but must be a finite number$"),
    "cell in words": (["--cell", "2arcsec"], r"'--cell': '2arcsec' is not a valid float"),
    "coarse cell": (
        ["--npix", "200", "--cell", "1440"],
        r"--cell 1440.0 arcsec is too large for any of the baselines, which --weighting briggs therefore leaves out: make",
    ),
    "horizon": (["--npix", "3000", "--cell", "180"], r"reach beyond the horizon of the projection: give a smaller --npix"),
    "fov and npix": (["--fov", "1"], r"--npix 16 and --fov 1.0 both set the image size: give one of them$"),
    "basis": (["--bases", "self,haar"], r"bases are self, haar but must be different ones of self, db1, db2"),
    "basis twice": (["--bases", "db1,db1"], r"bases are db1, db1 but must be different ones"),
    "no basis": (["--bases", ""], r"bases are .* but must be different ones"),
    "prior": (["--prior", "l3"], r"'--prior': 'l3' is not one of 'l21', 'mean21'"),
    "gamma": (["--gamma", "2.5"], r"--gamma is 2.5 but must be at most 1.9$"),
    "option": (["--nbands", "2"], r"No such option '--nbands'"),
    "scheduler and workers": (
        ["--scheduler", "tcp://127.0.0.1:1", "--workers", 2],
        r"--scheduler tcp://127.0.0.1:1 joins a cluster that has its workers already: leave out --workers",
    ),
    "field": (["--field", "3C999"], r"--field 3C999 is no id and no name of a field: .*0 \(T0413-4500\); choose among those$"),
    "spw": (["--spw", "7"], r"--spw 7 matches nothing: .* has 0~1; choose among those$"),
    "chan": (["--chan", "90"], r"--chan 90 goes beyond the last channel: windows have 8 channels; choose fewer$"),
    "data column": (["--data-column", "X"], r"no visibility column X \(it has .*DATA.*\); choose one with --data-column$"),
    "weight column": (["--weight-column", "W"], r"no weight column W \(it has .*WEIGHT.*\); choose one with --weight-column$"),
    "mask": (["--mask", "none.fits"], r"none\.fits cannot be read as FITS"),
    "config": (["--config", "none.yaml"], r"cannot read the configuration file none\.yaml: No such file"),
}


@pytest.mark.parametrize("case", NONSENSE)
def test_nonsense(says, good, case):
    words, sentence = NONSENSE[case]
    says(good, *words, sentence=sentence)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("nbands: 4\n", r"options\.yaml line 1: unknown option 'nbands'; did you mean nband"),
        ("nband: 4\ncell: wide\n", r"options\.yaml line 2: option 'cell' is 'wide' but must be a number$"),
        ("- nband\n", r"options\.yaml must hold options as 'name: value' lines"),
        ("nband: [2\n", r"options\.yaml is not a YAML file"),
    ],
)
def test_a_file_of_options(says, good, tmp_path, text, sentence):
    file = tmp_path / "options.yaml"
    file.write_text(text)
    says(good, "--config", file, sentence=sentence)


def test_a_scheduler_that_is_not_there(says, good, monkeypatch):
    monkeypatch.setattr(session, "CONNECT_TIMEOUT", 0.3)
    address = "tcp://127.0.0.1:9"
    says(good, "--scheduler", address, sentence=rf"there is no dask scheduler at '{address}' .*: start one with 'dask sch")


@pytest.mark.parametrize("address", ["nonsense", "http://x:1:2", "tcp://127.0.0.1:notaport"])
def test_an_address_that_is_none(says, good, monkeypatch, address):
    monkeypatch.setattr(session, "CONNECT_TIMEOUT", 0.3)
    says(good, "--scheduler", address, sentence=rf"there is no dask scheduler at '{address}'")


# Masks


@pytest.mark.parametrize(
    ("shape", "sentence"),
    [
        ((16, 17), r"the mask .*m\.fits has shape \(16, 17\) but the image \(16, 16\): reproject it \(--mask-reproject\)"),
        ((3, 16, 15), r"the mask .*m\.fits has shape \(16, 15\) but the image \(16, 16\)"),
        ((16, 16), r"--mask .*m\.fits is zero everywhere, so no model is possible: mark where emission may be$"),
    ],
    ids=["size", "cube", "zero"],
)
def test_a_mask_that_does_not_fit(says, good, tmp_path, shape, sentence):
    mask = np.zeros(shape) if shape == (16, 16) else np.ones(shape)
    fits.PrimaryHDU(np.moveaxis(mask, -1, -2).astype("f4")).writeto(tmp_path / "m.fits")
    says(good, "--mask", tmp_path / "m.fits", sentence=sentence)


# Sets


def test_a_set_that_does_not_exist(says, tmp_path):
    says(tmp_path / "none.ms", sentence=r"none\.ms does not exist; give the path of a measurement set$")


def test_a_folder_that_is_no_set(says, tmp_path):
    says(tmp_path, sentence=r"holds no table\.dat, so it is no measurement set; give the path of one$")


def test_no_set_at_all(refused, tmp_path):
    assert "Missing argument 'SET...'" in refused("clean", "-o", tmp_path / "out", folder=tmp_path)


def test_a_set_given_twice(says, good):
    says(good, good, sentence=r"would count its samples twice; give each set once")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [(("x*.ms",), r"^nothing matches the pattern x\*\.ms; give paths of"), (("[ab].ms", "a.ms"), r"name a set twice")],
    ids=["nothing", "twice"],
)
def test_patterns(says, tmp_path, monkeypatch, words, sentence):
    monkeypatch.chdir(tmp_path)
    small_set("a.ms", nant=3)
    says(*words, sentence=sentence)


def test_patterns_stand_for_the_paths_that_match_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("night2.ms", "night1.ms", "day.ms", "odd[1].ms", "odd1.ms"):
        Path(name).mkdir()
    assert expand(["day.ms", "night*.ms", "none.ms"]) == ("day.ms", "night1.ms", "night2.ms", "none.ms")
    assert expand(["odd[1].ms"]) == ("odd[1].ms",)


SPOILT = {
    "flagged": (dict(all_flagged=True), r"all selected samples of .*a\.ms are flagged; select others or unflag some$"),
    "short ones flagged": (dict(flagged_below=1e6), r"all selected samples of .*a\.ms are flagged; select others or unflag"),
    "weights": (
        dict(weight_spectrum="zero", weight="zero"),
        r"has no usable weights \(WEIGHT_SPECTRUM is all zero, WEIGHT is all zero\); image with --weight-column SIGMA",
    ),
    "no column": (dict(corrected_data=False, empty_columns=("DATA",)), r"DATA of .*a\.ms has empty cells .*; choose another"),
    "baselines": (dict(uvw_factor=(0, 0, 0)), r"UVW is zero in all selected rows, .*: compute the baselines of the set$"),
    "one hand": (dict(feeds=(9,)), "Stokes I needs XX and YY or RR and LL"),
}


@pytest.mark.parametrize("case", SPOILT)
def test_a_set_that_cannot_be_imaged(says, tmp_path, case):
    defects, sentence = SPOILT[case]
    says(small_set(tmp_path / "a.ms", nspw=2, **defects).path, sentence=sentence)


@pytest.mark.parametrize(
    ("columns", "value", "sentence"),
    [
        (("FLAG_ROW",), True, r"all selected samples of .*a\.ms are flagged; select others or unflag some$"),
        (("DATA", "CORRECTED_DATA"), np.nan, r"all selected samples are flagged or have weight zero: select others or unflag"),
    ],
)
def test_a_column_without_use(says, tmp_path, columns, value, sentence):
    made = small_set(tmp_path / "a.ms")
    for column in columns:
        change(made.path, column, lambda v: np.full_like(v, value))
    says(made.path, sentence=sentence)


def test_fields_of_different_centres(says, tmp_path):
    made = small_set(tmp_path / "a.ms", calibrators=True)
    says(made.path, "--field", "0,1", sentence=r"the selected fields have different phase centres: .*; image them one at a time")


# Places


@pytest.mark.parametrize("command", ["image", "clean"])
def test_a_folder_that_cannot_be_written(refused, good, tmp_path, command):
    words = [command, good, "--npix", 16, "-o"]
    missing = refused(*words, tmp_path / "nowhere" / "out", folder=tmp_path)
    assert re.search(r"the folder .*nowhere of out\.zarr does not exist; create it or write elsewhere$", missing)
    (tmp_path / "file").write_text("")
    assert "does not exist; create it or write elsewhere" in refused(*words, tmp_path / "file" / "out", folder=tmp_path)
    assert "is a folder, not a prefix" in refused(*words, f"{tmp_path}/", folder=tmp_path)
    assert "option -o/--output is missing" in refused(command, good, folder=tmp_path)


def test_simulated_sets_are_refused_in_words_that_fit_them(refused, tmp_path):
    """There is no --output that could be another one."""
    found = refused("simulate", tmp_path / "nowhere" / "a.ms", folder=tmp_path)
    assert re.search(r"the folder .*nowhere of a\.ms does not exist; create it or write elsewhere$", found)
    (tmp_path / "a.ms").mkdir()
    found = refused("simulate", tmp_path / "a.ms", folder=tmp_path)
    assert re.search(r"a\.ms exists already; choose another name, or replace it with --overwrite$", found)


@pytest.mark.parametrize("existing", ["out.zarr", "out-image-mfs.fits", "out-quicklook.png"])
def test_any_product_that_exists(refused, good, tmp_path, existing):
    (tmp_path / existing).write_text("precious")
    found = refused("clean", good, "-o", tmp_path / "out", *SIZE, folder=tmp_path)
    assert re.search(rf"{existing} exists already; choose another name, or replace it with --overwrite$", found)


def test_products_of_another_kind_do_not_hinder(pfb, good, tmp_path, no_picture):
    (tmp_path / "out-image-mfs.fits").write_text("precious")
    assert pfb("image", good, "-o", tmp_path / "out", "--npix", 16).code == 0
    assert (tmp_path / "out-image-mfs.fits").read_text() == "precious"


# Runs that fail on their way


def fail_on_call(count, error):
    """A stand-in that fails when it is called for the so many-th time."""

    def make(original):
        calls = []

        def function(*args, **kwargs):
            calls.append(1)
            if len(calls) == count:
                raise error
            return original(*args, **kwargs)

        return function

    return make


FAILURES = {
    "while reading": (graphs.samples, "clip_strongest", fail_on_call(2, RuntimeError("disk gone")), 1),
    "while gridding": (Gridder, "psf", fail_on_call(3, MemoryError()), 1),
    "in a major cycle": (Gridder, "residual", fail_on_call(6, RuntimeError("disk gone")), 1),
    "between major cycles": (clean, "rows", fail_on_call(1, KeyboardInterrupt()), 130),
    "before writing": (clean, "store", fail_on_call(1, KeyboardInterrupt()), 130),
    "while writing": (products, "write_cube", fail_on_call(3, OSError(errno.ENOSPC, "No space left on device")), 1),
    "at the very end": (products, "quicklook", fail_on_call(1, RuntimeError("no font")), 1),
}


@pytest.mark.parametrize("case", FAILURES)
@pytest.mark.parametrize("overwrite", [False, True], ids=["fresh", "over old products"])
def test_a_run_that_fails_leaves_all_as_it_was(pfb, contents, good, tmp_path, monkeypatch, case, overwrite):
    place, name, fail, code = FAILURES[case]
    words = ["clean", good, "-o", tmp_path / "out", "--npix", 16, "--niter", 2, "--pd-maxit", 2, "--tol", 0, "--checkpoint", 0]
    if overwrite:
        for product in FILES:
            (tmp_path / product).write_text("precious")
        words.append("--overwrite")
    before = contents(tmp_path)
    monkeypatch.setattr(place, name, fail(getattr(place, name)))
    answer = pfb(*words)
    assert answer.code == code
    # click ends the line that ^C was typed on.
    assert re.fullmatch("\n?pfb: .*\n", answer.err)
    assert "Traceback" not in answer.out
    assert contents(tmp_path) == before


def test_old_products_are_replaced_by_a_run_that_succeeds(pfb, good, tmp_path):
    for product in FILES - {"out.zarr"}:
        (tmp_path / product).write_text("old")
    (tmp_path / "out.zarr").mkdir()
    (tmp_path / "out.zarr" / "old").write_text("old")
    assert pfb("clean", good, "-o", tmp_path / "out", *SIZE, "--overwrite").code == 0
    assert {p.name for p in tmp_path.iterdir()} == FILES
    assert not (tmp_path / "out.zarr" / "old").exists()
    assert stokes_i(tmp_path / "out.zarr").sizes["x"] == 16
    for product in FILES - {"out.zarr"}:
        assert (tmp_path / product).read_bytes()[:6] in (b"SIMPLE", b"\x89PNG\r\n")


def test_a_traceback_is_shown_only_if_asked_for(pfb, good, tmp_path, monkeypatch):
    words = ["clean", good, "-o", tmp_path / "out", *SIZE, "--checkpoint", 0]
    sentence = "pfb: unexpected RuntimeError: a bug (--debug shows where)\n"
    for debug in (False, True):
        with monkeypatch.context() as patch:
            patch.setattr(clean, "store", fail_on_call(1, RuntimeError("a bug"))(clean.store))
            answer = pfb(*words, *["--debug"] * debug)
        assert answer.code == 1
        assert answer.err.endswith(sentence)
        assert ("Traceback" in answer.err) == debug
