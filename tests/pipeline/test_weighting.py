"""Weights of a run against their definition, sample by sample, and what they cost in noise against that of simulated data."""

import math

import numpy as np
import pytest

from pfb.config import Image
from pfb.io.measurement_set import Selection, select
from pfb.pipeline import image
from pfb.pipeline.planning import make
from tests.observations import small_set
from tests.pipeline.small_runs import stokes_i

C = 299792458.0
ARCSEC = math.radians(1 / 3600)
SHAPE, CELL = (21, 16), 3.0


@pytest.fixture(scope="module")
def observed(tmp_path_factory):
    return small_set(tmp_path_factory.mktemp("weights") / "a.ms", nant=10, channels=(6, 8), flagged_channels=(2,)).path


@pytest.fixture
def bands(observed):
    """For every band u, v in wavelengths, Hz, and the natural weight of its samples."""

    def load(nband):
        plan = make(select((observed,), Selection()), Image(output="x", npix="21,16", cell=CELL, nband=nband))
        found = []
        for windows in plan.loaders:
            parts = [part for pieces in windows for piece in pieces for part in piece()[0]]
            wave = [p.uvw[:, None, :2] * p.freq[:, None] / C for p in parts]
            freq = [np.broadcast_to(p.freq, p.weight.shape) for p in parts]
            found.append((np.concatenate([w.reshape(-1, 2) for w in wave]), np.concatenate([f.ravel() for f in freq]),
                          np.concatenate([p.weight.ravel() for p in parts])))  # fmt: skip
        return found

    return load


def defined(bands, *, robust=None, box=0, floor=0.0, per_band=False, taper=None, inner=None):
    """The weights of every band by definition: loops over samples and cells."""
    size = [2 * math.ceil(1.7 * n / 2) for n in SHAPE]
    cells, out = [], []
    for wave, _, _ in bands:
        cells.append([tuple(int(i) for i in np.rint(uv * size * CELL * ARCSEC)) for uv in wave])
    for b, (wave, _, weight) in enumerate(bands):
        counts = {}
        for other in [b] if per_band else range(len(bands)):
            for (u, v), w in zip(cells[other], bands[other][2], strict=True):
                for cell in {(u, v), (-u, -v)}:
                    counts[cell] = counts.get(cell, 0) + w
        side = range(-box, box + 1)
        dense = {(u, v): sum(counts.get((u + i, v + j), 0) for i in side for j in side) for u, v in counts}
        # Of a sample and its conjugate one is counted.
        half = [cell for cell in dense if counts[cell] > 0 and (cell[1] > 0 or (cell[1] == 0 and cell[0] >= 0))]
        least = floor * np.median([dense[cell] for cell in half])
        mean = sum(counts[c] * max(dense[c], least) for c in half) / sum(counts[c] for c in half)
        density = np.array([max(dense[cell], least) or 1 for cell in cells[b]])
        found = weight / density if robust is None else weight / (1 + (5 * 10**-robust) ** 2 / mean * density)
        if taper:
            major, minor, pa = taper[0] * ARCSEC, taper[1] * ARCSEC, math.radians(taper[2])
            along, across = wave @ [math.sin(pa), math.cos(pa)], wave @ [math.cos(pa), -math.sin(pa)]
            found = found * np.exp(-(math.pi**2) / (4 * math.log(2)) * ((along * major) ** 2 + (across * minor) ** 2))
        if inner:
            found = found * (1 - np.exp(-(math.pi**2) / (4 * math.log(2)) * (wave**2).sum(axis=1) * (inner * ARCSEC) ** 2))
        out.append(found)
    return out


CASES = {
    "uniform": (["--weighting", "uniform"], {}),
    "super-uniform": (["--weighting", "uniform", "--super-uniform", "2"], dict(box=2)),
    "box and robust": (["--super-uniform", "1", "--robust", "-0.5"], dict(box=1, robust=-0.5)),
    "per band": (["--weighting", "uniform", "--weight-grouping", "band"], dict(per_band=True)),
    "floor": (["--weighting", "uniform", "--weight-floor", "0.7"], dict(floor=0.7)),
    "taper": (["--weighting", "uniform", "--taper", "20,12,30"], dict(taper=(20, 12, 30))),
    "inner taper": (["--robust", "0", "--inner-taper", "90"], dict(robust=0, inner=90)),
    "all": (
        ["--super-uniform", "1", "--weight-grouping", "band", "--weight-floor", "0.7", "--taper", "12", "--inner-taper", "90"],
        dict(robust=0, box=1, per_band=True, floor=0.7, taper=(12, 12, 0), inner=90),
    ),
}  # fmt: skip


