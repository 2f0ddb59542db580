"""What examples/cluster and docker/compose.yaml say is so: the options exist, and names, files and numbers fit each other."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import dask_jobqueue
import pytest
import yaml

from pfb import cli, config
from pfb.cli.options import read_yaml
from pfb.pipeline import clusters

ROOT = Path(__file__).parents[1]
CLUSTER = ROOT / "examples" / "cluster"
COMPOSE = ROOT / "docker" / "compose.yaml"
KINDS = ("local", "ssh", "slurm", "pbs", "kubernetes")


def made(kind):
    """The options in a file, checked as those of a run are."""
    given = config.Clean(output="out", **read_yaml(str(CLUSTER / f"{kind}.yaml"), config.Clean))
    clusters.check(given)
    return given, clusters.read_options(given.cluster_options)


def pairs(env):
    return {pair["name"]: pair["value"] for pair in env}


def test_there_is_one_for_each_kind():
    assert set(KINDS) == set(clusters.KINDS)
    assert {path.stem for path in CLUSTER.glob("*.yaml")} == {*KINDS, "kubernetes-job"}
    text = (CLUSTER / "README.md").read_text()
    assert all(f"]({path.name})" in text for path in CLUSTER.glob("*.yaml"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_names_its_command(kind):
    given, _ = made(kind)
    assert given.cluster == kind
    assert f"--config examples/cluster/{kind}.yaml" in (CLUSTER / f"{kind}.yaml").read_text()


@pytest.mark.parametrize("kind", ["local", "ssh", "slurm", "pbs"])
def test_the_options_are_those_of_the_class(kind):
    _, options = made(kind)
    assert options
    assert set(options) <= set(clusters.KINDS[kind].known()) - clusters.OURS


@pytest.mark.parametrize(
    ("kind", "lines"),
    [
        ("slurm", ["#SBATCH -t 12:00:00", "#SBATCH -p main", "#SBATCH --exclusive", "module load openmpi"]),
        ("pbs", ["#PBS -l walltime=12:00:00", "#PBS -q main", "#PBS -l select=1:ncpus=16:mem=64gb"]),
    ],
)  # fmt: skip
def test_the_jobs_say_what_the_file_says(kind, lines, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the folder of the logs is made
    cls = {"slurm": dask_jobqueue.SLURMCluster, "pbs": dask_jobqueue.PBSCluster}[kind]
    script = cls.job_cls(scheduler="tcp://a:1", name="worker", processes=1, **made(kind)[1]).job_script()
    for line in lines:
        assert line in script.splitlines(), script


def documents():
    return list(yaml.safe_load_all((CLUSTER / "kubernetes-job.yaml").read_text()))


def check_pods(spec, env):
    """What a resource of kind DaskCluster must have."""
    assert (spec["apiVersion"], spec["kind"]) == ("kubernetes.dask.org/v1", "DaskCluster")
    name, scheduler, worker = spec["metadata"]["name"], spec["spec"]["scheduler"], spec["spec"]["worker"]
    assert scheduler["service"]["selector"] == {"dask.org/cluster-name": name, "dask.org/component": "scheduler"}
    (container,) = scheduler["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert {port["targetPort"]: port["port"] for port in scheduler["service"]["ports"]} == ports
    assert ports == {"tcp-comm": 8786, "http-dashboard": 8787}
    (worker_container,) = worker["spec"]["containers"]
    command = worker_container["command"]
    assert command[command.index("--name") + 1] == "$(DASK_WORKER_NAME)"
    assert worker_container["resources"]["limits"]["cpu"] == command[command.index("--nthreads") + 1]
    mounted = {mount["name"] for mount in worker_container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in worker["spec"]["volumes"]}
    for each in (container, worker_container):
        assert all(isinstance(word, str) for word in each["command"])
        assert pairs(each["env"]) == env


def test_the_pods_that_pfb_asks_for():
    given, options = made("kubernetes")
    spec = clusters._completed(options["custom_cluster_spec"], given.workers)
    assert spec["spec"]["worker"]["replicas"] == given.workers == 4
    check_pods(spec, clusters.environment())


def test_the_manifest():
    cluster, job = documents()
    check_pods(cluster, clusters.environment())
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["args"][0] == "clean"
    sets, given = cli.parsed("clean", container["args"][1:])
    assert sets == ("obs.ms",)
    assert given.scheduler == f"tcp://{cluster['metadata']['name']}-scheduler:8786"
    assert given.min_workers == cluster["spec"]["worker"]["replicas"]
    assert given.resume
    (worker,) = cluster["spec"]["worker"]["spec"]["containers"]
    assert container["volumeMounts"] == worker["volumeMounts"]
    assert container["workingDir"] == worker["volumeMounts"][0]["mountPath"]
    assert pod["volumes"] == cluster["spec"]["worker"]["spec"]["volumes"]


def test_the_containers():
    compose = yaml.safe_load(COMPOSE.read_text())
    services = compose["services"]
    assert set(services) == {"scheduler", "worker", "clean"}
    for service in services.values():
        assert (COMPOSE.parent / service["build"]["context"] / service["build"]["dockerfile"]).exists()
        assert set(service.get("depends_on", ())) <= set(services)
        assert service["volumes"] == services["scheduler"]["volumes"]
    for name in ("scheduler", "worker"):
        assert services[name]["environment"] == clusters.environment()
    assert "tcp://scheduler:8786" in services["worker"]["entrypoint"][2]
    shell, options, text = services["clean"]["entrypoint"]
    assert (shell, options) == ("sh", "-ec")
    unpack, run = text.replace("\\\n", "").splitlines()
    words = shlex.split(run)
    assert words[:3] == ["exec", "pfb", "clean"]
    here = [word.replace("/examples", str(ROOT / "examples")) for word in words[3:]]
    (path,), given = cli.parsed("clean", here)
    assert given.scheduler == "tcp://scheduler:8786"
    assert given.min_workers == services["worker"]["deploy"]["replicas"] == 2
    assert given.npix == "512"
    archive = re.search(r"/examples/(\S+)", unpack)[1]
    assert (ROOT / "examples" / archive).exists()
    assert Path(archive).name == f"{path}.tar.gz"
