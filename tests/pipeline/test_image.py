"""`pfb image`, from a measurement set to its files, against the definition of a dirty image."""

import warnings
from dataclasses import fields
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr
from astropy.io import fits
from astropy.wcs import WCS
from casacore import tables
from scipy.ndimage import map_coordinates
from scipy.optimize import minimize

from pfb.config import Averaging, Image, Resources
from pfb.io.measurement_set import Selection, select
from pfb.io.simulated_set import CIRCULAR
from pfb.io.sky import Component, offset, write_sky
from pfb.pipeline import image
from tests.observations import change, read_window, small_set, to_store
from tests.pipeline.small_runs import stokes_i

C = 299792458.0
ARCSEC = np.deg2rad(1 / 3600)
CELL = 3.0
SHAPE = (21, 16)
KINDS = [f"-{kind}-{form}.fits" for kind in ("dirty", "psf") for form in ("mfs", "cube")] + ["-quicklook.png"]
# A set whose samples are all good; the gridder is accurate to 1e-7 of their sum.
GOOD = dict(rfi=0.0, nchan=6)
ACCURACY = 3e-7


def samples(path, rule="l2", **selection):
    """Stokes I of every window, by its definition: uvw, freq, visibilities, weights."""
    found = []
    for w in select([str(path)], Selection(**selection)).windows:
        uvw, vis, weight = read_window(w)
        p, q = (w.correlations.index(number) for number in ((9, 12) if 9 in w.correlations else (5, 8)))
        wp, wq = weight[..., p].astype(float), weight[..., q].astype(float)
        with np.errstate(divide="ignore"):
            total = 2 * np.minimum(wp, wq) if rule == "minvar" else 4 / (1 / wp + 1 / wq)
        found.append(SimpleNamespace(uvw=uvw, freq=w.freq, vis=vis[..., [p, q]].astype(complex).mean(axis=-1), weight=total))
    return found


def natural(parts):
    return parts


