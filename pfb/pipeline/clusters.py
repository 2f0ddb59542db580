"""Starts the cluster that the options ask for: on this machine, over ssh, as jobs of a batch system, or on Kubernetes."""

from __future__ import annotations

import copy
import difflib
import inspect
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import dask
import yaml
from dask.system import CPU_COUNT
from dask.utils import parse_bytes
from distributed import LocalCluster, Nanny
from distributed.deploy import Cluster, SSHCluster
from distributed.deploy.spec import ProcessInterface

from pfb.config import Resources
from pfb.errors import InputError, PfbError
from pfb.graph.cluster import CONFIG

Options = dict[str, Any]

OURS = frozenset({
    "self", "args", "kwargs", "worker_kwargs", "loop", "asynchronous", "n_workers", "nthreads", "threads_per_worker", "job_cls",
    "scheduler", "scheduler_cls", "create_mode", "quiet",
})  # fmt: skip
"""Parameters of the classes that `pfb` sets itself, or that no text can hold."""
OUTDATED = frozenset({"extra", "job_extra", "env_extra", "header_skip", "project", "dashboard_address", "host"})
"""Parameters that the classes of jobs still have, but refuse or warn of, since they are called otherwise by now."""


@dataclass(frozen=True)
class Kind:
    """How one sort of cluster is started."""

    start: Callable[[Resources, Options], Cluster]
    known: Callable[[], Iterable[str]]
    """The names of its options."""
    patience: float
    """Seconds that its workers are waited for unless the user says."""
    packages: tuple[str, ...] = ()
    """What must be installed beside `pfb`."""
    extra: str = ""
    """The extra of `pfb` that installs it."""


def environment() -> dict[str, str]:
    """Return dask's configuration of a cluster that `pfb` starts, as variables of the environment."""
    return {"DASK_" + key.replace("-", "_").replace(".", "__").upper(): str(value) for key, value in CONFIG.items()}


def check(config: Resources) -> None:
    """Raise `InputError` if the options contradict each other."""
    if config.scheduler:
        given = {
            "--workers": config.workers, "--threads-per-worker": config.threads_per_worker,
            "--cluster": config.cluster, "--cluster-options": config.cluster_options,
        }  # fmt: skip
        if names := [name for name, value in given.items() if value]:
            raise InputError(
                f"--scheduler {config.scheduler} joins a cluster that has its workers already: leave out {' and '.join(names)}"
            )
        return
    if config.cluster and not config.workers:
        raise InputError(f"--cluster {config.cluster} must know how many workers to start: give --workers too")
    if config.cluster_options and not config.cluster:
        raise InputError("--cluster-options are those of a --cluster, but none is named: name it, or leave its options out")
    if config.workers and (config.min_workers or 0) > config.workers:
        raise InputError(
            f"--min-workers is {config.min_workers} but must be at most {config.workers}, the --workers that are started"
        )


def needed(config: Resources) -> int:
    """Return how many workers a run waits for."""
    return config.min_workers or config.workers or 1


def patience(config: Resources) -> float:
    """Return for how many seconds it does."""
    return KINDS[config.cluster or "local"].patience if config.wait_workers is None else config.wait_workers


def start(config: Resources) -> Cluster:
    """Start the cluster of `cluster` and `workers`; whoever gets it closes it.

    The scheduler of jobs lives in this process, that of the others beside their workers. All of them have
    dask's configuration `CONFIG` if it is set in this process while they start.

    Parameters
    ----------
    config : Resources
        Options that `check` has passed.

    Raises
    ------
    InputError
        If the cluster needs a package or a program that is not here, or has no such options.
    PfbError
        If it does not start.
    """
    name = config.cluster or "local"
    options = options_of(config)
    try:
        return KINDS[name].start(config, options)
    except PfbError:
        raise
    except Exception as error:  # whatever a batch system, a machine elsewhere or the class itself has to say
        said = " ".join(str(error).rpartition("stderr:")[2].split())  # all of it where a command has no part of that name
        raise PfbError(
            f"--cluster {name} did not start ({said or type(error).__name__}): correct its --cluster-options, "
            "or see whether it is up"
        ) from error


def options_of(config: Resources) -> Options:
    """Return the options of the cluster's class.

    Raises
    ------
    InputError
        If the cluster needs a package that is not here, or has no such options.
    """
    name = config.cluster or "local"
    kind = KINDS[name]
    for package in kind.packages:
        try:
            import_module(package)
        except ImportError as error:
            raise InputError(f"--cluster {name} needs {package} ({error}): pip install 'pfb-dask[{kind.extra}]'") from error
    options = read_options(config.cluster_options)
    known = sorted(set(kind.known()) - OURS)
    for option in options:
        if option not in known:
            close = difflib.get_close_matches(option, known, n=2)
            hint = f"did you mean {' or '.join(close)}? " if close else ""
            raise InputError(f"--cluster-options of {name} have no '{option}': {hint}there are {', '.join(known)}")
    return options


