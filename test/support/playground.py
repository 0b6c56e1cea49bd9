"""The playground as tests use it: with requests in JSON, counted requests, and programs and runtimes that end on demand."""

import os
import secrets
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

from support.api_server import ApiServer
from support.hollow import marker_object
from support.patience import PATIENCE_SECONDS
from support.target import Target, marker_path, pod_path
from support.wire import Json, typed

from kruise_probe.api.errors import NotFound
from kruise_probe_playground import session
from kruise_probe_playground.access import Access
from kruise_probe_playground.documents import Applier, LoadedObject
from kruise_probe_playground.node.containers import LocalContainer
from kruise_probe_playground.node.embedded_node import EmbeddedNode
from kruise_probe_playground.programs import Child

IDLE = ("sh", "-c", "while :; do sleep 1; done")


@contextmanager
def stopped(program: Child) -> Iterator[None]:
    """SIGSTOP for as long as the block lasts."""
    assert program.pid
    os.kill(program.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(program.pid, signal.SIGCONT)


class ControlledPlayground(session.Playground):
    api: Target
    server: ApiServer

    async def _start(self, stack: AsyncExitStack) -> None:
        await super()._start(stack)
        self.api = Target(self.client)
        await stack.enter_async_context(self.api.watched())

    def _make_server(self, access: Access) -> ApiServer:
        self.server = ApiServer(
            tokens={access.token: session.USER},
            tls=access.tls,
            containers=session.NodeContainers(self.nodes),
        )
        return self.server

    def node_of(self, pod: str, namespace: str = "default") -> EmbeddedNode:
        """The node that runs a pod's containers."""
        for node in self.nodes:
            for sandbox in node.runtime.sandboxes:
                if (sandbox.namespace, sandbox.name) == (namespace, pod):
                    return node
        raise AssertionError(f"{pod} runs on no node")

    def container(self, namespace: str, pod: str, name: str = "") -> LocalContainer:
        """The newest attempt of a container; without a name the newest that runs."""
        found = []
        for container in self.node_of(pod, namespace).runtime.containers:
            sandbox = container.sandbox
            is_wanted = container.config.name == name if name else container.process
            if (sandbox.namespace, sandbox.name) == (namespace, pod) and is_wanted:
                found.append(container)
        assert found, f"{pod} has no container {name}"
        return max(found, key=lambda container: container.created_at)

    async def apply(self, documents: Sequence[LoadedObject]) -> None:
        await Applier(self.client).apply(documents)


class PlaygroundNamespace:
    """A new namespace, with helpers that create pods and markers."""

    def __init__(self, playground: ControlledPlayground, namespace: str) -> None:
        self.playground = playground
        self.api = playground.api
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
        container = {"name": "main", "image": "none", "command": list(command)}
        if labels is None:
            labels = {"app": "web"}
        wanted = typed(
            "Pod",
            metadata={"name": name, "labels": labels},
            spec={"containers": [container], **spec},
        )
        await self.api.create(f"/api/v1/namespaces/{self.namespace}/pods", wanted)
        return await self.until("runs", lambda pod: pod["status"].get("podIP"), name)

    async def marker(self, *probes: Json, name: str = "marker") -> Json:
        wanted = marker_object(*probes, name=name)
        path = marker_path("", self.namespace).rstrip("/")
        return await self.api.create(path, wanted)

    async def until(self, what: str, holds: Any, name: str = "web") -> Json:
        return await self.api.pods.until(
            what,
            holds,
            name=name,
            namespace=self.namespace,
        )

    def pod_path(self, name: str = "web", subresource: str = "") -> str:
        return pod_path(name, self.namespace, subresource)

    def marker_path(self, name: str = "marker") -> str:
        return marker_path(name, self.namespace)

    async def exec(self, pod: str, script: str) -> None:
        """Runs a shell script in the pod's newest container."""
        container = self.playground.container(self.namespace, pod)
        runtime = self.playground.node_of(pod, self.namespace).runtime
        command = ["sh", "-c", script]
        found = await runtime.exec_sync(container, command, timeout_seconds=PATIENCE_SECONDS)
        assert found.exit_code == 0, found

    def folder(self, pod: str = "web", container: str = "main") -> Path:
        return self.playground.container(self.namespace, pod, container).folder


@asynccontextmanager
async def new_namespace(playground: ControlledPlayground) -> AsyncIterator[PlaygroundNamespace]:
    """A new namespace; at the end its ReplicaSets, markers and pods are deleted."""
    api = playground.api
    namespace = f"test-{secrets.token_hex(4)}"
    await api.create("/api/v1/namespaces", typed("Namespace", metadata={"name": namespace}))
    yield PlaygroundNamespace(playground, namespace)
    sets = f"/apis/apps/v1/namespaces/{namespace}/replicasets"
    for replicaset in (await api.get(sets))["items"]:
        await api.delete(f"{sets}/{replicaset['metadata']['name']}")
    for name in api.markers.names(namespace):
        with suppress(NotFound):  # the watch has not heard of its end
            await api.delete(marker_path(name, namespace))
    for name in api.pods.names(namespace):
        with suppress(NotFound):
            await api.delete(pod_path(name, namespace), grace_seconds=0)
