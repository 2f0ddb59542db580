"""`pfb cluster submit`: the script, what is refused, what it does when a run ends in any way, and real jobs of Slurm."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pfb.pipeline import submit as pipeline
from pfb.pipeline.clusters import environment
from tests.deployments import jobs, until
from tests.observations import small_set
from tests.pipeline.small_runs import stokes_i

SUBMIT = {"slurm": "sbatch", "pbs": "qsub"}
FOLDER = "with blanks, $HOME and 'quotes'"
NEEDED = ["--cores", "4", "--walltime", "1-02:00:00"]
IMAGE = ["--npix", "64", "--cell", "4", "--nband", "2", "--bases", "self,db1", "--pd-maxit", "10"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An awkward folder to work in, with what looks like a set."""
    made = tmp_path / FOLDER
    (made / "a b.ms").mkdir(parents=True)
    monkeypatch.chdir(made)
    return made


@pytest.fixture
def submit(pfb):
    """Run the command for a set; returns its answer."""
    return lambda *words, clean=("a b.ms", "-o", "out"): pfb("cluster", "submit", *words, "--", *clean)


def directives(path):
    """What a script asks of its batch system, name by name."""
    lines = [line.split(" ", 1) for line in path.read_text().splitlines() if line.startswith(("#SBATCH", "#PBS"))]
    return [rest for _, rest in lines]


# The script


def test_what_slurm_is_asked_for(submit, folder):
    words = [*NEEDED, "--nodes", "3", "--memory", "200gb", "--queue", "long", "--account", "me", "--extra", "--exclusive"]
    answer = submit("--template", "slurm", *words, "--extra", "--constraint=ib", clean=("a b.ms", "-o", "100%"))
    assert answer.code == 0, answer.err
    script = folder / "100%-slurm.sh"
    assert answer.out == f"wrote {script}: submit it with  sbatch {shlex.quote(str(script))}\n"
    assert directives(script) == [
        "--job-name=pfb-100-", "--nodes=3", "--ntasks-per-node=1", "--cpus-per-task=4", "--mem=200G", "--time=26:00:00",
        "--signal=B:USR1@300", f'--output="{folder}/100%%-%j.log"', "--open-mode=append", "--partition=long", "--account=me",
        "--exclusive", "--constraint=ib",
    ]  # fmt: skip
    assert os.access(script, os.X_OK)


def test_what_pbs_is_asked_for(submit, folder):
    words = [*NEEDED, "--nodes", "3", "--memory", "512M", "--queue", "long", "--account", "me", "--extra=-m n"]
    answer = submit("--template", "pbs", *words, clean=("a b.ms", "-o", "a/../a rather long name"))
    assert answer.code == 2  # there is no folder a
    answer = submit("--template", "pbs", *words, clean=("a b.ms", "-o", "a rather long name"))
    assert answer.code == 0, answer.err
    assert directives(folder / "a rather long name-pbs.sh") == [
        "-N pfb-a-rather-lo", "-S /bin/bash", "-l select=3:ncpus=4:mpiprocs=1:mem=512mb", "-l place=scatter",
        "-l walltime=26:00:00", "-j oe", "-q long", "-A me", "-m n",
    ]  # fmt: skip
    assert "sleep 93300 &" in (folder / "a rather long name-pbs.sh").read_text()


@pytest.mark.parametrize("template", SUBMIT)
def test_the_script_is_bash_and_has_no_names_left(template, submit, folder):
    assert submit("--template", template, *NEEDED).code == 0
    script = folder / f"out-{template}.sh"
    subprocess.run(["bash", "-n", script], check=True)
    text = script.read_text()
    assert not re.findall(r"@\{?\w+", text.replace("@{SLURM", "").replace("B:USR1@300", "").replace('"$(id -un)@$', ""))
    assert max(map(len, text.splitlines())) < 250
    for name, value in environment().items():
        assert f"export {name}={value}\n" in text
    assert "--memory-limit auto" in text


def test_options_in_a_file(submit, folder):
    given = "template: slurm\ncores: 2\nwalltime: 12:00:00\nsubmit: false\n"
    (folder / "job.yaml").write_text(given + "extra: [--exclusive, --constraint=a]\n")
    assert submit("--config", "job.yaml", "--script", "mine.sh").code == 0
    found = directives(folder / "mine.sh")
    assert found[-2:] == ["--exclusive", "--constraint=a"]
    assert "--time=12:00:00" in found
    (folder / "job.yaml").write_text(given + "extra: --a,b\n")
    assert submit("--config", "job.yaml", "--script", "mine.sh", "--overwrite").code == 0
    assert directives(folder / "mine.sh")[-1] == "--a,b"


