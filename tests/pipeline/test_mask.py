"""`pfb mask`: from a FITS image to a mask."""

import numpy as np
import pytest
from astropy.io import fits

from pfb.io.fits import HeaderInfo, write_cube, write_mfs
from pfb.io.masks import read_mask
from pfb.kernels.masking import beam_pixels, islands
from pfb.kernels.noise import local_rms
from pfb.types import Band, Beam, Geometry, Observation
from tests.pipeline.small_runs import ARCSEC

GEOMETRY = Geometry(nx=70, ny=61, cell=2 * ARCSEC, ra=1.1, dec=-0.8)
INFO = HeaderInfo(geometry=GEOMETRY, observation=Observation(), unit="Jy/beam")
BANDS = [Band(index=i, freq_min=f - 5e7, freq_max=f + 5e7, freq=f) for i, f in enumerate((1.0e9, 1.1e9))]
BEAM = Beam(8 * ARCSEC, 6 * ARCSEC, 0.2)


@pytest.fixture
def image(rng):
    """Noise with two blobs of ten times its deviation, one of them negative, and a blank corner."""
    x, y = np.mgrid[:70, :61]
    found = rng.standard_normal((70, 61)).astype("f4")
    found += 10 * np.exp(-(((x - 20) / 3) ** 2) - ((y - 30) / 3) ** 2) - 10 * np.exp(-(((x - 50) / 3) ** 2) - ((y - 20) / 3) ** 2)
    found[:3, :3] = np.nan
    return found


def expected(image, high=5, low=3, box=25, beam=BEAM, **options):
    noise = local_rms(image, box * beam.major / GEOMETRY.cell)
    smallest = beam_pixels(beam.major, beam.minor, GEOMETRY.cell) / 2
    return islands(image, noise, high=high, low=low, smallest=smallest, **options).mask


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ((), {}),
        (("--sigma", 7, "--grow", 2), dict(high=7, low=2)),
        (("--sigma", 2.5), dict(high=2.5, low=2.5)),
        (("--box", 8), dict(box=8)),
        (("--negative",), dict(negative=True)),
        (("--beam", 10), dict(beam=Beam(10 * ARCSEC, 10 * ARCSEC, 0))),
    ],
)
def test_it_is_the_mask_of_the_kernel(pfb, tmp_path, image, words, options):
    write_mfs(tmp_path / "a.fits", image, INFO, BANDS[0], BEAM)
    answer = pfb("mask", tmp_path / "a.fits", *words)
    assert answer.code == 0
    mask = expected(image, **options)
    assert mask[20, 30]
    assert mask[50, 20] == options.get("negative", False)
    assert f"{100 * mask.mean():.3g}% of the image" in answer.out
    np.testing.assert_array_equal(read_mask(tmp_path / "a-mask.fits", GEOMETRY), mask)
    with fits.open(tmp_path / "a-mask.fits") as hdus:
        hdus.verify("exception")
        assert hdus[0].data.shape == (1, 1, 61, 70)
        assert set(np.unique(hdus[0].data)) == {0, 1}
        assert [hdus[0].header[f"CTYPE{i}"] for i in (1, 2, 3, 4)] == ["RA---SIN", "DEC--SIN", "FREQ", "STOKES"]


def test_the_mask_of_a_cube_is_the_union_of_its_planes(pfb, tmp_path, image):
    write_cube(tmp_path / "a.fits", [image, image[:, ::-1]], INFO, BANDS, [BEAM, BEAM])
    assert pfb("mask", tmp_path / "a.fits", "-o", tmp_path / "b.fits").code == 0
    both = expected(image) | expected(image[:, ::-1])
    np.testing.assert_array_equal(read_mask(tmp_path / "b.fits", GEOMETRY), both)


def test_nothing_stands_out(pfb, tmp_path, rng):
    write_mfs(tmp_path / "a.fits", rng.standard_normal((70, 61)), INFO, BANDS[0], BEAM)
    assert "exceeds --sigma 50 times the local noise, so the mask is zero" in pfb("mask", tmp_path / "a.fits", "--sigma", 50).out


def test_what_is_no_image_to_mask(refused, pfb, tmp_path, image):
    write_mfs(tmp_path / "beamless.fits", image, INFO, BANDS[0])
    write_mfs(tmp_path / "blank.fits", np.full((70, 61), np.nan), INFO, BANDS[0], BEAM)
    fits.writeto(tmp_path / "bare.fits", image)
    for name, words, sentence in [
        ("beamless", (), "has no BMAJ, and islands are compared with the beam: give its width with --beam"),
        ("blank", (), "is blank everywhere"),
        ("bare", (), "has no sky coordinates"),
        ("none", (), "cannot be read as FITS"),
        ("beamless", ("--grow", 6), "--grow 6 must not exceed --sigma 5"),
    ]:
        assert sentence in refused("mask", tmp_path / f"{name}.fits", *words, folder=tmp_path)
    assert pfb("mask", tmp_path / "beamless.fits", "--beam", 8).code == 0
    assert "exists" in refused("mask", tmp_path / "beamless.fits", "--beam", 8, folder=tmp_path)
    assert pfb("mask", tmp_path / "beamless.fits", "--beam", 8, "--overwrite", "--quiet").out == ""
