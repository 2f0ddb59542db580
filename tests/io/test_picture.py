import sys
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse

from pfb.errors import InputError
from pfb.io import picture
from pfb.io.fits import sky_wcs
from pfb.io.picture import Panel, quicklook
from pfb.types import Beam, Geometry

ARCSEC = np.radians(1 / 3600)
GEOMETRY = Geometry(nx=60, ny=44, cell=2 * ARCSEC, ra=1.1, dec=-0.8)
BEAM = Beam(8 * ARCSEC, 6 * ARCSEC, np.radians(30))
CENTRES = [(63.4, -45.0), (0.0, 30.0), (0.0, -90.0)]


@pytest.fixture
def rng():
    return np.random.default_rng(9)


@pytest.fixture(autouse=True)
def coarse(monkeypatch):
    """Draw fewer dots, which is faster."""
    monkeypatch.setattr(picture, "DPI", 60)


@pytest.fixture
def drawn(monkeypatch):
    """The figures that were saved."""
    figures = []
    save = Figure.savefig

    def spy(figure, *args, **kwargs):
        figures.append(figure)
        save(figure, *args, **kwargs)

    monkeypatch.setattr(Figure, "savefig", spy)
    return figures


def panels(rng, shape=GEOMETRY.shape):
    noise = 1e-5 * rng.standard_normal(shape)
    model = np.zeros(shape)
    model[shape[0] // 3, shape[1] // 4] = 0.03
    return [
        Panel(title="Residual", image=noise, unit="Jy/beam", beam=BEAM, kind="residual"),
        Panel(title="Model", image=model, unit="Jy/pixel", kind="model"),
        Panel(title="Restored image", image=noise + model, unit="Jy/beam", beam=BEAM),
    ]


def texts(figure):
    figure.canvas.draw()
    return {text.get_text(): text.get_window_extent() for text in figure.texts}


def test_png_is_written_without_pyplot(tmp_path, rng, monkeypatch):
    # Importing a module that is None in sys.modules fails.
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    quicklook(tmp_path / "a.png", panels(rng), GEOMETRY, title="a field")
    content = (tmp_path / "a.png").read_bytes()
    assert content.startswith(b"\x89PNG")
    assert len(content) > 20_000


def test_numbers_above_the_panels(tmp_path, rng, drawn):
    three = panels(rng)
    three[0].image[:] = [[2e-6, -2e-6] * 22] * 60
    three[0].image[5, 5] = -4e-5
    quicklook(tmp_path / "a.png", three, GEOMETRY)
    found = list(texts(drawn[0]))
    assert f"rms {three[0].image.std() * 1e6:.3g} µJy/beam,  peak \N{MINUS SIGN}40 µJy/beam" in found
    assert "total 30 mJy,  peak 30 mJy/pixel" in found
    assert any(text.startswith("noise") and text.endswith("peak 30 mJy/beam") for text in found)


@pytest.mark.parametrize("centre", CENTRES, ids=str)
@pytest.mark.parametrize("shape", [(60, 44), (44, 60), (300, 40)])
def test_no_text_overlaps_another_or_leaves_the_figure(tmp_path, rng, drawn, shape, centre):
    geometry = replace(GEOMETRY, nx=shape[0], ny=shape[1], ra=np.radians(centre[0]), dec=np.radians(centre[1]))
    quicklook(tmp_path / "a.png", panels(rng, shape), geometry, title="J0413-8000, MeerKAT, 0.86-1.71 GHz")
    boxes = texts(drawn[0])
    assert len(boxes) == 7
    figure = drawn[0].bbox
    for box in boxes.values():
        assert figure.x0 <= box.x0 < box.x1 <= figure.x1
        assert figure.y0 <= box.y0 < box.y1 <= figure.y1
    for one, other in combinations(boxes.values(), 2):
        assert not one.overlaps(other)
    for axes in drawn[0].axes[1::2]:  # colour bars
        labels = [label.get_window_extent() for label in axes.get_xticklabels() if label.get_text()]
        assert len(labels) >= 2
        assert not any(one.overlaps(other) for one, other in combinations(labels, 2))


@pytest.mark.parametrize("block", [1, 3])
def test_pixels_lie_where_the_coordinates_say(tmp_path, monkeypatch, rng, drawn, block):
    monkeypatch.setattr(picture, "PANEL", 60 // block)
    three = panels(rng)
    image = three[2].image
    image[:7] = np.nan
    image[30:33, 12:15] = 5.0  # one block of 3 x 3, counted from the first pixel that is not blank
    shift = 7 if block == 1 else 6
    image[:shift] = np.nan
    image[shift:7] = 0
    quicklook(tmp_path / "a.png", three[2:], GEOMETRY)
    axes = drawn[0].axes[0]
    shown = axes.images[0].get_array().T
    x, y = np.argwhere(shown > 0.99 * shown.max()).mean(axis=0)
    np.testing.assert_allclose(axes.wcs.wcs_pix2world([[x, y]], 0), sky_wcs(GEOMETRY).wcs_pix2world([[31, 13]], 0), atol=1e-9)


def test_blank_margin_is_cut_off_all_panels_alike(tmp_path, rng, drawn):
    three = panels(rng)
    three[0].image[:10] = np.nan
    three[0].image[:, 40:] = np.nan
    quicklook(tmp_path / "a.png", three, GEOMETRY)
    assert [axes.images[0].get_array().shape for axes in drawn[0].axes[::2]] == [(40, 50)] * 3


def test_beam_is_drawn_to_scale_north_through_east(tmp_path, rng, drawn):
    quicklook(tmp_path / "a.png", panels(rng), GEOMETRY)
    ellipses = [patch for axes in drawn[0].axes for patch in axes.patches if isinstance(patch, Ellipse)]
    assert len(ellipses) == 2  # none for the model
    assert ellipses[0].height == pytest.approx(4)
    assert ellipses[0].width == pytest.approx(3)
    # From its centre, the end of the major axis that points North lies to the East, where x is less.
    ends = ellipses[0].get_patch_transform().transform([[0, 0], [0, 1]])
    along = ends[1] - ends[0]
    np.testing.assert_allclose(along, [-2 * np.sin(BEAM.pa), 2 * np.cos(BEAM.pa)])


def test_small_beam_is_enlarged(tmp_path, rng, drawn):
    tiny = replace(panels(rng)[0], beam=Beam(0.7 * ARCSEC, 0.5 * ARCSEC, 0.0))
    quicklook(tmp_path / "a.png", [tiny], GEOMETRY)
    (ellipse,) = drawn[0].axes[0].patches
    assert ellipse.height == pytest.approx(5 * 0.35)
    assert [text.get_text() for text in drawn[0].axes[0].texts] == ['beam 0.7" × 0.5" (drawn 5×)']


def test_large_image_is_decimated_but_keeps_its_brightest_pixel(tmp_path, monkeypatch, rng, drawn):
    monkeypatch.setattr(picture, "PANEL", 20)
    quicklook(tmp_path / "a.png", panels(rng), GEOMETRY)
    shown = [axes.images[0].get_array() for axes in drawn[0].axes[::2]]
    assert [array.shape for array in shown] == [(14, 20)] * 3
    assert shown[1].max() == pytest.approx(30)
    assert np.std(shown[0]) < 6  # the mean of nine pixels has a third of the noise of 10 µJy


@pytest.mark.parametrize("value", [0.0, np.nan, 1.0, -2.0])
def test_image_of_one_value(tmp_path, value):
    kinds = [
        Panel(title=kind, image=np.full(GEOMETRY.shape, value), unit="Jy/beam", kind=kind)
        for kind in ("residual", "model", "image")
    ]
    quicklook(tmp_path / "a.png", kinds, GEOMETRY)
    assert (tmp_path / "a.png").exists()


def test_panels_of_different_size(tmp_path, rng, drawn):
    psf = np.exp(-0.5 * (np.hypot(*np.mgrid[-42:42, -31:31]) / 3) ** 2)
    two = [replace(panels(rng)[2], title="Dirty image"), Panel(title="PSF", image=psf - 0.05, unit="Jy/beam", kind="psf")]
    quicklook(tmp_path / "a.png", two, GEOMETRY)
    assert [axes.images[0].get_array().shape for axes in drawn[0].axes[::2]] == [(44, 60), (62, 84)]
    boxes = texts(drawn[0])
    assert "lowest \N{MINUS SIGN}50 mJy/beam,  peak 950 mJy/beam" in boxes
    # Both have labels of their own, which need room.
    left, right = (axes.get_tightbbox(drawn[0].canvas.get_renderer()) for axes in drawn[0].axes[::2])
    assert not left.overlaps(right)


def test_existing_picture_is_kept(tmp_path, rng):
    (tmp_path / "a.png").write_text("old")
    with pytest.raises(InputError, match="exists already"):
        quicklook(tmp_path / "a.png", panels(rng), GEOMETRY)
    assert (tmp_path / "a.png").read_text() == "old"
    quicklook(tmp_path / "a.png", panels(rng), GEOMETRY, overwrite=True)
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
