"""One node: the Node object, the kubelet, the container runtime and its CRI socket."""

import asyncio
import os
import sys
from datetime import datetime
from pathlib import Path

import grpc
import msgspec

from kruise_probe.api.resources import NODES
from kruise_probe.api.times import format_time, utc_now
from kruise_probe.client.rest import ResourceListerWatcher, RestClient
from kruise_probe.informers.shared_informer import SharedInformer
from kruise_probe.runtime.recorder import EventRecorder
from kruise_probe_playground.node.addresses import AddressBlock, hold_block
from kruise_probe_playground.node.cri_service import CriService, handler_of
from kruise_probe_playground.node.kubelet import Kubelet
from kruise_probe_playground.node.pod_worker import NodeContext
from kruise_probe_playground.node.pods import NODE_PODS
from kruise_probe_playground.node.runtime import LocalRuntime
from kruise_probe_playground.node.shared_ports import PortWatch

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
POD_CAPACITY = "110"
MESSAGE_BYTES = 16 * 1024 * 1024
"""Maximum message, as in containerd. An exec with more output fails with ResourceExhausted."""


class CriServer:
    """One gRPC server at `socket`; the server and the file exist while `run` runs."""

    def __init__(self, service: object, *, socket: Path) -> None:
        self._service = service
        self._socket = socket
        self.listening = asyncio.Event()

    @property
    def endpoint(self) -> str:
        return f"unix://{self._socket}"

    async def run(self) -> None:
        """Serve until cancelled; then end the calls in flight and kill their commands."""
        server = grpc.aio.server(
            options=[
                ("grpc.max_send_message_length", MESSAGE_BYTES),
                ("grpc.max_receive_message_length", MESSAGE_BYTES),
            ]
        )
        server.add_generic_rpc_handlers([handler_of(self._service)])
        server.add_insecure_port(self.endpoint)
        self._socket.chmod(0o600)  # a client of the socket runs commands as this user
        await server.start()
        self.listening.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.listening.clear()
            await server.stop(grace=None)
            self._socket.unlink(missing_ok=True)


class EmbeddedNode:
    """Runs the pods that are bound to it, and kills their processes when `run` ends.

    Args:
        folder: for `<name>.sock` and `<name>/<pod>/<container>`; the caller removes it.
        mark: identifies the processes of the node's containers, see `guardian`.
    """

    def __init__(
        self,
        *,
        name: str,
        client: RestClient,
        folder: Path,
        mark: str,
    ) -> None:
        self.name = name
        self.ready = asyncio.Event()
        self._client = client
        self._folder = folder
        self._mark = mark
        self.runtime = LocalRuntime(
            folder=folder / name,
            mark=mark,
            base_environment=_base_environment(folder / "bin"),
        )
        self._cri = CriServer(
            CriService(self.runtime),
            socket=folder / f"{name}.sock",
        )

    @property
    def cri_endpoint(self) -> str:
        """The value for `--cri-endpoint`."""
        return self._cri.endpoint

    async def run(self) -> None:
        """Run until cancelled.

        Raises:
            NoAddress: other playgrounds use all address blocks.
            KubeError: the Node object could not be written.
        """
        _install_python(self._folder / "bin")
        recorder = EventRecorder(
            self._client,
            component="kubelet",
            host=self.name,
            now=utc_now,
        )
        with hold_block() as block:
            kubelet = Kubelet(
                SharedInformer(
                    ResourceListerWatcher(
                        self._client, NODE_PODS, field_selector=f"spec.nodeName={self.name}"
                    ),
                    name=f"pods of {self.name}",
                ),
                NodeContext(self.name, self.runtime, self._client, block, recorder),
            )
            async with asyncio.TaskGroup() as group:
                group.create_task(self.runtime.run())
                group.create_task(self._cri.run())
                group.create_task(recorder.run())
                ports = PortWatch(self.runtime, recorder, mark=self._mark)
                await self._client.create(NODES, _node(self.name, block, utc_now()))
                group.create_task(ports.run())
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
    """Make `python3` for containers: the machine may have no interpreter but the one that runs the playground."""
    binaries.mkdir(parents=True, exist_ok=True)
    program = binaries / "python3"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    program.chmod(0o755)


def _capacity() -> dict[str, str]:
    """The capacity of this machine, as the kubelet counts it; each node of a playground reports all of it."""
    kibibytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 1024
    return {
        "cpu": str(os.cpu_count() or 1),
        "memory": f"{kibibytes}Ki",
        "pods": POD_CAPACITY,
    }


def _node(name: str, block: AddressBlock, now: datetime) -> bytes:
    at = format_time(now)
    capacity = _capacity()
    node = {
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
                    "message": "the embedded kubelet is ready",
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
            },
        },
    }
    return msgspec.json.encode(node)
