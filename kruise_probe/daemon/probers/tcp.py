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
    ProbeConnectionFailed,
    new_socket,
)
from kruise_probe.daemon.probers.prober import (
    Prober,
    ProbeResult,
    Target,
    address_of,
    failure,
    success,
)

_CONNECTED: Final = success()


class TcpProber(Prober):
    """Connects to a port of the pod and closes.

    On this node the handshake usually ends inside `run_now`. Otherwise `run` connects again.
    """

    def __init__(
        self, port: int | str, *, timeout_seconds: float, open_socket: OpenSocket = new_socket
    ) -> None:
        self._port = port
        self._open_socket = open_socket
        self._timeout_seconds = timeout_seconds

    def run_now(self, target: Target) -> ProbeResult | None:
        connection = self._connection(address_of(target, self._port))
        try:
            return _CONNECTED if connection.connect_nowait() else None
        except ProbeConnectionFailed as error:
            return failure(str(error))
        finally:
            connection.close()

    async def run(self, target: Target) -> ProbeResult:
        address = address_of(target, self._port)
        connection = self._connection(address)
        try:
            await connection.connect()
        except TimeoutError:
            return failure(f"dial tcp {address}: i/o timeout", timed_out=True)
        except ProbeConnectionFailed as error:
            return failure(str(error))
        finally:
            connection.close()
        return _CONNECTED

    def _connection(self, address: HostPort) -> Connection:
        deadline = asyncio.get_running_loop().time() + self._timeout_seconds
        return Connection(self._open_socket(address), address, deadline)
