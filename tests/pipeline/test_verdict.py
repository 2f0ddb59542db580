"""The self-check of a result: silent for a good set, and for each defect the finding that it was made for."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from pfb.config import Clean
from pfb.io.dataset import open_dataset
from pfb.io.sky import Component, offset
from pfb.kernels.chi_squared import NBIN, Expected
from pfb.pipeline import clean, verdict
from tests.observations import change, small_set
from tests.pipeline.conftest import Recorder

ARCSEC = np.deg2rad(1 / 3600)
CELL, N = 2.4, 108
POINTS = [(-30, 25, 1.0, 0.0), (20, -28, 0.4, 8.0)]
WIDE = (5, 4, 5.0, 60.0)
NAMES = (
    "noise", "chi-squared", "bands", "baselines", "restored peaks", "left in the residual", "restored flux", "deepest negative",
    "bowls",
)  # fmt: skip


def sky(*sources):
    """Pixels right and up of the centre, Jy, width in arcsec."""
    ra0, dec0 = np.deg2rad(63.36), np.deg2rad(-45.0)
    placed = [(offset(ra0, dec0, -x * CELL * ARCSEC, y * CELL * ARCSEC), rest) for x, y, *rest in sources]
    return [Component(ra=ra, dec=dec, I=flux, alpha=-0.7, fwhm=fwhm * ARCSEC) for (ra, dec), (flux, fwhm) in placed]


@pytest.fixture
def judged(tmp_path, no_picture):
    """Clean a set with defects, and return its verdict as the dataset has it, what was off, and what was said."""

    def run(sources=(*POINTS, WIDE), options=(), spoil=None, output="out", **defects):
        components = sources if isinstance(sources[0], Component) else sky(*sources)
        made = small_set(tmp_path / f"{output}.ms", sky=components, **dict(nant=28, sefd=1e4, scan_length=3.0) | defects)
        if spoil:
            spoil(made.path)
        report = Recorder()
        given = dict(npix=str(N), cell=CELL, nband=2, niter=8, bases="self,db2", threads_per_worker=2, checkpoint=0)
        clean.run((made.path,), Clean(output=str(tmp_path / output), **given | dict(options)), report)
        found = open_dataset(tmp_path / f"{output}.zarr").attrs.get("verdict")
        off = [f["name"] for f in found["findings"] if not f["ok"]] if found else []
        return SimpleNamespace(found=found, off=off, report=report, summary=report.summaries[-1][1])

    return run


def test_a_good_set_has_nothing_off(judged):
    result = judged()
    assert result.off == []
    assert result.report.warnings == []
    assert result.summary["self-check"] == "all is within its limits"
    assert "of the thermal noise" in result.summary["noise"]
    assert tuple(f["name"] for f in result.found["findings"]) == NAMES
    json.dumps(result.found, allow_nan=False)
    chi = result.found["chi_squared"]
    assert chi["total"] == pytest.approx(1.0, abs=0.15)
    assert np.array([x or np.nan for x in chi["of_bands_and_lengths"]], float).shape == (2, NBIN)
    assert chi["octaves_from_m"][:3] == [1, 2, 4]
    assert 0.3 * result.found["thermal"] < result.found["noise"] < 1.6 * result.found["thermal"]


@pytest.mark.parametrize(("factor", "off"), [(9.0, ["noise", "chi-squared"]), (1 / 25, ["noise", "chi-squared"])])
def test_weights_of_another_scale(judged, factor, off):
    result = judged(POINTS, options=dict(niter=3), weight_factor=factor)
    assert result.off == off
    before, warning = result.report.warnings
    assert f"WEIGHT is {factor:.3g} times 1 / SIGMA^2" in before
    assert warning.startswith("the residual visibilities have a reduced chi-squared of"), "the noise says the same"
    assert "another scale than 1/sigma^2" in warning
    # The other findings do not depend on the scale.
    assert result.summary["self-check"] == "2 off: noise, chi-squared"
    assert result.summary["noise"].endswith("<- off")


def test_missing_short_baselines(judged):
    result = judged(flagged_below=600.0)
    assert "bowls" in result.off
    assert any("short baselines are missing for emission there" in warning for warning in result.report.warnings)


def test_gains_that_are_wrong(judged):
    result = judged(POINTS, options=dict(data_column="DATA", niter=4), gain_error=0.2)
    assert {"chi-squared", "deepest negative"} <= {*result.off}
    assert any("look for errors of calibration of the nearest bright source" in warning for warning in result.report.warnings)


def test_interference(judged):
    result = judged(POINTS, options=dict(nband=3, niter=3), unflagged_rfi=0.01)
    assert {"chi-squared", "bands"} <= {*result.off}
    assert any(
        w.startswith("chi-squared of band 0 (856 - ") and "look for interference or bad calibration there" in w
        for w in result.report.warnings
    )


def test_interference_that_short_baselines_see(judged):
    def spoil(path):
        def disturb(vis):
            short = np.hypot(*uvw.T[:2]) < 130
            assert 0.01 < short.mean() < 0.3
            return vis + 3 * short[:, None, None]

        uvw = []
        change(path, "UVW", lambda values: uvw.extend(values) or values)
        uvw = np.array(uvw)
        change(path, "CORRECTED_DATA", disturb)

    result = judged(POINTS, options=dict(niter=3, weighting="uniform"), spoil=spoil)
    assert "baselines" in result.off
    assert any(w.startswith("chi-squared of baselines of") for w in result.report.warnings)


def test_a_run_that_ends_too_early(judged):
    result = judged(POINTS, options=dict(niter=1, pd_maxit=2, start_level=1.0))
    assert "left in the residual" in result.off
    assert any("clean deeper (--niter, --rmsfactor)" in warning for warning in result.report.warnings)


def test_a_run_that_is_gone_on_with_at_its_end_has_the_same_verdict(judged, monkeypatch):
    """It has the residual images of its checkpoint, but nothing of the visibilities behind them."""
    options = dict(niter=2)
    before = judged(POINTS, options=options)
    cycles = clean.run_major_cycles

    def forget(deconvolution, *arguments):
        outcome = cycles(deconvolution, *arguments)
        deconvolution.state = replace(deconvolution.state, power=None)
        return outcome

    monkeypatch.setattr(clean, "run_major_cycles", forget)
    assert judged(POINTS, options=options, output="again").found == before.found


def test_nothing_has_no_verdict(judged):
    result = judged(POINTS, options=dict(niter=1), zero_columns=("CORRECTED_DATA",))
    assert result.found is None
    assert "self-check" not in result.summary


# Single findings


def of_noise(rng, scale=1.0, count=4000):
    """Two bands of power that noise makes, and what is expected."""
    taper = np.zeros((2, NBIN))
    taper[:, 4:9] = count
    expected = [Expected(1.0, row, row) for row in taper]
    return expected, [scale * (row + np.sqrt(row) * rng.standard_normal(NBIN)) for row in taper]


def test_chi_squared_is_relative_to_the_typical_one(rng):
    for scale in (1e-4, 1.0, 1e6):
        chi = verdict.reduce(*of_noise(rng, scale))
        assert chi.total == pytest.approx(scale, rel=0.05)
        assert np.isfinite(chi.lengths).sum() == 5
        assert chi.samples[0].tolist() == [20000, 20000]
        assert verdict._excess(chi.lengths, chi.samples[1])[1] == 1
    expected, power = of_noise(rng)
    power[1][6] *= 9
    chi = verdict.reduce(expected, power)
    place, ratio = verdict._excess(chi.lengths, chi.samples[1])
    assert (place, ratio) == (6, pytest.approx(5, rel=0.1))


def test_few_samples_prove_nothing(rng):
    expected, power = of_noise(rng)
    for row, e in zip(power, expected, strict=True):
        e.taper[10] = e.square[10] = 10
        row[10] = 1e4
    chi = verdict.reduce(expected, power)
    assert np.isnan(chi.lengths[10])
    assert verdict._excess(chi.lengths, chi.samples[1])[1] == 1
    assert verdict._excess(np.array([1.0, 2.0, 1.0]), np.array([1e4, 20.0, 1e4]))[1] == 1
    assert verdict._excess(np.array([np.nan, 2.0]), np.array([0.0, 20.0])) == (None, 1.0)


def test_any_restoring_beam_has_the_same_verdict(judged):
    result = judged(options=dict(restoring_beam="30,25,30"))
    assert result.off == []
    (peaks,) = [f for f in result.found["findings"] if f["name"] == "restored peaks"]
    assert peaks["value"] < 1e-9
    assert "restored flux" in result.summary


def test_polarised_sources_may_be_negative(judged):
    sky_of_q = [replace(component, I=5.0, Q=-component.I) for component in sky(*POINTS)]
    result = judged(sky_of_q, options=dict(stokes="Q"))
    assert result.off == []
    assert [f["name"] for f in result.found["findings"]] == list(NAMES[:6])
    assert result.found["noise"] < 0.01
    assert result.summary["restored peaks"].startswith("of 2 sources")


def test_an_image_that_is_not_what_model_and_residual_make(rng):
    from pfb.kernels.quality import Source

    right, wrong = Source(1, 2, 1.0, 0.95, 0.05), Source(3, 4, 1.1, 0.95, 0.05)
    assert [f.ok for f in verdict._of_sources([right], 0.001)] == [True, True]
    peaks, left = verdict._of_sources([right, wrong], 0.001)
    assert not peaks.ok
    assert "pixel (3, 4) has 1.1 Jy/beam in the restored image but model and residual make 1" in peaks.sentence
    assert left.ok
    model, residual = np.zeros((30, 30)), rng.standard_normal((30, 30))
    model[15, 15] = 2.0
    (flux,) = verdict._of_flux(residual + 5 * model, residual, model, 5.0, certain=True)
    assert (flux.ok, flux.value) == (True, pytest.approx(1.0))
    (flux,) = verdict._of_flux(residual + 5.2 * model, residual, model, 5.0, certain=True)
    assert not flux.ok
    assert "has 2.08 Jy of the 2 Jy of the model" in flux.sentence


def test_a_number_that_is_none_is_off():
    assert not verdict.Finding("x", float("nan"), 0, 1, "", "").ok
