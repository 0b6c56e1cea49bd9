"""The playground's container runtime behind its CRI socket, with containers of a test's own making."""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from kruise_probe_playground.node.containers import (
    ContainerConfig,
    LocalContainer,
    Sandbox,
)
from kruise_probe_playground.node.cri_service import CriService
from kruise_probe_playground.node.embedded_node import CriServer
from kruise_probe_playground.node.runtime import LocalRuntime


class EmbeddedRuntime:
    """A running runtime: `endpoint` is its CRI, `start` creates containers as the kubelet does."""

    def __init__(self, runtime: LocalRuntime, endpoint: str) -> None:
        self.runtime = runtime
        self.endpoint = endpoint

    def sandbox(self, *, pod: str = "pod", namespace: str = "default") -> Sandbox:
        uid = secrets.token_hex(16)
        labels = {
            "io.kubernetes.pod.name": pod,
            "io.kubernetes.pod.namespace": namespace,
            "io.kubernetes.pod.uid": uid,
        }
        return self.runtime.create_sandbox(
            namespace=namespace, name=pod, uid=uid, ip="127.0.0.1", labels=labels
        )

    def start(
        self,
        command: Sequence[str],
        *,
        sandbox: Sandbox | None = None,
        name: str = "main",
        environment: Mapping[str, str] | None = None,
        attempt: int = 0,
    ) -> LocalContainer:
        """A started container: `.id`, `.sandbox.id`, `.sandbox.uid`, `.folder`, `.running`."""
        config = ContainerConfig(
            name,
            tuple(command),
            environment or {},
            attempt,
        )
        return self.runtime.start_container(
            sandbox or self.sandbox(),
            config,
            lambda _: None,
        )


@asynccontextmanager
async def embedded_runtime(folder: Path) -> AsyncIterator[EmbeddedRuntime]:
    """Runs one in `folder` (keep it short: a socket's path has about 100 characters)."""
    runtime = LocalRuntime(
        folder=folder / "pods",
        mark=f"test-{secrets.token_hex(8)}",
        base_environment={"PATH": os.environ.get("PATH", "/usr/bin:/bin")},
    )
    server = CriServer(CriService(runtime), socket=folder / "cri.sock")
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(runtime.run()), group.create_task(server.run())]
        await server.listening.wait()
        try:
            yield EmbeddedRuntime(runtime, server.endpoint)
        finally:
            for task in running:
                task.cancel()
