"""The vocabulary of raw dask graphs; the only module that knows dask's task classes (private since 2024.12)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dask._task_spec import DataNode, GraphNode, List, Task, TaskRef

Key = tuple[str, *tuple[int, ...]]
"""A name and an index, see `pfb.graph.names`."""
Graph = dict[Key, GraphNode]


def ref(key: Key) -> TaskRef:
    """Refer to the result of another task, in this graph or resident where it runs."""
    return TaskRef(key)


def refs(keys: list[Key]) -> List:
    """Refer to the results of several tasks, as one list argument."""
    return List(*map(TaskRef, keys))


def add(graph: Graph, key: Key, function: Callable[..., Any], *args: Any) -> Key:
    """Add the task ``key = function(*args)`` to the graph and return its key."""
    graph[key] = Task(key, function, *args)
    return key


def value(graph: Graph, key: Key, data: Any) -> Key:
    """Add a key that stands for a few bytes of data; larger data are loaded by a task."""
    graph[key] = DataNode(key, data)
    return key


def dependencies(graph: Graph) -> set[Key]:
    """Return the keys that a graph refers to but does not contain."""
    return {key for node in graph.values() for key in node.dependencies if key not in graph}


def unchanged(array: Any) -> Any:
    """Give a result a second name."""
    return array
