"""Samples on disk: the same results whether they are held, kept for later runs, or streamed."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pfb.config import Clean, Image
from pfb.errors import InputError
from pfb.io.measurement_set import Selection, select
from pfb.pipeline import budget, clean, loading, planning, streaming
from pfb.pipeline.budget import Size
from pfb.pipeline.reporting import Silent
from pfb.pipeline.storing import Batch, Deferred, Joiner, Kept
from tests.observations import ROOT, change, small_set
from tests.pipeline.conftest import Recorder
from tests.pipeline.small_runs import FEW, NEAR, same, sky, stokes_i
from tests.pipeline.test_checkpoint import killed

LINEAR, DECONVOLVED = 1e-11, 1e-5
"""Of the peak: with a gridder of 1e-12; of models and residuals, see docs/invariance.md."""
RICH = dict(clip=0.02, weight_floor=0.2, super_uniform=1, taper="3", niter=1, pd_maxit=5)


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch):
    """Pieces of 90 rows and batches of five of them, so that a small set is many."""
    monkeypatch.setattr(streaming, "READ", 240)
    monkeypatch.setattr(budget, "BATCH", 1200)


def distances(one, other, names):
    pairs = {name: (one[name].values, other[name].values) for name in names}
    return {name: float(np.nanmax(np.abs(a - b)) / np.nanmax(np.abs(a))) for name, (a, b) in pairs.items()}


def no_reading(*_):
    raise AssertionError("the set was read")


def assert_kept_and_used_again(run, tmp_path, monkeypatch, **options):
    cache, report = str(tmp_path / "cache"), Recorder()
    held, kept = run(**options), run(cache=cache, report=report, **options)
    assert any(text == f"visibilities are kept in {cache}" for text in report.messages)
    monkeypatch.setattr(loading, "read", no_reading)
    again = run(cache=cache, report=report, **options)
    assert any(text == f"all visibilities are taken from {cache}" for text in report.messages)
    assert same(held, kept) == same(held, again) == []
    return held, cache


def test_what_was_kept_is_used_again_and_no_bit_changes(run, tmp_path, monkeypatch):
    assert_kept_and_used_again(run, tmp_path, monkeypatch, **RICH)


def test_averages_are_kept_too(run, tmp_path, monkeypatch):
    assert_kept_and_used_again(run, tmp_path, monkeypatch, niter=1, pd_maxit=5, bda=True, average_time=40.0)


def test_what_was_made_otherwise_is_not_used_and_that_is_said(run, small, tmp_path):
    cache, path, brief = str(tmp_path / "cache"), str(tmp_path / "a.ms"), dict(niter=1, pd_maxit=2)
    shutil.copytree(small, path)
    run(path, cache=cache, **brief)
    report = Recorder()
    assert same(run(path, **brief, average_chan="2"), run(path, cache=cache, report=report, average_chan="2", **brief)) == []
    assert any(text.startswith(f"{cache} holds visibilities that were made otherwise (averaging)") for text in report.messages)
    change(path, "CORRECTED_DATA", lambda vis: 2 * vis)
    doubled = run(path, cache=cache, report=report, **brief)
    assert any("made otherwise (averaging, stamp)" in text or "made otherwise (stamp)" in text for text in report.messages)
    assert same(doubled, run(path, **brief)) == []


def damage(cache):
    """Flip a bit in every third chunk of visibilities; returns how many."""
    chunks = [c for c in sorted(Path(cache).glob("*.zarr/vis0/c/0/0"))][::3]
    for chunk in chunks:
        data = bytearray(chunk.read_bytes())
        data[-20] ^= 4
        chunk.write_bytes(data)
    return len(chunks)


@pytest.mark.parametrize("stream", ["never", "always"])
def test_what_was_damaged_is_made_again(run, tmp_path, stream):
    options = dict(niter=1, pd_maxit=2, cache=str(tmp_path / "cache"), stream=stream)
    expected = run(**options)
    assert damage(options["cache"]) > 3
    assert same(expected, run(**options)) == []
    assert same(expected, run(**options)) == []


@pytest.mark.parametrize(
    "options", [RICH, dict(weighting="natural"), dict(weighting="uniform", weight_grouping="band"), dict(bda=True)]
)
def test_streamed_samples_give_the_same_images(run, options):
    options = dict(niter=1, pd_maxit=5, epsilon=1e-12) | options
    found = distances(run(**options), run(stream="always", **options), ("dirty", "psf", "wsum", "freq", "model", "residual"))
    assert max(found[name] for name in ("dirty", "psf", "wsum", "freq")) < LINEAR, found
    assert max(found.values()) < DECONVOLVED, found


def test_streams_give_the_same_bits_wherever_they_run(run, tmp_path):
    options = dict(RICH, stream="always")
    expected = run(**options, threads_per_worker=1)
    assert same(expected, run(**options, threads_per_worker=3)) == []
    assert same(expected, run(**options, workers=2, threads_per_worker=1, cache=str(tmp_path / "cache"))) == []


def test_a_streamed_run_that_was_killed_goes_on_to_the_same_bits(dataset_only, small, run, tmp_path):
    options = dict(niter=1, pd_tol=0.0, stream="always")
    config = Clean(output=str(tmp_path / "killed"), checkpoint=1, **(FEW | options))
    with killed(2):
        clean.run((small,), config, Silent())
    clean.run((small,), replace(config, resume=True), Silent())
    assert same(run(**options), stokes_i(tmp_path / "killed.zarr", "clean")) == []
    assert not [name for name in os.listdir(tmp_path) if "scratch" in name]


def test_stokes_products_and_robust_weights(run):
    """The products of a piece are kept together; weights are renewed from the residual of a model."""
    options = dict(niter=2, pd_maxit=5, epsilon=1e-12, stokes="QI", robust_reweight_at="1", robust_nu=3.0)
    found = distances(run(**options), run(stream="always", **options), ("dirty", "psf", "wsum", "model", "residual"))
    assert max(found[name] for name in ("dirty", "psf", "wsum")) < LINEAR, found
    assert max(found.values()) < 10 * DECONVOLVED, found


def test_bands_without_data_and_nan_under_flags(run, tmp_path):
    path = small_set(
        tmp_path / "b.ms", sky=sky(NEAR), nspw=3, nchan=2, nant=8, scan_length=1.0, flagged_windows=(1,), nan_in_flagged=True
    ).path
    options = dict(niter=1, pd_maxit=3, nband=3, epsilon=1e-12)
    one, other = run(path, **options), run(path, stream="always", **options)
    assert np.isnan(other.residual.values[1]).all()
    assert np.isfinite(other.model.values).all()
    assert max(distances(one, other, ("dirty", "psf", "wsum")).values()) < LINEAR


@pytest.fixture(scope="module")
def planned(small):
    return planning.make(select([small], Selection()), Image(output="unused", npix="16", cell=2.0, nband=2))


def test_a_stream_travels_as_a_few_bytes_and_makes_what_is_gone(planned, tmp_path):
    loaders = streaming._short(planned.loaders[0][0], planned.windows[0][0])
    held = [loader() for loader in loaders]
    stored = [Deferred(Kept(loader, str(tmp_path)))() for loader in loaders]
    assert len(stored) > 5
    (stream,) = pickle.loads(pickle.dumps(Joiner(1200)(stored)))
    assert len(pickle.dumps(stream)) < 4000 * len(stored)
    assert 1 < len(stream) < len(stored)
    assert all(part.vis.size <= 1200 for part in stream)
    for entry in tmp_path.iterdir():
        shutil.rmtree(entry)
    for name in ("uvw", "vis", "weight"):
        np.testing.assert_array_equal(
            np.concatenate([getattr(part, name) for part in stream]), np.concatenate([getattr(p, name) for ((p,),) in held])
        )
    assert len(list(tmp_path.iterdir())) == len(stored)
    assert isinstance(stream.sources[0], Batch)


def test_samples_are_streamed_where_they_do_not_fit(planned, monkeypatch):
    monkeypatch.setattr(budget, "samples_of", lambda plan, band: 40_000_000)
    config = Image(output="unused")
    needed, least = (budget.budget(replace(planned, streamed=s), config, 1, 2).worker for s in (False, True))
    assert least < needed / 5
    for memory, streamed in ((needed + 1, False), (needed - 1, True), (0, False)):
        monkeypatch.setattr(budget, "limit", lambda memory=memory: memory)
        assert streaming.settle(planned, config, Size(1, 2)).streamed == streamed
    assert not streaming.settle(planned, replace(config, stream="never"), Size(1, 2, needed - 1)).streamed
    assert streaming.settle(planned, replace(config, stream="always"), Size(1, 2, needed + 1)).streamed
    settled = streaming.settle(planned, config, Size(1, 2, needed - 1))
    assert "visibilities are read from disk whenever they are needed" in budget.require(settled, config, Size(1, 2, needed - 1))
    with pytest.raises(InputError, match="GiB of memory but there are"):
        budget.require(settled, config, Size(1, 2, least - 1))
    assert budget.disk(settled, config) - budget.disk(planned, config) == 2 * 40_000_000 * budget.STORED


def test_too_little_room_for_visibilities(planned, tmp_path, monkeypatch):
    monkeypatch.setattr(streaming, "samples_of", lambda plan, band: 10**15)
    with pytest.raises(InputError, match=r"the visibilities need about .* GiB on disk but .* free: make room"):
        streaming.reading_of(replace(planned, streamed=True), Image(output="unused"), tmp_path, Silent())


@pytest.mark.parametrize("place", ["file", "no/folder"])
def test_a_cache_that_cannot_be(place, refused, small, tmp_path):
    (tmp_path / "file").write_text("")
    said = refused("image", small, "-o", tmp_path / "out", "--cache", tmp_path / place, folder=tmp_path)
    assert "--cache" in said


PROGRAM = """
import sys
from pathlib import Path
from pfb.config import Image
from pfb.pipeline import budget, image, imaging, loading, streaming
from pfb.pipeline.reporting import Silent
imaging.write_products = lambda *_, **__: []
streaming.READ = budget.BATCH = 1 << 14
def memory(name):
    return int(Path("/proc/self/status").read_text().split(name + ":")[1].split()[0]) << 10
def run(path, stream):
    options = dict(npix="48", cell=20.0, nband=1, threads_per_worker=1, stream=stream)
    image.run((path,), Image(output=sys.argv[1] + "/out", overwrite=True, **options), Silent())
run(sys.argv[2], "always")
for stream in ("always", "never"):
    Path("/proc/self/clear_refs").write_text("5")  # the highest so far is what it is now
    before = memory("VmRSS")
    run(sys.argv[3], stream)
    print(memory("VmHWM") - before)
"""


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="needs a kernel that counts memory anew")
def test_a_set_ten_times_the_memory_is_imaged(tmp_path):
    """What a run takes above a process that has imaged a tiny set, at most, as the kernel counts it."""
    tiny = small_set(tmp_path / "tiny.ms").path
    large = small_set(tmp_path / "large.ms", nant=24, nchan=80, scan_length=16.0, dump=8.0, rfi=0.0).path
    size = sum(f.stat().st_size for f in Path(large).rglob("*") if f.is_file())
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), tiny, large],
        env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=600, check=True,
    )  # fmt: skip
    streamed, held = map(int, done.stdout.split())
    assert size > 128 << 20
    assert streamed < size / 10, (streamed, held, size)
    assert held > 2 * streamed, (streamed, held, size)
