"""The engine that the options ask for, and how many threads it has."""

import threading

import ducc0
import pytest
import threadpoolctl
from distributed import Client, LocalCluster

from pfb.config import Resources
from pfb.errors import InputError, PfbError
from pfb.graph.cluster import ClusterEngine
from pfb.graph.engine import ThreadEngine
from pfb.graph.names import Names
from pfb.graph.tasks import add
from pfb.pipeline import clusters, session
from pfb.pipeline.reporting import Silent


def measure(*_):
    """Threads that ducc0 and BLAS may use in this process."""
    blas = [library["num_threads"] for library in threadpoolctl.threadpool_info() if library["user_api"] == "blas"]
    return ducc0.misc.thread_pool_size(), max(blas)


def threads_of(engine):
    graph = {}
    key = add(graph, Names("test").key("band", 0), measure, 0)
    engine.run(graph, [key])
    (found,) = engine.fetch([key])
    return found


def opened(tmp_path, report=None, nblock=2, **given):
    return session.open_engine(Resources(**given), nblock, tmp_path, report or Silent())


@pytest.mark.parametrize("threads", [1, 3])
def test_without_options_the_threads_of_this_process_work(tmp_path, recorder, threads):
    with opened(tmp_path, recorder, threads_per_worker=threads) as engine:
        assert isinstance(engine, ThreadEngine)
        assert (engine.nworker, engine.nthread) == (1, threads)
        assert threads_of(engine) == (threads, 1)
    assert not recorder.messages


def test_all_cores_are_used_by_default(tmp_path, monkeypatch):
    monkeypatch.setattr(session, "CPU_COUNT", 5)
    with opened(tmp_path) as engine:
        assert engine.nthread == 5


def test_the_engine_is_closed_after_an_error(tmp_path):
    with pytest.raises(RuntimeError, match="mine"), opened(tmp_path, threads_per_worker=1) as engine:
        raise RuntimeError("mine")
    with pytest.raises(RuntimeError, match="cannot schedule new futures"):
        threads_of(engine)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (dict(workers=1), "--workers"),
        (dict(threads_per_worker=2), "--threads-per-worker"),
        (dict(cluster="slurm", workers=2), "--workers and --cluster"),
        (dict(cluster_options="{cores: 2}"), "--cluster-options"),
    ],
)
def test_a_cluster_that_is_joined_has_its_workers(tmp_path, given, named):
    with pytest.raises(InputError, match=rf"--scheduler tcp://a:1 joins a cluster.*: leave out {named}$"):
        opened(tmp_path, scheduler="tcp://a:1", **given).__enter__()


def test_an_engine_needs_a_worker(tmp_path):
    with (
        LocalCluster(n_workers=0, dashboard_address=None, processes=False) as cluster,
        Client(cluster, set_as_default=False) as client,
        pytest.raises(PfbError, match=f"the scheduler at {cluster.scheduler_address} has no workers: start some"),
    ):
        ClusterEngine(client, 2, str(tmp_path))


@pytest.mark.parametrize("needed", [1, 3])
def test_too_few_workers_for_too_long(tmp_path, recorder, needed):
    with LocalCluster(n_workers=0, dashboard_address=None, processes=False) as cluster:
        address = cluster.scheduler_address
        with pytest.raises(PfbError, match=rf"at {address} has 0 workers after 0.3 s but {needed} are needed: start more"):
            opened(tmp_path, recorder, scheduler=address, min_workers=needed, wait_workers=0.3).__enter__()
    assert recorder.messages == [f"waiting for {needed} workers, 0 are there"]


def test_workers_that_come_later_are_waited_for(tmp_path):
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None, processes=False) as cluster:
        later = threading.Timer(0.5, cluster.scale, [2])
        later.start()
        with opened(tmp_path, scheduler=cluster.scheduler_address, min_workers=2, wait_workers=30) as engine:
            assert (engine.nworker, engine.nthread) == (2, 2)
        later.join()


def test_a_scheduler_is_known_by_its_file(tmp_path):
    file = tmp_path / "scheduler.json"
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None, processes=False) as cluster:
        with Client(cluster) as client:
            client.write_scheduler_file(str(file))
        with opened(tmp_path, scheduler=str(file)) as engine:
            assert engine.nworker == 1
            assert session.address_of(str(file)) == cluster.scheduler_address
    assert session.address_of("tcp://a:1") == "tcp://a:1"


@pytest.mark.parametrize("text", ["", "tcp://a:1", "[1]", '{"id": 3}'])
def test_a_file_that_is_none_of_a_scheduler(tmp_path, text):
    file = tmp_path / "scheduler.json"
    file.write_text(text)
    with pytest.raises(InputError, match=r"is a file but not one that 'dask scheduler --scheduler-file' wrote"):
        opened(tmp_path, scheduler=str(file)).__enter__()


@pytest.mark.cluster
def test_a_worker_uses_all_its_threads(tmp_path, recorder):
    """A nanny starts its worker with OMP_NUM_THREADS=1, which silently leaves ducc0 one thread."""
    with opened(tmp_path, recorder, workers=1, threads_per_worker=3) as engine:
        assert isinstance(engine, ClusterEngine)
        assert (engine.nworker, engine.nthread) == (1, 3)
        assert threads_of(engine) == (3, 1)
        dashboard = engine.client.dashboard_link
        client = engine.client
    assert recorder.messages == [f"dashboard: {dashboard}", f"solver page: {dashboard.removesuffix('status')}pfb"]
    assert client.status == "closed"


@pytest.mark.cluster
def test_a_cluster_that_was_joined_goes_on(tmp_path, cluster):
    with opened(tmp_path, scheduler=cluster.scheduler_address) as engine:
        assert (engine.nworker, engine.nthread) == (2, 2)
        assert threads_of(engine) == (1, 1)
    assert len(cluster.scheduler.workers) == 2
    with opened(tmp_path, scheduler=cluster.scheduler_address) as engine:
        assert threads_of(engine) == (1, 1)


def test_cores_are_divided_among_the_workers(tmp_path, monkeypatch):
    """Without starting them: what a cluster is asked for."""
    asked = []

    class Refused(Exception):
        pass

    def note(**given):
        asked.append((given["n_workers"], given["threads_per_worker"]))
        raise Refused

    monkeypatch.setattr(clusters, "LocalCluster", note)
    monkeypatch.setattr(clusters, "CPU_COUNT", 8)
    for given in (dict(workers=3), dict(workers=16, cluster="local"), dict(workers=3, threads_per_worker=5)):
        with pytest.raises(PfbError, match="--cluster local did not start"):
            opened(tmp_path, **given).__enter__()
    assert asked == [(3, 2), (16, 1), (3, 5)]


def test_a_cluster_that_cannot_be_closed_does_not_hide_an_error(tmp_path, monkeypatch, recorder):
    start = clusters.start

    def broken(config):
        cluster = start(config)
        close = cluster.close

        def half():
            close()
            raise AssertionError("can only join a started process")

        cluster.close = half
        return cluster

    monkeypatch.setattr(clusters, "start", broken)
    given = dict(cluster="local", workers=1, threads_per_worker=1, cluster_options="{processes: false, dashboard_address: null}")
    with pytest.raises(PfbError, match="mine"), opened(tmp_path, recorder, **given):
        raise PfbError("mine")
    assert any("the cluster did not close well (AssertionError: can only" in text for text in recorder.warnings)
