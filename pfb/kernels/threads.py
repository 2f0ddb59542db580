"""How many threads the libraries below us may use in this process."""

from __future__ import annotations

import ducc0
import threadpoolctl


def set_thread_budget(nthread: int) -> None:
    """Let ducc0 use `nthread` threads, and BLAS one.

    ducc0's pool follows ``OMP_NUM_THREADS`` of the moment it is first used, so it is resized. A sum
    that BLAS spreads over threads would depend on their number in its last bits; our numba kernels
    use one thread each, for the graph is what is parallel.
    """
    ducc0.misc.resize_thread_pool(nthread)
    threadpoolctl.threadpool_limits(1, user_api="blas")
