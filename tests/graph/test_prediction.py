"""The graph of a prediction: lazy, and with one writer at a time."""

from __future__ import annotations

import threading
from functools import partial

import dask
import numpy as np

from pfb.graph import prediction
from pfb.graph.names import Names, stage_of, token
from pfb.testing import refuse

NAMES = Names(token("prediction"))


class Writer:
    """Notes what is written, and fails if two do so at once."""

    def __init__(self):
        self.lock, self.written = threading.Lock(), []

    def __call__(self, number, vis):
        assert self.lock.acquire(blocking=False)
        self.written.append((number, float(vis)))
        self.lock.release()


def test_pieces_are_written_once_each_and_in_order(engine):
    writer, graph = Writer(), {}
    with dask.config.set(scheduler=refuse):
        models = prediction.load_models(graph, NAMES, [partial(np.float64, k) for k in (3.0, 4.0)])
        predictors = [partial(lambda piece, loaded: piece + sum(loaded), piece) for piece in range(9)]
        written = prediction.predict(graph, NAMES, models, predictors, [partial(writer, piece) for piece in range(9)])
    assert len(graph) == 2 + 2 * 9
    assert {stage_of(key) for key in graph} == {"model", "predict", "write"}
    # All writes are on the worker of one slot.
    assert {key[-1] for key in written} == {0}
    engine.run(graph, written[-1:])
    assert writer.written == [(piece, piece + 7.0) for piece in range(9)]
    engine.drop(written)
