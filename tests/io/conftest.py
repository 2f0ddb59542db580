"""What the tests of files share."""

import pytest

from pfb.io.measurement_set import release


@pytest.fixture(autouse=True)
def _close_everything():
    """Close the tables that a test has opened."""
    yield
    release()
