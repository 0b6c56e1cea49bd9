"""The numbers of the pods of each marker, by the facts that the pods add to its status.

What a pod adds is kept, so a change of one pod changes the counts of its markers without a look at their other pods.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping
from typing import Any, Final, TypeVar

from kruise_probe.api.meta import NamespacedName
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.controllers.counts import EVERY_PROBE, InState, OnNode, PodFacts, ProbeVerdict

SHARED_FACTS: Final = 1024
"""How many different facts are shared between pods. Most pods of a marker have the same."""

F = TypeVar("F", bound=Hashable)

OfMarkers = tuple[tuple[NamespacedName, PodFacts], ...]
"""The facts of one pod, by marker."""


class StatusCounts:
    """The number of pods of one marker by fact."""

    def __init__(self) -> None:
        self._by_type: dict[type, Counter[Any]] = defaultdict(Counter)

    def __getitem__(self, fact: Hashable) -> int:
        return self._by_type[type(fact)][fact]

    def of(self, kind: type[F]) -> Mapping[F, int]:
        """The facts of one type."""
        return self._by_type[kind]

    def on_nodes(self, reason: str) -> dict[str, int]:
        """By node, the number of pods with this problem."""
        found = {}
        problems = self.of(OnNode)
        for problem, pods in problems.items():
            if problem.reason == reason:
                found[problem.node] = pods
        return found

    def of_probes(self, marker: CompiledMarker, cause: str = "") -> dict[str, int]:
        """By probe, the number of pods on which it has no verdict for this cause or, without one, a verdict."""
        found = Counter[str]()
        verdicts = self.of(ProbeVerdict)
        for verdict, pods in verdicts.items():
            if verdict.cause != cause:
                continue
            if verdict.probe != EVERY_PROBE:
                found[verdict.probe] += pods
                continue
            for probe in marker.probes:
                found[probe.probe] += pods
        return found

    @property
    def matched(self) -> int:
        return sum(self.of(InState).values())

    @property
    def is_empty(self) -> bool:
        return not any(self._by_type.values())

    def change(self, facts: PodFacts, pods: int) -> None:
        """Add so many pods with these facts; a negative number removes them."""
        for fact in facts:
            counter = self._by_type[type(fact)]
            counter[fact] += pods
            if not counter[fact]:
                del counter[fact]


class Tallies:
    """The counts of all markers, and what each pod adds to them."""

    def __init__(self) -> None:
        self._counts: dict[NamespacedName, StatusCounts] = defaultdict(StatusCounts)
        self._by_pod: dict[str, OfMarkers] = {}
        self._complete: dict[NamespacedName, CompiledMarker] = {}
        self._shared: dict[OfMarkers, OfMarkers] = {}

    def of(self, marker: CompiledMarker) -> StatusCounts | None:
        """The counts of a marker; None if not all of its pods have been counted since it was created or edited."""
        if self._complete.get(marker.key) is not marker:
            return None
        return self._counts[marker.key]

    def complete(self, marker: CompiledMarker) -> None:
        """Record that all pods of a marker have been counted."""
        self._complete[marker.key] = marker

    def forget_marker(self, key: NamespacedName) -> None:
        self._complete.pop(key, None)
        self._drop_if_empty(key)

    def set_pod(self, uid: str, facts: Mapping[NamespacedName, PodFacts]) -> list[NamespacedName]:
        """Replace what a pod adds. Return the markers whose counts have changed."""
        new: OfMarkers = tuple(facts.items())
        old = self._by_pod.pop(uid, ())
        if new:
            self._by_pod[uid] = self._share(new)
        if old == new:
            return []
        before = dict(old)
        changed = []
        for key in {**before, **facts}:
            removed = before.get(key, ())
            added = facts.get(key, ())
            if removed == added:
                continue
            counts = self._counts[key]
            counts.change(removed, -1)
            counts.change(added, 1)
            self._drop_if_empty(key)
            changed.append(key)
        return changed

    def remove_pod(self, uid: str) -> list[NamespacedName]:
        """Remove a pod. Return the markers whose counts have changed."""
        return self.set_pod(uid, {})

    def _drop_if_empty(self, key: NamespacedName) -> None:
        """The counts of a removed marker are needed until its pods have been counted again."""
        if key in self._complete:
            return
        if self._counts[key].is_empty:
            del self._counts[key]

    def _share(self, facts: OfMarkers) -> OfMarkers:
        if len(self._shared) >= SHARED_FACTS:
            self._shared.clear()
        return self._shared.setdefault(facts, facts)
