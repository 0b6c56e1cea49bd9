"""Ports that a process of one pod serves for all pods, because it listens on all addresses.

Pods of a playground share the network of the machine. A server that binds 0.0.0.0:8080 therefore answers the probes of
port 8080 of all pods. No other pod can listen there.

Source: Documentation/networking/proc_net_tcp.rst of Linux.
"""

import asyncio
import os
from collections.abc import Iterator, Mapping, Set
from contextlib import suppress
from pathlib import Path
from typing import Final

from kruise_probe.runtime.recorder import EventRecorder, ObjectReference
from kruise_probe_playground.guardian import survivors
from kruise_probe_playground.node.containers import LocalContainer, NoSuchContainer
from kruise_probe_playground.node.runtime import LocalRuntime

MAX_TABLE_BYTES: Final = 1 << 20
PERIOD_SECONDS: Final = 2.0
_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTEN: Final = "0A"


def read_wildcard_ports() -> dict[str, int]:
    """The ports that some process of this machine serves at all addresses, by the inode of the socket."""
    found: dict[str, int] = {}
    for path in _TABLES:
        with suppress(OSError), path.open() as table:
            found |= parse_table(table.read(MAX_TABLE_BYTES))
    return found


def parse_table(text: str) -> dict[str, int]:
    """The listening sockets at 0.0.0.0 or `::` in a table of the kernel: port by inode."""
    found = {}
    for line in text.splitlines()[1:]:
        fields = line.split()
        address, _, port = fields[1].partition(":") if len(fields) > 9 else ("-", "", "")
        if not address.strip("0") and fields[3] == _LISTEN:
            found[fields[9]] = int(port, 16)
    return found


def owners(mark: str, inodes: Set[str]) -> dict[str, str]:
    """The full marks of the processes below `mark` that hold these sockets, by inode."""
    found: dict[str, str] = {}
    for pid, full in survivors(mark):
        for inode in inodes & set(_sockets(pid)):
            found[inode] = full
    return found


def _sockets(pid: int) -> Iterator[str]:
    with suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                kind, _, inode = os.readlink(entry.path).partition(":")
                if kind == "socket":
                    yield inode.strip("[]")


class PortWatch:
    """Reports the shared ports of one node: an event on the pod that serves one."""

    def __init__(self, runtime: LocalRuntime, recorder: EventRecorder, *, mark: str) -> None:
        self._runtime = runtime
        self._recorder = recorder
        self._mark = mark
        self._owners: dict[str, LocalContainer | None] = {}

    async def run(self) -> None:
        """Look every `PERIOD_SECONDS` until cancelled."""
        while True:
            await self._find_owners(read_wildcard_ports())
            await asyncio.sleep(PERIOD_SECONDS)

    async def _find_owners(self, ports: Mapping[str, int]) -> None:
        """Find the containers of new sockets; the others are known, or belong to no container of this node."""
        new = ports.keys() - self._owners.keys()
        found = await asyncio.to_thread(owners, self._mark, new) if new else {}
        self._owners = {inode: self._owners.get(inode) for inode in ports}
        for inode, mark in found.items():
            container_id = mark.removeprefix(f"{self._mark}/").partition("/")[0]
            with suppress(NoSuchContainer):
                self._owners[inode] = container = self._runtime.container(container_id)
                self._warn(container, ports[inode])

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
