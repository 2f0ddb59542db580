"""The clusters that `--cluster` names: their options, what is told of mistakes, and real ones of Slurm and ssh."""

import functools
import os
import signal
import subprocess
import sys
import types
from enum import Enum

import dask
import numpy as np
import pytest
import xarray as xr
import yaml

from pfb.config import Resources
from pfb.errors import InputError, PfbError
from pfb.graph.cluster import CONFIG
from pfb.pipeline import clusters, session
from pfb.pipeline.reporting import Silent
from tests.deployments import jobs, running_sshd, until
from tests.observations import ROOT, small_set
from tests.pipeline.test_session import threads_of

JOB = "{cores: 1, memory: 1500MB, walltime: 00:05:00, interface: lo}"
SMALL = ["--npix", "64", "--cell", "4", "--nband", "2", "--bases", "self,db1", "--niter", "2", "--pd-maxit", "10"]


@pytest.fixture
def asked(monkeypatch):
    """Note what a class of clusters is asked for instead of starting it; the name and signature stay."""
    notes = []

    def stand_in(name):
        real = getattr(clusters, name)

        @functools.wraps(real)
        def note(**given):
            notes.append(given)

        monkeypatch.setattr(clusters, name, note)
        return notes

    return stand_in


def start(kind, options=None, workers=2, **given):
    return clusters.start(Resources(cluster=kind, cluster_options=options, workers=workers, **given))


# Options


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (None, {}),
        ("{cores: 4, memory: 2GB}", {"cores": 4, "memory": "2GB"}),
        ("job-extra-directives: [--exclusive]\nmemory: 2GB\n", {"job_extra_directives": ["--exclusive"], "memory": "2GB"}),
        # To YAML these are the numbers 43200 and 4830.5, to base sixty.
        ("{walltime: 12:00:00, other: 1:20:30.5, x: 1.5}", dict(walltime="12:00:00", other="1:20:30.5", x=1.5)),
        ("{connect_options: {port: 22, known_hosts: null}}", {"connect_options": {"port": 22, "known_hosts": None}}),
    ],
)  # fmt: skip
def test_options_are_yaml(text, options):
    assert clusters.read_options(text) == options


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{cores: 4", "'{cores: 4' is not YAML: "),
        ("[cores]", r"is '\[cores\]' but must be a YAML mapping"),
        ("", "is '' but must be a YAML mapping"),
        ("{1: 2}", "must be a YAML mapping"),
        ("{cores: 4, cores: 5}", "has an option twice: keep one"),
        ("{job-name: a, job_name: b}", "has an option twice: keep one"),
    ],
)
def test_options_that_are_none(text, message):
    with pytest.raises(InputError, match=f"--cluster-options.*{message}"):
        clusters.read_options(text)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (dict(cluster="slurm"), "--cluster slurm must know how many workers to start: give --workers too"),
        (dict(workers=2, cluster_options="{cores: 2}"), "--cluster-options are those of a --cluster, but none is named"),
        (dict(workers=2, min_workers=3), "--min-workers is 3 but must be at most 2, the --workers that are started"),
    ],
)
def test_options_that_contradict_each_other(given, message, tmp_path):
    with pytest.raises(InputError, match=message):
        session.open_engine(Resources(**given), 2, tmp_path, Silent()).__enter__()


@pytest.mark.parametrize(
    ("given", "needed", "patience"),
    [
        (dict(scheduler="tcp://a:1"), 1, 60),
        (dict(scheduler="tcp://a:1", min_workers=3, wait_workers=5.0), 3, 5),
        (dict(workers=4), 4, 60),
        (dict(workers=4, cluster="slurm"), 4, 3600),
        (dict(workers=4, cluster="pbs", min_workers=2), 2, 3600),
        (dict(workers=4, cluster="kubernetes", wait_workers=0.0), 4, 0),
    ],
)
def test_workers_are_waited_for(given, needed, patience):
    config = Resources(**given)
    clusters.check(config)
    assert (clusters.needed(config), clusters.patience(config)) == (needed, patience)


