"""The core/v1 Probe and its actions, with the rules of their fields.

The rules and bounds are those of the API server, the webhook, the manager and the daemon. Bounds of lists and texts exist for CEL's
cost budget.

Source: k8s.io/api core/v1 of Kubernetes 1.37; kubernetes pkg/apis/core/validation (ports, headers, actions).
Differs: absent probe numbers have Kruise's defaults (1; initialDelaySeconds 0), not kubelet's (period 10, timeout 1,
success 1, failure 3). Scheme and path may be absent; a host and HTTP/2 are refused.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Final

import msgspec

from kruise_probe.api.fields import Field, Rule, Use, literal, rule
from kruise_probe.api.problems import ErrorKind, Problem, violation
from kruise_probe.api.structs import Wire

MAX_TIMEOUT_SECONDS: Final = 3600
MAX_SECONDS: Final = 2**31 - 1
"""Maximum of every other number of a probe, including thresholds."""
MAX_COMMAND: Final = 128
MAX_COMMAND_BYTES: Final = 8192
"""Maximum size of a whole command in UTF-8."""
MAX_TEXT: Final = 4096
"""Maximum characters of a path, header value or gRPC service."""
MAX_PORT: Final = 65535

# In CEL too, therefore RE2's subset. A query needs no valid escapes: Go sends it as written.
_PATH_CONTROL: Final = r"[\x00-\x1f\x7f]"
_PATH: Final = r"([^%?#]|%[0-9A-Fa-f]{2})*([?][^#]*)?(#([^%]|%[0-9A-Fa-f]{2})*)?"
_PATH_HOST: Final = "^([^/?#]*:|//([^/]|$))"
_PORT_NAME: Final = "([0-9]+-)*[0-9]*[a-z][a-z0-9]*(-[a-z0-9]+)*"
_HEADER_NAME: Final = "[-A-Za-z0-9]+"
_TOKEN: Final = re.compile(r"[-A-Za-z0-9!#$%&'*+.^_`|~]+")
_HEADER_NAME_MESSAGE: Final = (
    "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name')"
)
HEADER_VALUE_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
"""What Go's net/http refuses to send in a header value (httpguts.ValidHeaderFieldValue)."""
_HEADER_VALUE_CONTROL_CEL: Final = "[^\\t[:^cntrl:]]"
"""The same in RE2: more than 20 characters are over CEL's cost budget."""


def _header_value_errors(value: Any, path: str) -> Iterator[Problem]:
    if found := HEADER_VALUE_CONTROL.search(value):
        # Not the whole value, which may be a credential.
        yield violation(
            path,
            ErrorKind.INVALID,
            _HEADER_VALUE.message,
            found[0],
        )


_HEADER_VALUE: Final = Rule(
    "must not contain line breaks or other control characters; "
    "text of a YAML block ends with a line break unless it starts with '|-' or '>-'",
    f"!self.matches({literal(_HEADER_VALUE_CONTROL_CEL)})",
    _header_value_errors,
    last=Use.ADMISSION,
)
_HOST: Final = Field(
    most=253,
    rules=(
        rule(
            "may not be set, because probes always use the pod's own IP; "
            "set a Host header if the server needs one",
            "self == ''",
            lambda host: not host,
            kind=ErrorKind.FORBIDDEN,
            last=Use.STORED,
        ),
    ),
)
# No CEL rules: before 1.33, the estimate of their cost assumes that the text of an int-or-string is unbounded.
Port = Annotated[
    int | str,
    Field(
        least=1,
        most=MAX_PORT,
        rules=(
            rule(
                "must be a port number, or a port name: no more than 15 characters (a-z, 0-9 and single hyphens (-)), "
                "with at least one letter (a-z)",
                "",
                lambda port: (
                    isinstance(port, int) or (len(port) <= 15 and re.fullmatch(_PORT_NAME, port))
                ),
                last=Use.STORED,
            ),
        ),
        schema={"maxLength": 15, "pattern": f"^{_PORT_NAME}$"},
    ),
]


class ProbeAction(Wire, frozen=True):
    """Base of the four probe actions."""


