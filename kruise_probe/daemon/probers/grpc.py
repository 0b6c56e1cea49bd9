"""grpc: succeeds when the health service of the pod responds SERVING.

`mode: TLS` uses TLS and does not verify the certificate.

Source: kubelet pkg/probe/grpc/grpc.go; KEP-4939 for TLS.
Differs: a refused connection fails at once with its reason, where kubelet retries until the timeout and reports that.
"""

import asyncio
from typing import Final

from kruise_probe.api.core import GRPCAction
from kruise_probe.api.host_port import HostPort
from kruise_probe.api.messages import duration, normalise_message, quote
from kruise_probe.daemon.probers.dialing import (
    Connection,
    OpenSocket,
    ProbeConnectionFailed,
    new_socket,
)
from kruise_probe.daemon.probers.health_call import CallResult, HealthCall
from kruise_probe.daemon.probers.prober import (
    Prober,
    ProbeResult,
    Target,
    address_of,
    failure,
    success,
)
from kruise_probe.daemon.probers.tls_dialing import TlsConnection, unverified_tls

TLS_MODE: Final = "TLS"

_HEALTHY: Final = success("service healthy")


class GrpcProber(Prober):
    """Calls `grpc.health.v1.Health/Check` on the pod."""

    def __init__(
        self,
        action: GRPCAction,
        *,
        timeout_seconds: float,
        user_agent: str,
        open_socket: OpenSocket = new_socket,
    ) -> None:
        self._open_socket = open_socket
        self._port = action.port
        self._service = action.service or ""
        self._over_tls = action.mode == TLS_MODE
        self._timeout_seconds = timeout_seconds
        self._user_agent = user_agent

    async def run(self, target: Target) -> ProbeResult:
        address = address_of(target, self._port)
        call = HealthCall(
            service=self._service,
            authority=str(address),
            scheme="https" if self._over_tls else "http",
            user_agent=self._user_agent,
            timeout_seconds=self._timeout_seconds,
        )
        connection = self._connection(address)
        try:
            result = await _exchange(call, connection)
        except TimeoutError:
            return self._timed_out(call, address)
        except ProbeConnectionFailed as error:
            result = CallResult("Unavailable", str(error))
        finally:
            connection.close()
        if not call.connected:
            where = quote(str(address))
            text = f"error: failed to connect service at {where}: {result.description}"
            return failure(normalise_message(text))
        return self._result_of(result)

    def _connection(self, address: HostPort) -> Connection:
        deadline = asyncio.get_running_loop().time() + self._timeout_seconds
        tcp = self._open_socket(address)
        if not self._over_tls:
            return Connection(tcp, address, deadline)
        return TlsConnection(tcp, address, deadline, unverified_tls("h2"))

    def _timed_out(self, call: HealthCall, address: HostPort) -> ProbeResult:
        within = f"within {duration(self._timeout_seconds)}"
        if call.connected:
            text = f"timeout: health rpc did not complete {within}"
        else:
            where = quote(str(address))
            text = f"timeout: failed to connect service {where} {within}: context deadline exceeded"
        return failure(text, timed_out=True)

    def _result_of(self, result: CallResult) -> ProbeResult:
        if result.serving == "SERVING":
            return _HEALTHY
        if result.code == "DeadlineExceeded":
            within = duration(self._timeout_seconds)
            return failure(f"timeout: health rpc did not complete within {within}", timed_out=True)
        if result.code == "OK":
            text = f"service unhealthy (responded with {quote(result.serving)})"
        else:
            text = f"error: health rpc probe failed: rpc error: code = {result.code} desc = {result.description}"
        return failure(normalise_message(text))


async def _exchange(call: HealthCall, connection: Connection) -> CallResult:
    await connection.connect()
    if isinstance(connection, TlsConnection) and connection.protocol != "h2":
        raise ProbeConnectionFailed("the server does not speak HTTP/2 over TLS (ALPN)")
    await connection.send(call.bytes_to_send())
    while call.result is None:
        call.feed(await connection.receive())
        await connection.send(call.bytes_to_send())
    return call.result
