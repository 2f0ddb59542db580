"""The text of a batch job that runs `pfb clean` on several nodes: a dask scheduler, a worker on each node, and the run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import join, quote
from string import Template

from pfb import __version__
from pfb.config import ClusterSubmit
from pfb.pipeline.clusters import environment

LONGEST_NAME = 15
"""Letters that older releases of PBS take for the name of a job."""
PATIENCE = 300
"""Seconds for all workers of a job to start: many interpreters at once, on one file system."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a script is written for; all paths begin at the root."""

    words: Sequence[str]
    """Sets and options of `pfb clean`, as they were typed."""
    prefix: Path
    """What the names of products, logs and folders begin with."""
    script: Path
    folder: Path
    """Where relative paths among the words begin."""
    python: str
    seconds: int
    """The wall time."""
    memory: tuple[int, str] | None
    """Memory of a node: a number, and its unit K, M, G or T, to base 1024."""
    waits: bool
    """Whether the words say for how many workers to wait, and how long."""


@dataclass(frozen=True)
class System:
    """What one batch system has of its own."""

    submit: str
    """The program that submits a script."""
    id: str
    """The shell's name of a job."""
    home: str
    """The shell's name of the machine that it was submitted from."""
    workers: str
    """Runs a program once on every node."""
    again: str
    """Submits the script once more."""
    before: str = ""
    """Lines at the start."""
    clock: str = ""
    """Lines that send USR1 when the wall time is nearly over, if the system itself does not."""


SYSTEMS = {
    "slurm": System(
        submit="sbatch",
        id="${SLURM_JOB_ID}",
        home="${SLURM_SUBMIT_HOST}",
        # A step does not take over the CPUs of its job; and a worker that dies shall not take the others with it.
        workers="srun --nodes=@nodes --ntasks=@nodes --ntasks-per-node=1 --cpus-per-task=@cores --wait=0 --kill-on-bad-exit=0",
        again='sbatch --export=ALL,PFB_ATTEMPT="$((attempt + 1))"',
    ),
    "pbs": System(
        submit="qsub",
        id="${PBS_JOBID%%.*}",
        home="${PBS_O_HOST}",
        workers="pbsdsh --",
        again='qsub -v PFB_ATTEMPT="$((attempt + 1))"',
        before="exec >@prefix-@{id}.log 2>&1  # PBS itself shows what a job says when it has ended\n",
        clock="""(
  trap 'kill $!' TERM
  sleep @rest &
  wait $! && kill -USR1 $$
) &
clock=$!
""",
    ),
}
"""The batch systems, by the word for `--template`."""


class _Text(Template):
    """Text with @names in it, since a shell has its own use for $."""

    delimiter = "@"


BODY = _Text(r"""#
# Runs pfb clean with a worker on each node. When its wall time is over it submits itself again, to go on.
# Written by pfb @{version}; submit it with:  @{submit} @{script}

set -u
cd @{folder} || exit 1
@{before}script=@{script}
python=@{python}
place=@{prefix}-job-@{id}  # for the scheduler's file and the logs; every node must see it
attempt=${PFB_ATTEMPT:-0} limit=@{limit}

run='' reason='' told='' code='' workers='' scheduler='' clock=''
stop() {
  reason=$1 told=yes
  [ -z "$run" ] || kill -TERM "$run" 2>/dev/null
}
finish() {
  for process in $clock $scheduler; do kill "$process" 2>/dev/null; done
  for _ in $(seq 150); do  # workers end by themselves when their scheduler has
    [ -n "$workers" ] && kill -0 "$workers" 2>/dev/null || break
    sleep 0.2
  done
  [ -z "$workers" ] || kill "$workers" 2>/dev/null
  wait
  [ "$code" != 0 ] || rm -rf "$place"
}
trap 'stop time' USR1  # the wall time is nearly over: the run shall write its checkpoint, and end with 143
trap 'stop cancelled' TERM
trap finish EXIT
@{clock}
mkdir -p "$place" || exit 1
cat >"$place/dask.sh" <<'END'
# Starts a part of the cluster on this node: dask.sh scheduler, or dask.sh worker
cd @{folder} || exit 1
place=$(dirname "$0") node=$(hostname -s)
@{exports}
if [ "$1" = scheduler ]; then
  exec @{python} -m dask scheduler --scheduler-file "$place/scheduler.json" --port 0 \
    --dashboard-address :@{dashboard}@{interface} >"$place/scheduler.log" 2>&1
else
  exec @{python} -m dask worker --scheduler-file "$place/scheduler.json" --name "$node" --nthreads @{cores} \
    --memory-limit @{memory} --no-dashboard@{interface} >"$place/worker-$node.log" 2>&1
fi
END

bash "$place/dask.sh" scheduler &
scheduler=$!
for _ in $(seq 600); do
  [ ! -s "$place/scheduler.json" ] && kill -0 "$scheduler" 2>/dev/null && [ -z "$reason" ] || break
  sleep 0.2
done
[ -s "$place/scheduler.json" ] || { echo "there is no dask scheduler; see $place/scheduler.log" >&2; exit 1; }
"$python" -c '
import json, sys
made, login = json.load(open(sys.argv[1])), sys.argv[2]
host, port = made["address"].split("://")[1].rsplit(":", 1)[0], made["services"]["dashboard"]
print(f"dashboard: http://{host}:{port}/status")
print(f"from elsewhere: ssh -N -L {port}:{host}:{port} {login}  and then  http://localhost:{port}/status", flush=True)
' "$place/scheduler.json" "$(id -un)@@@{home}"

@{workers} /bin/bash "$place/dask.sh" worker &
workers=$!

"$python" -m pfb clean @{words} \
  --scheduler "$place/scheduler.json"@{waits} --resume &
run=$!
[ -z "$reason" ] || kill -TERM "$run"
while :; do
  told=''
  wait "$run"
  code=$?
  [ -n "$told" ] || break  # else a signal to this script has ended the waiting, and not the run
done

if [ "$code" = 143 ] && [ "$reason" = time ]; then
  if [ "$attempt" -lt "$limit" ]; then
    echo "the wall time is over: this job is submitted again to go on, $((attempt + 1)) of at most $limit times"
    @{again} "$script" || echo "it could not be; do so with: @{submit} $script" >&2
  else
    echo "the wall time is over, and this job was submitted again $attempt times; to go on: @{submit} $script" >&2
  fi
elif [ "$code" != 0 ]; then
  echo "pfb clean ended with exit code $code; the logs of its scheduler and workers are in $place" >&2
fi
exit "$code"
""")