class ExecAction(ProbeAction, frozen=True):
    """Action that runs a command.

    Attributes:
        command: Program and arguments; not run in a shell.
    """

    command: Annotated[
        tuple[Annotated[str, Field(most=MAX_COMMAND_BYTES)], ...], Field(most=MAX_COMMAND)
    ] = ()

    RULES: ClassVar = (
        rule(
            "must specify the program and its arguments",
            "has(self.command) && self.command.size() > 0",
            lambda action: action.command,
            kind=ErrorKind.REQUIRED,
            field="command",
        ),
        rule(  # CEL counts characters, because counting bytes exceeds its cost budget.
            f"must be no more than {MAX_COMMAND_BYTES} bytes in total; put a longer script into the image or a ConfigMap",
            f"!has(self.command) || self.command.map(w, w.size()).sum() <= {MAX_COMMAND_BYTES}",
            lambda action: (
                sum(len(word.encode(errors="replace")) for word in action.command)
                <= MAX_COMMAND_BYTES
            ),
            field="command",
        ),
    )


class HTTPHeader(msgspec.Struct, frozen=True, gc=False):
    """A header of the request.

    Attributes:
        name: Header name.
        value: Header value.
    """

    name: Annotated[
        str,
        Field(
            most=253,
            rules=(
                # A name that HTTP forbids is invalid in a stored marker too: a provider's prober would get it.
                rule(_HEADER_NAME_MESSAGE, "", _TOKEN.fullmatch),
                rule(
                    _HEADER_NAME_MESSAGE,
                    f"self.matches({literal(f'^{_HEADER_NAME}$')})",
                    lambda name: re.fullmatch(_HEADER_NAME, name) or not _TOKEN.fullmatch(name),
                    last=Use.ADMISSION,
                ),
            ),
        ),
    ]
    value: Annotated[
        str,
        Field(
            most=MAX_TEXT,
            required=True,
            rules=(_HEADER_VALUE,),
        ),
    ] = ""


class HTTPGetAction(ProbeAction, frozen=True):
    """HTTP action. `port` is a number or the name of a container port.

    A marker that was stored before the rules of its path and headers keeps being probed, as kubelet would.

    Attributes:
        port: Port number, or name of a container port.
        path: Path of the request, including the query.
        host: Not allowed: probes always use the pod's own IP.
        scheme: HTTP or HTTPS; certificates are not verified.
        http_headers: Request headers. A Host header does not change the target of the request.
        protocol: HTTP1 or absent: HTTP/1.1. HTTP/2 is not supported.
    """

    port: Port
    path: Annotated[
        str | None,
        Field(
            most=MAX_TEXT,
            default="/",
            rules=(
                rule(
                    "must not contain control characters; write them escaped, such as %0A",
                    f"!self.matches({literal(_PATH_CONTROL)})",
                    lambda path: not re.search(_PATH_CONTROL, path),
                    last=Use.ADMISSION,
                ),
                rule(
                    "must have two hexadecimal digits after each '%'; write %25 for the character",
                    f"self.matches({literal(f'^{_PATH}$')})",
                    lambda path: re.fullmatch(_PATH, path),
                    last=Use.ADMISSION,
                ),
                rule(
                    "must start with a single '/'; the text before it would be read as a scheme or host",
                    f"!self.matches({literal(_PATH_HOST)})",
                    lambda path: not re.match(_PATH_HOST, path),
                    last=Use.ADMISSION,
                ),
            ),
        ),
    ] = None
    host: Annotated[str | None, _HOST] = None
    scheme: Annotated[str | None, Field(values=("", "HTTP", "HTTPS"), default="HTTP")] = None
    http_headers: Annotated[tuple[HTTPHeader, ...], Field(most=32)] = ()
    protocol: Annotated[str | None, Field(values=("", "HTTP1"))] = None

    def with_defaults(self) -> "HTTPGetAction":
        """The action with the scheme and path defaults of our CRD, which Kruise's CRD lacks."""
        return msgspec.structs.replace(
            self,
            scheme=self.scheme or "HTTP",
            path=self.path or "/",
        )


