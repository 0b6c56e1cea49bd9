"""The fields of core/v1 and coordination/v1 that we read, except Pod (see `pods`).

Source: k8s.io/api core/v1 and coordination/v1.
Differs: absent probe numbers have Kruise's defaults (1; initialDelaySeconds 0), not kubelet's (period 10, timeout 1,
success 1, failure 3).
"""

from typing import Final

import msgspec

from kruise_probe.api.kinds import Resource, as_is
from kruise_probe.api.meta import ApiObject

MAX_TIMEOUT_SECONDS: Final = 3600
MAX_SECONDS: Final = 2**31 - 1
"""Maximum of every other number of a probe, including thresholds."""


class ProbeAction(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """Base of the four probe actions."""


class ExecAction(ProbeAction, frozen=True):
    command: tuple[str, ...] | None = None


class HTTPHeader(msgspec.Struct, frozen=True, gc=False):
    name: str
    value: str = ""


class HTTPGetAction(ProbeAction, frozen=True):
    """HTTP action. `port` is a number or the name of a container port; validation rejects `host`."""

    port: int | str
    path: str | None = None
    host: str | None = None
    scheme: str | None = None
    http_headers: tuple[HTTPHeader, ...] | None = msgspec.field(default=None, name="httpHeaders")

    def with_defaults(self) -> "HTTPGetAction":
        """The action with the scheme and path defaults of our CRD, which Kruise's CRD lacks."""
        return msgspec.structs.replace(self, scheme=self.scheme or "HTTP", path=self.path or "/")


class TCPSocketAction(ProbeAction, frozen=True):
    port: int | str
    host: str | None = None


class GRPCAction(ProbeAction, frozen=True):
    """gRPC action. `mode: TLS` is KEP-4939's: TLS without verification."""

    port: int
    service: str | None = None
    mode: str | None = None


class Probe(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """core/v1 Probe as on the wire. The properties return the effective numbers, with defaults and clamped to bounds."""

    exec: ExecAction | None = None
    http_get: HTTPGetAction | None = None
    tcp_socket: TCPSocketAction | None = None
    grpc: GRPCAction | None = None
    initial_delay_seconds: int | None = None
    timeout_seconds: int | None = None
    period_seconds: int | None = None
    success_threshold: int | None = None
    failure_threshold: int | None = None
    termination_grace_period_seconds: int | None = None

    @property
    def handler(self) -> ExecAction | HTTPGetAction | TCPSocketAction | GRPCAction | None:
        """The first action that is set; validation allows exactly one."""
        return self.exec or self.http_get or self.tcp_socket or self.grpc

    @property
    def handler_type(self) -> str:
        """Wire name of the action, for metrics; `invalid` for none or several."""
        actions = {
            "exec": self.exec,
            "httpGet": self.http_get,
            "tcpSocket": self.tcp_socket,
            "grpc": self.grpc,
        }
        names = [name for name, action in actions.items() if action is not None]
        return names[0] if len(names) == 1 else "invalid"

    @property
    def effective_initial_delay_seconds(self) -> int:
        return min(max(self.initial_delay_seconds or 0, 0), MAX_SECONDS)

    @property
    def effective_timeout_seconds(self) -> int:
        return _effective(self.timeout_seconds, MAX_TIMEOUT_SECONDS)

    @property
    def effective_period_seconds(self) -> int:
        return _effective(self.period_seconds)

    @property
    def effective_success_threshold(self) -> int:
        return _effective(self.success_threshold)

    @property
    def effective_failure_threshold(self) -> int:
        return _effective(self.failure_threshold)


def _effective(number: int | None, most: int = MAX_SECONDS) -> int:
    return min(max(number or 1, 1), most)


class Node(ApiObject, frozen=True):
    """Only its existence, uid and labels are used."""


class LeaseSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """Times are MicroTime strings; `lease_duration_seconds` counts from `renew_time`."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(ApiObject, frozen=True):
    spec: LeaseSpec | None = None


class Event(ApiObject, frozen=True):
    """core/v1 Event. Events are written from JSON templates; only name and count are read from the response."""

    count: int | None = None


NODES: Final = Resource("", "v1", "nodes", "Node", wire=Node, project=as_is, namespaced=False)
EVENTS: Final = Resource("", "v1", "events", "Event", wire=Event, project=as_is)
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease", wire=Lease, project=as_is)