@pytest.mark.parametrize(
    ("words", "clean", "message"),
    [
        ([], "a -o out --nbnd 3", "No such option '--nbnd'"),
        ([], "a -o out --robust 4", "--robust is 4.0 but must be at most 2"),
        ([], "a", "option -o/--output is missing"),
        ([], "-o out", "Missing argument 'SET...' (see 'pfb clean --help')"),
        ([], "b -o out", "there is no measurement set b: correct its path"),
        ([], "a -o nowhere/out", "does not exist; create it or write elsewhere"),
        ([], "a -o out --workers 3 --cluster slurm", "one on each of --nodes: leave out --workers and --cluster"),
        ([], "a -o out --scheduler x", "leave out --scheduler"),
        ([], "a -o out --threads-per-worker 2", "leave out --threads-per-worker"),
        ([], "a -o done", "done-image-mfs.fits exists already"),
        (["--walltime", "12"], "a -o out", "--walltime is '12' but must be a time such as 12:00:00"),
        (["--walltime", "0:05:00"], "a -o out", "--walltime 0:05:00 must be longer than --grace, the 300 s at its end"),
        (["--memory", "lots"], "a -o out", "--memory is 'lots' but must be a whole number with a unit"),
        (["--queue", "a\nb"], "a -o out", "--queue has a line break"),
        (["--script", "done-image-mfs.fits"], "a -o out", "done-image-mfs.fits exists already"),
        (["--submit"], "a -o out", "--submit needs sbatch, which is not on this machine"),
        (["--cores", "0"], "a -o out", "--cores is 0 but must be at least 1"),
    ],
)
def test_nothing_is_written_if_something_is_wrong(words, clean, message, refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "a").mkdir()
    (tmp_path / "done-image-mfs.fits").touch()
    given = ["cluster", "submit", "--template", "slurm", *NEEDED, *words, "--", *clean.split()]
    assert message in refused(*given, folder=tmp_path)


# What it does, with stand-ins for the batch system and for Python

PYTHON = """#!/bin/bash
# Stands in for Python: a scheduler and a worker that only live, and a run that ends as FAKE says.
case "$*" in
  *"dask scheduler"*)
    [ "$FAKE" != "no scheduler" ] || exit 1
    trap 'rm "$NOTES/alive"; exit' TERM
    touch "$NOTES/alive"
    echo '{"address": "tcp://10.0.0.1:1234", "services": {"dashboard": 8787}}' >"$5.new"
    mv "$5.new" "$5"
    while :; do sleep 0.05; done ;;
  *"dask worker"*)
    printf '%s\\n' "$@" >"$NOTES/worker"
    while [ -e "$NOTES/alive" ]; do sleep 0.05; done ;;
  *"pfb clean"*)
    printf '%s\\n' "$@" >"$NOTES/run"
    case $FAKE in
      deaf) trap 'exit 0' TERM ;;
      *[0-9]) exit "$FAKE" ;;
      *) trap 'sleep 0.2; exit 143' TERM ;;
    esac
    touch "$NOTES/running"
    while :; do sleep 0.05; done ;;
  *) exec @real "$@" ;;
esac
"""
NOTE = """#!/bin/bash
echo "$@" >>"$NOTES/submitted"
exit "${REFUSED:-0}"
"""
THROUGH = {"srun": 'while [[ $1 == --* ]]; do shift; done\nexec "$@"', "pbsdsh": 'shift\nexec "$@"'}