class _Loader(yaml.SafeLoader):
    """Reads 12:00:00 as the text that it is; to YAML it would be a number to base sixty."""

    def _number(self, node: yaml.ScalarNode) -> Any:
        if ":" in node.value:
            return node.value
        return self.construct_yaml_int(node) if node.tag.endswith("int") else self.construct_yaml_float(node)


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader._number)
_Loader.add_constructor("tag:yaml.org,2002:float", _Loader._number)


def read_options(text: str | None) -> Options:
    """Return the options in a text of YAML; hyphens in their names are as good as underscores.

    Raises
    ------
    InputError
        If it is not a mapping of names, or has one twice.
    """
    if text is None:
        return {}
    try:
        root = yaml.compose(text, Loader=_Loader)
        made = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise InputError(f"--cluster-options {text!r} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(root, yaml.MappingNode) or not all(isinstance(key, str) for key in made):
        raise InputError(f"--cluster-options is {text!r} but must be a YAML mapping such as '{{cores: 16, memory: 64GB}}'")
    options = {key.replace("-", "_"): value for key, value in made.items()}
    if len(options) < len(root.value):
        raise InputError(f"--cluster-options {text!r} has an option twice: keep one of the two")
    return options


def _start_local(config: Resources, options: Options) -> Cluster:
    threads = config.threads_per_worker or max(int(CPU_COUNT) // config.workers, 1)
    ours: Options = dict(dashboard_address="127.0.0.1:0", memory_limit=0)
    return LocalCluster(n_workers=config.workers, threads_per_worker=threads, **(ours | options))


def _start_ssh(config: Resources, options: Options) -> Cluster:
    """Start the scheduler on the first host; the workers are dealt to the others, or to the first if it is alone."""
    hosts = options.get("hosts")
    if not isinstance(hosts, list) or not hosts:
        raise InputError(
            f"--cluster ssh has hosts {hosts!r} in its --cluster-options but needs a list of machines: "
            "first that of the scheduler, then those of the workers"
        )
    places = [0] + [1 + i % (len(hosts) - 1) if len(hosts) > 1 else 0 for i in range(config.workers)]
    for name in ("hosts", "connect_options", "remote_python"):
        if isinstance(value := options.get(name), list):
            if len(value) != len(hosts):
                raise InputError(f"--cluster ssh has {len(value)} {name} but {len(hosts)} hosts: give one each, or one for all")
            options[name] = [value[place] for place in places]
    worker = dict(options.get("worker_options") or {})
    if config.threads_per_worker:
        _once("ssh", "nthreads", worker)
        worker["nthreads"] = config.threads_per_worker
    scheduler = {"dashboard_address": ":0"} | (options.get("scheduler_options") or {})
    # The class repeats all that its processes log.
    return SSHCluster(**(options | dict(worker_options=worker, scheduler_options=scheduler, silence_logs="warning")))


def _start_jobs(config: Resources, options: Options) -> Cluster:
    """Submit a job for every worker, or for so many as `processes` says."""
    name = str(config.cluster)
    module = import_module("dask_jobqueue")
    cls = {"slurm": module.SLURMCluster, "pbs": module.PBSCluster}[name]
    program = cls.job_cls.submit_command.split()[0]
    if shutil.which(program) is None:
        raise InputError(f"--cluster {name} submits jobs with {program}, which is not on this machine: run pfb where it is")

    def said(key: str) -> Any:
        """Return an option, or what dask's own configuration has for it."""
        section = options.get("config_name", name)
        return options[key] if key in options else dask.config.get(f"jobqueue.{section}.{key.replace('_', '-')}", None)

    processes = said("processes") or 1
    if config.threads_per_worker:
        _once(name, "cores", options)
        options["cores"] = config.threads_per_worker * processes
    # The class has a wall time of half an hour, which would end a run of hours without a word.
    if missing := [key for key in ("cores", "memory") if not said(key)] + ["walltime"] * ("walltime" not in options):
        raise InputError(
            f"--cluster {name} must know {', '.join(missing)} of a job: give them in --cluster-options, "
            "e.g. '{cores: 16, memory: 64GB, walltime: 12:00:00}'"
        )
    parse_bytes(said("memory"))
    if config.workers % processes:
        raise InputError(f"--workers is {config.workers} but must be a multiple of {processes}, the processes of each job")
    exports = [f"export {variable}={value}" for variable, value in environment().items()]
    options["job_script_prologue"] = [*(said("job_script_prologue") or []), *exports]
    options["scheduler_options"] = {"dashboard_address": ":0"} | (said("scheduler_options") or {})
    job, refusals = _noting(cls.job_cls)
    cluster = cls(**(options | dict(processes=processes, job_cls=job)))
    try:
        cluster.scale(jobs=config.workers // processes)  # which returns at once
        cluster.sync(_awaited, cluster)
        if refusals:
            raise refusals[0]
    except BaseException:
        cluster.close()
        raise
    return cluster


def _noting(job: Any) -> tuple[type, list[Exception]]:
    """Return a class of jobs that note in the list that they were refused: the cluster's own would be tried for ever."""
    refusals: list[Exception] = []

    class Job(job):
        async def start(self) -> None:
            try:
                await super().start()
            except Exception as error:
                refusals.append(error)
                await ProcessInterface.start(self)

        async def close(self) -> None:
            await super().close()
            await ProcessInterface.close(self)  # or the cluster may take the job for one that runs

    return Job, refusals


async def _awaited(cluster: Cluster) -> None:
    await cluster


def _start_kubernetes(config: Resources, options: Options) -> Cluster:
    """Let the operator of dask make the pods."""
    module = import_module("dask_kubernetes.operator.kubecluster.kubecluster")
    # A cluster of that name that exists is somebody's, and would be deleted in the end.
    ours: Options = dict(n_workers=config.workers, create_mode=module.CreateMode.CREATE_ONLY, quiet=True)
    spec = options.get("custom_cluster_spec")
    if spec is not None:
        if config.threads_per_worker:
            raise InputError("--threads-per-worker does not reach a custom_cluster_spec: write --nthreads into its command")
        ours["custom_cluster_spec"] = _completed(spec, config.workers)
        return module.KubeCluster(**(options | ours))
    env = options.get("env") or {}
    ours["env"] = env + _listed() if isinstance(env, list) else env | environment()
    if config.threads_per_worker:
        command = options.get("worker_command", "dask-worker")
        command = command.split() if isinstance(command, str) else command
        ours["worker_command"] = [*command, "--nthreads", str(config.threads_per_worker)]
    return module.KubeCluster(**(options | ours))


def _completed(spec: Any, workers: int) -> Any:
    """Give a resource of kind DaskCluster, or the file of one, its workers and dask's configuration."""
    if isinstance(spec, str):
        try:
            spec = yaml.safe_load(Path(spec).read_text())
        except (OSError, yaml.YAMLError) as error:
            raise InputError(f"cannot read the custom_cluster_spec {spec}: {' '.join(str(error).split())}") from error
    made = copy.deepcopy(spec)
    made["spec"]["worker"]["replicas"] = workers
    for role in ("scheduler", "worker"):
        for container in made["spec"][role]["spec"]["containers"]:
            container["env"] = [*(container.get("env") or []), *_listed()]
    return made


def _listed() -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in environment().items()]


def _once(name: str, option: str, options: Options) -> None:
    if options.get(option):
        raise InputError(
            f"--threads-per-worker and '{option}' in the --cluster-options of {name} say the same thing: leave out one of them"
        )


def _parameters(*functions: Callable[..., Any]) -> set[str]:
    return {name for function in functions for name in inspect.signature(function).parameters}


def _parameters_of_jobs(cls: str) -> set[str]:
    module, core = import_module("dask_jobqueue"), import_module("dask_jobqueue.core")
    made = getattr(module, cls)
    return _parameters(core.JobQueueCluster.__init__, core.Job.__init__, made.job_cls.__init__) - OUTDATED - {
        "cluster_kwargs", "job_kwargs", "base_class_kwargs"
    }  # fmt: skip


def _parameters_of_pods() -> set[str]:
    return _parameters(import_module("dask_kubernetes.operator").KubeCluster.__init__)


KINDS = {
    # An interpreter on a slow file system takes a while to start.
    "local": Kind(_start_local, lambda: _parameters(LocalCluster.__init__, Nanny.__init__), 60),
    "ssh": Kind(_start_ssh, lambda: _parameters(SSHCluster), 60, ("asyncssh",), "cluster"),
    # Jobs queue.
    "slurm": Kind(_start_jobs, lambda: _parameters_of_jobs("SLURMCluster"), 3600, ("dask_jobqueue",), "cluster"),
    "pbs": Kind(_start_jobs, lambda: _parameters_of_jobs("PBSCluster"), 3600, ("dask_jobqueue",), "cluster"),
    # Nodes pull an image, or are bought first.
    "kubernetes": Kind(_start_kubernetes, _parameters_of_pods, 600, ("dask_kubernetes",), "kubernetes"),
}
"""The clusters that can be started, by the word for `--cluster`."""
