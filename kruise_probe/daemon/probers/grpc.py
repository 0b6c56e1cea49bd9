"""grpc: succeeds when the health service of the pod responds SERVING.

`mode: TLS` uses TLS and does not verify the certificate.

Source: kubelet pkg/probe/grpc/grpc.go; KEP-4939 for TLS.
Differs: a refused connection fails at once with its reason, where kubelet retries until the timeout and reports that.
"""

from typing import Final

from kruise_probe.api.messages import duration, normalise_message
from kruise_probe.api.probe import GRPCAction
from kruise_probe.api.times import loop_time
from kruise_probe.daemon.probers.dialing import (
    Connection,
    Intake,
    OpenSocket,
    ProbeConnectionFailed,
    new_socket,
)
from kruise_probe.daemon.probers.health_call import CallResult, HealthCall
from kruise_probe.daemon.probers.prober import (
    UNLIMITED,
    Prober,
    ProbeResult,
    Resources,
    Target,
    address_of,
    failure,
    success,
)
from kruise_probe.daemon.probers.tls import TlsConnection, new_connection

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
        self._action = action
        self._open_socket = open_socket
        self._timeout_seconds = timeout_seconds
        self._user_agent = user_agent

    async def run(self, target: Target, resources: Resources = UNLIMITED) -> ProbeResult:
        address = address_of(target, self._action.port)
        within = f"within {duration(self._timeout_seconds)}"
        over_tls = self._action.mode == TLS_MODE
        call = HealthCall(
            service=self._action.service or "",
            authority=str(address),
            scheme="https" if over_tls else "http",
            user_agent=self._user_agent,
            timeout_seconds=self._timeout_seconds,
        )
        deadline = loop_time() + self._timeout_seconds
        intake = Intake(resources)
        tcp = self._open_socket(address)
        alpn = "h2" if over_tls else None
        connection = new_connection(tcp, address, deadline, intake, alpn=alpn)
        try:
            result = await _exchange(call, connection)
        except TimeoutError:
            if call.connected:
                result = CallResult("DeadlineExceeded")
            else:
                text = f'timeout: failed to connect service "{address}" {within}: context deadline exceeded'
                return failure(text, timed_out=True)
        except ProbeConnectionFailed as error:
            result = CallResult("Unavailable", str(error))
        finally:
            connection.close()
        if not call.connected:
            text = f'error: failed to connect service at "{address}": {result.description}'
        elif result.serving == "SERVING":
            return _HEALTHY
        elif result.code == "DeadlineExceeded":
            return failure(f"timeout: health rpc did not complete {within}", timed_out=True)
        elif result.code == "OK":
            text = f'service unhealthy (responded with "{result.serving}")'
        else:
            text = f"error: health rpc probe failed: rpc error: code = {result.code} desc = {result.description}"
        return failure(normalise_message(text))


async def _exchange(call: HealthCall, connection: Connection) -> CallResult:
    await connection.connect()
    if isinstance(connection, TlsConnection) and connection.protocol != "h2":
        raise ProbeConnectionFailed("the server does not speak HTTP/2 over TLS (ALPN)")
    while call.result is None:
        await connection.send(call.bytes_to_send())
        call.feed(await connection.receive())
    return call.result
