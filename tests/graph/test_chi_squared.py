"""What noise comes to, as tasks: lazy, small, and the sum over the parts of a band."""

import pickle

import dask
import numpy as np
import pytest

from pfb.graph.chi_squared import expectations
from pfb.graph.engine import ThreadEngine
from pfb.graph.names import Names, token
from pfb.graph.tasks import add
from pfb.kernels.chi_squared import expected
from pfb.testing import refuse
from pfb.types import Visibilities

NAMES = Names(token("chi squared"))


def part(rng, rows):
    return Visibilities(
        rng.standard_normal((rows, 3)) * 1e3, np.array([1e9, 1.1e9]), np.ones((rows, 2), complex), rng.uniform(1, 2, (rows, 2))
    )


@pytest.fixture
def bands(rng):
    """Three bands of two parts, one part, and none."""
    return [(part(rng, 40), part(rng, 7)), (part(rng, 20),), ()]


def test_every_band_is_the_sum_of_its_parts(bands):
    weighed = [tuple(p._replace(weight=p.weight**2) for p in band) for band in bands]
    graph = {}
    keys = [[add(graph, NAMES.within(kind).key("weigh", v), tuple, band) for v, band in enumerate(those)]
            for kind, those in (("before", bands), ("after", weighed))]  # fmt: skip
    with dask.config.set(scheduler=refuse):
        own = {}
        found = expectations(own, NAMES, *keys)
    assert len(own) == len(found) == len({*found}) == 3
    assert len(pickle.dumps(own)) < 4000
    engine = ThreadEngine(2)
    engine.run(graph | own, found)
    for band, value in zip(bands, engine.fetch(found), strict=True):
        parts = [expected(p.uvw, p.weight, p.weight**2) for p in band]
        assert value.variance == pytest.approx(sum(p.variance for p in parts))
        for name in ("taper", "square"):
            np.testing.assert_allclose(getattr(value, name), sum(getattr(p, name) for p in parts), rtol=1e-12)
    assert engine.fetch(found)[0].taper.sum() > 10