def test_every_word_is_known():
    """The choices of the option, and the defaults that its help tells."""
    fields = Resources.__dataclass_fields__
    assert set(fields["cluster"].metadata["choices"]) == set(clusters.KINDS)
    for kind in clusters.KINDS.values():
        assert f"{kind.patience:g}" in fields["wait_workers"].metadata["help"]


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("local", "{memry_limit: 0}", "did you mean memory_limit"),
        ("ssh", "{host: [a]}", r"no 'host': did you mean hosts\? there are connect_options, hosts, remote_python, "),
        ("slurm", "{core: 4}", "of slurm have no 'core': did you mean cores.*walltime"),
        ("slurm", "{resource_spec: x}", "of slurm have no 'resource_spec'"),
        ("slurm", "{n_workers: 3}", "of slurm have no 'n_workers'"),
        ("slurm", "{env_extra: [x]}", "of slurm have no 'env_extra'"),
        ("pbs", "{job_cpu: 4}", "of pbs have no 'job_cpu'.*resource_spec"),
    ],
)
def test_an_option_that_the_class_has_not(kind, options, message):
    with pytest.raises(InputError, match=message):
        start(kind, options)


@pytest.mark.parametrize(
    ("kind", "package", "extra"),
    [("ssh", "asyncssh", "cluster"), ("slurm", "dask_jobqueue", "cluster"), ("kubernetes", "dask_kubernetes", "kubernetes")],
)
def test_a_package_that_is_missing(kind, package, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=rf"--cluster {kind} needs {package} .*: pip install 'pfb-dask\[{extra}\]'$"):
        start(kind)


@pytest.mark.parametrize(("kind", "program"), [("slurm", "sbatch"), ("pbs", "qsub")])
def test_a_program_that_is_missing(kind, program, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=f"--cluster {kind} submits jobs with {program}, which is not on this machine"):
        start(kind)


@pytest.mark.parametrize(
    ("options", "given", "message"),
    [
        (None, {}, "must know cores, memory, walltime of a job: give them"),
        ("{cores: 2, memory: 1GB}", {}, "must know walltime of a job"),
        (JOB, dict(threads_per_worker=2), "--threads-per-worker and 'cores' in the --cluster-options of slurm say the same"),
        ("{cores: 4, processes: 4, memory: 1GB, walltime: 1:00}", {}, "--workers is 2 but must be a multiple of 4"),
    ],
)
def test_what_a_job_must_know(options, given, message, monkeypatch):
    monkeypatch.setattr(clusters.shutil, "which", str)
    with pytest.raises(InputError, match=message):
        start("slurm", options, **given)


def test_a_mistake_in_a_value_is_explained(monkeypatch):
    monkeypatch.setattr(clusters.shutil, "which", str)
    with pytest.raises(PfbError, match=r"--cluster slurm did not start \(Could not interpret 'lots' as a byte unit\): correct"):
        start("slurm", "{cores: 1, memory: lots, walltime: 1:00}")


# What the classes are asked for


def test_the_environment_holds_the_configuration():
    found = dask.config.collect_env(clusters.environment())
    assert {key: dask.config.get(key, config=found) for key in CONFIG} == CONFIG


def test_options_overrule_what_a_local_cluster_has(asked):
    notes = asked("LocalCluster")
    start("local", "{memory_limit: 2GB, dashboard_address: ':0'}", threads_per_worker=3)
    assert notes == [dict(n_workers=2, threads_per_worker=3, memory_limit="2GB", dashboard_address=":0")]


@pytest.mark.parametrize(
    ("hosts", "workers", "dealt"),
    [(["a"], 2, ["a", "a", "a"]), (["a", "b"], 2, ["a", "b", "b"]), (["a", "b", "c"], 5, ["a", "b", "c", "b", "c", "b"])],
)
def test_workers_are_dealt_to_the_hosts(hosts, workers, dealt, asked):
    notes = asked("SSHCluster")
    each = [{"port": ord(host)} for host in hosts]
    start("ssh", yaml.safe_dump(dict(hosts=hosts, connect_options=each)), workers=workers, threads_per_worker=4)
    start("ssh", yaml.safe_dump(dict(hosts=hosts, connect_options=each[0])), workers=workers)
    assert [note["hosts"] for note in notes] == [dealt, dealt]
    assert notes[0]["connect_options"] == [{"port": ord(host)} for host in dealt]
    assert notes[1]["connect_options"] == each[0]
    assert [note["worker_options"] for note in notes] == [{"nthreads": 4}, {}]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (None, "has hosts None in its --cluster-options but needs a list of machines"),
        ("{hosts: a}", "has hosts 'a'"),
        ("{hosts: [a, b], remote_python: [x]}", "has 1 remote_python but 2 hosts: give one each, or one for all"),
        ("{hosts: [a], worker_options: {nthreads: 3}}", "--threads-per-worker and 'nthreads'"),
    ],
)
def test_hosts_that_will_not_do(options, message):
    with pytest.raises(InputError, match=message):
        start("ssh", options, threads_per_worker=2)


