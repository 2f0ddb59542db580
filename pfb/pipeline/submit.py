"""`pfb cluster submit`: write a batch job that runs `pfb clean` on several nodes, and submit it."""

from __future__ import annotations

import getpass
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from pfb.config import Clean, ClusterSubmit
from pfb.errors import InputError, PfbError
from pfb.io.staging import require_writable, staged
from pfb.pipeline.job_script import SYSTEMS, Job, render
from pfb.pipeline.products import kinds_of, product_paths
from pfb.pipeline.reporting import Reporter


@dataclass(frozen=True)
class Request:
    """A run of `pfb clean` that shall be a job."""

    words: Sequence[str]
    """Its command line after `pfb clean`, as it was typed."""
    sets: Sequence[str]
    """The measurement sets among the words."""
    clean: Clean
    """The options among them."""


def run(request: Request, config: ClusterSubmit, report: Reporter) -> None:
    """Write the script of a job, and submit it if that is asked for.

    Parameters
    ----------
    request : Request
        What the job runs.
    config : ClusterSubmit
        Options of the command.
    report : Reporter
        Is told of the script, the job, its log and its dashboard.

    Raises
    ------
    InputError
        If a value is no time, no size or no single line, a measurement set is not there, a product or the script cannot
        be written, or the program that submits is missing.
    PfbError
        If the batch system refuses the job.
    """
    submit = SYSTEMS[config.template].submit
    if config.submit and shutil.which(submit) is None:
        raise InputError(f"--submit needs {submit}, which is not on this machine: leave it out, and submit the script elsewhere")
    job = _job(request, config)
    require_writable([job.script], config.overwrite)
    with staged(job.script, config.overwrite) as path:
        path.write_text(render(job, config))
        path.chmod(0o755)
    if not config.submit:
        report.message(f"wrote {job.script}: submit it with  {submit} {quote(str(job.script))}")
        return
    number = _submitted(submit, job.script)
    report.message(f"submitted {job.script} as job {number}: its log will be {job.prefix}-{number}.log")
    login = f"{getpass.getuser()}@{socket.gethostname()}"
    port = config.dashboard_port
    if port:
        report.message(
            f"dashboard: port {port} of the node that the log names, if it is free there; "
            f"from elsewhere: ssh -N -L {port}:NODE:{port} {login}  and then  http://localhost:{port}/status"
        )
    else:
        report.message("dashboard: the log will say where")


def _job(request: Request, config: ClusterSubmit) -> Job:
    """Check what the script is written of, and gather it."""
    clean = request.clean
    starts = dict(workers=clean.workers, scheduler=clean.scheduler, cluster=clean.cluster, cluster_options=clean.cluster_options)
    starts["threads_per_worker"] = clean.threads_per_worker
    if given := ["--" + name.replace("_", "-") for name, value in starts.items() if value]:
        raise InputError(f"the job starts the workers of pfb clean, one on each of --nodes: leave out {' and '.join(given)}")
    if missing := [path for path in request.sets if not Path(path).is_dir()]:
        raise InputError(f"there is no measurement set {', '.join(missing)}: correct its path, or submit the job where it is")
    prefix = Path(clean.output).absolute()
    products = [path for group in product_paths(prefix, kinds_of("clean", clean.has_beam)).values() for path in group]
    require_writable([Path(f"{prefix}.zarr"), *products], clean.overwrite)
    for option, values in dict(queue=[config.queue], account=[config.account], extra=config.extra, output=[str(prefix)]).items():
        if any(value and ("\n" in value or (option == "output" and '"' in value)) for value in values):
            raise InputError(f"--{option} has a line break or a quotation mark, which no directive of a batch script can hold")
    seconds = _seconds(config.walltime)
    if seconds <= config.grace:
        raise InputError(f"--walltime {config.walltime} must be longer than --grace, the {config.grace} s at its end")
    return Job(
        words=request.words,
        prefix=prefix,
        script=Path(config.script or f"{prefix}-{config.template}.sh").absolute(),
        folder=Path.cwd(),
        python=sys.executable,
        seconds=seconds,
        memory=None if config.memory is None else _size(config.memory),
        waits=clean.min_workers is not None,
    )


def _seconds(text: str) -> int:
    found = re.fullmatch(r"(?:(\d+)-)?(\d+):([0-5]\d):([0-5]\d)", text)
    if found is None:
        raise InputError(f"--walltime is {text!r} but must be a time such as 12:00:00 or 2-00:00:00")
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return ((24 * days + hours) * 60 + minutes) * 60 + seconds


def _size(text: str) -> tuple[int, str]:
    found = re.fullmatch(r"(\d+)([KMGT])(i?B)?", text, re.IGNORECASE)
    if found is None:
        raise InputError(f"--memory is {text!r} but must be a whole number with a unit, such as 200G or 512M")
    return int(found[1]), found[2].upper()


def _submitted(program: str, script: Path) -> str:
    """Submit a script and return the number of its job."""
    options = ["--parsable"] if program == "sbatch" else []
    done = subprocess.run([program, *options, str(script)], capture_output=True, text=True, check=False)
    if done.returncode:
        said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise PfbError(f"{program} refused {script} ({said}): correct the options of pfb cluster submit, and give --overwrite")
    return re.split(r"[;.\s]", done.stdout.strip())[0]
