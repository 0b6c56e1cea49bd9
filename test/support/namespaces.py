"""A namespace on a playground for one test."""

import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from support.hollow import marker_object
from support.playground import ControlledPlayground
from support.raw_api import marker_path, pod_path
from support.watched import WatchedObjects

from kruise_probe.api.errors import NotFound

Json = dict[str, Any]

IDLE = ("sh", "-c", "while :; do sleep 1; done")


class PlaygroundNamespace:
    """A new namespace, with helpers that create pods and markers."""

    def __init__(
        self, playground: ControlledPlayground, watched: WatchedObjects, namespace: str
    ) -> None:
        self.playground = playground
        self.watched = watched
        self.namespace = namespace

    async def pod(
        self,
        name: str = "web",
        *,
        command: Sequence[str] = IDLE,
        labels: Json | None = None,
        **spec: Any,
    ) -> Json:
        """Creates a pod of one container, `main`, unless `spec` has others; returns it when it runs."""
        containers = [{"name": "main", "image": "none", "command": list(command)}]
        metadata = {"name": name, "labels": {"app": "web"} if labels is None else labels}
        wanted = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {"containers": containers, **spec},
        }
        await self.playground.api.create(f"/api/v1/namespaces/{self.namespace}/pods", wanted)
        return await self.until("runs", lambda pod: pod["status"].get("podIP"), name)

    async def marker(self, *probes: Json, name: str = "marker") -> Json:
        wanted = marker_object(*probes, name=name)
        path = marker_path("", self.namespace).rstrip("/")
        return await self.playground.api.create(path, wanted)

    async def until(self, what: str, holds: Any, name: str = "web") -> Json:
        return await self.watched.pods.until(what, holds, name=name, namespace=self.namespace)

    def pod_path(self, name: str = "web", subresource: str = "") -> str:
        return pod_path(name, self.namespace, subresource)

    def marker_path(self, name: str = "marker") -> str:
        return marker_path(name, self.namespace)

    def folder(self, pod: str = "web", container: str = "main") -> Path:
        found = self.playground.nodes[0].container(self.namespace, pod, container)
        assert found, f"{pod} has no container {container}"
        return found.folder


@asynccontextmanager
async def new_namespace(
    playground: ControlledPlayground, watched: WatchedObjects
) -> AsyncIterator[PlaygroundNamespace]:
    """A new namespace; at the end its markers and pods are deleted."""
    namespace = f"test-{secrets.token_hex(4)}"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    await playground.api.create("/api/v1/namespaces", body)
    yield PlaygroundNamespace(playground, watched, namespace)
    for each in watched.markers.all():
        if each["metadata"]["namespace"] == namespace:
            with suppress(NotFound):  # the watch has not heard of its end
                await playground.api.delete(marker_path(each["metadata"]["name"], namespace))
    for each in watched.pods.all():
        if each["metadata"]["namespace"] == namespace:
            path = pod_path(each["metadata"]["name"], namespace)
            with suppress(NotFound):
                await playground.api.delete(path, grace_seconds=0)
