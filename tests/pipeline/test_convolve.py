"""`pfb convolve` on images as several programs write them."""

import numpy as np
import pytest
import radio_beam
from astropy import units
from astropy.io import fits
from astropy.wcs import WCS

from pfb.kernels.beam import common_beam
from pfb.types import Beam
from tests.pipeline.test_restore import BEAMS as BANDS
from tests.pipeline.test_restore import make

ARCSEC = np.radians(1 / 3600)
NARROW, OTHER, WIDE = (10.0, 7.0, 30.0), (9.0, 8.0, -60.0), (15.0, 13.0, 100.0)


def header(axes=("RA---SIN", "DEC--SIN", "FREQ", "STOKES"), steps=(-2.0, 2.0), turn=0.0, **cards):
    made = fits.Header()
    for axis, kind in enumerate(axes, 1):
        made[f"CTYPE{axis}"] = kind
        made[f"CRPIX{axis}"], made[f"CRVAL{axis}"], made[f"CDELT{axis}"] = 1.0, 1.0, 1.0
    for axis in (1, 2):
        made[f"CRPIX{axis}"], made[f"CRVAL{axis}"], made[f"CDELT{axis}"] = 41.0, (30.0, -20.0)[axis - 1], steps[axis - 1] / 3600
        made[f"CUNIT{axis}"] = "deg"
    if turn:
        c, s = np.cos(np.radians(turn)), np.sin(np.radians(turn))
        made["PC1_1"], made["PC1_2"], made["PC2_1"], made["PC2_2"] = c, -s, s, c
    made["BUNIT"] = "Jy/beam"
    made.update(cards)
    return made


def said(beam):
    return dict(zip(("BMAJ", "BMIN", "BPA"), (beam[0] / 3600, beam[1] / 3600, beam[2]), strict=True))


def seen(beam, head, shape=(72, 80), at=(46, 33), flux=1.0):
    """A point at a pixel, counted from 0, seen with a beam: on the sky, through the coordinates of the header. Axes y, x."""
    wcs = WCS(head).celestial
    x, y = np.meshgrid(np.arange(shape[1]), np.arange(shape[0]))
    offsets = np.radians(np.einsum("ij,jyx->iyx", wcs.pixel_scale_matrix, np.stack([x - at[0], y - at[1]])))
    pa = np.radians(beam[2])
    along = offsets[0] * np.sin(pa) + offsets[1] * np.cos(pa)
    across = offsets[0] * np.cos(pa) - offsets[1] * np.sin(pa)
    return flux * np.exp(-4 * np.log(2) * ((along / beam[0]) ** 2 + (across / beam[1]) ** 2) / ARCSEC**2)


def write(path, data, head, beams=None, bitpix=-32):
    hdus = [fits.PrimaryHDU(data.astype("f4" if bitpix == -32 else "f8"), head)]
    if beams:
        place, rows = zip(*beams.items(), strict=True)
        values = np.array(rows).T
        chan, pol = np.array(place).T
        named = zip(("BMAJ", "BMIN", "BPA"), ("arcsec", "arcsec", "deg"), values, strict=True)
        columns = [fits.Column(name, "1E", unit=unit, array=value) for name, unit, value in named]
        columns += [fits.Column("CHAN", "1J", array=chan), fits.Column("POL", "1J", array=pol)]
        hdus.append(fits.BinTableHDU.from_columns(columns, name="BEAMS"))
    hdus.append(fits.BinTableHDU.from_columns([fits.Column("CHAN", "1J", array=np.arange(3))], name="BANDS"))
    fits.HDUList(hdus).writeto(path)
    return path


def read(path):
    with fits.open(path) as hdus:
        hdus.verify("exception")
        return hdus[0].data.astype("f8"), hdus[0].header, [hdu.name for hdu in hdus[1:]]


