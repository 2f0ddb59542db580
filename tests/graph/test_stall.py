"""What is said of a run that gets nowhere."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from distributed import Client, LocalCluster

from pfb.errors import PfbError
from pfb.graph import stall
from pfb.graph.cluster import ClusterEngine
from pfb.graph.names import Names, token
from pfb.graph.stall import LONG, State, give_up, reason
from pfb.graph.tasks import add, ref

NAMES = Names(token("stall"))
BUSY = State(moves=5, workers=2, paused=0, homeless=0, running=(NAMES.key("cg", 1), NAMES.key("cg", 0), "other"))


@pytest.mark.parametrize(
    ("changed", "idle", "said"),
    [
        (dict(), 10, ""),
        (dict(), LONG + 1, "cg, other have been running for more than 10 minutes"),
        (dict(running=()), LONG + 1, ""),
        (dict(workers=0, homeless=3), 10, "all workers are gone: waiting for others"),
        (dict(paused=1), 10, "1 of 2 workers are paused, since their memory is nearly full: give them more, or make the image "
         "smaller (--npix)"),
        (dict(homeless=3), 10, "3 tasks wait for a worker that is gone"),
    ],
)  # fmt: skip
def test_reasons(changed, idle, said):
    assert reason(BUSY._replace(**changed), idle) == said


@pytest.mark.parametrize(
    ("changed", "message"),
    [(dict(workers=0), "all workers have been gone for 70 s: start others"),
     (dict(paused=2), "nothing was done for 70 s: 2 of 2 workers are paused, since their memory is nearly full: give them more")],
)  # fmt: skip
def test_what_cannot_go_on_is_given_up(changed, message):
    with pytest.raises(PfbError, match=message):
        give_up(BUSY._replace(**changed), 70.0)


def test_what_only_takes_long_is_not():
    give_up(BUSY, 1e6)


def forever():
    while True:
        time.sleep(0.05)


def die():
    os._exit(1)


@pytest.fixture
def one_worker():
    with LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address="127.0.0.1:0", memory_limit=0) as cluster:
        yield cluster


def engine_of(client, tmp_path, said, **options):
    return ClusterEngine(client, 2, str(tmp_path), warn=said.append, **options)


@pytest.mark.cluster
def test_a_run_whose_workers_are_gone_says_so_and_is_given_up(one_worker, tmp_path, monkeypatch):
    monkeypatch.setattr(stall, "LOOK", 0.2)
    said = []
    with Client(one_worker, set_as_default=False) as client:
        engine = engine_of(client, tmp_path, said, patience=1.0)
        graph = {}
        key = add(graph, NAMES.key("cg", 0), forever)
        threading.Timer(0.5, one_worker.scale, [0]).start()
        with pytest.raises(PfbError, match=r"all workers have been gone for [1-9]\d* s: start others, and run again"):
            engine.run(graph, [key])
    assert said == ["all workers are gone: waiting for others"]


@pytest.mark.cluster
def test_workers_that_come_in_time_are_used(one_worker, tmp_path, monkeypatch):
    monkeypatch.setattr(stall, "LOOK", 0.2)
    said = []
    with Client(one_worker, set_as_default=False) as client:
        engine = engine_of(client, tmp_path, said, patience=60.0)
        one_worker.scale(0)
        while engine._workers():
            time.sleep(0.05)
        graph = {}
        key = add(graph, NAMES.key("cg", 0), abs, -3)
        threading.Timer(1.0, one_worker.scale, [1]).start()
        engine.run(graph, [key])
        assert engine.fetch([key]) == [3]
    assert said[0] == "all workers are gone: waiting for others"


@pytest.mark.cluster
def test_a_task_that_kills_its_workers_ends_the_run(one_worker, tmp_path):
    said = []
    with Client(one_worker, set_as_default=False) as client:
        engine = engine_of(client, tmp_path, said)
        client.run_on_scheduler(lambda dask_scheduler: setattr(dask_scheduler, "allowed_failures", 1))
        graph = {}
        key = add(graph, NAMES.key("residual", 0), die)
        with pytest.raises(PfbError, match=r"^2 workers died while they ran residual, most likely for want of memory"):
            engine.run(graph, [key])
        client.wait_for_workers(1, timeout=60)  # dask cannot close a cluster whose worker is just being started again


@pytest.mark.cluster
def test_a_scheduler_that_is_gone_ends_the_run(tmp_path):
    words = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
    file = tmp_path / "scheduler.json"
    processes = [subprocess.Popen([*words, "--scheduler-file", str(file)], stderr=subprocess.DEVNULL)]
    try:
        while not file.exists() or not file.read_text():
            time.sleep(0.05)
        words = [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", str(file), "--no-dashboard"]
        processes.append(subprocess.Popen([*words, "--no-nanny", "--nthreads", "1"], stderr=subprocess.DEVNULL))
        with Client(scheduler_file=str(file), set_as_default=False) as client:
            client.wait_for_workers(1, timeout=30)
            engine = engine_of(client, tmp_path, [])
            graph = {}
            key = add(graph, NAMES.key("cg", 0), forever)
            after = add(graph, NAMES.key("cg", 1), abs, ref(key))
            threading.Timer(0.5, os.kill, [processes[0].pid, signal.SIGKILL]).start()
            with pytest.raises(PfbError, match=r"^the scheduler at tcp://127.0.0.1:\d+ is gone .*: start one, and run again"):
                engine.run(graph, [after])
    finally:
        for process in processes:
            process.kill()
            process.wait()
