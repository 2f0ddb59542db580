"""Runs that end before their time, and go on."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import fields, replace
from unittest.mock import patch

import numpy as np
import pytest
from distributed import LocalCluster

from pfb.config import Clean
from pfb.errors import InputError
from pfb.graph import grain as grain_module
from pfb.graph.cluster import ClusterEngine
from pfb.graph.grain import Grain
from pfb.operators.hessian import VisibilityHessian
from pfb.pipeline import checkpoint, clean
from pfb.pipeline.checkpoint import MAY_CHANGE, SHARE, Safety
from pfb.pipeline.reporting import Silent
from tests.observations import ROOT, change, small_set
from tests.pipeline.conftest import Recorder
from tests.pipeline.small_runs import CELL, FEW, NEAR, same, sky, stokes_i


class Killed(BaseException):
    """Nothing that a program could handle."""


@contextmanager
def killed(after):
    """The process ends right after so many checkpoints."""
    count, save = 0, Safety.save

    def saved(self, *args):
        nonlocal count
        save(self, *args)
        count += 1
        if count == after:
            raise Killed

    with patch.object(Safety, "save", saved), pytest.raises(Killed):
        yield


@pytest.fixture
def again(dataset_only, small, tmp_path):
    """Run until it is killed, go on from there with other options, and return the dataset of what came out."""

    def make(after, then=None, report=None, **options):
        config = Clean(output=str(tmp_path / "killed"), checkpoint=1, **(FEW | options))
        with killed(after):
            clean.run((small,), config, Silent())
        clean.run((small,), replace(config, resume=True, **(then or {})), report or Silent())
        assert not (tmp_path / "killed.checkpoint").exists()
        return stokes_i(tmp_path / "killed.zarr", needs="clean").load()

    return make


HISTORY = [f"history_{name}" for name in ("peak", "rms", "lambda", "objective", "inner", "change")]


# Saves of two cycles of thirty iterations: at the start, twice within each cycle, and after it.
@pytest.mark.parametrize("n", range(1, 8))
def test_a_run_that_was_killed_ends_at_the_same_bits(n, again, run, recorder):
    expected = run(pd_tol=0.0, positivity="joint")
    found = again(n, report=recorder, pd_tol=0.0, positivity="joint")
    assert same(expected, found) == []
    cycles, more = [(0, 0), (0, 10), (0, 20), (1, 0), (1, 10), (1, 20), (2, 0)][n - 1]
    (said,) = (text for text in recorder.messages if text.startswith("going on from "))
    where = f"{cycles} major cycle{'s' * (cycles != 1)}"
    assert said.endswith(f"after {where} and {more} iterations of the next" if more else f"after {where}")
    assert [row["cycle"] for row in recorder.rows] == list(range(cycles, 2))
    assert same(expected, found, HISTORY) == []


@pytest.mark.parametrize("n", [3, 5, 7])
def test_it_goes_on_with_the_automatic_mask_that_it_had(n, again, run):
    """The checkpoints lie within the cycle for which the mask was made, within one that it was kept for, and at the end."""
    options = dict(pd_tol=0.0, auto_mask=5.0, auto_mask_at="0,2")
    assert same(run(**options), again(n, **options)) == []


def test_it_goes_on_with_another_number_of_workers(again, run):
    """The dual of all bands in a block is cut into one block for every band, and joined."""
    expected = run()
    assert same(expected, again(2, dict(workers=2, threads_per_worker=1))) == []


def test_it_goes_on_from_workers_to_threads(again, run, tmp_path):
    assert same(run(), again(2, dict(workers=0, threads_per_worker=2), workers=2, threads_per_worker=1)) == []


def test_more_cycles_may_be_asked_for(again, run):
    assert same(run(niter=3), again(3, dict(niter=3))) == []


@pytest.mark.parametrize("after", [3, 4, 5])
def test_the_best_model_is_remembered(after, again, run, monkeypatch):
    """With a Hessian that is far too small every step is far too long, and the run falls back on the model it began with."""
    honest = VisibilityHessian.dot
    monkeypatch.setattr(VisibilityHessian, "dot", lambda self, x: honest(self, x) / 20)
    monkeypatch.setattr("pfb.operators.preconditioner.neighbourhood_maximum", lambda transfer, padded: transfer / 20)
    options = dict(niter=20, pd_maxit=20, rmsfactor=1e-3, eta=0.0, l1_reweight_from=-1)
    expected = run(**options)
    assert expected.attrs["outcome"] == "diverged"
    found = again(after, **options)
    assert found.attrs["outcome"] == "diverged"
    assert same(expected, found, ("model", "residual", "update", *HISTORY)) == []


# What is refused


@pytest.fixture
def left(small, tmp_path, dataset_only):
    """Options of a run that ended after its third checkpoint."""
    config = Clean(output=str(tmp_path / "out"), checkpoint=1, **FEW)
    with killed(3):
        clean.run((small,), config, Silent())
    return config


def refused(sets, config, message):
    with pytest.raises(InputError, match=message):
        Safety(sets, config, Silent())


def test_a_checkpoint_is_not_lost_by_accident(small, left):
    refused((small,), left, r"out\.checkpoint is the checkpoint of a run that has not ended: .* --resume, .* --overwrite$")
    assert Safety((small,), replace(left, overwrite=True), Silent()).saved is None
    assert Safety((small,), replace(left, overwrite=True, resume=True), Silent()).saved is not None


def test_it_stays_until_the_new_run_has_its_own(small, left, tmp_path, monkeypatch):
    before = json.loads((tmp_path / "out.checkpoint/manifest.json").read_text())
    monkeypatch.setattr(Safety, "save", lambda *_: (_ for _ in ()).throw(Killed))
    with pytest.raises(Killed):
        clean.run((small,), replace(left, overwrite=True), Silent())
    assert json.loads((tmp_path / "out.checkpoint/manifest.json").read_text()) == before
    assert Safety((small,), replace(left, resume=True), Silent()).saved is not None


def test_a_run_without_a_checkpoint_starts_anew(small, tmp_path, recorder):
    assert Safety((small,), Clean(output=str(tmp_path / "x"), resume=True), recorder).saved is None
    assert recorder.messages == [f"there is no checkpoint {tmp_path / 'x.checkpoint'}: the run starts from its beginning"]


def test_another_run_is_refused(small, left, monkeypatch):
    resumed = replace(left, resume=True)
    refused((small,), replace(resumed, prior="l21"), "with --prior mean21 but this run has l21: give the same, or .* --overw")
    refused((small, small), resumed, "was made with sets .*a.ms'\\] but")
    refused((small,), replace(resumed, nband=2), "--nband 3 but this run has 2")
    monkeypatch.setattr(checkpoint, "__version__", "9.9")
    refused((small,), resumed, "was made with pfb .* but this run has 9.9")


@pytest.mark.parametrize(
    ("damage", "message"),
    [("not json", "is not the manifest of a checkpoint"), ("{}", "is not the manifest of a checkpoint"),
     ('{"version": 99, "folder": "0", "files": []}', "has version 99 of checkpoints but this pfb reads version 1")],
)  # fmt: skip
def test_a_damaged_manifest(damage, message, small, left, tmp_path):
    (tmp_path / "out.checkpoint/manifest.json").write_text(damage)
    refused((small,), replace(left, resume=True), f"{message}.*start anew with --overwrite")


def test_a_missing_array(small, left, tmp_path):
    (file,) = (tmp_path / "out.checkpoint").glob("*/primal-1.npy")
    file.unlink()
    refused((small,), replace(left, resume=True), r"lacks primal-1\.npy; start anew")


def test_data_that_have_changed(tmp_path, dataset_only):
    path = small_set(tmp_path / "a.ms", sky=sky(NEAR), nchan=6, rfi=0.0, nant=12).path
    config = Clean(output=str(tmp_path / "out"), checkpoint=1, **FEW)
    with killed(2):
        clean.run((path,), config, Silent())
    change(path, "FLAG", lambda flag: flag | (np.arange(6) // 2 == 1)[:, None])
    with pytest.raises(InputError, match=r"3 images with data and .* now gives 2 and .*: the data have changed"):
        clean.run((path,), replace(config, resume=True), Silent())


def test_what_may_change_is_an_option():
    assert set(MAY_CHANGE) <= {f.name for f in fields(Clean)}


# When it is saved


def test_every_so_many_iterations(small, tmp_path):
    safety = Safety((small,), Clean(output=str(tmp_path / "x"), checkpoint=25), Silent())
    assert [n for n in range(60) if safety.due(n)] == list(range(24, 60))
    safety._at = 30
    assert [n for n in range(60) if safety.due(n)] == list(range(55, 60))


def test_never(small, tmp_path):
    safety = Safety((small,), Clean(output=str(tmp_path / "x"), checkpoint=0), Silent())
    safety.stopping = lambda: True
    with safety.heeding():
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert not any(safety.due(n) for n in range(100))


def test_by_default_it_takes_a_small_share_of_the_time(small, tmp_path, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(checkpoint, "monotonic", lambda: clock[0])
    safety = Safety((small,), Clean(output=str(tmp_path / "x")), Silent())
    assert safety.due(0)
    safety._at, safety._when, safety._cost = 0, clock[0], 2.0
    clock[0] += 2 / SHARE - 1
    assert not safety.due(1)
    clock[0] += 2
    assert safety.due(1)
    assert not safety.due(0)


# Signals, and deaths


def start(path, prefix, *words):
    """Start a run of some cycles in another process."""
    given = "--npix 48 --cell 2 --nband 3 --bases self,db1 --tol 0 --pd-tol 0 --pd-maxit 20 --rmsfactor 0.001".split()
    return subprocess.Popen(
        [sys.executable, "-m", "pfb", "clean", path, "-o", prefix, "--checkpoint", "1", *given, *map(str, words)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


OPTIONS = dict(npix="48", cell=CELL, nband=3, bases="self,db1", tol=0.0, pd_tol=0.0, pd_maxit=20, rmsfactor=0.001)
RESULTS = ("model", "residual", "update", "dual", *HISTORY)


def wait_for(process, found):
    """Read what a process says until a line is found."""
    for line in process.stdout:
        if found(line):
            return line
    raise AssertionError(process.communicate()[1])


def test_a_run_that_is_asked_to_end_saves_what_it_has(small, tmp_path):
    process = start(small, tmp_path / "out", "--niter", 10_000)
    wait_for(process, lambda line: line.startswith("    1 "))
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "asked to end: what is under way will be saved; ask once more to end at once" in out
    cycles = int(err.removeprefix("pfb: ended after ").split()[0])
    assert err == f"pfb: ended after {cycles} major cycles, as asked: go on with --resume\n"
    assert [p.name for p in tmp_path.iterdir()] == ["out.checkpoint"]
    # What it had begun is done with the next.
    process = start(small, tmp_path / "out", "--niter", cycles + 1, "--resume")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert f"after {cycles} major cycle" in out
    assert stokes_i(tmp_path / "out.zarr").sizes["cycle"] == cycles + 1


def test_a_second_request_ends_it_at_once(small, tmp_path):
    """Before and after the first one; the checkpoint that there was remains."""
    safety = Safety((small,), Clean(output=str(tmp_path / "x")), Silent())
    called = []
    before = signal.signal(signal.SIGTERM, lambda *_: called.append(1))
    try:
        with safety.heeding():
            os.kill(os.getpid(), signal.SIGTERM)
            assert safety.stopping()
            assert not called
            os.kill(os.getpid(), signal.SIGTERM)
            assert called == [1]
        os.kill(os.getpid(), signal.SIGTERM)
        assert called == [1, 1]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_process_that_is_killed_twenty_times(small, tmp_path, dataset_only):
    """At random moments, the first of them before there is anything to go on from."""
    rng = random.Random(5)
    clean.run((small,), Clean(output=str(tmp_path / "calm"), niter=70, **OPTIONS), Silent())
    for _ in range(20):
        process = start(small, tmp_path / "out", "--niter", 70, "--resume")
        lines = rng.randrange(1, 24)  # eight are told before the first cycle
        for _ in range(lines):
            assert process.stdout.readline(), process.communicate()
        time.sleep(rng.uniform(0, 0.05))
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    process = start(small, tmp_path / "out", "--niter", 70, "--resume")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "going on from" in out
    found = stokes_i(tmp_path / "out.zarr").load()
    assert same(stokes_i(tmp_path / "calm.zarr").load(), found, RESULTS) == []
    assert not [p.name for p in tmp_path.iterdir() if p.name.startswith(".") or "checkpoint" in p.name]


@pytest.mark.cluster
def test_workers_that_are_killed_twenty_times(small, tmp_path, dataset_only, monkeypatch):
    rng = random.Random(6)
    clean.run((small,), Clean(output=str(tmp_path / "calm"), niter=12, **OPTIONS), Silent())
    killed, over, begun = [], threading.Event(), threading.Event()

    class Begun(Silent):
        def row(self, values):
            begun.set()

    def kill(nannies):
        while len(killed) < 20 and not over.wait(rng.uniform(0.05, 0.5)):
            if len(killed) == 5:  # a task that takes eleven workers with it is not tried again, and reading has few
                while not (begun.is_set() or over.is_set()):
                    begun.wait(0.1)
            pid = rng.choice(list(nannies.values())).pid
            if pid and pid not in killed:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

    made = ClusterEngine.__init__

    def hunted(self, client, *args, **options):
        made(self, client, *args, **options)
        threading.Thread(target=kill, args=(client.cluster.workers,)).start()

    monkeypatch.setattr(ClusterEngine, "__init__", hunted)
    # Else most of what there is to lose would be a few tasks on one worker.
    monkeypatch.setattr(grain_module, "grain_of", lambda *_: Grain.STEP)
    try:
        clean.run((small,), Clean(output=str(tmp_path / "out"), niter=12, workers=2, threads_per_worker=1, **OPTIONS), Begun())
    finally:
        over.set()
    assert len(killed) == 20
    assert same(stokes_i(tmp_path / "calm.zarr").load(), stokes_i(tmp_path / "out.zarr").load(), RESULTS) == []


@pytest.mark.cluster
def test_workers_may_come_and_go(small, tmp_path, dataset_only):
    """Those that come are used from the next cycle on, and the bits are those of one process."""
    options = dict(FEW, niter=7, threads_per_worker=None)
    clean.run((small,), Clean(output=str(tmp_path / "calm"), **options), Silent())
    with LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address="127.0.0.1:0", memory_limit=0) as cluster:
        busy = []

        class Scaling(Recorder):
            def row(self, values):
                busy.append([len(worker.has_what) for worker in cluster.scheduler.workers.values()])
                cycle = values["cycle"]
                if cycle in (1, 3):
                    cluster.scale(3 if cycle == 1 else 1)
                    cluster.wait_for_workers(3) if cycle == 1 else None
                while cycle >= 3 and len(cluster.scheduler.workers) > 1:
                    time.sleep(0.05)

        report = Scaling()
        clean.run((small,), Clean(output=str(tmp_path / "out"), scheduler=cluster.scheduler_address, **options), report)
    said = [text for text in report.messages if text.startswith("going on with")]
    assert said == ["going on with 3 workers; there were 1", "going on with 1 worker; there were 3"]
    assert [len(worker) for worker in busy] == [1, 1, 3, 3, 1, 1, 1]
    assert min(busy[2]) > 3, "a worker that came has nothing"
    assert same(stokes_i(tmp_path / "calm.zarr").load(), stokes_i(tmp_path / "out.zarr").load(), RESULTS) == []
