"""How this process treats the memory of arrays that are no longer needed."""

from __future__ import annotations

import ctypes

# The parameters of mallopt(3), from glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_NEVER = -1
_SETTINGS = ((_MMAP_THRESHOLD, 1 << 30), (_TRIM_THRESHOLD, _NEVER), (_ARENA_MAX, 1))


def keep_freed_memory() -> bool:
    """Let freed arrays serve the next ones, where the C library is glibc; returns whether it is.

    An iteration allocates and frees the same sizes again and again. By default each goes back to the system, and
    every page of the next has to be mapped and cleared: a third of the CPU time of a product with a Hessian.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and all(mallopt(key, value) == 1 for key, value in _SETTINGS)
