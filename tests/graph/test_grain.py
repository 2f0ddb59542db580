"""Which grain is chosen, and that the choice is the cheapest of its model."""

from __future__ import annotations

import pytest

from pfb.graph.cluster import ClusterEngine
from pfb.graph.engine import ThreadEngine
from pfb.graph.grain import Grain, grain_of

THREADS, CLUSTER = ThreadEngine.overhead, ClusterEngine.overhead


@pytest.mark.parametrize(
    ("npix", "nworker", "nthread", "overhead", "expected"),
    [
        (64, 1, 2, THREADS, Grain.BLOCK),
        (512, 1, 2, THREADS, Grain.STEP),  # one task would leave a thread idle
        (2048, 1, 2, THREADS, Grain.STEP),
        (512, 1, 1, THREADS, Grain.BLOCK),  # there is none
        (4096, 1, 1, THREADS, Grain.STEP),  # not worth while
        (64, 2, 2, CLUSTER, Grain.BLOCK),
        (256, 2, 2, CLUSTER, Grain.BLOCK),
        (512, 2, 2, CLUSTER, Grain.WORKER),
        (2048, 2, 2, CLUSTER, Grain.WORKER),
        (8192, 2, 2, CLUSTER, Grain.STEP),
        (2048, 2, 16, CLUSTER, Grain.STEP),  # bands are fewer than threads, which bases keep busy
    ],
)
def test_the_choice(npix, nworker, nthread, overhead, expected):
    assert grain_of(4 * npix**2, 8, 4, nworker, nthread, overhead) is expected


def test_tasks_grow_with_images():
    order = list(Grain)[::-1]
    for nworker, nthread in ((1, 1), (1, 2), (2, 2), (4, 4), (4, 8), (8, 8)):
        overhead = THREADS if nworker == 1 else CLUSTER
        found = [order.index(grain_of(4 * 4**k, 8, 4, nworker, nthread, overhead)) for k in range(4, 16)]
        assert found == sorted(found)
