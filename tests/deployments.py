"""A batch system and an ssh server for the tests: real ones, of this machine, started for them and ended after them."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

SLURM = Path(__file__).parent / "slurm"


@contextmanager
def running_slurm(folder):
    """Start Slurm with its state in a folder; SLURM_CONF leads to it. Skips where it cannot be."""
    start = subprocess.run([SLURM / "start", folder], capture_output=True, text=True, check=False)
    try:
        if start.returncode:
            pytest.skip(f"no Slurm: {start.stderr.strip()}")
        yield str(folder / "slurm.conf")
    finally:
        subprocess.run([SLURM / "stop", folder], capture_output=True, check=True)


def jobs():
    """Identifiers and states of the jobs that wait or run."""
    asked = ["squeue", "--noheader", "--format=%i %T"]
    return dict(line.split() for line in subprocess.check_output(asked, text=True).splitlines())


def until(found, seconds=30.0):
    """Ask again and again until the answer is true; returns it."""
    end = time.monotonic() + seconds
    while not (answer := found()):
        assert time.monotonic() < end, f"still not after {seconds:g} s"
        time.sleep(0.05)
    return answer


@contextmanager
def running_sshd(folder):
    """Start an ssh server on a free port of 127.0.0.1; yields the connect_options that lead in. Skips where there is none."""
    server = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    if server is None or shutil.which("ssh-keygen") is None:
        pytest.skip("no ssh server: there is no sshd or no ssh-keygen here")
    folder.chmod(0o700)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    (folder / "authorized").write_text((folder / "user.pub").read_text())
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where it locks up what has no rights yet
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    settings = dict(
        HostKey=folder / "host", AuthorizedKeysFile=folder / "authorized", ListenAddress="127.0.0.1", Port=port,
        PidFile="none", UsePAM="no", StrictModes="no", PermitRootLogin="yes", PasswordAuthentication="no",
    )  # fmt: skip
    words = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([server, "-D", "-e", "-f", os.devnull, *words], stderr=log)
    try:
        until(lambda: "Server listening" in (folder / "log").read_text() or process.poll() is not None, 10)
        if process.poll() is not None:
            pytest.skip(f"no ssh server: {(folder / 'log').read_text().strip()}")
        yield dict(port=port, username=getpass.getuser(), client_keys=[str(folder / "user")], known_hosts=None)
    finally:
        process.terminate()
        process.wait(10)
