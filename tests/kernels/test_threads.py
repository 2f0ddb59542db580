"""The thread budget, in processes of their own: it is a setting of the whole process."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import sys
import ducc0
import numpy as np
import threadpoolctl
from pfb.kernels.threads import set_thread_budget

if sys.argv[2] == "used":  # ducc0's pool is there before the budget is set
    ducc0.fft.c2c(np.zeros((64, 64), complex), nthreads=0)
set_thread_budget(int(sys.argv[1]))
blas = [pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]
print(ducc0.misc.thread_pool_size(), *blas)
"""


@pytest.mark.parametrize(("environment", "budget", "before"), [("1", 3, "fresh"), ("1", 2, "used"), ("4", 1, "used")])
def test_the_budget_holds_whatever_the_environment_says(environment, budget, before):
    env = os.environ | {name: environment for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(budget), before], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 0, run.stderr
    pool, *blas = map(int, run.stdout.split())
    assert pool == budget
    assert set(blas) <= {1}
