"""Runs one attempt of a probe: a command in a container, or a request to the pod's IP.

The caller owns the schedule, the thresholds and the stored results.

Source: kubelet pkg/kubelet/prober/prober.go (runProbe), pkg/probe/tcp/tcp.go; Kruise's webhook, which refuses `host`.
Differs: kubelet selects the prober at every attempt; here it is selected when the worker starts and after an edit. A
`host` is refused here too, because a NodePodProbe may be written without the webhook.
"""

from typing import Final

from kruise_probe.api.messages import normalise_message
from kruise_probe.api.meta import HostPort
from kruise_probe.api.probe import ExecAction, GRPCAction, HTTPGetAction, TCPSocketAction
from kruise_probe.api.times import loop_time
from kruise_probe.api.v1alpha1 import ContainerProbe
from kruise_probe.daemon.probers.dialing import (
    Connection,
    Intake,
    OpenSocket,
    ProbeConnectionFailed,
    new_socket,
)
from kruise_probe.daemon.probers.exec import Commands, ExecProber
from kruise_probe.daemon.probers.http import HttpProber
from kruise_probe.daemon.probers.prober import (
    UNLIMITED,
    Criteria,
    Prober,
    ProbeResult,
    Resources,
    Target,
    address_of,
    failure,
    success,
)

_HOST_NOT_ALLOWED: Final = (
    "HostNotAllowed: {field} is set to {host!r}, and probes go to the pod's own IP only; remove it, "
    "and send a Host header if the server needs one"
)
_REACHED: Final = success()


class RefusedProber(Prober):
    """The prober of a probe that is not allowed: fails every attempt with the same message and sends nothing."""

    def __init__(self, message: str) -> None:
        self._result = failure(normalise_message(message))

    async def run(self, target: Target, resources: Resources = UNLIMITED) -> ProbeResult:
        return self._result


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
            return _REACHED if connection.connect_nowait() else None
        except ProbeConnectionFailed as error:
            return failure(str(error))
        finally:
            connection.close()

    async def run(self, target: Target, resources: Resources = UNLIMITED) -> ProbeResult:
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
        return _REACHED

    def _connection(self, address: HostPort) -> Connection:
        deadline = loop_time() + self._timeout_seconds
        return Connection(self._open_socket(address), address, deadline, Intake())


def prober_for(
    entry: ContainerProbe,
    *,
    commands: Commands,
    user_agent: str,
    open_socket: OpenSocket = new_socket,
) -> Prober:
    """The prober of the entry's action, with its effective timeout.

    Args:
        entry: may be invalid; the prober of an invalid entry fails with the reason.
        commands: runs the commands of exec probes.
        open_socket: opens the sockets of the other probes.
        user_agent: `kruise-probe/<version>`.
    """
    timeout = float(entry.probe.effective_timeout_seconds)
    match entry.probe.handler:
        case ExecAction() as action:
            return ExecProber(
                action,
                timeout_seconds=timeout,
                commands=commands,
                criteria=_criteria_of(entry),
            )
        case HTTPGetAction(host=str(host)) | TCPSocketAction(host=str(host)) if host:
            field = f"{entry.probe.handler_type}.host"
            return RefusedProber(_HOST_NOT_ALLOWED.format(field=field, host=host))
        case HTTPGetAction() as action:
            return HttpProber(
                action,
                timeout_seconds=timeout,
                user_agent=user_agent,
                open_socket=open_socket,
                criteria=_criteria_of(entry),
            )
        case TCPSocketAction(port=port):
            return TcpProber(port, timeout_seconds=timeout, open_socket=open_socket)
        case GRPCAction() as action:
            # Imported here, because hpack and protobuf take memory, and most nodes never use them.
            from kruise_probe.daemon.probers.grpc import GrpcProber

            return GrpcProber(
                action, timeout_seconds=timeout, user_agent=user_agent, open_socket=open_socket
            )
        case None:
            return RefusedProber(
                "InvalidProbe: the probe has no handler; add exec, httpGet, tcpSocket or grpc"
            )


def _criteria_of(entry: ContainerProbe) -> Criteria | None:
    """The criteria of a valid entry; None if it has none."""
    if not entry.criteria:
        return None
    # Imported here, because RE2 takes 3 MB, and most nodes have no such probe.
    from kruise_probe.daemon.probers.judging import criteria_of

    return criteria_of(entry)
