"""A namespace of the tests in `integration/usage`: YAML is applied to it, and `explain` follows its pods."""

import asyncio
import dataclasses
from collections.abc import Callable
from datetime import timedelta

import yaml
from support.patience import PATIENCE_SECONDS
from support.playground import ControlledPlayground, PlaygroundNamespace
from support.wire import Json

from kruise_probe.api.meta import NamespacedName
from kruise_probe.cli.reading import Following
from kruise_probe.inspection.explanation import TraceView, explanation
from kruise_probe.inspection.snapshot import RECENT, Snapshot
from kruise_probe_playground.documents import LoadedObject


class UsageNamespace(PlaygroundNamespace):
    def __init__(
        self, playground: ControlledPlayground, namespace: str, following: Following
    ) -> None:
        super().__init__(playground, namespace)
        self._following = following

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

    async def shows(self, pod: str, holds: Callable[..., object]) -> Json:
        """The pod, once `holds` is true for it."""
        return await self.until("is as expected", holds, pod)

    async def pod_names(self, count: int) -> list[str]:
        """The names of the pods of this namespace, once there are so many."""

        def names() -> list[str]:
            return sorted(
                each["metadata"]["name"]
                for each in self.api.pods.all()
                if each["metadata"]["namespace"] == self.namespace
                and "deletionTimestamp" not in each["metadata"]
            )

        await self.api.pods.wait(f"there are {count} pods", lambda: len(names()) == count)
        return names()

    async def explained(self, pod: str, reason: str, *, probe: str = "checked") -> TraceView:
        """The trace of a probe, once it ends with `reason`."""
        found = self._trace(pod, probe)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while found is None or found.reason != reason:
                    await self._following.changed.wait()
                    self._following.changed.clear()
                    found = self._trace(pod, probe)
        except TimeoutError:
            ended = f"{found.first_broken}/{found.reason}" if found else "no such probe"
            raise AssertionError(f"{pod} does not end with {reason}; it was {ended}") from None
        return found

    def _trace(self, pod: str, probe: str) -> TraceView | None:
        snapshot = self._settled()
        seen = snapshot.pods_by_key.get(NamespacedName(self.namespace, pod))
        matching = explanation(snapshot, seen, []).matching if seen else ()
        traces = [trace for match in matching for trace in match.probes]
        return next((each for each in traces if each.probe == probe), None)

    def _settled(self) -> Snapshot:
        """The current objects, with a later clock, so that no change counts as recent."""
        now = self._following.snapshot()
        return dataclasses.replace(now, now=now.now + RECENT + timedelta(seconds=1))