def render(job: Job, config: ClusterSubmit) -> str:
    """Write the script of a job; every value in it is quoted.

    Parameters
    ----------
    job : Job
        What is run, where and for how long.
    config : ClusterSubmit
        What is asked of the batch system.
    """
    system = SYSTEMS[config.template]
    names = dict(
        nodes=str(config.nodes), cores=str(config.cores), limit=str(config.resubmissions), dashboard=str(config.dashboard_port),
        id=system.id, home=system.home, submit=system.submit, again=system.again, version=__version__,
        script=quote(str(job.script)), folder=quote(str(job.folder)), prefix=quote(str(job.prefix)), python=quote(job.python),
        memory="{}{}iB".format(*job.memory) if job.memory else "auto",
        interface=f" --interface {quote(config.interface)}" if config.interface else "",
        exports="\n".join(f"export {name}={quote(value)}" for name, value in environment().items()),
        words=join(job.words),
        waits="" if job.waits else f" --min-workers {config.nodes} --wait-workers {PATIENCE}",
        rest=str(job.seconds - config.grace),
    )  # fmt: skip
    for name in ("workers", "before", "clock"):
        names[name] = _Text(getattr(system, name)).substitute(names)
    return "\n".join(["#!/bin/bash", *_directives(job, config), BODY.substitute(names)])


def _directives(job: Job, config: ClusterSubmit) -> list[str]:
    name = re.sub(r"[^A-Za-z0-9_-]", "-", f"pfb-{job.prefix.name}")[:LONGEST_NAME]
    if config.template == "slurm":
        log = str(job.prefix).replace("%", "%%")
        given = [
            f"--job-name={name}",
            f"--nodes={config.nodes}",
            "--ntasks-per-node=1",
            f"--cpus-per-task={config.cores}",
            "--mem={}{}".format(*job.memory) if job.memory else "",
            f"--time={clock(job.seconds)}",
            f"--signal=B:USR1@{config.grace}",
            f'--output="{log}-%j.log"',
            "--open-mode=append",
            f"--partition={config.queue}" if config.queue else "",
            f"--account={config.account}" if config.account else "",
        ]
        return [f"#SBATCH {text}" for text in [*given, *config.extra] if text]
    memory = f":mem={job.memory[0]}{job.memory[1].lower()}b" if job.memory else ""
    given = [
        f"-N {name}",
        "-S /bin/bash",
        f"-l select={config.nodes}:ncpus={config.cores}:mpiprocs=1{memory}",
        "-l place=scatter",
        f"-l walltime={clock(job.seconds)}",
        "-j oe",
        f"-q {config.queue}" if config.queue else "",
        f"-A {config.account}" if config.account else "",
    ]
    return [f"#PBS {text}" for text in [*given, *config.extra] if text]


def clock(seconds: int) -> str:
    """Write a time span as the batch systems do."""
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