LAYOUTS = {
    "usual": {},
    "two axes": dict(axes=("RA---TAN", "DEC--TAN")),
    "East to the right": dict(steps=(2.0, 2.0)),
    "turned": dict(turn=25.0),
    "pixels that are not square": dict(steps=(-1.5, 2.5)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_flux_and_place_are_conserved(layout, pfb, tmp_path):
    head = header(**LAYOUTS[layout], **said(NARROW), OBJECT="3C 273", OBSERVER="me")
    image = seen(NARROW, head, flux=3.0)
    shape = (1,) * (head["NAXIS"] - 2 if "NAXIS" in head else len(LAYOUTS[layout].get("axes", (0,) * 4)) - 2) + image.shape
    write(tmp_path / "a.fits", image.reshape(shape), head, bitpix=-64)
    answer = pfb("convolve", tmp_path / "a.fits", "--beam", "15,13,100")
    assert answer.code == 0, answer
    found, made, tables = read(tmp_path / "a-convolved.fits")
    assert found.shape == shape
    found = found.reshape(image.shape)
    np.testing.assert_allclose(found, seen(WIDE, head, flux=3.0), atol=2e-6)
    areas = WIDE[0] * WIDE[1] / NARROW[0] / NARROW[1]
    assert found.sum() / areas == pytest.approx(image.sum(), rel=1e-6)
    y, x = np.indices(image.shape)
    centre = (found * x).sum() / found.sum(), (found * y).sum() / found.sum()
    assert centre == pytest.approx((46, 33), abs=1e-6)
    assert found.max() == pytest.approx(3.0, rel=1e-6)
    assert np.unravel_index(found.argmax(), found.shape) == (33, 46)
    assert [made[name] * scale for name, scale in (("BMAJ", 3600), ("BMIN", 3600), ("BPA", 1))] == pytest.approx(WIDE)
    assert (made["OBJECT"], made["BUNIT"], made["BITPIX"]) == ("3C 273", "Jy/beam", -64)
    assert tables == ["BANDS"]


def test_files_come_to_the_smallest_common_beam(pfb, tmp_path):
    heads = [header(**said(NARROW)), header(**said(OTHER))]
    for name, head, beam in zip("ab", heads, (NARROW, OTHER), strict=True):
        write(tmp_path / f"{name}.fits", seen(beam, head)[None, None], head)
    (tmp_path / "new").mkdir()
    answer = pfb("convolve", tmp_path / "a.fits", tmp_path / "b.fits", "-o", tmp_path / "new", "--suffix", "common")
    assert answer.code == 0, answer
    made = [read(tmp_path / "new" / f"{name}-common.fits") for name in "ab"]
    beam = [made[0][1][name] for name in ("BMAJ", "BMIN", "BPA")]
    assert beam == [made[1][1][name] for name in ("BMAJ", "BMIN", "BPA")]
    ours = common_beam([Beam(a * ARCSEC, b * ARCSEC, np.radians(c)) for a, b, c in (NARROW, OTHER)])
    assert np.radians(beam) == pytest.approx(ours, rel=1e-9)
    # The other program's encloses them, too, and is a little larger.
    values = zip(zip(NARROW, OTHER, strict=True), (units.arcsec, units.arcsec, units.deg), strict=True)
    theirs = radio_beam.Beams(*(np.array(both) * unit for both, unit in values)).common_beam()
    assert 1 <= theirs.major.to_value("deg") * theirs.minor.to_value("deg") / (beam[0] * beam[1]) < 1.15
    expected = seen((beam[0] * 3600, beam[1] * 3600, beam[2]), heads[0])
    for data, _, _ in made:
        np.testing.assert_allclose(data[0, 0], expected, atol=1e-6)


def test_the_beam_between_is_that_of_another_program(pfb, tmp_path):
    """A pixel becomes the beam that deconvolves the target from the native one."""
    head = header(**said(NARROW))
    image = np.zeros((1, 1, 72, 80))
    image[0, 0, 33, 46] = 1.0
    write(tmp_path / "a.fits", image, head)
    assert pfb("convolve", tmp_path / "a.fits", "--beam", "25,22,100").code == 0
    wide, narrow = (radio_beam.Beam(a * units.arcsec, b * units.arcsec, c * units.deg) for a, b, c in ((25, 22, 100), NARROW))
    between = wide.deconvolve(narrow)
    kernel = seen((between.major.to_value("arcsec"), between.minor.to_value("arcsec"), between.pa.to_value("deg")), head)
    kernel *= 25 * 22 / NARROW[0] / NARROW[1] / kernel.sum()
    np.testing.assert_allclose(read(tmp_path / "a-convolved.fits")[0][0, 0], kernel, atol=1e-6)


@pytest.mark.parametrize("axes", [("FREQ", "STOKES"), ("STOKES", "FREQ")], ids="-".join)
def test_every_plane_has_the_beam_of_the_table(axes, pfb, tmp_path):
    """Three channels and two products; a plane is blank and has the beam of nothing."""
    head = header(axes=("RA---SIN", "DEC--SIN", *axes), **said(OTHER), CASAMBM=True)
    beams = {(c, p): (9.0 + c, 7.0 + p, 10.0 * c - 20 * p) for c in range(3) for p in range(2)}
    lengths = (2, 3) if axes[0] == "FREQ" else (3, 2)
    cube = np.zeros((*lengths, 72, 80))
    for index in np.ndindex(lengths):
        place = index[::-1] if axes[0] == "FREQ" else index
        cube[index] = seen(beams[place], head) if place != (1, 1) else np.nan
    beams[1, 1] = (0.0, 0.0, 0.0)
    write(tmp_path / "a.fits", cube, head, beams)
    assert pfb("convolve", tmp_path / "a.fits", "--beam", "15,13,100").code == 0
    found, made, tables = read(tmp_path / "a-convolved.fits")
    for index in np.ndindex(lengths):
        place = index[::-1] if axes[0] == "FREQ" else index
        expected = seen(WIDE, head) if place != (1, 1) else np.full((72, 80), np.nan)
        np.testing.assert_allclose(found[index], expected, atol=3e-6)
    assert tables == ["BANDS"]
    assert "CASAMBM" not in made


def test_other_ways_to_say_a_beam(pfb, tmp_path):
    plain, aips = header(), header()
    numbered = header(**{f"{name}{c + 1}": value for c, beam in enumerate((NARROW, OTHER)) for name, value in said(beam).items()})
    aips.add_history("AIPS   CLEAN BMAJ=  2.7778E-03 BMIN=  1.9444E-03 BPA=  30.00")
    write(tmp_path / "plain.fits", seen(NARROW, plain)[None, None], plain)
    write(tmp_path / "aips.fits", seen(NARROW, aips)[None, None], aips)
    write(tmp_path / "numbered.fits", np.stack([seen(NARROW, plain), seen(OTHER, plain)])[None], numbered)
    for name in ("plain", "aips", "numbered"):
        answer = pfb("convolve", tmp_path / f"{name}.fits", "--beam", "15,13,100", "--native-beam", "10,7,30")
        assert answer.code == 0, answer
        found, made, _ = read(tmp_path / f"{name}-convolved.fits")
        for plane in found[0]:
            np.testing.assert_allclose(plane, seen(WIDE, plain), atol=2e-5)
        assert not [key for key in made if key.startswith("BMAJ") and key != "BMAJ"]


@pytest.mark.parametrize(("unit", "after", "factor"), [
    ("beam-1 Jy", "Jy/beam", 1.0), ("mJy/beam", "mJy/beam", 1.0), ("JY/BEAM", "Jy/beam", 1.0), ("", "Jy/beam", 1.0),
    ("K", "K", NARROW[0] * NARROW[1] / WIDE[0] / WIDE[1]), ("Jy/sr", "Jy/sr", NARROW[0] * NARROW[1] / WIDE[0] / WIDE[1]),
])  # fmt: skip
def test_units(unit, after, factor, pfb, tmp_path):
    head = header(**said(NARROW), BUNIT=unit)
    write(tmp_path / "a.fits", seen(NARROW, head)[None, None], head)
    assert pfb("convolve", tmp_path / "a.fits", "--beam", "15,13,100").code == 0
    found, made, _ = read(tmp_path / "a-convolved.fits")
    assert made["BUNIT"] == after
    np.testing.assert_allclose(found[0, 0], factor * seen(WIDE, head), atol=1e-6)


def test_a_model_becomes_what_a_beam_sees(pfb, tmp_path):
    head = header(BUNIT="Jy/pixel")
    model = np.zeros((1, 1, 72, 80))
    model[0, 0, 33, 46] = 0.5
    write(tmp_path / "a.fits", model, head)
    assert pfb("convolve", tmp_path / "a.fits", "--beam", "15,13,100").code == 0
    found, made, _ = read(tmp_path / "a-convolved.fits")
    assert made["BUNIT"] == "Jy/beam"
    np.testing.assert_allclose(found[0, 0], seen(WIDE, head, flux=0.5), atol=1e-7)


def test_blank_edges_stay_blank_and_do_not_spread(pfb, tmp_path):
    head = header(**said(NARROW))
    image = seen(NARROW, head)[None, None]
    image[..., :5] = image[..., 70, :] = np.nan
    write(tmp_path / "a.fits", image, head)
    assert pfb("convolve", tmp_path / "a.fits", "--beam", "15,13,100").code == 0
    found, _, _ = read(tmp_path / "a-convolved.fits")
    np.testing.assert_array_equal(np.isnan(found), np.isnan(image))
    good = np.isfinite(image[0, 0])
    np.testing.assert_allclose(found[0, 0][good], seen(WIDE, head)[good], atol=1e-6)


def test_images_of_a_dataset(pfb, tmp_path):
    make(tmp_path / "run.zarr")
    answer = pfb("convolve", tmp_path / "run.zarr", "--beam", "15,13,100")
    assert answer.code == 0, answer
    names = {f"run-{kind}-{form}-convolved.fits" for kind in ("dirty", "residual", "image") for form in ("mfs", "cube")}
    assert {path.name for path in tmp_path.iterdir()} == names | {"run.zarr"}
    found, made, tables = read(tmp_path / "run-image-cube-convolved.fits")
    assert made["BMAJ"] * 3600 == pytest.approx(15)
    assert np.isnan(found[0, 2]).all()
    assert len(BANDS) == found.shape[1]
    for plane in found[0, [0, 1, 3]]:
        np.testing.assert_allclose(plane, seen(WIDE, made, shape=plane.shape, at=(20, 45)), atol=1e-5)
    assert tables == ["BANDS"]


def test_what_cannot_be_done_is_refused(refused, tmp_path):
    head = header(**said(NARROW))
    for name, own, unit in (("a", head, None), ("b", head, None), ("none", header(), None), ("pixel", header(), "Jy/pixel")):
        own = own.copy()
        if unit:
            own["BUNIT"] = unit
        write(tmp_path / f"{name}.fits", np.ones((1, 1, 8, 8)), own)
    write(tmp_path / "freq.fits", np.ones((1, 8, 8)), header(axes=("FREQ", "STOKES", "RA---SIN")))
    (tmp_path / "text.fits").write_text("nothing")
    (tmp_path / "other").mkdir()
    write(tmp_path / "other" / "a.fits", np.ones((8, 8)), header(axes=("RA---SIN", "DEC--SIN"), **said(NARROW)))
    write(tmp_path / "c-convolved.fits", np.ones((8, 8)), head)
    write(tmp_path / "c.fits", np.ones((8, 8)), header(axes=("RA---SIN", "DEC--SIN"), **said(NARROW)))

    def says(*words):
        return refused("convolve", *(tmp_path / w if w.endswith(".fits") else w for w in words), folder=tmp_path)

    narrow = 'the beam 9" x 9" at 0.0 deg is narrower than the beam 10" x 7" at 30.0 deg of plane 1 of'
    assert narrow in says("a.fits", "--beam", "9")
    assert 'all planes have the beam 10" x 7" at 30.0 deg already' in says("a.fits", "b.fits")
    assert "none.fits says nothing of its beam (BMAJ, BMIN, BPA or a table BEAMS)" in says("none.fits", "--beam", "20")
    assert "pixel.fits has no beam, since it is in Jy/pixel" in says("pixel.fits")
    assert "the first axes of" in says("freq.fits", "--beam", "20")
    assert "cannot be read as FITS" in says("text.fits", "--beam", "20")
    assert "several images would be written as" in says("a.fits", "other/a.fits", "--beam", "20", "-o", str(tmp_path))
    assert "c-convolved.fits exists already" in says("c.fits", "--beam", "20")
    assert "--beam 5,6,0 is not a beam with BMAJ >= BMIN > 0" in says("a.fits", "--beam", "5,6,0")
