"""Masks in runs: of the user, automatic, and together with positivity."""

import re

import numpy as np
import pytest
from astropy.io import fits

from pfb.config import Clean
from pfb.errors import InputError
from pfb.io.fits import sky_wcs
from pfb.pipeline.masking import cycles, levels
from pfb.types import Geometry
from tests.pipeline.small_runs import ARCSEC, CELL, same


def write_mask(path, mask):
    fits.PrimaryHDU(np.asarray(mask, "f4").T).writeto(path)
    return str(path)


AUTO = dict(auto_mask=5.0, niter=3, start_level=1.0)


def test_the_model_is_zero_where_nothing_stands_out(run, recorder):
    ds = run(report=recorder, **AUTO)
    lit = (ds.model.values != 0).any(axis=0)
    told = [re.search(r"the mask of cycle (\d) has (\d+) islands?, ([\d.]+)% of the image", m) for m in recorder.messages]
    told = [m for m in told if m]
    assert [m[1] for m in told] == ["0", "1", "2"]
    assert 0 < lit.sum() <= float(told[-1][3]) / 100 * lit.size + 0.01 * lit.size
    assert (run(niter=3, start_level=1.0).model.values != 0).any(axis=0).sum() > 1.5 * lit.sum()


def test_it_is_made_at_the_stated_cycles(run, recorder):
    run(report=recorder, auto_mask_at="1", **AUTO)
    assert [m[:20] for m in recorder.messages if m.startswith("the mask of")] == ["the mask of cycle 1 "]


def test_it_obeys_the_mask_of_the_user_and_positivity(run, tmp_path):
    mask = np.zeros((30, 27))
    mask[14:, 4:] = 1
    user = write_mask(tmp_path / "m.fits", mask)
    models = run(mask=user, positivity="joint", **AUTO).model.values
    assert (models[:, mask == 0] == 0).all()
    assert models.min() == 0
    assert set((models > 0).sum(axis=0).ravel().tolist()) == {0, 3}  # in all bands or in none
    alone = run(mask=user, positivity="joint", niter=3, start_level=1.0).model.values
    assert 0 < (models[0] > 0).sum() < (alone[0] > 0).sum()


def test_a_mask_on_another_grid_is_reprojected_for_the_run(run, tmp_path):
    geometry = Geometry(nx=41, ny=40, cell=2 * CELL * ARCSEC, ra=np.deg2rad(63.36), dec=np.deg2rad(-45.0), frame="ICRS")
    mask = np.zeros((41, 40))
    mask[20:26, 20:26] = 1  # 12 pixels of the image to the right of its centre, and up
    fits.writeto(tmp_path / "m.fits", mask.T, sky_wcs(geometry).to_header())
    models = run(mask=str(tmp_path / "m.fits"), mask_reproject=True).model.values
    lit = np.argwhere((models != 0).any(axis=0))
    assert (lit >= (14, 12)).all()
    assert (lit <= (26, 24)).all()
    assert len(lit) > 5


def test_smaller_boxes_and_higher_islands_change_the_mask(run):
    models = [run(**AUTO, **more).model.values != 0 for more in ({}, dict(auto_mask_grow=4.9), dict(auto_mask_box=3.0))]
    assert models[1].sum() < models[0].sum()
    assert (models[2] != models[0]).any()


def test_nothing_stands_out(run, recorder):
    ds = run(report=recorder, **(AUTO | dict(auto_mask=1e5)))
    assert (ds.model.values == 0).all()
    np.testing.assert_allclose(ds.residual.values, ds.dirty.values)
    assert any("nothing exceeds --auto-mask 100000 times the noise at cycle 0" in text for text in recorder.warnings)


def test_it_is_the_same_on_workers(run, cluster):
    assert same(run(**AUTO), run(scheduler=cluster.scheduler_address, threads_per_worker=None, **AUTO)) == []


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (dict(auto_mask_grow=2.0), r"--auto-mask-grow 2 grows the islands of --auto-mask: give that too"),
        (dict(auto_mask=4.0, auto_mask_grow=5.0), r"--auto-mask-grow 5 must not exceed --auto-mask 4"),
        (dict(auto_mask=4.0, auto_mask_at="1,x"), r"--auto-mask-at '1,x' is no list of major cycles"),
        (dict(auto_mask=4.0, auto_mask_at="1,-2"), r"--auto-mask-at '1,-2' is no list of major cycles"),
        (dict(mask_reproject=True), r"--mask-reproject needs a mask to reproject"),
    ],
)
def test_options_that_make_no_sense(run, options, sentence):
    with pytest.raises(InputError, match=sentence):
        run(**options)


def test_levels_and_cycles():
    assert levels(Clean(output="x")) is None
    assert levels(Clean(output="x", auto_mask=5.0)) == (5.0, 3.0)
    assert levels(Clean(output="x", auto_mask=2.0)) == (2.0, 2.0)
    assert levels(Clean(output="x", auto_mask=5.0, auto_mask_grow=4.0)) == (5.0, 4.0)
    assert cycles(Clean(output="x")) == (0, 1, 2, 4, 8)
