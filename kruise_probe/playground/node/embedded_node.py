"""One whole node: its object, its kubelet, its runtime and the socket, under one roof."""

import asyncio
import os
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from kruise_probe.api.times import format_time, utc_now
from kruise_probe.client.rest import ResourceListerWatcher, RestClient
from kruise_probe.informers.shared_informer import SharedInformer
from kruise_probe.playground.node.addresses import AddressBlock, hold_block
from kruise_probe.playground.node.containers import Container
from kruise_probe.playground.node.cri_server import CriServer
from kruise_probe.playground.node.cri_service import CriService
from kruise_probe.playground.node.kubelet import Kubelet
from kruise_probe.playground.node.node_api import NodeApi
from kruise_probe.playground.node.pod_worker import Surroundings
from kruise_probe.playground.node.pods import NODE_PODS
from kruise_probe.playground.node.runtime import LocalRuntime

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
POD_CAPACITY = "110"


class EmbeddedNode:
    """Runs the pods that are bound to it while `run` runs; afterwards no process of them is left.

    Args:
        client: the API server, as kubelet and scheduler reach it.
        folder: for `<name>.sock` and `<name>/<pod>/<container>`; the caller's to remove.
        mark: what the processes carry, see `guardian`.
    """

    def __init__(
        self,
        *,
        name: str,
        client: RestClient,
        folder: Path,
        mark: str,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self.name = name
        self.ready = asyncio.Event()
        self._client = client
        self._folder = folder
        self._now = now
        self.runtime = LocalRuntime(
            folder=folder / name,
            mark=mark,
            base_environment=_base_environment(folder / "bin"),
            now=now,
        )
        self._cri = CriServer(CriService(self.runtime), socket=folder / f"{name}.sock")

    @property
    def cri_endpoint(self) -> str:
        """What `--cri-endpoint` takes."""
        return self._cri.endpoint

    def stop_runtime(self) -> None:
        """Takes the runtime's socket away, as a stopped service does; containers live on."""
        self._cri.stop()

    def start_runtime(self) -> None:
        self._cri.start()

    def container(self, namespace: str, pod: str, name: str) -> Container | None:
        """The newest attempt of a container, running or not."""
        found = [
            each
            for each in self.runtime.containers
            if (each.sandbox.config.namespace, each.sandbox.config.name) == (namespace, pod)
            and each.config.name == name
        ]
        return max(found, key=lambda each: each.created_at, default=None)

    async def kill_container(self, namespace: str, pod: str, name: str) -> None:
        """Ends it as a crash would; its pod's restart policy says what then happens."""
        container = self.container(namespace, pod, name)
        if container:
            await self.runtime.stop_container(container, 0)

    async def run(self) -> None:
        """Runs until cancelled.

        Raises:
            NoAddress: other playgrounds hold all address blocks.
            KubeError: the Node object could not be written.
        """
        _install_python(self._folder / "bin")
        api = NodeApi(self._client)
        with hold_block() as block:
            kubelet = Kubelet(
                SharedInformer(
                    ResourceListerWatcher(
                        self._client, NODE_PODS, field_selector=f"spec.nodeName={self.name}"
                    ),
                    name=f"pods of {self.name}",
                ),
                Surroundings(self.name, self.runtime, api, block, self._now),
            )
            async with asyncio.TaskGroup() as group:
                group.create_task(self.runtime.run())
                group.create_task(self._cri.run())
                await api.write_node(_node(self.name, block, self._now()))
                await self._cri.listening.wait()
                self.ready.set()
                await kubelet.run()


def _base_environment(binaries: Path) -> dict[str, str]:
    return {
        "PATH": f"{binaries}:{os.environ.get('PATH', PATH)}",
        "LANG": "C.UTF-8",
        "PYTHON": sys.executable,
    }


def _install_python(binaries: Path) -> None:
    """`python3`, for containers on a machine where only this program's own interpreter is sure to be there."""
    binaries.mkdir(parents=True, exist_ok=True)
    program = binaries / "python3"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    program.chmod(0o755)


def _capacity() -> dict[str, str]:
    """What this machine has, as kubelet counts it; every node of a playground names the whole of it."""
    kibibytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 1024
    return {"cpu": str(os.cpu_count() or 1), "memory": f"{kibibytes}Ki", "pods": POD_CAPACITY}


def _node(name: str, block: AddressBlock, now: datetime) -> dict[str, Any]:
    at = format_time(now)
    capacity = _capacity()
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"},
        },
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": block.node_ip},
                {"type": "Hostname", "address": name},
            ],
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "reason": "KubeletReady",
                    "message": "the embedded node runs",
                    "lastHeartbeatTime": at,
                    "lastTransitionTime": at,
                }
            ],
            "nodeInfo": {
                "containerRuntimeVersion": "playground://0.1.0",
                "kubeletVersion": "v1.36.3",
                "operatingSystem": "linux",
                "architecture": os.uname().machine,
                "kernelVersion": os.uname().release,
                "osImage": "local processes",
                "machineID": "",
                "systemUUID": "",
                "bootID": "",
                "kubeProxyVersion": "",
            },
        },
    }
