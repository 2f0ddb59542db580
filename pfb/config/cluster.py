"""Options of where a graph runs, and of the jobs of a batch system."""

from __future__ import annotations

from dataclasses import dataclass

from pfb.config.declaring import Config, option


@dataclass(frozen=True, kw_only=True)
class Resources(Config):
    """Where the graph runs."""

    workers: int = option(0, minimum=0, help="worker processes of a cluster; 0 runs threads in this process")
    threads_per_worker: int | None = option(
        None, minimum=1, help="threads of each worker (default: the cores divided among the workers)"
    )
    scheduler: str | None = option(
        None, metavar="ADDRESS|FILE", help="join the dask scheduler at this address, or whose scheduler file this is"
    )
    cluster: str | None = option(
        None, choices=("local", "ssh", "slurm", "pbs", "kubernetes"),
        help="where the workers are started (default: on this machine)",
    )
    cluster_options: str | None = option(
        None, metavar="YAML", nested=True,
        help="options of the cluster's class; usually a section of the --config file",
    )
    min_workers: int | None = option(
        None, minimum=1, help="workers to wait for (default: all of --workers, or one of a joined scheduler)"
    )
    wait_workers: float | None = option(
        None, minimum=0.0, metavar="SECONDS",
        help="how long to wait for them (default: 60; 600 for kubernetes, 3600 for the jobs of slurm and pbs)",
    )


@dataclass(frozen=True, kw_only=True)
class ClusterSubmit(Config):
    """Write a batch job that runs `pfb clean` on several nodes, and goes on when its time is over; submit it."""

    template: str = option(choices=("slurm", "pbs"), help="batch system")
    nodes: int = option(1, minimum=1, help="nodes, each of which runs one worker")
    cores: int = option(minimum=1, help="cores of each node")
    memory: str | None = option(
        None, metavar="SIZE", help="memory of each node, e.g. 200G (default: what the batch system gives)"
    )
    walltime: str = option(metavar="[D-]HH:MM:SS", help="time after which the batch system ends the job")
    grace: int = option(
        300, minimum=1, maximum=65535, metavar="SECONDS", help="how long before that the run is told to write its checkpoint"
    )
    resubmissions: int = option(
        10, minimum=0, metavar="TIMES", help="how often at most a run that its time has ended is submitted again, to go on"
    )
    queue: str | None = option(None, metavar="NAME", help="queue or partition (default: that of the batch system)")
    account: str | None = option(None, metavar="NAME", help="account that pays")
    extra: tuple[str, ...] = option(
        (), metavar="DIRECTIVE", help="another directive of the batch system; may be given several times"
    )
    interface: str | None = option(
        None, metavar="NAME", help="network interface of scheduler and workers, e.g. ib0 (default: the first)"
    )
    dashboard_port: int = option(
        8787, minimum=0, maximum=65535, metavar="PORT", help="port of the dashboard; another one if it is taken, or with 0"
    )
    script: str | None = option(
        None, metavar="FILE", help="where the script is written (default: beside the output, PREFIX-slurm.sh or PREFIX-pbs.sh)"
    )
    submit: bool = option(False, help="submit the script, with sbatch or qsub")
    overwrite: bool = option(False, help="replace a script that exists")
    quiet: bool = option(False, help="print errors only")
