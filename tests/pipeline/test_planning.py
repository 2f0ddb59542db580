"""From options and data to an image grid, to bands, and to what each band reads."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from pfb.config import Image
from pfb.errors import InputError
from pfb.io.measurement_set import SelectedData, Selection, Window, select
from pfb.pipeline import planning
from pfb.types import Observation
from tests.observations import small_set

C = 299792458.0
ARCSEC = np.deg2rad(1 / 3600)


def window(freq, width=None, spw=0):
    """A spectral window that nobody reads; channels of the same width unless it is given."""
    freq = np.asarray(freq, float)
    width = np.broadcast_to(np.diff(freq).mean() if width is None else width, freq.shape)
    return Window(
        path="unread.ms", stamp=0, data_desc_id=spw, spw=spw, fields=(0,), scans=None, rows=10, freq=freq, width=width,
        channels=np.arange(freq.size), stored_channels=freq.size, correlations=(9, 12),
    )  # fmt: skip


def selected(*windows, longest=2e4, diameter=13.5):
    return SelectedData(
        ra=1.0, dec=-0.5, frame="FK5", observation=Observation(), windows=windows, dish_diameter=diameter,
        longest_baseline_wavelengths=longest, notes=(),
    )  # fmt: skip


def options(**given):
    return Image(output="unused", **given)


def geometry(data=None, **given):
    """The geometry that options give, and its warnings."""
    return planning.image_geometry(data or selected(window(np.linspace(0.9e9, 1.7e9, 9))), options(**given))


def divided(windows, nband):
    """Frequencies of every band, window by window."""
    bands = planning.band_channels(tuple(windows), nband)
    return [[w.freq[s].tolist() for w, s in zip(windows, slices, strict=True)] for slices in bands]


def bandwidths(windows, nband):
    bands = planning.band_channels(tuple(windows), nband)
    return np.array([sum(w.width[s].sum() for w, s in zip(windows, slices, strict=True)) for slices in bands])


class TestBands:
    def test_channels_are_divided_evenly(self):
        freq = 1e9 + 1e6 * np.arange(12)
        assert divided([window(freq)], 4) == [[freq[i : i + 3].tolist()] for i in (0, 3, 6, 9)]

    @pytest.mark.parametrize("nband", [1, 2, 3, 4, 5, 7, 11, 13])
    @pytest.mark.parametrize(
        "windows",
        [
            [window(1e9 + 1e6 * np.arange(13))],
            # A window of few wide channels after one of many narrow ones, with a gap between them.
            [window(1e9 + 1e6 * np.arange(40)), window(1.2e9 + 8e6 * np.arange(9), spw=1)],
            # Windows that overlap by half, of different width, their channels not aligned.
            [window(1e9 + 1e6 * np.arange(20)), window(1.0103e9 + 2e6 * np.arange(15), spw=1)],
            # The same window twice, as two sets of one observation have it.
            [window(1e9 + 1e6 * np.arange(16)), window(1e9 + 1e6 * np.arange(16), spw=1)],
            # Windows in no order.
            [window(1.5e9 + 1e6 * np.arange(10), spw=2), window(1.1e9 + 1e6 * np.arange(10))],
        ],
        ids=["one", "different", "overlapping", "twice", "unordered"],
    )
    def test_every_channel_is_in_one_band_and_bands_are_equally_wide(self, windows, nband):
        bands = divided(windows, nband)
        assert len(bands) == nband
        for i, w in enumerate(windows):
            assert [nu for band in bands for nu in band[i]] == w.freq.tolist()
        joined = [[nu for part in band for nu in part] for band in bands]
        assert all(max(low) < min(high) for low, high in pairwise(joined)), "bands overlap or do not ascend"
        widest = max(w.width.max() for w in windows)
        # Channels are not divided; where windows overlap so many share a frequency.
        assert np.ptp(bandwidths(windows, nband)) <= 2 * widest * (1 + 1e-9)

    def test_two_wide_channels_count_as_many_narrow_ones(self):
        narrow, wide = window(1e9 + 1e6 * np.arange(20), 1e6), window([1.5e9, 1.51e9], 1e7, spw=1)
        assert divided([narrow, wide], 2) == [[narrow.freq.tolist(), []], [[], wide.freq.tolist()]]

    def test_channels_of_very_unequal_width_are_divided_by_their_number(self):
        w = window([1e9, 1.1e9, 1.2e9, 1.3e9], np.array([1e5, 1e5, 1e5, 1e8]))
        assert divided([w], 4) == [[[nu]] for nu in w.freq.tolist()]

    def test_the_default_is_four_or_the_channels_if_fewer(self):
        assert len(planning.band_channels((window(1e9 + 1e6 * np.arange(64)),), None)) == 4
        assert len(planning.band_channels((window([1e9, 1.1e9, 1.2e9]),), None)) == 3
        assert len(planning.band_channels((window([1e9], 1e6),), None)) == 1

    @pytest.mark.parametrize(
        ("windows", "message"),
        [
            ([window([1e9], 1e6)], "--nband is 9 but the selection has 1 channel: use at most 1 band$"),
            ([window([1e9, 2e9])] * 2, "--nband is 9 but the selection has 2 channels: use at most 2 bands$"),
            ([window([1e9, 2e9]), window([3e9, 4e9, 5e9])], "has 5 channels: use at most 5 bands$"),
        ],
    )
    def test_more_bands_than_channels(self, windows, message):
        with pytest.raises(InputError, match=message):
            planning.band_channels(tuple(windows), 9)

    def test_descending_channels_are_divided_as_ascending_ones(self, tmp_path):
        up, down = (small_set(tmp_path / f"{d}.ms", descending=d, rfi=0.0) for d in (False, True))
        plans = [planning.make(select([made.path], Selection()), options(nband=3)) for made in (up, down)]
        assert plans[0].bands == plans[1].bands
        for band, (low, high) in zip(plans[1].bands, [(0, 3), (3, 5), (5, 8)], strict=True):
            freq = up.layout.windows[0].freq[low:high]
            half = up.layout.windows[0].width / 2
            assert (band.freq_min, band.freq_max) == pytest.approx((freq[0] - half, freq[-1] + half))
            assert band.freq == pytest.approx(freq.mean())

    def test_loaders_read_what_the_plan_says(self, tmp_path):
        made = small_set(tmp_path / "a.ms", channels=(6, 8), unused_descriptions=True)
        plan = planning.make(select([made.path], Selection()), options(nband=3))
        assert [len(parts) for parts in plan.loaders] == [len(own) for own in plan.windows] == [1, 2, 1]
        seen = []
        for band, own, parts in zip(plan.bands, plan.windows, plan.loaders, strict=True):
            for w, pieces in zip(own, parts, strict=True):
                read = [part for load in pieces for part in load()[0]]
                assert sum(len(r.uvw) for r in read) == w.rows == 224
                for r in read:
                    assert r.vis.shape == r.weight.shape == (len(r.uvw), len(r.freq))
                    assert band.freq_min < r.freq.min() <= r.freq.max() < band.freq_max
                    assert set(r.freq) <= set(w.freq)
                    assert np.abs(r.vis).max() > 0.1
                seen += read[0].freq.tolist()
        assert seen == sorted(nu for w in made.layout.windows for nu in w.freq)


class TestCell:
    def test_default_is_half_of_nyquist_rounded_down_to_three_digits(self):
        found, warnings = geometry()
        exact = C / (2 * 2e4 * C) / 2 / ARCSEC  # 1 / (2 max|u| nu / c) / 2 in arcsec
        assert exact == pytest.approx(2.578310)
        assert found.cell / ARCSEC == pytest.approx(2.57, rel=1e-12)
        assert not warnings

    @pytest.mark.parametrize("longest", [3.0, 271.0, 2.2e4, 7.7e6, 4.1e8])
    @pytest.mark.parametrize("factor", [1.0, 2.0, 3.3])
    def test_three_digits_at_every_scale(self, longest, factor):
        exact = 1 / (2 * longest) / factor
        found = planning.default_cell(longest, factor)
        assert exact * (1 - 0.01) < found <= exact
        arcsec = found / ARCSEC
        assert float(f"{arcsec:.3g}") == pytest.approx(arcsec, rel=1e-12)

    def test_typing_what_is_shown_gives_the_very_same_pixels(self):
        for longest in np.geomspace(10, 1e9, 50):
            found = planning.default_cell(longest, 2.0)
            typed, _ = geometry(cell=float(f"{np.rad2deg(found) * 3600:.3g}"), npix="8")
            assert typed.cell == found

    def test_super_resolution(self):
        found, _ = geometry(super_resolution=4.0)
        assert found.cell / ARCSEC == pytest.approx(1.28)

    def test_longest_baseline_is_in_wavelengths_of_the_highest_channel(self, tmp_path):
        made = small_set(tmp_path / "a.ms", rfi=0.0)
        data = select([made.path], Selection())
        assert 1e3 < data.longest_baseline_wavelengths
        found, _ = planning.image_geometry(data, options())
        half, _ = planning.image_geometry(select([made.path], Selection(chan="0~1")), options())
        ratio = made.layout.windows[0].freq[7] / made.layout.windows[0].freq[1]
        assert half.cell / found.cell == pytest.approx(ratio, rel=0.01)

    def test_larger_than_nyquist_is_warned_of_with_numbers(self):
        found, (warning,) = geometry(cell=6.0, npix="64")
        assert found.cell == pytest.approx(6 * ARCSEC)
        assert warning == (
            "--cell 6 arcsec is larger than the 5.157 arcsec that the longest baseline of 2e+04 wavelengths needs: detail is lost"
        )
        assert not geometry(cell=5.15, npix="64")[1]

    @pytest.mark.parametrize("cell", [0.0, -1.0, float("nan"), float("inf")])
    def test_nonsense(self, cell):
        with pytest.raises(InputError, match=r"--cell is .* but must be"):
            options(cell=cell)

    def test_baselines_without_length(self, tmp_path):
        made = small_set(tmp_path / "a.ms", uvw_factor=(0, 0, 0))
        with pytest.raises(InputError, match=r"UVW is zero in all selected rows, .*: compute the baselines"):
            planning.image_geometry(select([made.path], Selection()), options())


class TestSize:
    @pytest.mark.parametrize(
        ("text", "shape"), [("64", (64, 64)), ("64,48", (64, 48)), ("63,101", (63, 101)), (" 7 , 9 ", (7, 9)), ("1", (1, 1))]
    )
    def test_npix_is_honoured_as_asked(self, text, shape):
        assert geometry(npix=text)[0].shape == shape

    @pytest.mark.parametrize("text", ["", "0", "-4", "64,0", "64,64,64", "64.5", "large", "64,", ",64", "1e3", "64x64", "nan"])
    def test_npix_nonsense(self, text):
        with pytest.raises(InputError, match=r"--npix: cannot read .* as a size; write one or two positive numbers, e\.g\. 1024"):
            geometry(npix=text)

    def test_fov_is_covered_by_an_even_number_of_pixels_that_is_good_for_ffts(self):
        for fov in (0.05, 0.1, 0.233, 1.0):
            found, _ = geometry(fov=fov, cell=3.6)
            assert found.nx == found.ny
            assert fov * 1000 - 1e-6 <= found.nx < 1.1 * fov * 1000 + 2
            assert found.nx % 2 == 0
        assert geometry(fov=0.1, cell=3.6)[0].nx == 100  # and not 102, by rounding

    def test_npix_and_fov_exclude_each_other(self):
        with pytest.raises(InputError, match=r"--npix 64 and --fov 0\.5 both set the image size: give one of them"):
            geometry(npix="64", fov=0.5)

    def test_fov_of_less_than_a_pixel(self):
        with pytest.raises(InputError, match=r"--fov 0\.001 degrees is less than a pixel of 4 arcsec: give a larger one"):
            geometry(fov=0.001, cell=4.0)

    @pytest.mark.parametrize(
        "given",
        [dict(fov=130.0, cell=600.0), dict(npix="3000", cell=180.0), dict(npix="8,110000", cell=4), dict(npix="1800", cell=180)],
        ids=["fov", "npix", "one side", "corners only"],
    )
    def test_beyond_the_horizon(self, given):
        with pytest.raises(InputError, match="beyond the horizon of the projection: give a smaller --npix, --cell or --fov"):
            geometry(**given)

    def test_just_within_the_horizon(self):
        # The corner of the image is at 0.99 of the projection's unit circle.
        n = int(0.99 * np.sqrt(2) / (180 * ARCSEC))
        assert geometry(npix=str(n), cell=180.0)[0].nx == n

    @pytest.mark.parametrize("diameter", [13.5, 25.0])
    def test_default_reaches_out_to_the_first_null(self, diameter):
        freq = np.array([0.9e9, 1.0e9, 1.7e9])
        found, _ = geometry(selected(window(freq, 1e8), diameter=diameter))
        null = 2 * 1.22 * (C / 1.3e9) / diameter  # from null to null, at the middle of the band, which is no channel
        pixels = null / found.cell
        assert pixels <= found.nx < 1.1 * pixels
        assert found.nx == found.ny

    def test_default_is_refused_where_it_needs_a_decision(self):
        data = selected(window([4.3e10, 4.31e10]), longest=1e9, diameter=25.0)
        with pytest.raises(InputError, match=r"the primary beam is 0\.0389 degrees wide, \d+ pixels of 5.15e-05 arcsec: choose"):
            geometry(data)
        assert geometry(data, npix="512")[0].nx == 512
        assert geometry(data, fov=1e-5)[0].nx < planning.LARGEST_DEFAULT
        assert geometry(data, cell=0.01)[0].nx < planning.LARGEST_DEFAULT
        # What is asked for is done.
        assert geometry(data, npix="20000")[0].nx == 20000

    def test_dishes_of_unknown_size(self):
        data = selected(window([1e9, 1.1e9]), diameter=0.0)
        with pytest.raises(InputError, match=r"does not say how large its dishes are.*: give --npix or --fov"):
            geometry(data)
        assert geometry(data, fov=0.1)[0].nx > 1

    @pytest.mark.parametrize(("factor", "size"), [(1.0, (64, 50)), (1.4, (90, 72)), (2.0, (128, 100))])
    def test_psf(self, tmp_path, factor, size):
        made = small_set(tmp_path / "a.ms")
        plan = planning.make(select([made.path], Selection()), options(npix="64,50", psf_oversize=factor))
        assert plan.geometry.shape == (64, 50)
        assert all(found % 2 == 0 for found in plan.psf_shape)
        assert plan.psf_shape == size


def test_the_centre_is_that_of_the_data():
    data = replace(selected(window([1e9, 1.1e9])), ra=0.0, dec=-np.pi / 2, frame="ICRS")
    found, _ = geometry(data, npix="9")
    assert (found.ra, found.dec, found.frame) == (0.0, -np.pi / 2, "ICRS")
