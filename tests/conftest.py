"""What every test may use."""

from __future__ import annotations

import numpy as np
import pytest

from tests.observations import unpack_real


@pytest.fixture
def rng():
    """A generator with a fixed seed: a test never depends on another one's draws."""
    return np.random.default_rng(20_190_627)


@pytest.fixture(scope="session")
def real_set(tmp_path_factory):
    """Return a function that unpacks a real observation by name, once, and returns its path; see `unpack_real`."""
    unpacked = {}

    def unpack(name):
        if name not in unpacked:
            unpacked[name] = unpack_real(name, tmp_path_factory.mktemp(name))
        return unpacked[name]

    return unpack
