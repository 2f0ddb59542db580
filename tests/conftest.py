"""What every test may use."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[1] / "examples" / "data"


@pytest.fixture
def rng():
    """A generator with a fixed seed: a test never depends on another one's draws."""
    return np.random.default_rng(20_190_627)


@pytest.fixture(scope="session")
def real_set(tmp_path_factory):
    """Return a function that unpacks a real observation by name and returns its path.

    The checkout carries 3C 273; others (``NAME.ms.tar.gz``) are looked for in the folder that
    the environment variable PFB_REAL_DATA names, and the test is skipped without them.
    """
    folders = [EXAMPLES, *(Path(p) for p in [os.environ.get("PFB_REAL_DATA")] if p)]
    unpacked = {}

    def unpack(name):
        if name not in unpacked:
            found = [f / f"{name}.ms.tar.gz" for f in folders if (f / f"{name}.ms.tar.gz").exists()]
            if not found:
                pytest.skip(f"{name}.ms.tar.gz is not in the checkout; set PFB_REAL_DATA to a folder that has it")
            target = tmp_path_factory.mktemp(name)
            with tarfile.open(found[0]) as tar:
                tar.extractall(target, filter="data")
            unpacked[name] = target / f"{name}.ms"
        return unpacked[name]

    return unpack
