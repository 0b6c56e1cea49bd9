"""tcpSocket: succeeds when the pod accepts a connection.

Source: kubelet pkg/probe/tcp/tcp.go.
Differs: closes the connection without TIME_WAIT, see `dialing`.
"""

import asyncio
from typing import Final

from kruise_probe.api.host_port import HostPort
from kruise_probe.daemon.probers.dialing import (
    Connection,
    OpenSocket,
    ProbeDialFailed,
    new_socket,
    prepare,
)
from kruise_probe.daemon.probers.prober import (
    Prober,
    ProbeResult,
    Started,
    Target,
    address_of,
    failure,
    success,
)
from kruise_probe.daemon.probers.read_budget import ReadBudget

_CONNECTED: Final = success()
_READS_NOTHING: Final = ReadBudget(0)


class TcpProber(Prober):
    """Connects to a port of the pod and closes. On this node the handshake usually ends inside `probe`."""

    def __init__(
        self, port: int | str, *, timeout_seconds: float, open_socket: OpenSocket = new_socket
    ) -> None:
        self._port = port
        self._open_socket = open_socket
        self._timeout_seconds = timeout_seconds

    def probe(self, target: Target) -> Started:
        address = address_of(target, self._port)
        try:
            connection = prepare(address, _READS_NOTHING, self._open_socket)
            if not connection.connect_nowait():
                return self._wait(connection, address)
        except ProbeDialFailed as error:
            return failure(str(error))
        connection.close()
        return _CONNECTED

    async def _wait(self, connection: Connection, address: HostPort) -> ProbeResult:
        try:
            async with asyncio.timeout(self._timeout_seconds):
                await connection.connect()
        except TimeoutError:
            return failure(f"dial tcp {address}: i/o timeout", timed_out=True)
        except ProbeDialFailed as error:
            return failure(str(error))
        finally:
            connection.close()
        return _CONNECTED
