"""Results that outlive the graph that made them: in the memory of their worker, and in a file in case it is lost."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np

_PARKED: dict[str, tuple[int, Any]] = {}
"""What this process holds until it is picked up: the generation and the array, by path."""
_LOCK = threading.Lock()


def write_array(array: Any, path: str) -> None:
    """Write an array beside its place and rename it, so that the file is whole or not there."""
    partial = f"{path}.{os.getpid()}.{threading.get_ident()}"
    with open(partial, "wb") as file:
        np.save(file, array)
    os.replace(partial, path)


def read_array(path: str) -> Any:
    """Read an array."""
    return np.load(path, allow_pickle=False)


def park(array: Any, path: str, generation: int) -> str:
    """Keep an array in this process and on disk; returns the path.

    Arrays that were parked two generations ago were picked up elsewhere and are forgotten.
    """
    write_array(array, path)
    with _LOCK:
        for old in [name for name, (age, _) in _PARKED.items() if age < generation - 1]:
            del _PARKED[old]
        _PARKED[path] = (generation, array)
    return path


def resume(path: str) -> Any:
    """Pick up a parked array, from the memory of this process if it is there."""
    with _LOCK:
        parked = _PARKED.pop(path, None)
    return read_array(path) if parked is None else parked[1]
