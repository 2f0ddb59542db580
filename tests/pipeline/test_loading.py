"""The tasks that read a piece of a set and make Stokes I of it."""

import pickle

import numpy as np
import pytest

from pfb.config import Image
from pfb.errors import InputError
from pfb.io.measurement_set import Selection, pieces, release, select
from pfb.io.simulated_set import CIRCULAR
from pfb.kernels.stokes import combine
from pfb.pipeline import planning
from pfb.pipeline.loading import Loader
from tests.observations import read_window, small_set


@pytest.mark.parametrize("rule", ["l2", "minvar"])
@pytest.mark.parametrize("defect", [{}, dict(feeds=CIRCULAR), dict(descending=True)], ids=["linear", "circular", "descending"])
def test_pieces_together_are_stokes_i_of_the_window(tmp_path, defect, rule):
    made = small_set(tmp_path / "a.ms", **defect)
    (w,) = select([made.path], Selection()).windows
    channels = slice(2, 7)
    parts = pieces(w, 50)
    assert len(parts) == 5
    settings = dict(channels=channels, freq=w.freq[channels], correlations=w.correlations, rule=rule)
    found = [part for piece in parts for part in Loader(piece=piece, **settings)()[0]]
    uvw, vis, weight = read_window(w, channels=channels)
    stokes, total = combine(vis, weight, w.correlations, rule)
    assert 0.5 < np.abs(stokes).max() < 3
    np.testing.assert_array_equal(np.concatenate([f.uvw for f in found]), uvw)
    np.testing.assert_array_equal(np.concatenate([f.vis for f in found]), stokes)
    np.testing.assert_array_equal(np.concatenate([f.weight for f in found]), total)
    assert all(f.freq is found[0].freq or (f.freq == w.freq[channels]).all() for f in found)
    assert found[0].vis.dtype == complex


def test_a_loader_travels_as_a_few_bytes_and_reads_in_another_process(tmp_path):
    made = small_set(tmp_path / "a.ms")
    plan = planning.make(select([made.path], Selection()), Image(output="unused", npix="16"))
    loader = plan.loaders[0][0][0]
    ((here,),) = loader()
    sent = pickle.dumps(loader)
    assert len(sent) < 2000
    release()
    ((there,),) = pickle.loads(sent)()
    assert np.abs(here.vis).max() > 0.5
    for a, b in zip(here, there, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("feeds", [(9,), (9, 10), (5, 7)])
def test_data_without_stokes_i_are_refused_before_any_are_read(tmp_path, feeds):
    made = small_set(tmp_path / "a.ms", feeds=feeds)
    with pytest.raises(InputError, match="Stokes I needs XX and YY"):
        planning.make(select([made.path], Selection()), Image(output="unused", npix="16"))
