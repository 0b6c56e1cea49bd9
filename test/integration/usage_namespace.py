"""A namespace of the tests in `integration/usage`: YAML is applied to it, and `explain` follows its pods."""

import asyncio
import dataclasses
import os
import shutil
from collections.abc import Callable
from datetime import timedelta

import pytest
import yaml
from support.patience import PATIENCE_SECONDS
from support.playground import ControlledPlayground, PlaygroundNamespace
from support.wire import Json

from kruise_probe.api.meta import NamespacedName
from kruise_probe.cli.reading import Following
from kruise_probe.inspection.explanation import TraceView, explanation
from kruise_probe.inspection.snapshot import RECENT
from kruise_probe_playground.documents import LoadedObject

NEEDS_PROMTOOL = pytest.mark.skipif(
    shutil.which("promtool") is None and os.environ.get("CI") != "true",
    reason="promtool is not installed (Debian: prometheus)",
)


class UsageNamespace(PlaygroundNamespace):
    def __init__(
        self, playground: ControlledPlayground, namespace: str, following: Following
    ) -> None:
        super().__init__(playground, namespace)
        self._following = following

    async def apply(self, text: str, *, namespace: str = "") -> None:
        """Apply YAML, in this namespace or another."""
        documents = [document for document in yaml.safe_load_all(text) if document]
        await self.apply_objects(documents, namespace)

    async def apply_objects(self, objects: list[Json], namespace: str = "") -> None:
        """Apply pods, markers and ReplicaSets, also those in lists; objects of other kinds are left out."""
        loaded = []
        for document in objects:
            for item in document.get("items", (document,)):
                if item["kind"] in ("Pod", "PodProbeMarker", "ReplicaSet"):
                    metadata = {**item["metadata"], "namespace": namespace or self.namespace}
                    where = f"{item['kind']} {metadata['name']}"
                    loaded.append(LoadedObject(where, {**item, "metadata": metadata}))
        await self.playground.apply(loaded)

    async def shows(self, pod: str, holds: Callable[..., object]) -> Json:
        """The pod, once `holds` is true for it."""
        return await self.until("is as expected", holds, pod)

    async def pod_names(self, count: int) -> list[str]:
        """The names of the pods of this namespace, once there are so many."""

        def names() -> list[str]:
            found = [pod["metadata"] for pod in self.api.pods.all()]
            return sorted(
                metadata["name"]
                for metadata in found
                if metadata["namespace"] == self.namespace and "deletionTimestamp" not in metadata
            )

        await self.api.pods.wait(
            f"there are {count} pods",
            lambda: len(names()) == count,
        )
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
        snapshot = self._following.snapshot()
        # A later clock, so that no change counts as recent.
        later = snapshot.now + RECENT + timedelta(seconds=1)
        snapshot = dataclasses.replace(snapshot, now=later)
        seen = snapshot.pods_by_key.get(NamespacedName(self.namespace, pod))
        if seen is None:
            return None
        for match in explanation(snapshot, seen, []).matching:
            for trace in match.probes:
                if trace.probe == probe:
                    return trace
        return None