@pytest.fixture
def pods(monkeypatch):
    """Stand in for dask-kubernetes, which needs a Kubernetes; returns what its class was asked for."""
    notes = []

    class KubeCluster:
        def __init__(self, *, name=None, image=None, env=None, n_workers=None, worker_command=None, custom_cluster_spec=None,
                     create_mode=None, quiet=False, **kwargs):  # fmt: skip
            given = locals().items()
            notes.append({name: value for name, value in given if name not in ("self", "kwargs") and value is not None})

    for name in ("dask_kubernetes", "dask_kubernetes.operator", "dask_kubernetes.operator.kubecluster.kubecluster"):
        module = types.ModuleType(name)
        module.KubeCluster = KubeCluster
        module.CreateMode = Enum("CreateMode", ["CREATE_ONLY"])
        monkeypatch.setitem(sys.modules, name, module)
    return notes


def test_pods_have_the_configuration(pods):
    start("kubernetes", "{image: pfb, env: {A: b}}", threads_per_worker=3)
    (note,) = pods
    assert (note["image"], note["n_workers"], note["quiet"], note["create_mode"].name) == ("pfb", 2, True, "CREATE_ONLY")
    assert note["env"] == {"A": "b", **clusters.environment()}
    assert note["worker_command"] == ["dask-worker", "--nthreads", "3"]
    start("kubernetes", "{env: [{name: A, value: b}]}")
    assert {"name": "A", "value": "b"} in pods[1]["env"]
    assert {"name": "DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE", "value": "0.9"} in pods[1]["env"]
    with pytest.raises(InputError, match="of kubernetes have no 'create_mode'"):
        start("kubernetes", "{create_mode: x}")


@pytest.mark.parametrize("by", ["value", "file"])
def test_pods_of_a_spec_of_ones_own(by, pods, tmp_path):
    pod = {"containers": [{"name": "x", "image": "pfb"}]}
    spec = {"metadata": {"name": "mine"}, "spec": {"worker": {"spec": pod}, "scheduler": {"spec": pod}}}
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(spec))
    start("kubernetes", yaml.safe_dump({"custom_cluster_spec": spec if by == "value" else str(path)}), workers=5)
    (note,) = pods
    made = note["custom_cluster_spec"]
    assert made["metadata"] == {"name": "mine"}
    assert made["spec"]["worker"]["replicas"] == 5
    for role in ("worker", "scheduler"):
        (container,) = made["spec"][role]["spec"]["containers"]
        assert {pair["name"]: pair["value"] for pair in container["env"]} == clusters.environment()
    with pytest.raises(InputError, match="does not reach a custom_cluster_spec"):
        start("kubernetes", "{custom_cluster_spec: x}", threads_per_worker=2)
    with pytest.raises(InputError, match=r"cannot read the custom_cluster_spec nowhere.yaml: .*No such file"):
        start("kubernetes", "{custom_cluster_spec: nowhere.yaml}")


# Real ones


def settings(*_):
    """What a worker has of the configuration."""
    return {key: dask.config.get(key) for key in CONFIG if ".worker." in key}


WANTED = {key: value for key, value in CONFIG.items() if ".worker." in key}


@pytest.mark.cluster
def test_jobs_of_slurm(slurm, tmp_path, recorder):
    options = "{memory: 500MB, walltime: 00:05:00, interface: lo, job_script_prologue: ['export MINE=1']}"
    config = Resources(cluster="slurm", workers=2, threads_per_worker=2, cluster_options=options)
    with session.open_engine(config, 2, tmp_path, recorder) as engine:
        assert len(jobs()) == 2
        assert (engine.nworker, engine.nthread) == (2, 4)
        assert engine.memory == pytest.approx(500e6, rel=1e-3)
        assert threads_of(engine) == (2, 1)
        assert list(engine.client.run(settings).values()) == [WANTED] * 2
        assert list(engine.client.run(os.getenv, "MINE").values()) == ["1"] * 2
    assert recorder.messages[0] == "waiting for 2 workers, 0 are there"
    until(lambda: not jobs())