class Stage:
    """Runs a script where the batch system and Python are stand-ins."""

    def __init__(self, folder, notes, script, template):
        self.folder, self.notes, self.script, self.template = folder, notes, script, template

    def start(self, fake, **variables):
        numbers = dict(SLURM_JOB_ID="7", SLURM_SUBMIT_HOST="login", PBS_JOBID="7.server", PBS_O_HOST="login")
        given = dict(PATH=f"{self.notes}:{os.environ['PATH']}", NOTES=str(self.notes), FAKE=fake)
        env = os.environ | given | numbers | variables
        return subprocess.Popen(["bash", self.script], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def end(self, process):
        """Return the exit code and the log."""
        out = process.communicate(timeout=20)[0]
        log = self.folder / "out-7.log"
        return process.returncode, out + (log.read_text() if log.exists() else "")

    def told(self, name):
        path = self.notes / name
        return path.read_text() if path.exists() else None


@pytest.fixture(params=SUBMIT)
def stage(request, submit, folder, tmp_path, monkeypatch):
    notes = tmp_path / "notes"
    notes.mkdir()
    programs = {"python": PYTHON.replace("@real", sys.executable), SUBMIT[request.param]: NOTE}
    programs |= {name: f"#!/bin/bash\n{text}\n" for name, text in THROUGH.items()}
    for name, text in programs.items():
        (notes / name).write_text(text)
        (notes / name).chmod(0o755)
    monkeypatch.setattr(pipeline.sys, "executable", str(notes / "python"))
    words = ["--template", request.param, "--cores", "4", "--nodes", "2", "--memory", "2G", "--resubmissions", "3"]
    answer = submit(*words, "--walltime", "0:10:00", clean=("a b.ms", "-o", "out", "--field", "3C 273"))
    assert answer.code == 0, answer.err
    return Stage(folder, notes, folder / f"out-{request.param}.sh", request.param)


def again(stage, attempt):
    """What the batch system is told when a job is submitted again."""
    option = {"slurm": "--export=ALL,PFB_ATTEMPT", "pbs": "-v PFB_ATTEMPT"}[stage.template]
    return f"{option}={attempt} {stage.script}\n"


def test_a_run_that_succeeds(stage):
    code, log = stage.end(stage.start("0"))
    assert code == 0, log
    assert stage.told("submitted") is None
    assert not (stage.folder / "out-job-7").exists()
    place = str(stage.folder / "out-job-7")
    assert stage.told("run").splitlines() == [
        "-m", "pfb", "clean", "a b.ms", "-o", "out", "--field", "3C 273", "--scheduler", f"{place}/scheduler.json",
        "--min-workers", "2", "--wait-workers", "300", "--resume",
    ]  # fmt: skip
    worker = stage.told("worker").splitlines()
    assert worker == [
        "-m", "dask", "worker", "--scheduler-file", f"{place}/scheduler.json", "--name", os.uname().nodename.split(".")[0],
        "--nthreads", "4", "--memory-limit", "2GiB", "--no-dashboard",
    ]  # fmt: skip
    assert "dashboard: http://10.0.0.1:8787/status\n" in log
    assert re.search(r"ssh -N -L 8787:10.0.0.1:8787 \w+@login ", log)
    assert not (stage.notes / "alive").exists()


@pytest.mark.parametrize("stage", ["slurm"], indirect=True)
@pytest.mark.parametrize("fake", ["1", "143"])
def test_a_run_that_fails(fake, stage):
    """143 too, if nobody said that the time is over."""
    code, log = stage.end(stage.start(fake))
    assert code == int(fake)
    assert stage.told("submitted") is None
    assert f"pfb clean ended with exit code {fake}; the logs of its scheduler and workers are in {stage.folder}/out-job-7" in log
    assert (stage.folder / "out-job-7" / "scheduler.log").exists()


@pytest.mark.parametrize(("attempt", "next_one"), [(None, 1), ("2", 3), ("3", None)])
def test_a_run_whose_time_is_over(attempt, next_one, stage):
    process = stage.start("", **({"PFB_ATTEMPT": attempt} if attempt else {}))
    until(lambda: stage.told("running") is not None)
    process.send_signal(signal.SIGUSR1)
    code, log = stage.end(process)
    assert code == 143
    assert stage.told("submitted") == (again(stage, next_one) if next_one else None)
    said = f"again to go on, {next_one} of at most 3 times" if next_one else "this job was submitted again 3 times; to go on: "
    assert said in log
    assert not (stage.notes / "alive").exists()


@pytest.mark.parametrize("stage", ["slurm"], indirect=True)
def test_a_job_that_cannot_be_submitted_again(stage):
    process = stage.start("", REFUSED="1")
    until(lambda: stage.told("running") is not None)
    process.send_signal(signal.SIGUSR1)
    code, log = stage.end(process)
    assert code == 143
    assert f"it could not be; do so with: {SUBMIT[stage.template]} " in log


@pytest.mark.parametrize("stage", ["slurm"], indirect=True)
def test_a_run_that_is_cancelled(stage):
    process = stage.start("")
    until(lambda: stage.told("running") is not None)
    process.send_signal(signal.SIGTERM)
    code, _ = stage.end(process)
    assert code == 143
    assert stage.told("submitted") is None


@pytest.mark.parametrize("stage", ["slurm"], indirect=True)
def test_a_run_that_ends_in_time(stage):
    """It was told that the time is over, but had all its products by then."""
    process = stage.start("deaf")
    until(lambda: stage.told("running") is not None)
    process.send_signal(signal.SIGUSR1)
    assert stage.end(process)[0] == 0
    assert stage.told("submitted") is None


@pytest.mark.parametrize("stage", ["slurm"], indirect=True)
def test_a_scheduler_that_does_not_start(stage):
    code, log = stage.end(stage.start("no scheduler"))
    assert code == 1
    assert f"there is no dask scheduler; see {stage.folder}/out-job-7/scheduler.log" in log
    assert stage.told("run") is None


@pytest.mark.parametrize("stage", ["pbs"], indirect=True)
def test_pbs_has_a_clock_of_its_own(stage):
    script = stage.script.read_text()
    assert "  sleep 300 &\n" in script
    stage.script.write_text(script.replace("  sleep 300 &\n", "  sleep 1 &\n"))
    code, _ = stage.end(stage.start(""))
    assert code == 143
    assert stage.told("submitted") == again(stage, 1)


# Real jobs


SMALL = "--template slurm --cores 1 --memory 2G --walltime 0:10:00 --interface lo --dashboard-port 0 --submit".split()


@pytest.fixture
def observed(folder):
    shutil.rmtree(folder / "a b.ms")
    return small_set(folder / "a b.ms").path


@pytest.mark.cluster
def test_a_job_of_slurm(slurm, submit, observed, folder):
    answer = submit(*SMALL, clean=("a b.ms", "-o", "out", *IMAGE, "--niter", "2"))
    assert answer.code == 0, answer.err
    number = re.search(r"as job (\d+): its log will be (.*)\n", answer.out)
    assert list(jobs()) == [number[1]]
    until(lambda: not jobs(), 60)
    log = Path(number[2]).read_text()
    assert stokes_i(folder / "out.zarr", needs="clean").model.any(), log
    assert not (folder / f"out-job-{number[1]}").exists()
    host, port = re.search(r"dashboard: http://([\d.]+):(\d+)/status", log).groups()
    assert f"ssh -N -L {port}:{host}:{port} " in log


@pytest.mark.cluster
def test_the_wall_time_of_slurm(slurm, submit, observed, folder):
    """The signal that Slurm sends before the end is sent by hand; then the job that goes on is cancelled."""
    endless = ["--niter", "5000", "--tol", "0", "--rmsfactor", "0.001"]
    assert submit(*SMALL, clean=("a b.ms", "-o", "out", *IMAGE, *endless)).code == 0
    (first,) = jobs()

    def written(number):
        path = folder / f"out-{number}.log"
        return path.read_text() if path.exists() else ""

    until(lambda: "\n    0  " in written(first), 60)
    subprocess.run(["scancel", "--batch", "--signal=USR1", first], check=True)
    until(lambda: first not in jobs(), 60)
    assert "this job is submitted again to go on, 1 of at most 10 times" in written(first)
    (second,) = jobs()
    until(lambda: "going on from" in written(second), 60)
    subprocess.run(["scancel", second], check=True)
    until(lambda: not jobs(), 60)
    assert "submitted again" not in written(second)


@pytest.mark.cluster
def test_jobs_of_slurm_that_go_on_end_at_the_same_bits(slurm, submit, pfb, observed, folder):
    options = [*IMAGE, "--niter", "30", "--tol", "0", "--rmsfactor", "0.001"]
    assert submit(*SMALL, clean=("a b.ms", "-o", "out", *options)).code == 0
    (first,) = jobs()
    log = folder / f"out-{first}.log"
    until(lambda: log.exists() and "\n    1  " in log.read_text(), 60)
    subprocess.run(["scancel", "--batch", "--signal=USR1", first], check=True)
    until(lambda: not jobs(), 120)
    assert "submitted again to go on" in log.read_text()
    assert pfb("clean", "a b.ms", "-o", "calm", *options).code == 0
    found, expected = (stokes_i(folder / f"{name}.zarr", needs="clean") for name in ("out", "calm"))
    assert found.sizes["cycle"] == 30
    for name in ("model", "residual", "dual"):
        np.testing.assert_array_equal(found[name], expected[name])
    assert not (folder / "out.checkpoint").exists()


@pytest.mark.cluster
def test_a_job_that_slurm_refuses(slurm, submit, folder):
    answer = submit(*SMALL, "--queue", "nowhere")
    assert answer.code == 1
    assert re.search(r"^pfb: sbatch refused .*invalid partition.*: correct the options of pfb cluster submit", answer.err)
    assert not jobs()
