"""Ports that a process of one pod serves for all pods, because it listens on all addresses.

Pods of a playground share the network of the machine. A server that binds 0.0.0.0:8080 therefore answers the probes of
port 8080 of all pods. No other pod can listen there.
"""

import asyncio
from contextlib import suppress
from typing import Final

import psutil

from kruise_probe.runtime.recorder import EventRecorder, ObjectReference
from kruise_probe_playground.guardian import survivors
from kruise_probe_playground.node.containers import LocalContainer, NoSuchContainer
from kruise_probe_playground.node.runtime import LocalRuntime

PERIOD_SECONDS: Final = 4.0


def shared_ports(mark: str) -> set[tuple[str, int]]:
    """The ports that processes below `mark` serve at all addresses, with the ids of their containers."""
    found: set[tuple[str, int]] = set()
    for pid, full in survivors(mark):
        container_id = full.removeprefix(f"{mark}/").partition("/")[0]
        with suppress(psutil.Error, OSError):
            for socket in psutil.Process(pid).net_connections("tcp"):
                if socket.status == psutil.CONN_LISTEN and socket.laddr.ip in ("0.0.0.0", "::"):
                    found.add((container_id, socket.laddr.port))
    return found


class PortWatch:
    """Reports the shared ports of one node: an event on the pod that serves one."""

    def __init__(self, runtime: LocalRuntime, recorder: EventRecorder, *, mark: str) -> None:
        self._runtime = runtime
        self._recorder = recorder
        self._mark = mark

    async def run(self) -> None:
        """Look every `PERIOD_SECONDS` until cancelled."""
        known: set[tuple[str, int]] = set()
        while True:
            found = await asyncio.to_thread(shared_ports, self._mark)
            for container_id, port in sorted(found - known):
                with suppress(NoSuchContainer):
                    self._warn(self._runtime.container(container_id), port)
            known = found
            await asyncio.sleep(PERIOD_SECONDS)

    def _warn(self, container: LocalContainer, port: int) -> None:
        name = container.config.name
        pod = container.sandbox
        message = (
            f"container {name} listens on all addresses at port {port}, so it also answers probes of other pods:"
            " the pods of a playground share one network; let it listen on $POD_IP"
        )
        reference = ObjectReference(pod.namespace, pod.name, pod.uid)
        self._recorder.event(
            reference, "Warning", "PortShared", message, container=name, probe=f"{name}:{port}"
        )
