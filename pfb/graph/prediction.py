"""Graphs that predict pieces of measurement sets side by side and write them one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pfb.graph.imaging import call
from pfb.graph.names import Names
from pfb.graph.tasks import Graph, Key, add, ref, refs
from pfb.types import Complex


def load_models(graph: Graph, names: Names, loaders: Sequence[Callable[[], Any]]) -> list[Key]:
    """Read the images or the components of a model where they are needed; returns their keys."""
    return [add(graph, names.key("model", k), call, loader) for k, loader in enumerate(loaders)]


def predict(
    graph: Graph,
    names: Names,
    models: Sequence[Key],
    predictors: Sequence[Callable[[list[Any]], Complex]],
    writers: Sequence[Callable[[Complex], None]],
) -> list[Key]:
    """Predict pieces of one set, in parallel, and write each after the one before.

    Parameters
    ----------
    graph : Graph
        Receives the tasks.
    models : sequence of Key
        From `load_models`.
    predictors : sequence of callables
        Takes what was loaded, returns what is written of a piece.
    writers : sequence of callables
        One for each piece.

    Returns
    -------
    list of Key
        One for each piece, whose result is nothing. All are on one worker.
    """
    written: list[Key] = []
    for i, (predictor, writer) in enumerate(zip(predictors, writers, strict=True)):
        vis = add(graph, names.key("predict", i), predictor, refs(list(models)))
        after = ref(written[-1]) if written else None
        written.append(add(graph, names.key("write", i, 0), _write, writer, ref(vis), after))
    return written


def _write(writer: Callable[[Complex], None], vis: Complex, after: Any) -> None:
    writer(vis)
