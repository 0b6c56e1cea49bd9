"""Detection of selector cycles: markers whose policies write labels that select pods for each other.

Such markers never settle. For example, A writes label `x` on pods without `y`, and B writes `y` on pods with `x`.
An edge leads from a writer to another marker (the reader) of its namespace if the reader's selector uses a label key
that the writer writes. The written values must be able to change the selector's result on a pod that both can
select. Each strongly connected component is a cycle.

Source: Tarjan, Depth-first search and linear graph algorithms (1972).
Differs: iterative instead of recursive.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice, pairwise
from typing import Final, NamedTuple, TypeVar

from kruise_probe.api.extraction import FromMessage
from kruise_probe.api.keys import NamespacedName
from kruise_probe.controllers.compiled import CompiledMarker

N = TypeVar("N", bound=Hashable)

MAX_CANDIDATES: Final = 10_000
"""Triples of writer, key and reader that are checked in one namespace, about 20 ms. Cycles beyond are not found."""

CYCLES_PAUSE_PER_SECOND: Final = 50.0
"""Pause between two computations in a namespace, per second of computation: at most 2 % of the CPU."""

LISTED_STEPS: Final = 4
"""How many steps of a cycle a message lists; it counts the rest."""


class Refreshed(NamedTuple):
    """The markers whose cycles may have changed, or the seconds until the cycles may be computed again."""

    markers: AbstractSet[NamespacedName]
    retry_after_seconds: float


class CycleStep(NamedTuple):
    """`writer` writes the label `key`, which the selector of `reader` uses."""

    writer: NamespacedName
    key: str
    reader: NamespacedName


class Cycles(NamedTuple):
    """All edges of the cycles: by writer and reader, the first label key that connects them."""

    edges: Mapping[NamespacedName, Mapping[NamespacedName, str]]

    def through(self, marker: NamespacedName) -> tuple[CycleStep, ...]:
        """A shortest cycle that begins with a label of `marker`; empty if there is none."""
        came_from: dict[NamespacedName, NamespacedName] = {}
        waiting = deque([marker])
        while waiting and marker not in came_from:
            writer = waiting.popleft()
            for reader in self.edges.get(writer, ()):
                if reader not in came_from:
                    came_from[reader] = writer
                    waiting.append(reader)
        if marker not in came_from:
            return ()
        path = [marker, came_from[marker]]
        while path[-1] != marker:
            path.append(came_from[path[-1]])
        path.reverse()
        return tuple(
            CycleStep(writer, self.edges[writer][reader], reader)
            for writer, reader in pairwise(path)
        )


NO_CYCLES: Final = Cycles({})


def cycle_text(cycle: Sequence[CycleStep]) -> str:
    """Describe the first steps of a cycle in one sentence."""
    steps = [
        f"{step.writer.name} writes label {step.key!r}, by which {step.reader.name} selects pods"
        for step in cycle
    ]
    more = len(steps) - LISTED_STEPS
    return "; ".join(steps[:LISTED_STEPS]) + (f"; and {more} more" if more > 0 else "")


class _NamespaceCycles:
    __slots__ = ("changed", "cycles", "markers", "not_before")

    def __init__(self) -> None:
        self.markers: dict[NamespacedName, CompiledMarker] = {}
        self.cycles = NO_CYCLES
        self.changed = False
        self.not_before = float("-inf")


class SelectorCycles:
    """The cycles of every namespace. `refresh` computes them if a marker of the namespace has changed."""

    def __init__(self) -> None:
        self._namespaces: dict[str, _NamespaceCycles] = {}

    def set_marker(self, marker: CompiledMarker) -> None:
        """Add a marker, or replace the one of the same key."""
        namespace = self._namespaces.setdefault(marker.key.namespace, _NamespaceCycles())
        namespace.markers[marker.key] = marker
        namespace.changed = True

    def remove_marker(self, key: NamespacedName) -> None:
        namespace = self._namespaces.get(key.namespace)
        if namespace is not None and namespace.markers.pop(key, None) is not None:
            namespace.changed = True

    def through(self, marker: NamespacedName) -> tuple[CycleStep, ...]:
        """The cycle through `marker` as of the last `refresh` of its namespace; empty if there is none."""
        namespace = self._namespaces.get(marker.namespace)
        return namespace.cycles.through(marker) if namespace is not None else ()

    def refresh(self, name: str, time: Callable[[], float]) -> Refreshed:
        """Recompute the cycles of a namespace if its markers have changed and the pause is over."""
        namespace = self._namespaces.get(name)
        if namespace is None or not namespace.changed:
            return Refreshed(frozenset(), 0.0)
        started_at = time()
        if started_at < namespace.not_before:
            return Refreshed(frozenset(), namespace.not_before - started_at)
        before, namespace.cycles = namespace.cycles, find_cycles(namespace.markers.values())
        namespace.changed = False
        ended_at = time()
        namespace.not_before = ended_at + (ended_at - started_at) * CYCLES_PAUSE_PER_SECOND
        if not namespace.markers:
            del self._namespaces[name]
        if before == namespace.cycles:
            return Refreshed(frozenset(), 0.0)
        return Refreshed(before.edges.keys() | namespace.cycles.edges.keys(), 0.0)


def find_cycles(markers: Iterable[CompiledMarker]) -> Cycles:
    """Find the cycles between the markers of one namespace, given in any order. Ignore markers being deleted."""
    live = sorted((each for each in markers if each.live), key=lambda each: each.key)
    candidates = _maybe_cyclic(live)
    if not candidates:
        return NO_CYCLES
    written = frozenset(key for each in live for key in each.labels)
    edges: dict[NamespacedName, dict[NamespacedName, str]] = {}
    for writer, key, reader in islice(_candidates(candidates), MAX_CANDIDATES):
        readers = edges.setdefault(writer.key, {})
        if (
            reader.key not in readers
            and _influences(writer, key, reader)
            and _can_meet(writer, reader, written)
        ):
            readers[reader.key] = key
    component_of = {
        marker: index for index, each in enumerate(_components(edges)) for marker in each
    }
    return Cycles(
        {
            writer: {
                reader: key
                for reader, key in readers.items()
                if component_of.get(reader) == component_of[writer]
            }
            for writer, readers in edges.items()
            if writer in component_of
        }
    )


def _maybe_cyclic(markers: Sequence[CompiledMarker]) -> list[CompiledMarker]:
    """The markers that could be in a cycle, judged by label keys alone. This cheap check rules out most namespaces."""
    readers: defaultdict[str, list[NamespacedName]] = defaultdict(list)
    for each in markers:
        for key in each.selector.keys:
            readers[key].append(each.key)
    graph: dict[NamespacedName | str, Collection[NamespacedName | str]] = {}
    for each in markers:
        keys = [key for key in each.labels if key in readers]
        if keys:
            graph[each.key] = keys
            graph.update((key, readers[key]) for key in keys)
    if not graph:
        return []
    cyclic = {node for component in _components(graph) for node in component}
    return [each for each in markers if each.key in cyclic]


def _candidates(
    markers: Sequence[CompiledMarker],
) -> Iterator[tuple[CompiledMarker, str, CompiledMarker]]:
    readers: defaultdict[str, list[CompiledMarker]] = defaultdict(list)
    for each in markers:
        for key in each.selector.keys:
            readers[key].append(each)
    for writer in markers:
        for key in sorted(writer.labels & readers.keys()):
            for reader in readers[key]:
                yield writer, key, reader


def _influences(writer: CompiledMarker, key: str, reader: CompiledMarker) -> bool:
    """Whether the selector of `reader` matches some of the values (or the absence) that `writer` sets, but not all."""
    requirements = [each for each in reader.selector.requirements if each.key == key]
    results = {all(each.matches({}) for each in requirements)}
    for probe in writer.probes:
        for marks in probe.policies.values():
            if key not in marks.labels:
                continue
            value = marks.labels[key]
            if isinstance(value, FromMessage):
                return True  # it may have any value
            results.add(all(each.matches({key: value}) for each in requirements))
    return len(results) == 2


def _can_meet(left: CompiledMarker, right: CompiledMarker, written: frozenset[str]) -> bool:
    """Whether both may select one pod, if labels in `written` can have any value."""
    for key in (left.selector.keys & right.selector.keys) - written:
        requirements = [
            each
            for each in (*left.selector.requirements, *right.selector.requirements)
            if each.key == key
        ]
        values = {value for each in requirements for value in each.values or ()}
        possible: list[dict[str, str]] = [{}, {key: ""}, {key: _ANY_OTHER}]
        possible += [{key: value} for value in values]
        if not any(all(each.matches(labels) for each in requirements) for labels in possible):
            return False
    return True


_ANY_OTHER: Final = "\0"
"""Represents any value that no selector names."""


def _components(graph: Mapping[N, Iterable[N]]) -> list[list[N]]:
    """The strongly connected components of two nodes or more."""
    order: dict[N, int] = {}
    low: dict[N, int] = {}
    stack: list[N] = []
    on_stack: set[N] = set()
    found: list[list[N]] = []

    def enter(node: N) -> tuple[N, Iterator[N]]:
        order[node] = low[node] = len(order)
        stack.append(node)
        on_stack.add(node)
        return node, iter(graph.get(node, ()))

    for start in graph:
        walk = [enter(start)] if start not in order else []
        while walk:
            node, successors = walk[-1]
            for successor in successors:
                if successor not in order:
                    walk.append(enter(successor))
                    break
                if successor in on_stack:
                    low[node] = min(low[node], order[successor])
            else:
                walk.pop()
                if walk:
                    low[walk[-1][0]] = min(low[walk[-1][0]], low[node])
                if low[node] == order[node]:
                    component = _pop_through(stack, on_stack, node)
                    if len(component) > 1:
                        found.append(component)
    return found


def _pop_through(stack: list[N], on_stack: set[N], node: N) -> list[N]:
    component: list[N] = []
    while not component or component[-1] != node:
        component.append(stack.pop())
        on_stack.discard(component[-1])
    return component
