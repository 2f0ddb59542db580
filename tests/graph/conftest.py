"""What the tests of graphs share."""

import pytest

from pfb.graph.engine import ThreadEngine


@pytest.fixture(scope="module")
def engine():
    """Two threads of this process."""
    engine = ThreadEngine(2)
    yield engine
    engine.close()
