"""Freed memory is kept, in a process of its own: it is a setting of the whole process."""

import subprocess
import sys

import pytest

from pfb.kernels.memory import keep_freed_memory

PROGRAM = """
import resource, sys, threading
import numpy as np
from pfb.kernels.memory import keep_freed_memory

if sys.argv[1] == "keep":
    assert keep_freed_memory()

def work():
    for _ in range(20):
        np.ones(10_000_000)

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

work()
before = faults()
thread = threading.Thread(target=work)
thread.start()
thread.join()
print(faults() - before)
"""


def faults(what):
    run = subprocess.run([sys.executable, "-c", PROGRAM, what], capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr
    return int(run.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mallopt is glibc's")
def test_the_next_array_needs_no_new_pages_whichever_thread_asks():
    """20 arrays of 80 MB are 390 000 pages of 4 KB, or 760 huge ones."""
    assert faults("keep") < faults("return") / 4


def test_a_c_library_without_the_setting_is_left_alone(monkeypatch):
    monkeypatch.setattr("ctypes.CDLL", lambda name: object())
    assert keep_freed_memory() is False
