"""A namespace of the tests in `integration/usage`: applies objects, and computes the views of `status` and `explain`."""

import asyncio
import dataclasses
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import yaml
from support.patience import PATIENCE_SECONDS
from support.playground import ControlledPlayground
from support.target import pod_path

from kruise_probe.api.errors import NotFound
from kruise_probe.api.keys import NamespacedName
from kruise_probe.cli.reading import Following
from kruise_probe.inspection.explanation import ExplanationView, TraceView, explanation
from kruise_probe.inspection.snapshot import RECENT, Snapshot
from kruise_probe_playground.documents import LoadedObject

Json = dict[str, Any]


class UsageNamespace:
    """A namespace of a test: applies objects, and computes the views of `status` and `explain`."""

    def __init__(
        self, playground: ControlledPlayground, following: Following, namespace: str
    ) -> None:
        self.playground = playground
        self.following = following
        self.namespace = namespace

    async def apply(self, text: str, *, namespace: str = "") -> None:
        """Apply YAML, in this namespace or another."""
        await self.apply_objects([each for each in yaml.safe_load_all(text) if each], namespace)

    async def apply_objects(self, objects: list[Json], namespace: str = "") -> None:
        there = {"namespace": namespace or self.namespace}
        placed = [
            {**item, "metadata": {**item["metadata"], **there}}
            for each in objects
            for item in each.get("items", (each,))
            if item["kind"] in ("Pod", "PodProbeMarker", "ReplicaSet")
        ]
        await self.playground.apply(
            [LoadedObject(f"{each['kind']} {each['metadata']['name']}", each) for each in placed]
        )

    async def until(self, what: str, holds: Callable[[Snapshot], Any]) -> Any:
        """The first true result of `holds`, which is called again after every change of an object."""
        changed = self.following.changed
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while True:
                    changed.clear()
                    found = holds(self.settled())
                    if found:
                        return found
                    await changed.wait()
        except TimeoutError:
            raise AssertionError(f"not within {PATIENCE_SECONDS:g} s: {what}") from None

    def settled(self) -> Snapshot:
        """The current objects, with a later clock, so that no change counts as recent."""
        now = self.following.snapshot()
        return dataclasses.replace(now, now=now.now + RECENT + timedelta(seconds=1))

    async def explained(self, pod: str, reason: str, *, probe: str = "checked") -> TraceView:
        """The trace of a probe, once it ends with `reason`."""
        seen: list[str] = []

        def ends(snapshot: Snapshot) -> TraceView | None:
            trace = trace_of(self._explain(snapshot, pod), probe)
            seen.append(f"{trace.first_broken}/{trace.reason}" if trace else "no such probe")
            return trace if trace and trace.reason == reason else None

        try:
            found: TraceView = await self.until(f"{pod} ends with {reason}", ends)
        except AssertionError as error:
            raise AssertionError(f"{error}; it was {seen[-1]}") from None
        return found

    async def explanation(self, pod: str) -> ExplanationView:
        found: ExplanationView = await self.until(
            f"pod {pod} is there", lambda snapshot: self._explain(snapshot, pod)
        )
        return found

    def _explain(self, snapshot: Snapshot, pod: str) -> ExplanationView | None:
        seen = snapshot.pods_by_key.get(NamespacedName(self.namespace, pod))
        return explanation(snapshot, seen, []) if seen else None

    async def pod(self, name: str, holds: Callable[..., Any]) -> Json:
        """The pod as JSON, once `holds` is true for it."""
        path = pod_path(name, self.namespace)
        changed = self.following.changed
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                changed.clear()
                try:
                    pod = await self.playground.api.get(path)
                except NotFound:
                    pod = {}
                if pod and holds(pod):
                    return pod
                await changed.wait()

    async def pod_names(self, count: int) -> list[str]:
        """The names of the pods of this namespace, once there are so many."""

        def names(snapshot: Snapshot) -> list[str]:
            found = [each for each in snapshot.pods if each.pod.namespace == self.namespace]
            return sorted(each.pod.name for each in found if not each.pod.deleting)

        await self.until(f"there are {count} pods", lambda now: len(names(now)) == count)
        return names(self.following.snapshot())

    def folder(self, pod: str, container: str = "main") -> Path:
        node = self.playground.node_of(pod, self.namespace)
        found = node.container(self.namespace, pod, container) if node else None
        assert found, f"{pod} has no container {container}"
        return found.folder


def trace_of(view: ExplanationView | None, probe: str) -> TraceView | None:
    traces = [trace for match in (view.matching if view else ()) for trace in match.probes]
    return next((each for each in traces if each.probe == probe), None)
