"""Run WSClean, if it is installed, on the set that `pfb clean` images, with the same grid, bands and weights."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from astropy.io import fits
from score import Model, read_images
from stages import INTERVAL

from pfb.types import Geometry

DEEP = "-multiscale -niter 1000000 -mgain 0.8 -auto-mask 3 -auto-threshold 1"
"""Multiscale clean down to the noise, within a mask of what exceeded three times the noise."""

ACCURATE = "-use-wgridder"
"""The gridder that is the default from version 3.2 on; that of older ones costs 4 dB on the synthetic set."""


class Run(NamedTuple):
    """What WSClean made, and what it cost."""

    model: Model
    residual: Any
    """(nx, ny) MFS residual in Jy/beam."""
    seconds: float
    cpu: float
    peak: int
    """Bytes."""
    version: str


def missing() -> str | None:
    """Say why WSClean cannot run; None if it can."""
    return None if shutil.which("wsclean") else "no program wsclean is installed"


def command(
    path: str, prefix: str, geometry: Geometry, *, nband: int, robust: float, nthread: int, field: int, column: str
) -> list[str]:
    """Return the command line."""
    fixed = [
        f"-name {prefix}", f"-size {geometry.nx} {geometry.ny}", f"-scale {np.rad2deg(geometry.cell) * 3600:.9g}asec",
        f"-weight briggs {robust:g}", f"-channels-out {nband}", "-join-channels" if nband > 1 else "",
        f"-field {field}", f"-data-column {column}", f"-j {nthread}", "-no-update-model-required", DEEP,
        ACCURATE if release() < (3, 2) else "",
    ]  # fmt: skip
    return ["wsclean", *" ".join(fixed).split(), path]


def run(path: str, prefix: str, geometry: Geometry, *, nband: int, robust: float, nthread: int, **selection: Any) -> Run:
    """Image a set; raises RuntimeError with WSClean's last lines if it fails.

    Its output goes to ``PREFIX.log``. `selection` has the ``field`` id and the data ``column``.
    """
    words = command(path, prefix, geometry, nband=nband, robust=robust, nthread=nthread, **selection)
    log = Path(f"{prefix}.log")
    began = time.monotonic()
    with log.open("w") as output:
        process = subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT)
        peak = 0
        while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            peak = max(peak, resident(process.pid))
            time.sleep(INTERVAL)
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(words)} ended with exit code {process.returncode}:\n{log.read_text()[-2000:]}")
    channels, mfs = (f"{prefix}-[0-9]*-model.fits", f"{prefix}-MFS-residual.fits")
    if nband == 1:
        channels, mfs = f"{prefix}-model.fits", f"{prefix}-residual.fits"
    residual = np.squeeze(fits.getdata(mfs)).T
    seconds, cpu = time.monotonic() - began, used.ru_utime + used.ru_stime
    return Run(read_images(channels), residual, seconds, cpu, peak, version())


def resident(pid: int) -> int:
    """Return the highest resident memory of a program so far in bytes, 0 once it has ended.

    What the kernel reports of an ended child counts the process that started it, as it was before the child became the program.
    """
    found = re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found.group(1)) * 1024 if found else 0


def release() -> tuple[int, ...]:
    """Return the numbers of the version."""
    return tuple(int(number) for number in re.findall(r"\d+", version())[:2])


def version() -> str:
    """Return WSClean's version."""
    text = subprocess.run(["wsclean", "--version"], capture_output=True, text=True, check=False).stdout
    return next((line.split("(")[0].strip() for line in text.splitlines() if "version" in line.lower()), "WSClean")