def briggs(parts, robust=0.0, shape=SHAPE):
    """Briggs' weights: counts in the cells of the uv-plane of an image 1.7 times as large, conjugates added."""
    nu, nv = (2 * int(np.ceil(1.7 * n / 2)) for n in shape)
    cells, counts = [], {}
    for part in parts:
        wave = part.freq / C * CELL * ARCSEC
        i = np.rint(part.uvw[:, :1] * wave * nu).astype(int)
        j = np.rint(part.uvw[:, 1:2] * wave * nv).astype(int)
        assert (np.abs(i) < nu // 2).all()
        # Of a sample and its conjugate one represents both.
        flip = (j < 0) | ((j == 0) & (i < 0))
        keys = [[tuple(cell) for cell in row] for row in np.stack([np.where(flip, -i, i), np.where(flip, -j, j)], -1).tolist()]
        cells.append(keys)
        for row, weights in zip(keys, part.weight, strict=True):
            for key, weight in zip(row, weights, strict=True):
                counts[key] = counts.get(key, 0.0) + weight
    c = np.array(list(counts.values()))
    factor = (5 * 10**-robust) ** 2 * c.sum() / (c**2).sum()
    density = [np.array([[counts[key] for key in row] for row in keys]) for keys in cells]
    return [SimpleNamespace(**{**vars(p), "weight": p.weight / (1 + factor * d)}) for p, d in zip(parts, density, strict=True)]


def dft(parts, band, shape=SHAPE, ones=False, w_term=True):
    """Sum w Re[V exp(-2 pi i nu / c (u l + v m + w (n - 1)))] over the samples of a band, pixel by pixel."""
    l = -(np.arange(shape[0]) - shape[0] // 2)[:, None] * CELL * ARCSEC
    m = (np.arange(shape[1]) - shape[1] // 2)[None] * CELL * ARCSEC
    n = np.sqrt(1 - l**2 - m**2)
    out = np.zeros(shape)
    for part in parts:
        for k in np.flatnonzero((band[0] < part.freq) & (part.freq < band[1])):
            u, v, w = (part.uvw * part.freq[k] / C).T[..., None, None]
            phase = u * l + v * m + w_term * w * (n - 1)
            vis = np.ones(len(part.uvw)) if ones else part.vis[:, k]
            out += ((part.weight[:, k] * vis)[:, None, None] * np.exp(-2j * np.pi * phase)).real.sum(axis=0)
    return out


def edges(ds):
    return list(zip(ds.freq_min.values, ds.freq_max.values, strict=True))


def run(pfb, path, prefix, *words, npix=f"{SHAPE[0]},{SHAPE[1]}", cell=CELL):
    """Run ``pfb image`` and open its dataset."""
    size = ["--npix", npix] if npix else []
    answer = pfb("image", path, "-o", prefix, *size, *(["--cell", cell] if cell else []), *words)
    assert answer.code == 0, answer
    return stokes_i(f"{prefix}.zarr")


def plane(prefix, name):
    with fits.open(f"{prefix}-{name}.fits") as hdus:
        return hdus[0].data[0].astype(float), hdus[0].header


@pytest.fixture
def good(tmp_path):
    made = small_set(tmp_path / "a.ms", channels=(6, 8), rfi=0.0)
    assert all(np.abs(p.vis).mean() > 0.5 and (p.weight > 0).any() for p in samples(made.path))
    return made


@pytest.mark.usefixtures("dataset_only")
@pytest.mark.parametrize("weighting", [natural, briggs])
def test_images_are_those_of_an_explicit_sum(pfb, tmp_path, good, weighting):
    ds = run(pfb, good.path, tmp_path / "out", "--nband", 3, "--weighting", weighting.__name__)
    parts = weighting(samples(good.path))
    assert ds.dirty.shape == (3, *SHAPE)
    for b, band in enumerate(edges(ds)):
        inside = [(p.freq > band[0]) & (p.freq < band[1]) for p in parts]
        wsum = sum(p.weight[:, i].sum() for p, i in zip(parts, inside, strict=True))
        assert float(ds.wsum[b]) == pytest.approx(wsum, rel=1e-12)
        mean = sum((p.weight * p.freq)[:, i].sum() for p, i in zip(parts, inside, strict=True)) / wsum
        assert float(ds.freq[b]) == pytest.approx(mean, rel=1e-12)
        expected = dft(parts, band)
        assert np.abs(expected).max() > 0.05 * wsum
        np.testing.assert_allclose(ds.dirty[b] / wsum, expected / wsum, atol=ACCURACY * 3)
        shape = ds.psf.shape[1:]
        np.testing.assert_allclose(ds.psf[b] / wsum, dft(parts, band, shape, ones=True) / wsum, atol=ACCURACY)
        assert float(ds.psf[b, shape[0] // 2, shape[1] // 2]) == pytest.approx(wsum, rel=ACCURACY)
    assert {int((p.freq > lo).sum()) for p in parts for lo, _ in edges(ds)} - {0, 6, 8}, "no band cuts a window"


def test_products_follow_from_the_dataset(pfb, tmp_path, good):
    answer = pfb("image", good.path, "-o", tmp_path / "out", "--npix", "31,24", "--cell", CELL, "--nband", 3)
    assert answer.code == 0
    assert {p.name for p in tmp_path.iterdir()} == {"a.ms", "out.zarr", *(f"out{kind}" for kind in KINDS)}
    assert all(f"out{kind}" in answer.out for kind in KINDS)
    ds = stokes_i(tmp_path / "out.zarr")
    assert set(ds.data_vars) == {"dirty", "psf", "wsum", "thermal", "beam", "freq_min", "freq_max"}
    wsum = ds.wsum.values
    for kind in ("dirty", "psf"):
        cube, header = plane(tmp_path / "out", f"{kind}-cube")
        mfs, _ = plane(tmp_path / "out", f"{kind}-mfs")
        raw = ds[kind].values
        np.testing.assert_allclose(cube, (raw / wsum[:, None, None]).swapaxes(1, 2), atol=1e-6)
        np.testing.assert_allclose(mfs[0], (raw.sum(axis=0) / wsum.sum()).T, atol=1e-6)
        assert header["BUNIT"] == "Jy/beam"
        # The beams of the bands, then that of the MFS image.
        assert header["BMAJ"] > header["BMIN"] > 0
    assert plane(tmp_path / "out", "psf-mfs")[0].max() == pytest.approx(1.0)
    beam = ds.beam.values
    assert (beam[:, 0] >= beam[:, 1]).all()
    assert (np.diff(beam[:, 0] * ds.freq.values) / (beam[0, 0] * ds.freq.values[0]) < 0.1).all(), "a beam scales as 1 / frequency"


@pytest.mark.usefixtures("no_picture")
@pytest.mark.parametrize("sign_l", [-1, 1])
@pytest.mark.parametrize("sign_m", [-1, 1])
def test_a_source_lands_where_the_header_says(pfb, tmp_path, sign_l, sign_m):
    check_position(pfb, tmp_path, np.deg2rad(63.36), np.deg2rad(-45.0), sign_l * 18.4, sign_m * 14.3)


@pytest.mark.usefixtures("no_picture")
@pytest.mark.parametrize(("ra", "dec"), [(0.0, -30.0), (359.999, -10.0), (63.0, -90.0), (200.0, -89.99)])
def test_a_source_lands_where_the_header_says_for_any_centre(pfb, tmp_path, ra, dec):
    check_position(pfb, tmp_path, np.deg2rad(ra), np.deg2rad(dec), 13.9, -16.2)


def check_position(pfb, tmp_path, ra0, dec0, l, m):
    """A source at offset (l, m) arcsec is found within 0.01 pixels of where the WCS of the image puts its coordinates."""
    ra, dec = offset(ra0, dec0, l * ARCSEC, m * ARCSEC)
    sky = [Component(ra=ra, dec=dec, I=1.0)]
    centre = dict(ra=np.rad2deg(ra0), dec=np.rad2deg(dec0))
    made = small_set(tmp_path / "a.ms", sky=sky, sefd=0.0, nant=12, **centre)
    for nx, ny in [(70, 63), (61, 72)]:
        run(pfb, made.path, tmp_path / "out", "--nband", 2, "--overwrite", npix=f"{nx},{ny}", cell=1.5)
        (mfs,), header = plane(tmp_path / "out", "dirty-mfs")
        assert mfs.shape == (ny, nx)
        assert mfs.max() > 0.95
        assert 0 <= header["CRVAL1"] < 360
        expected = WCS(header).celestial.wcs_world2pix(np.rad2deg([[ra, dec]]), 0)[0]
        # That the header is right itself: East is left, North is up, the centre at n // 2.
        np.testing.assert_allclose(expected, [nx // 2 - l / 1.5, ny // 2 + m / 1.5], atol=1e-4)
        peak = np.array(np.unravel_index(mfs.argmax(), mfs.shape))[::-1]
        found = minimize(lambda p, im=mfs: -map_coordinates(im, [[p[1]], [p[0]]], order=5)[0], peak, method="Nelder-Mead",
                         options=dict(xatol=1e-5, fatol=1e-12)).x  # fmt: skip
        np.testing.assert_allclose(found, expected, atol=0.01)


@pytest.mark.usefixtures("no_picture")
def test_a_band_without_data_is_blank(pfb, tmp_path):
    made = small_set(tmp_path / "a.ms", channels=(4, 4, 4), flagged_windows=(1,), rfi=0.0)
    answer = pfb("image", made.path, "-o", tmp_path / "out", "--npix", 32, "--nband", 3)
    assert answer.code == 0
    assert "warning: band 1 (1141.33 - 1426.67 MHz) has no unflagged data: its images are blank" in answer.out
    ds = stokes_i(tmp_path / "out.zarr")
    wsum = ds.wsum.values
    assert wsum[1] == 0
    assert (wsum[[0, 2]] > 0).all()
    assert np.isnan(ds.dirty[1]).all()
    assert np.isnan(ds.psf[1]).all()
    assert np.isnan(ds.beam[1]).all()
    assert np.isfinite(ds.dirty[[0, 2]]).all()
    assert float(ds.freq[1]) == pytest.approx(1.284e9)
    for kind in ("dirty", "psf"):
        cube, header = plane(tmp_path / "out", f"{kind}-cube")
        assert np.isnan(cube).all(axis=(1, 2)).tolist() == [False, True, False]
        mfs, _ = plane(tmp_path / "out", f"{kind}-mfs")
        raw = ds[kind].values[[0, 2]]
        np.testing.assert_allclose(mfs[0], raw.sum(axis=0).T / wsum.sum(), atol=1e-6)
        assert header["NAXIS3"] == 3


@pytest.mark.usefixtures("dataset_only")
def test_what_is_flagged_is_never_seen(pfb, tmp_path):
    """Strong interference under the flags, or no number at all, gives the same bits."""
    found = []
    for i, defect in enumerate([{}, dict(nan_in_flagged=True), dict(nan_in_flagged=True, flagged_rows=True)]):
        made = small_set(tmp_path / f"{i}.ms", rfi=0.2, flagged_channels=(3,), **defect)
        found.append(run(pfb, made.path, tmp_path / f"out{i}", "--nband", 2))
    np.testing.assert_array_equal(found[0].dirty, found[1].dirty)
    np.testing.assert_array_equal(found[0].psf, found[1].psf)
    # A third of the rows more is flagged as a whole, and there is 30 Jy of interference in them.
    assert 0.5 < float(found[2].wsum.sum() / found[0].wsum.sum()) < 0.8
    assert float(np.abs(found[2].dirty).max() / found[2].wsum.max()) < 2


@pytest.mark.usefixtures("dataset_only")
@pytest.mark.parametrize(
    "spectrum", [*(dict(weight_spectrum=kind) for kind in ("zero", "one", "absent")), dict(empty_columns=("WEIGHT_SPECTRUM",))]
)
def test_weights_fall_back_to_the_column_weight(pfb, tmp_path, spectrum):
    made = small_set(tmp_path / "a.ms", **spectrum, **GOOD)
    answer = pfb("image", made.path, "-o", tmp_path / "out", "--npix", 16, "--weighting", "natural")
    assert answer.code == 0
    assert f"{made.path}: WEIGHT gives the weights, because WEIGHT_SPECTRUM" in answer.out
    ds = stokes_i(tmp_path / "out.zarr")
    (part,) = samples(made.path, weight_column="WEIGHT")
    assert float(ds.wsum.sum()) == pytest.approx(part.weight.sum(), rel=1e-12)
    assert float(ds.wsum.sum()) > 1e6


@pytest.mark.usefixtures("dataset_only")
def test_circular_feeds_give_the_image_that_linear_ones_give(pfb, tmp_path):
    found = []
    for i, defect in enumerate([{}, dict(feeds=CIRCULAR), dict(feeds=(5, 8))]):
        made = small_set(tmp_path / f"{i}.ms", sefd=0.0, weight_spectrum="one", **GOOD, **defect)
        # Weights of one are taken for no weights, those of WEIGHT are random.
        change(made.path, "WEIGHT", np.ones_like)
        found.append(run(pfb, made.path, tmp_path / f"out{i}", "--nband", 2, "--weighting", "natural"))
    for other in found[1:]:
        np.testing.assert_allclose(found[0].wsum, other.wsum)
        np.testing.assert_allclose(found[0].dirty, other.dirty, rtol=0, atol=1e-6 * float(found[0].wsum[0]))


@pytest.mark.usefixtures("dataset_only")
def test_descending_channels_give_the_image_that_ascending_ones_give(pfb, tmp_path):
    found = []
    for descending in (False, True):
        made = small_set(tmp_path / f"{descending}.ms", descending=descending, sefd=0.0, weight_spectrum="one", **GOOD)
        found.append(run(pfb, made.path, tmp_path / f"out{descending}", "--nband", 3))
    up, down = found
    np.testing.assert_allclose(up.freq, down.freq)
    np.testing.assert_allclose(up.wsum, down.wsum)
    np.testing.assert_allclose(up.dirty, down.dirty, rtol=0, atol=1e-6 * float(up.wsum[0]))
    assert float(np.abs(up.dirty).max() / up.wsum.max()) > 0.1


@pytest.mark.usefixtures("no_picture")
def test_one_channel(pfb, tmp_path):
    made = small_set(tmp_path / "a.ms", nchan=1)
    ds = run(pfb, made.path, tmp_path / "out")
    assert ds.sizes["band"] == 1
    low, high = edges(ds)[0]
    assert (low, high) == pytest.approx((856e6, 1712e6))
    parts = briggs(samples(made.path))
    np.testing.assert_allclose(ds.dirty[0] / ds.wsum[0], dft(parts, (low, high)) / float(ds.wsum[0]), atol=ACCURACY * 3)
    _, header = plane(tmp_path / "out", "dirty-cube")
    assert (header["NAXIS3"], header["CRVAL3"], header["CDELT3"]) == pytest.approx((1, 1284e6, 856e6))


@pytest.mark.usefixtures("dataset_only")
def test_several_sets_are_imaged_together(pfb, tmp_path):
    first, second = (small_set(tmp_path / f"{seed}.ms", seed=seed, start=f"2024-06-1{seed}T06:00:00", **GOOD) for seed in (1, 2))
    answer = pfb("image", first.path, second.path, "-o", tmp_path / "out", "--npix", "21,16", "--cell", CELL, "--nband", 2)
    assert answer.code == 0
    ds = stokes_i(tmp_path / "out.zarr")
    parts = briggs(samples(first.path) + samples(second.path))
    for b, band in enumerate(edges(ds)):
        np.testing.assert_allclose(ds.dirty[b] / ds.wsum[b], dft(parts, band) / float(ds.wsum[b]), atol=ACCURACY * 3)


@pytest.mark.usefixtures("dataset_only")
def test_the_columns_of_a_set_that_were_never_filled_are_named(pfb, tmp_path):
    made = small_set(tmp_path / "a.ms", nspw=2, rfi=0.0)
    other = small_set(tmp_path / "b.ms", seed=1, rfi=0.0)
    words = ["-o", tmp_path / "out", "--npix", 16, "--nband", 3, "--overwrite"]
    assert "only zeros" not in pfb("image", made.path, *words).out
    change(made.path, "CORRECTED_DATA", np.zeros_like)
    for defaulted in ([], ["--data-column", "CORRECTED_DATA"]):
        answer = pfb("image", made.path, other.path, *words, *defaulted)
        assert answer.code == 0
        (line,) = [line for line in answer.out.splitlines() if "only zeros" in line]
        assert line == (
            f"warning: CORRECTED_DATA of {made.path} holds only zeros: choose another column with --data-column, or fill it"
        )
    assert "only zeros" not in pfb("image", made.path, *words, "--data-column", "DATA").out


@pytest.mark.usefixtures("dataset_only")
def test_a_window_that_was_never_filled_is_named(tmp_path, recorder):
    made = small_set(tmp_path / "a.ms", nchan=5, nspw=2, flagged_channels=(0,), rfi=0.0)
    # The blocks of a simulated set alternate between its windows.
    rows = np.arange(made.layout.rows) >= made.layout.rows // 2
    change(made.path, "CORRECTED_DATA", lambda v: np.where(rows[:, None, None], 0, v))
    config = Image(output=str(tmp_path / "out"), npix="16", nband=4)
    image.run((made.path,), config, recorder)
    (warning,) = recorder.warnings
    assert warning.startswith(f"CORRECTED_DATA of {made.path} holds only zeros in spectral window 1: choose")


@pytest.mark.usefixtures("dataset_only")
def test_some_channels_without_signal_are_no_empty_column(tmp_path, recorder):
    made = small_set(tmp_path / "a.ms", rfi=0.0)
    change(made.path, "CORRECTED_DATA", lambda v: np.where(np.arange(8)[:, None] < 3, v, 0))
    image.run((made.path,), Image(output=str(tmp_path / "out"), npix="16", nband=4), recorder)
    assert not recorder.warnings
    assert not stokes_i(tmp_path / "out.zarr").dirty[3].values.any()


@pytest.mark.usefixtures("dataset_only")
def test_options_from_a_file_are_overruled_by_the_command_line(pfb, tmp_path, good):
    file = tmp_path / "options.yaml"
    file.write_text("npix: [24, 20]\ncell: 2.0\nnband: 4\nweighting: natural\nquiet: true\n")
    answer = pfb("image", good.path, "-o", tmp_path / "out", "--config", file, "--nband", 2)
    assert (answer.code, answer.out) == (0, "")
    ds = stokes_i(tmp_path / "out.zarr")
    assert ds.dirty.shape == (2, 24, 20)
    assert ds.attrs["geometry"]["cell"] == pytest.approx(2 * ARCSEC)
    assert ds.attrs["options"]["weighting"] == "natural"


@pytest.mark.usefixtures("no_picture")
def test_the_dataset_opens_with_xarray_and_says_what_made_it(pfb, tmp_path, good):
    run(pfb, good.path, tmp_path / "out", "--nband", 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ds = xr.open_zarr(tmp_path / "out.zarr", chunks=None)
    assert ds.dirty.dims == ("stokes", "band", "x", "y")
    assert ds.attrs["stokes"] == ["I"]
    assert ds.wsum.attrs["units"] == "weight"
    assert ds.attrs["maker"] == "image"
    assert ds.attrs["finished"] is True
    assert ds.attrs["observation"]["telescope"] == "MeerKAT"
    assert ds.attrs["observation"]["start"] == pytest.approx(good.layout.start)
    assert set(ds.attrs["options"]) == {f.name for f in fields(Image)}
    _, header = plane(tmp_path / "out", "dirty-mfs")
    assert header["DATE-OBS"].startswith("2024-06-10T06:00:0")
    assert header["OBJECT"] == "T0413-4500"


def test_an_msv4_store_gives_the_image_of_its_set(pfb, tmp_path, dataset_only):
    made = small_set(tmp_path / "a.ms", nant=5, nspw=2, calibrators=True)
    store = to_store(made.path, tmp_path / "a.zarr")
    one, other = (run(pfb, path, tmp_path / f"out{i}", "--nband", 3) for i, path in enumerate((made.path, store)))
    for name in ("dirty", "psf", "wsum", "freq"):
        np.testing.assert_allclose(other[name], one[name], rtol=1e-12, atol=1e-12 * float(abs(one[name]).max()))
    assert float(one.dirty.max()) / total(one) > 0.1
    assert "T0413-4500" in pfb("info", store).out
    write_sky(str(tmp_path / "sky.ecsv"), made.sky)
    answer = pfb("predict", store, "--model", tmp_path / "sky.ecsv")
    assert (answer.code, "is an MSv4 store, which is read but never written" in answer.err) == (2, True)


def test_the_order_of_rows_does_not_matter(pfb, tmp_path, rng, dataset_only):
    made = small_set(tmp_path / "a.ms", nant=5, channels=(3, 5))
    with tables.table(made.path, ack=False) as t:
        t.selectrows(rng.permutation(t.nrows())).copy(str(tmp_path / "b.ms"), deep=True).close()
    one, other = (run(pfb, tmp_path / f"{name}.ms", tmp_path / name, "--nband", 2) for name in "ab")
    assert float(one.dirty.max()) / total(one) > 0.1
    for name in ("dirty", "psf", "wsum"):
        # Sums in another order round otherwise.
        np.testing.assert_allclose(other[name], one[name], rtol=1e-12, atol=1e-11 * float(abs(one[name]).max()))


# What every option changes, one by one, in images of the set of `settings`.


class Settings:
    """A set that every option makes a difference to, and the image of its defaults."""

    def __init__(self, folder):
        self.folder = folder
        self.made = small_set(folder / "a.ms", calibrators=True, scans=2, nspw=2, gain_error=0.1, rfi=0.02)
        self.count = 0

    def image(self, pfb, *words, npix="21,16", cell=CELL):
        self.count += 1
        prefix = self.folder / f"out{self.count}"
        return run(pfb, self.made.path, prefix, *words, npix=npix, cell=cell)

    def samples(self, rule="l2", **selection):
        return samples(self.made.path, rule, **{"field": "1"} | selection)


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    return Settings(tmp_path_factory.mktemp("options"))


def weight_of(parts):
    return sum(p.weight.sum() for p in parts)


def total(ds):
    return float(ds.wsum.sum())


@pytest.mark.usefixtures("dataset_only")
class TestEveryOption:
    def test_field(self, pfb, settings):
        for given in ("0", "J1939-6342"):
            ds = settings.image(pfb, "--field", given)
            assert np.rad2deg(ds.attrs["geometry"]["ra"]) == pytest.approx(294.854275)
            assert ds.attrs["observation"]["object"] == "J1939-6342"
            assert float(ds.dirty.sum("band").max()) / total(ds) > 10  # Jy
        assert settings.image(pfb).attrs["observation"]["object"] == "T0413-4500"

    def test_spw_and_chan(self, pfb, settings):
        low, high = (w.freq for w in settings.made.layout.windows)
        half = settings.made.layout.windows[0].width / 2
        ds = settings.image(pfb, "--spw", 1, "--nband", 2)
        assert (edges(ds)[0][0], edges(ds)[-1][1]) == pytest.approx((high[0] - half, high[-1] + half))
        ds = settings.image(pfb, "--chan", "1~2,5", "--nband", 6)
        assert ds.sizes["band"] == 6
        np.testing.assert_allclose((ds.freq_min + ds.freq_max) / 2, np.sort(np.concatenate([low[[1, 2, 5]], high[[1, 2, 5]]])))

    def test_scan(self, pfb, settings):
        every = total(settings.image(pfb, "--weighting", "natural"))
        some = total(settings.image(pfb, "--weighting", "natural", "--scan", "3"))
        assert every == pytest.approx(weight_of(settings.samples()), rel=1e-12)
        assert some == pytest.approx(weight_of(settings.samples(scan="3")), rel=1e-12)
        assert 0.4 < some / every < 0.6

    @pytest.mark.parametrize(("option", "value"), [
        ("time", "2024-06-10T06:00~06:04"), ("min_uv", "2klambda"), ("max_uv", "900m"),
    ])  # fmt: skip
    def test_time_min_uv_and_max_uv(self, pfb, settings, option, value):
        some = total(settings.image(pfb, f"--{option.replace('_', '-')}", value, "--weighting", "natural"))
        assert some == pytest.approx(weight_of(settings.samples(**{option: value})), rel=1e-12)
        assert 0.1 < some / weight_of(settings.samples()) < 0.9

    def test_data_column(self, pfb, settings):
        corrected, raw = settings.image(pfb), settings.image(pfb, "--data-column", "DATA")
        np.testing.assert_array_equal(corrected.psf, raw.psf)
        parts = briggs(settings.samples(data_column="DATA"))
        np.testing.assert_allclose(raw.dirty[0] / raw.wsum[0], dft(parts, edges(raw)[0]) / float(raw.wsum[0]), atol=ACCURACY * 30)
        assert float(np.abs(raw.dirty - corrected.dirty).max() / raw.wsum.max()) > 0.01

    def test_weight_column(self, pfb, settings):
        columns = ("WEIGHT", "WEIGHT_SPECTRUM")
        found = {c: total(settings.image(pfb, "--weight-column", c, "--weighting", "natural")) for c in columns}
        for column, wsum in found.items():
            assert wsum == pytest.approx(weight_of(settings.samples(weight_column=column)), rel=1e-12)
        assert found["WEIGHT"] != pytest.approx(found["WEIGHT_SPECTRUM"], rel=1e-6)

    def test_clip(self, pfb, settings):
        for fraction in (0.0, 0.1, 0.5):
            ds = settings.image(pfb, "--clip", fraction, "--weighting", "natural", "--nband", 2)
            for b, (low, high) in enumerate(edges(ds)):
                parts = settings.samples()
                inside = [(p.freq > low) & (p.freq < high) for p in parts]
                vis = np.concatenate([p.vis[:, i].ravel() for p, i in zip(parts, inside, strict=True)])
                weight = np.concatenate([p.weight[:, i].ravel() for p, i in zip(parts, inside, strict=True)])
                strongest = np.sort(np.abs(vis[weight > 0]))
                kept = (weight > 0) & (np.abs(vis) <= strongest[round((1 - fraction) * (len(strongest) - 1))])
                assert kept.sum() == pytest.approx((1 - fraction) * (weight > 0).sum(), abs=2)
                assert float(ds.wsum[b]) == pytest.approx(weight[kept].sum(), rel=1e-3)

    def test_stokes_weight(self, pfb, settings):
        found = {rule: total(settings.image(pfb, "--stokes-weight", rule, "--weighting", "natural")) for rule in ("l2", "minvar")}
        for rule, wsum in found.items():
            assert wsum == pytest.approx(weight_of(settings.samples(rule)), rel=1e-12)
        assert 0.8 < found["minvar"] / found["l2"] < 0.99

    def test_nband(self, pfb, settings):
        assert [settings.image(pfb, *words).sizes["band"] for words in ([], ["--nband", 1], ["--nband", 7])] == [4, 1, 7]

    def test_npix_cell_fov_and_super_resolution(self, pfb, settings):
        ds = settings.image(pfb, npix="17,12", cell=2.5)
        assert ds.dirty.shape[1:] == (17, 12)
        assert ds.attrs["geometry"]["cell"] == pytest.approx(2.5 * ARCSEC)
        ds = settings.image(pfb, "--fov", 0.05, npix=None, cell=4.0)
        assert ds.dirty.shape[1:] == (48, 48)  # 45 and the next good one
        cells = [settings.image(pfb, *words, npix="8", cell=None).attrs["geometry"]["cell"] for words in
                 ([], ["--super-resolution", 3])]  # fmt: skip
        assert cells[0] / cells[1] == pytest.approx(1.5, rel=0.01)

    def test_psf_oversize(self, pfb, settings):
        assert settings.image(pfb).psf.shape[1:] == (30, 24)
        assert settings.image(pfb, "--psf-oversize", 2).psf.shape[1:] == (48, 32)

    def test_weighting_and_robust(self, pfb, settings):
        beams = []
        for robust in (-2, 0, 2):
            ds = settings.image(pfb, "--weighting", "briggs", "--robust", robust)
            assert total(ds) == pytest.approx(weight_of(briggs(settings.samples(), robust)), rel=1e-12)
            beams.append(float(ds.beam[0, 1]))
        assert beams[0] < 0.95 * beams[1] < 0.8 * beams[2]
        schemes = [float(settings.image(pfb, "--weighting", scheme).beam[0, 1]) for scheme in ("uniform", "natural")]
        assert schemes == pytest.approx([beams[0], beams[2]], rel=0.01)

    def test_uniform(self, pfb, settings):
        ds = settings.image(pfb, "--weighting", "uniform")
        # Every cell of the uv-plane that was seen has weight one: f^2 of Briggs' formula is without bound.
        parts = briggs(settings.samples(), -9)
        c = np.array([p.weight.sum() for p in parts]).sum()
        dirty = sum(dft(parts, band) for band in edges(ds)) / c
        np.testing.assert_allclose(ds.dirty.sum("band") / total(ds), dirty, atol=ACCURACY * 3)

    def test_epsilon(self, pfb, settings):
        exact = dft(natural(settings.samples()), (0, np.inf))
        errors = []
        for epsilon in (1e-2, 1e-4, 1e-7, 1e-11):
            ds = settings.image(pfb, "--epsilon", epsilon, "--weighting", "natural", "--nband", 1)
            errors.append(float(np.abs(ds.dirty[0] - exact).max() / total(ds)))
            assert errors[-1] < 3 * epsilon
        assert errors[0] > 10 * errors[1] > 1e3 * errors[2]

    def test_wgridding(self, pfb, settings):
        # Baselines have no w worth the name in so small a field; give it some.
        made = settings.folder / "w.ms"
        small_set(made, rfi=0.0, dec=30.0, uvw_factor=(1, 1, 300))
        for words, w_term in (([], True), (["--no-wgridding"], False)):
            ds = run(pfb, made, settings.folder / f"w{w_term}", "--nband", 1, "--weighting", "natural", *words)
            right, wrong = (dft(samples(made), (0, np.inf), w_term=w) / total(ds) for w in (w_term, not w_term))
            np.testing.assert_allclose(ds.dirty[0] / total(ds), right, atol=ACCURACY * 3)
            assert np.abs(right - wrong).max() > 1e-3

    def test_quiet(self, pfb, settings):
        answer = pfb("image", settings.made.path, "-o", settings.folder / "quiet", "--npix", 8, "--quiet")
        assert (answer.code, answer.out, answer.err) == (0, "", "")

    def test_overwrite(self, pfb, settings):
        words = ["image", settings.made.path, "-o", settings.folder / "twice"]
        assert pfb(*words, "--npix", 8).code == 0
        assert pfb(*words, "--npix", 9).code == 2
        assert stokes_i(settings.folder / "twice.zarr").dirty.shape[1] == 8
        assert pfb(*words, "--npix", 9, "--overwrite").code == 0
        assert stokes_i(settings.folder / "twice.zarr").dirty.shape[1] == 9

    def test_none_was_forgotten(self):
        elsewhere = {"output", *(f.name for f in fields(Resources))}
        elsewhere |= {"super_uniform", "weight_grouping", "weight_floor", "taper", "inner_taper"}  # in test_weighting
        elsewhere |= {f.name for f in fields(Averaging)}  # in test_averaging
        elsewhere |= {"profile", "feed_angle"}  # in test_profile, test_stokes and test_predict
        tested = "_".join(name for name in dir(TestEveryOption) if name.startswith("test_"))
        assert [f.name for f in fields(Image) if f.name not in elsewhere and f.name not in tested] == []
