"""Fewer, larger tasks: parts of a graph that run as one task each, where its tasks are too cheap for their number."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Sequence
from graphlib import TopologicalSorter
from operator import getitem
from typing import Any, NamedTuple

from pfb.graph.tasks import Graph, Key, add, ref


class Part(NamedTuple):
    """What a task of the coarse graph is."""

    key: Key
    """Its name."""
    home: Hashable
    """Where it runs."""


class Together:
    """A part of a graph as one function: its tasks in a fixed order, on one thread.

    Parameters
    ----------
    graph : Graph
        The tasks.
    outputs : sequence of Key
        Results that are returned, in this order.
    inputs : sequence of sequence of Key
        Of every argument, which results it is a list of; the argument is the result itself if it is one key in a tuple.
    """

    def __init__(self, graph: Graph, outputs: Sequence[Key], inputs: Sequence[tuple[Key] | list[Key]]) -> None:
        order = TopologicalSorter({key: graph[key].dependencies & graph.keys() for key in sorted(graph)}).static_order()
        self._tasks = [graph[key] for key in order]
        self._outputs, self._inputs = list(outputs), list(inputs)
        last = {key: i for i, task in enumerate(self._tasks) for key in task.dependencies}
        self._unneeded: list[list[Key]] = [[] for _ in self._tasks]
        for key, i in last.items():
            if key not in self._outputs:
                self._unneeded[i].append(key)

    def __call__(self, *arguments: Any) -> list[Any]:
        """Run it."""
        found: dict[Any, Any] = {}
        for keys, value in zip(self._inputs, arguments, strict=True):
            found.update(zip(keys, [value] if isinstance(keys, tuple) else value, strict=True))
        for task, unneeded in zip(self._tasks, self._unneeded, strict=True):
            found[task.key] = task({key: found[key] for key in task.dependencies})
            for key in unneeded:
                del found[key]
        return [found[key] for key in self._outputs]


Bundles = dict[Key, list[Key]]
"""Keys of lists of results, and which results each is a list of."""


class Cut(NamedTuple):
    """How a graph is cut into parts, which must not need each other mutually."""

    part_of: Callable[[Key], Hashable]
    """The part that a task belongs to."""
    make: Callable[[Hashable], Part]
    """Name and home of a part."""
    pick: Callable[[Key, int], Key]
    """Names the task that takes from a part (its key) what another one needs that lives elsewhere (a number), so that
    nothing else travels."""


def coarsen(graph: Graph, cut: Cut, keep: Collection[Key], held: Bundles | None = None) -> tuple[Graph, Bundles]:
    """Return a graph whose tasks are parts of another one; every function is called with the same arguments as before.

    Parameters
    ----------
    graph : Graph
        What is cut into parts. It may read keys that it does not have.
    cut : Cut
        The parts.
    keep : collection of Key
        Results that others read, or what the graph itself reads and hands on.
    held : Bundles, optional
        What the graph reads from earlier coarse graphs, and is in bundles there.

    Returns
    -------
    Graph
        Equivalent as far as `keep` goes.
    Bundles
        Where the results of `keep` are; `unpacked` gives them their own keys.
    """
    parts: dict[Hashable, Graph] = defaultdict(dict)
    for key, task in graph.items():
        parts[cut.part_of(key)][key] = task
    made = {part: cut.make(part) for part in parts}
    owner = {key: part for part, inner in parts.items() for key in inner}
    needed: dict[Hashable, dict[Hashable, set[Key]]] = defaultdict(lambda: defaultdict(set))
    outside: dict[Hashable, set[Key]] = defaultdict(set)
    for part, inner in parts.items():
        for task in inner.values():
            for key in task.dependencies:
                if key not in graph:
                    outside[part].add(key)
                elif owner[key] != part:
                    needed[part][owner[key]].add(key)
    kept = {part: [key for key in keys if key in keep] for part, keys in _holders(parts, made, needed, outside).items()}
    outputs = {part: sorted(keys) for part, keys in kept.items()}
    for sources in needed.values():
        for source, keys in sources.items():
            outputs[source] = sorted({*outputs[source], *keys})
    out: Graph = {}
    for part, inner in parts.items():
        inputs, arguments = _resident(outside[part], held or {})
        for source, keys in sorted(needed[part].items(), key=lambda item: made[item[0]].key):
            wanted, whole = made[source].key, outputs[source]
            if made[source].home != made[part].home and len(keys) < len(whole):
                picked = sorted(keys)
                places = [whole.index(key) for key in picked]
                wanted, whole = cut.pick(wanted, len(out)), picked
                add(out, wanted, take, ref(made[source].key), places)
            inputs.append(whole)
            arguments.append(wanted)
        add(out, made[part].key, Together(inner, outputs[part], inputs), *map(ref, arguments))
    return out, {made[part].key: outputs[part] for part, keys in kept.items() if keys}


def _holders(
    parts: dict[Hashable, Graph], made: dict[Hashable, Part],
    needed: dict[Hashable, dict[Hashable, set[Key]]], outside: dict[Hashable, set[Key]],
) -> dict[Hashable, list[Key]]:  # fmt: skip
    """Return what each part hands on if it is kept: its results, but for those that a later part of the same home has too.

    So few bundles hold what is kept, and these hold little else.
    """
    holder = {key: part for part, inner in parts.items() for key in inner}
    for part in parts:  # in the order of the graph, the last ones last
        holder.update(dict.fromkeys(outside[part], part))
        for source, keys in needed[part].items():
            if made[source].home == made[part].home:
                holder.update(dict.fromkeys(keys, part))
    found: dict[Hashable, list[Key]] = {part: [] for part in parts}
    for key, part in holder.items():
        found[part].append(key)
    return found


def _resident(keys: set[Key], held: Bundles) -> tuple[list[tuple[Key] | list[Key]], list[Key]]:
    """Return what a part gets from outside, and the keys of that: of a bundle once, however much of it is needed."""
    bundles = {bundle: contents for bundle, contents in held.items() if not keys.isdisjoint(contents)}
    alone = sorted(keys.difference(*bundles.values()))
    inputs: list[tuple[Key] | list[Key]] = [(key,) for key in alone]
    return inputs + list(bundles.values()), alone + list(bundles)


def unpacked(graph: Graph, held: Bundles, keys: Collection[Key]) -> None:
    """Add the tasks that give results of bundles their own keys."""
    for bundle, contents in held.items():
        for place, key in enumerate(contents):
            if key in keys:
                add(graph, key, getitem, ref(bundle), place)


def take(results: list[Any], places: list[int]) -> list[Any]:
    """Return some of the results of a part."""
    return [results[i] for i in places]