@pytest.mark.cluster
def test_a_job_that_slurm_refuses(slurm, tmp_path):
    options = JOB.replace("}", ", queue: nowhere}")
    config = Resources(cluster="slurm", workers=1, cluster_options=options, wait_workers=5.0)
    with pytest.raises(PfbError, match=r"--cluster slurm did not start \(sbatch: error: invalid partition"):
        session.open_engine(config, 2, tmp_path, Silent()).__enter__()
    assert not jobs()


@pytest.mark.cluster
def test_jobs_that_wait_too_long_are_withdrawn(slurm, tmp_path):
    """The second job finds no room."""
    options = JOB.replace("cores: 1", "cores: 5")
    given = dict(cluster="slurm", workers=2, cluster_options=options)
    with pytest.raises(PfbError, match=r"has [01] workers after 1 s but 2 are needed: see why --cluster slurm starts no more"):
        session.open_engine(Resources(**given, wait_workers=1.0), 2, tmp_path, Silent()).__enter__()
    until(lambda: not jobs())
    with session.open_engine(Resources(**given, min_workers=1), 2, tmp_path, Silent()) as engine:
        assert engine.nworker == 1
    until(lambda: not jobs())


@pytest.fixture(scope="module")
def observed(tmp_path_factory):
    return small_set(tmp_path_factory.mktemp("observed") / "a.ms").path


@pytest.mark.cluster
def test_clean_as_jobs_of_slurm(slurm, pfb, observed, tmp_path, no_picture):
    """Options in a file; the images are those of threads, to the bit."""
    file = tmp_path / "options.yaml"
    file.write_text("cluster: slurm\nworkers: 2\ncluster-options:\n  " + JOB.strip("{}").replace(", ", "\n  ") + "\n")
    answer = pfb("clean", observed, "-o", tmp_path / "jobs", *SMALL, "--config", file)
    assert answer.code == 0, answer.err
    assert "waiting for 2 workers" in answer.out
    until(lambda: not jobs())
    assert pfb("clean", observed, "-o", tmp_path / "threads", *SMALL, "--threads-per-worker", "1").code == 0
    by_jobs, by_threads = (xr.open_zarr(tmp_path / f"{name}.zarr") for name in ("jobs", "threads"))
    for name in ("model", "residual"):
        assert np.array_equal(by_jobs[name], by_threads[name]), name
    assert float(abs(by_jobs["model"]).max()) > 0


@pytest.mark.cluster
def test_a_run_that_is_terminated_takes_its_jobs_with_it(slurm, observed, tmp_path):
    words = ["clean", observed, "-o", str(tmp_path / "out"), *SMALL, "--cluster", "slurm", "--workers", "1", "--niter", "500"]
    command = [sys.executable, "-m", "pfb", *words, "--tol", "0", "--rmsfactor", "0.01", "--cluster-options", JOB]
    run = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until(lambda: "RUNNING" in jobs().values() or run.poll() is not None)
    run.send_signal(signal.SIGTERM)
    out, err = run.communicate(timeout=60)
    assert run.returncode == 143, out + err
    until(lambda: not jobs())


@pytest.mark.cluster
def test_workers_by_ssh(tmp_path, tmp_path_factory, recorder):
    with running_sshd(tmp_path_factory.mktemp("sshd")) as connect:
        options = dict(
            hosts=["127.0.0.1"], connect_options=connect, scheduler_options=dict(host="127.0.0.1"),
            remote_python=f"env PYTHONPATH={ROOT} {sys.executable}",
        )  # fmt: skip
        config = Resources(cluster="ssh", workers=2, threads_per_worker=2, cluster_options=yaml.safe_dump(options))
        with session.open_engine(config, 2, tmp_path, recorder) as engine:
            assert (engine.nworker, engine.nthread) == (2, 4)
            assert threads_of(engine) == (2, 1)
            assert list(engine.client.run(settings).values()) == [WANTED] * 2
            assert engine.client.run_on_scheduler(dask.config.get, "distributed.scheduler.work-stealing") is False
