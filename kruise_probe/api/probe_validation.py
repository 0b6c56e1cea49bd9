"""Validation rules of one probe, shared by the CRDs' CEL rules, the webhook and the daemon.

Source: kubernetes pkg/apis/core/validation (ports, headers, actions).
Differs: scheme and path may be absent, and a host may not be set. Lists are bounded for CEL's cost budget.
"""

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from kruise_probe.api import field_errors as field
from kruise_probe.api.core import (
    MAX_SECONDS,
    MAX_TIMEOUT_SECONDS,
    ExecAction,
    GRPCAction,
    HTTPGetAction,
    Probe,
    TCPSocketAction,
)
from kruise_probe.api.field_errors import FieldError
from kruise_probe.api.v1alpha1 import ContainerProbe, PodContainerProbe

MAX_HEADERS: Final = 32
MAX_COMMAND: Final = 128
MAX_NAME: Final = 253
MAX_TEXT: Final = 4096
"""Maximum characters of a path, header value or gRPC service."""
MAX_COMMAND_BYTES: Final = 8192
"""Maximum size of a whole command in UTF-8."""
MAX_PORT: Final = 65535
MAX_PORT_NAME: Final = 15

HANDLER_NEEDED: Final = "must specify a handler type: exec, httpGet, tcpSocket or grpc"
HANDLER_EXCESS: Final = "may not specify more than 1 handler type"
COMMAND_NEEDED: Final = "must specify the program and its arguments"
COMMAND_TOO_LONG: Final = (
    "must be no more than 8192 bytes in total; put a longer script into the image or a ConfigMap"
)
HOST: Final = (
    "may not be set, because probes always use the pod's own IP; "
    "set a Host header if the server needs one"
)
SCHEME: Final = 'supported values: "HTTP", "HTTPS"'
MODE: Final = 'supported values: "Plaintext", "TLS"'
HEADER_NAME: Final = (
    "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name')"
)
HEADER_VALUE: Final = (
    "must not contain line breaks or other control characters; "
    "text of a YAML block ends with a line break unless it starts with '|-' or '>-'"
)
PATH_CONTROL: Final = "must not contain control characters; write them escaped, such as %0A"
PATH_ESCAPE: Final = "must have two hexadecimal digits after each '%'; write %25 for the character"
PATH_START: Final = (
    "must start with a single '/'; the text before it would be read as a scheme or host"
)
PORT_NAME: Final = (
    "must be a port number, or a port name: no more than 15 characters (a-z, 0-9 and single hyphens (-)), "
    "with at least one letter (a-z)"
)

HEADER_NAME_PATTERN: Final = "[-A-Za-z0-9]+"
HEADER_VALUE_CONTROL_PATTERN: Final = r"[\x00-\x08\x0a-\x1f\x7f]"
"""What Go's net/http refuses to send in a header value (httpguts.ValidHeaderFieldValue)."""
# In CEL too, therefore RE2's subset. A query needs no valid escapes: Go sends it as written.
PATH_CONTROL_PATTERN: Final = r"[\x00-\x1f\x7f]"
PATH_PATTERN: Final = r"([^%?#]|%[0-9A-Fa-f]{2})*([?][^#]*)?(#([^%]|%[0-9A-Fa-f]{2})*)?"
PATH_HOST_PATTERN: Final = "^([^/?#]*:|//([^/]|$))"

_TOKEN = re.compile(r"[-A-Za-z0-9!#$%&'*+.^_`|~]+")
_HEADER_NAME = re.compile(HEADER_NAME_PATTERN)
_HEADER_VALUE_CONTROL = re.compile(HEADER_VALUE_CONTROL_PATTERN)
_PATH_CONTROL = re.compile(PATH_CONTROL_PATTERN)
_PATH = re.compile(PATH_PATTERN)
_PATH_HOST = re.compile(PATH_HOST_PATTERN)
_PORT_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_NUMBERS = (
    ("initialDelaySeconds", "initial_delay_seconds", MAX_SECONDS),
    ("timeoutSeconds", "timeout_seconds", MAX_TIMEOUT_SECONDS),
    ("periodSeconds", "period_seconds", MAX_SECONDS),
    ("successThreshold", "success_threshold", MAX_SECONDS),
    ("failureThreshold", "failure_threshold", MAX_SECONDS),
    ("terminationGracePeriodSeconds", "termination_grace_period_seconds", MAX_SECONDS),
)


def validate_entry(entry: ContainerProbe, path: str) -> Iterator[FieldError]:
    """Validate what a node runs, lazily. The daemon uses it too, as a NodePodProbe may be edited by hand."""
    probe, path = entry.probe, f"{path}.probe".removeprefix(".")
    yield from _handlers(probe, path)
    for wire_name, attribute, most in _NUMBERS:
        number = getattr(probe, attribute) or 0
        if number < 0:
            problem = "must be greater than or equal to 0 (0 means absent)"
            yield field.invalid(f"{path}.{wire_name}", number, problem)
        elif number > most:
            problem = f"must be at most {most}"
            if most == MAX_TIMEOUT_SECONDS:
                problem += f"; until it is corrected, {most} is used"
            yield field.invalid(f"{path}.{wire_name}", number, problem)