class TCPSocketAction(ProbeAction, frozen=True):
    """Action that opens a connection.

    Attributes:
        port: Port number, or name of a container port.
        host: Not allowed: probes always use the pod's own IP.
    """

    port: Port
    host: Annotated[str | None, _HOST] = None


class GRPCAction(ProbeAction, frozen=True):
    """Action that calls the health service.

    Attributes:
        port: Port number.
        service: Service name in the health check request.
        mode: TLS: uses TLS without verification. Plaintext or absent: no TLS.
    """

    port: Annotated[
        int,
        Field(
            least=1,
            most=MAX_PORT,
            schema={"format": "int32"},
        ),
    ]
    service: Annotated[str | None, Field(most=MAX_TEXT)] = None
    mode: Annotated[str | None, Field(values=("", "Plaintext", "TLS"))] = None


_ACTIONS: Final = {
    "exec": "exec",
    "httpGet": "http_get",
    "tcpSocket": "tcp_socket",
    "grpc": "grpc",
}


def _one_action(later: str, *earlier: str) -> Rule:
    def holds(probe: Any) -> bool:
        if getattr(probe, _ACTIONS[later]) is None:
            return True
        return all(getattr(probe, _ACTIONS[action]) is None for action in earlier)

    given = " || ".join(f"has(self.{action})" for action in earlier)
    return rule(
        f"may not specify more than 1 handler type; keep one of {', '.join(earlier)} and {later}",
        f"!has(self.{later}) || !({given})",
        holds,
        kind=ErrorKind.FORBIDDEN,
        field=later,
    )


_NUMBER: Final = Field(least=0, most=MAX_SECONDS, clamped=True, schema={"format": "int32"})
Number = Annotated[int | None, _NUMBER]


class Probe(Wire, frozen=True):
    """core/v1 Probe as on the wire. The properties return the effective numbers, with defaults and clamped to bounds.

    Attributes:
        exec: Runs a command in the container; exit code 0 is a success.
        http_get: Sends a GET request to the pod; status 200 to 399 is a success.
        tcp_socket: Opens a TCP connection to the pod; an established connection is a success.
        grpc: Calls the gRPC health service of the pod.
        initial_delay_seconds: Seconds from the container's start to the first probe. Default: 0.
        timeout_seconds: Seconds after which an attempt times out. Default (absent or 0): 1.
        period_seconds: Seconds between two probes. Default (absent or 0): 1.
        success_threshold: Consecutive successes until the state is Succeeded. Default (absent or 0): 1.
        failure_threshold: Consecutive failures until the state is Failed. Default (absent or 0): 1.
        termination_grace_period_seconds: No effect: these probes never terminate a container.
    """

    exec: ExecAction | None = None
    http_get: HTTPGetAction | None = None
    tcp_socket: TCPSocketAction | None = None
    grpc: GRPCAction | None = None
    initial_delay_seconds: Number = None
    timeout_seconds: Annotated[int | None, _NUMBER._replace(most=MAX_TIMEOUT_SECONDS)] = None
    period_seconds: Number = None
    success_threshold: Number = None
    failure_threshold: Number = None
    termination_grace_period_seconds: Annotated[int | None, _NUMBER._replace(schema={})] = None

    RULES: ClassVar = (
        rule(
            "must specify a handler type: exec, httpGet, tcpSocket or grpc",
            "has(self.exec) || has(self.httpGet) || has(self.tcpSocket) || has(self.grpc)",
            lambda probe: probe.handler is not None,
            kind=ErrorKind.REQUIRED,
        ),
        _one_action("httpGet", "exec"),
        _one_action("tcpSocket", "exec", "httpGet"),
        _one_action("grpc", "exec", "httpGet", "tcpSocket"),
    )

    @property
    def handler(self) -> ExecAction | HTTPGetAction | TCPSocketAction | GRPCAction | None:
        """The first action that is set; validation allows exactly one."""
        return self.exec or self.http_get or self.tcp_socket or self.grpc

    @property
    def handler_type(self) -> str:
        """Wire name of the action, for metrics; `invalid` for none or several."""
        names = [name for name, field in _ACTIONS.items() if getattr(self, field) is not None]
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