@pytest.mark.usefixtures("dataset_only")
@pytest.mark.parametrize("case", CASES)
def test_weights_are_those_of_the_definition(case, pfb, observed, bands, tmp_path):
    """One channel, and with it a band of three, is flagged."""
    words, options = CASES[case]
    answer = pfb("image", observed, "-o", tmp_path / "out", "--npix", "21,16", "--cell", CELL, "--nband", 3, *words)
    assert answer.code == 0, answer
    ds = stokes_i(tmp_path / "out.zarr")
    samples = bands(3)
    expected = defined(samples, **options)
    assert (ds.wsum > 0).all()
    for b, (weight, (_, freq, natural)) in enumerate(zip(expected, samples, strict=True)):
        assert float(ds.wsum[b]) == pytest.approx(weight.sum(), rel=1e-10)
        assert float(ds.freq[b]) == pytest.approx((weight * freq).sum() / weight.sum(), rel=1e-12)
        good = natural > 0
        noise = np.sqrt((weight[good] ** 2 / natural[good]).sum()) / weight.sum()
        assert float(ds.thermal[b]) == pytest.approx(noise, rel=1e-10)
    weight, natural = np.concatenate(expected), np.concatenate([band[2] for band in samples])
    good = natural > 0
    ratio = np.sqrt((weight[good] ** 2 / natural[good]).sum() * natural.sum()) / weight.sum()
    assert ratio > 1.001
    (line,) = (line for line in answer.out.splitlines() if "the thermal noise is" in line)
    assert f"the thermal noise is {ratio:.3g} times that of natural weights" in line


def test_an_empty_band_has_no_weights_of_its_own(tmp_path, recorder, dataset_only):
    path = small_set(tmp_path / "a.ms", flagged_channels=(0, 1)).path
    image.run((path,), Image(output=str(tmp_path / "out"), npix="16", cell=CELL, weight_grouping="band", taper="9"), recorder)
    ds = stokes_i(tmp_path / "out.zarr")
    assert (ds.wsum > 0).values.tolist() == [False, True, True, True]
    assert np.isfinite(ds.thermal).values.tolist() == [False, True, True, True]
    assert any("the thermal noise is 1." in text for text in recorder.messages)


@pytest.mark.parametrize("weighting", ["natural", "uniform"])
def test_the_thermal_noise_is_that_of_images_of_noise(weighting, tmp_path, recorder, dataset_only):
    path = small_set(tmp_path / "a.ms", sky=[], nant=16, rfi=0.0).path
    config = Image(output=str(tmp_path / "out"), npix="128", cell=CELL, nband=1, weighting=weighting)
    image.run((path,), config, recorder)
    ds = stokes_i(tmp_path / "out.zarr")
    found = float((ds.dirty[0] / ds.wsum[0]).std())
    assert found == pytest.approx(float(ds.thermal[0]), rel=0.1)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--weighting", "natural", "--super-uniform", "1"], "--super-uniform changes the density that uniform and Briggs"),
        (["--weighting", "natural", "--weight-floor", "0.1"], "--weight-floor changes the density"),
        (["--weighting", "natural", "--weight-grouping", "band"], "--weight-grouping band changes the density"),
        (["--taper", "3,5,0"], "--taper 3,5,0 is not a beam with BMAJ >= BMIN > 0; write BMAJ or BMAJ,BMIN,BPA in arcsec"),
        (["--taper", "x"], "--taper x is not a beam"),
        (["--inner-taper", "0"], "--inner-taper is 0.0 but must be greater than 0"),
        (["--weight-floor", "-1"], "--weight-floor is -1.0 but must be at least 0"),
    ],
    ids=" ".join,
)
def test_what_makes_no_weights_is_refused(words, sentence, refused, observed, tmp_path):
    assert sentence in refused("image", observed, "-o", tmp_path / "out", *words, folder=tmp_path)