def clamp_timeout(entry: PodContainerProbe) -> PodContainerProbe:
    """Clamp the timeout: one that was stored before the limit existed may exceed it. `validate_entry` reports it."""
    if (entry.probe.timeout_seconds or 0) <= MAX_TIMEOUT_SECONDS:
        return entry
    probe = msgspec.structs.replace(entry.probe, timeout_seconds=MAX_TIMEOUT_SECONDS)
    return msgspec.structs.replace(entry, probe=probe)


def _handlers(probe: Probe, path: str) -> Iterator[FieldError]:
    actions = {
        "exec": probe.exec,
        "httpGet": probe.http_get,
        "tcpSocket": probe.tcp_socket,
        "grpc": probe.grpc,
    }
    first, *others = [name for name, action in actions.items() if action is not None] or [""]
    if not first:
        yield field.required(path, HANDLER_NEEDED)
    for name in others:
        yield field.forbidden(f"{path}.{name}", f"{HANDLER_EXCESS}; {first} is already specified")
    if probe.exec is not None:
        yield from _exec(probe.exec, f"{path}.exec.command")
    if probe.http_get is not None:
        yield from _http_get(probe.http_get, f"{path}.httpGet")
    if probe.tcp_socket is not None:
        yield from _host_and_port(probe.tcp_socket, f"{path}.tcpSocket")
    if probe.grpc is not None:
        yield from _grpc(probe.grpc, f"{path}.grpc")


def _exec(action: ExecAction, path: str) -> Iterator[FieldError]:
    command = action.command or ()
    if not command:
        yield field.required(path, COMMAND_NEEDED)
    yield from field.check_items(path, command, MAX_COMMAND)
    for index, word in enumerate(command):
        yield from field.check_length(f"{path}[{index}]", word, MAX_COMMAND_BYTES)
    size = sum(len(word.encode(errors="replace")) for word in command)
    if size > MAX_COMMAND_BYTES:
        yield field.invalid(path, size, COMMAND_TOO_LONG)


def _http_get(action: HTTPGetAction, path: str) -> Iterator[FieldError]:
    yield from _host_and_port(action, path)
    yield from field.check_length(f"{path}.path", action.path or "", MAX_TEXT)
    if action.scheme and action.scheme not in ("HTTP", "HTTPS"):
        yield field.not_supported(f"{path}.scheme", action.scheme, SCHEME)
    headers = action.http_headers or ()
    yield from field.check_items(f"{path}.httpHeaders", headers, MAX_HEADERS)
    for index, header in enumerate(headers):
        at = f"{path}.httpHeaders[{index}]"
        if not _TOKEN.fullmatch(header.name):
            yield field.invalid(f"{at}.name", header.name, HEADER_NAME)
        yield from field.check_length(f"{at}.name", header.name, MAX_NAME)
        yield from field.check_length(f"{at}.value", header.value, MAX_TEXT)


def validate_request(action: HTTPGetAction, path: str) -> Iterator[FieldError]:
    """Report what kubelet would send differently or not at all, and header names that Kubernetes refuses in pods.

    Not part of `validate_entry`: a marker that was stored before these rules keeps being probed, as kubelet would.
    """
    if problem := _path_error(action.path or ""):
        yield field.invalid(f"{path}.path", action.path, problem)
    for index, header in enumerate(action.http_headers or ()):
        at = f"{path}.httpHeaders[{index}]"
        if _TOKEN.fullmatch(header.name) and not _HEADER_NAME.fullmatch(header.name):
            yield field.invalid(f"{at}.name", header.name, HEADER_NAME)
        if found := _HEADER_VALUE_CONTROL.search(header.value):
            # Not the whole value, which may be a credential.
            yield field.invalid(f"{at}.value", found[0], HEADER_VALUE)


def _path_error(path: str) -> str | None:
    if _PATH_CONTROL.search(path):
        return PATH_CONTROL
    if not _PATH.fullmatch(path):
        return PATH_ESCAPE
    if _PATH_HOST.match(path):
        return PATH_START
    return None


def _grpc(action: GRPCAction, path: str) -> Iterator[FieldError]:
    yield from _port(action.port, f"{path}.port")
    yield from field.check_length(f"{path}.service", action.service or "", MAX_TEXT)
    if action.mode and action.mode not in ("Plaintext", "TLS"):
        yield field.not_supported(f"{path}.mode", action.mode, MODE)


def _host_and_port(action: HTTPGetAction | TCPSocketAction, path: str) -> Iterator[FieldError]:
    if action.host:
        yield field.forbidden(f"{path}.host", HOST)
    yield from _port(action.port, f"{path}.port")


def _port(port: int | str, path: str) -> Iterator[FieldError]:
    if isinstance(port, int):
        if not 1 <= port <= MAX_PORT:
            yield field.invalid(path, port, f"must be between 1 and {MAX_PORT}, inclusive")
    elif not port_name_is_valid(port):
        yield field.invalid(path, port, PORT_NAME)


def port_name_is_valid(name: str) -> bool:
    """Whether `name` is a container port name (IANA_SVC_NAME)."""
    return (
        len(name) <= MAX_PORT_NAME
        and "--" not in name
        and bool(_PORT_NAME.fullmatch(name))
        and any(letter.isalpha() for letter in name)
    )
