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
    BrokenConnection,
    Connection,
    OpenSocket,
    ProbeDialFailed,
    dial,
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
from kruise_probe.daemon.probers.read_budget import ReadBudget
from kruise_probe.daemon.probers.tls_dialing import dial_tls, unverified_tls

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

    async def probe(self, target: Target) -> ProbeResult:
        address = address_of(target, self._port)
        call = HealthCall(
            service=self._service,
            authority=str(address),
            scheme="https" if self._over_tls else "http",
            user_agent=self._user_agent,
            timeout_seconds=self._timeout_seconds,
        )
        try:
            async with asyncio.timeout(self._timeout_seconds):
                connection = await self._connect(address)
                try:
                    result = await _exchange(call, connection)
                finally:
                    connection.close()
        except TimeoutError:
            return self._timed_out(call, address)
        except (ProbeDialFailed, BrokenConnection) as error:
            if call.connected:
                return _result_of(CallResult("Unavailable", str(error)), self._timeout_seconds)
            return _not_connected(address, str(error))
        if not call.connected:
            return _not_connected(address, result.description)
        return _result_of(result, self._timeout_seconds)

    async def _connect(self, address: HostPort) -> Connection:
        if not self._over_tls:
            return await dial(address, ReadBudget(), self._open_socket)
        connection = await dial_tls(address, ReadBudget(), unverified_tls("h2"), self._open_socket)
        if connection.protocol != "h2":
            connection.close()
            raise ProbeDialFailed("credentials: cannot check peer: missing selected ALPN property")
        return connection

    def _timed_out(self, call: HealthCall, address: HostPort) -> ProbeResult:
        within = f"within {duration(self._timeout_seconds)}"
        if call.connected:
            text = f"timeout: health rpc did not complete {within}"
        else:
            where = quote(str(address))
            text = f"timeout: failed to connect service {where} {within}: context deadline exceeded"
        return failure(text, timed_out=True)


async def _exchange(call: HealthCall, connection: Connection) -> CallResult:
    await connection.send(call.bytes_to_send())
    while call.result is None:
        call.feed(await connection.receive())
        if unsent := call.bytes_to_send():
            await connection.send(unsent)
    return call.result


def _not_connected(address: HostPort, problem: str) -> ProbeResult:
    text = f"error: failed to connect service at {quote(str(address))}: {problem}"
    return failure(normalise_message(text))


def _result_of(result: CallResult, timeout_seconds: float) -> ProbeResult:
    if result.serving == "SERVING":
        return _HEALTHY
    if result.code == "OK":
        text = f"service unhealthy (responded with {quote(result.serving)})"
    elif result.code == "Unimplemented":
        text = (
            "error: this server does not implement the grpc health protocol "
            f"(grpc.health.v1.Health): {result.description}"
        )
    elif result.code == "DeadlineExceeded":
        within = duration(timeout_seconds)
        text = f"timeout: health rpc did not complete within {within}"
        return failure(text, timed_out=True)
    else:
        text = (
            "error: health rpc probe failed: "
            f"rpc error: code = {result.code} desc = {result.description}"
        )
    return failure(normalise_message(text))
