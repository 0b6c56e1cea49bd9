"""Validation rules of markers and probes, shared by the CRDs' CEL rules, the webhook and the daemon.

Pure functions from decoded structs to field errors in the API server's format: path, kind, value and remedy.
The CRDs' schemas check types and unknown fields.

Source: Kruise pkg/webhook/podprobemarker/validating; kubernetes pkg/apis/core/validation (ports, headers),
apimachinery pkg/util/validation (label keys and values, qualified names).
Differs: condition types of Kubernetes are refused (Kruise checks the probe name instead). grpc is allowed. scheme
and path may be absent. A policy may not write its own marker's selector keys. Lists are bounded for CEL's cost budget.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from kruise_probe.api import remedies
from kruise_probe.api.annotations import annotation_value_error
from kruise_probe.api.core import (
    MAX_SECONDS,
    MAX_TIMEOUT_SECONDS,
    ExecAction,
    GRPCAction,
    HTTPGetAction,
    Probe,
    TCPSocketAction,
)
from kruise_probe.api.labels import annotation_key_error, label_key_error, label_value_error
from kruise_probe.api.meta import LabelSelector
from kruise_probe.api.reserved import annotation_reserved, condition_reserved, label_reserved
from kruise_probe.api.v1alpha1 import (
    MarkerPolicy,
    PodContainerProbe,
    PodProbeMarkerSpec,
    ProbeState,
)

MAX_PROBES: Final = 32
MAX_POLICIES: Final = 2
MAX_MARKS: Final = 32
"""Maximum labels, and maximum annotations, of one policy."""
MAX_HEADERS: Final = 32
MAX_SELECTOR_ITEMS: Final = 32
"""Maximum labels, expressions, and values of one expression in a selector."""
MAX_COMMAND: Final = 128
MAX_NAME: Final = 253
MAX_CONTAINER_NAME: Final = 63
MAX_LABEL_VALUE: Final = 63
MAX_TEXT: Final = 4096
"""Maximum characters of a path, header value or gRPC service."""
MAX_COMMAND_BYTES: Final = 8192
"""Maximum size of a whole command in UTF-8."""
MAX_ANNOTATION_VALUE: Final = 8192
MAX_CONDITION_TYPE: Final = 316
MAX_PORT: Final = 65535
MAX_PORT_NAME: Final = 15
MAX_ERRORS: Final = 20
"""Maximum errors in one response; one further entry says that there are more."""
MAX_SHOWN: Final = 128
"""Characters of a value or key that an error shows."""

_HEADER_NAME = re.compile(r"[-A-Za-z0-9!#$%&'*+.^_`|~]+")
_PORT_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_POLICY_STATES = (ProbeState.SUCCEEDED, ProbeState.FAILED)
_NUMBERS = (
    ("initialDelaySeconds", "initial_delay_seconds", MAX_SECONDS),
    ("timeoutSeconds", "timeout_seconds", MAX_TIMEOUT_SECONDS),
    ("periodSeconds", "period_seconds", MAX_SECONDS),
    ("successThreshold", "success_threshold", MAX_SECONDS),
    ("failureThreshold", "failure_threshold", MAX_SECONDS),
    ("terminationGracePeriodSeconds", "termination_grace_period_seconds", MAX_SECONDS),
)


class ErrorKind(StrEnum):
    """Strings of apimachinery's field.ErrorType."""

    REQUIRED = "Required value"
    INVALID = "Invalid value"
    NOT_SUPPORTED = "Unsupported value"
    DUPLICATE = "Duplicate value"
    FORBIDDEN = "Forbidden"
    TOO_MANY = "Too many"
    TOO_LONG = "Too long"


BOUNDS: Final = frozenset({ErrorKind.TOO_MANY, ErrorKind.TOO_LONG})
"""Bounds exist for CEL's cost budget only; a larger marker that was stored earlier still works."""

_CAUSES: Final = {
    ErrorKind.REQUIRED: "FieldValueRequired",
    ErrorKind.INVALID: "FieldValueInvalid",
    ErrorKind.NOT_SUPPORTED: "FieldValueNotSupported",
    ErrorKind.DUPLICATE: "FieldValueDuplicate",
    ErrorKind.FORBIDDEN: "FieldValueForbidden",
    ErrorKind.TOO_MANY: "FieldValueTooMany",
    ErrorKind.TOO_LONG: "FieldValueTooLong",
}


class FieldError(NamedTuple):
    """A broken rule: field path (`spec.probes[0].probe.httpGet.host`), kind, remedy and value."""

    path: str
    kind: ErrorKind
    detail: str
    value: Any = None

    def __str__(self) -> str:
        shown = "" if self.value is None else f": {_shown(self.value)}"
        return f"{self.path}: {self.kind}{shown}: {self.detail}"

    @property
    def cause(self) -> dict[str, str]:
        """Entry for `Status.details.causes`."""
        shown = "" if self.value is None else f": {_shown(self.value)}"
        return {
            "reason": _CAUSES[self.kind],
            "message": f"{self.kind}{shown}: {self.detail}",
            "field": self.path,
        }


def _shown(value: Any) -> str:
    return f'"{_cut(value)}"' if isinstance(value, str) else str(value)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


class _PolicyKeys(NamedTuple):
    """Label keys that a policy may not write (those of its selector), and reserved keys that it may."""

    of_selector: frozenset[str]
    allowed: Collection[str]


def validate_marker(
    spec: PodProbeMarkerSpec,
    old: PodProbeMarkerSpec | None = None,
    *,
    allowed_labels: Collection[str] = (),
) -> list[FieldError]:
    """Validate `spec` and return at most `MAX_ERRORS` errors; `old` is the stored spec of an update, None on creation.

    `allowed_labels` are the reserved keys in the manager's `--allowed-label-keys`.
    """
    return listed(marker_errors(spec, old, allowed_labels=allowed_labels))


def marker_errors(
    spec: PodProbeMarkerSpec,
    old: PodProbeMarkerSpec | None = None,
    *,
    allowed_labels: Collection[str] = (),
) -> Iterator[FieldError]:
    """Validate `spec` lazily. Filter the errors before `listed`, so a huge marker is not validated completely."""
    if old is not None and old.selector is not None and old.selector != spec.selector:
        yield FieldError("spec.selector", ErrorKind.INVALID, remedies.SELECTOR_IMMUTABLE)
    yield from _selector(spec.selector, "spec.selector")
    yield from _probes(spec, allowed_labels)


def listed(errors: Iterable[FieldError]) -> list[FieldError]:
    """Return the first `MAX_ERRORS` errors; if there are more, one further entry says so."""
    rest = iter(errors)
    first = list(islice(rest, MAX_ERRORS))
    if next(rest, None) is not None:
        first.append(FieldError("spec", ErrorKind.TOO_MANY, remedies.MORE_ERRORS))
    return first


def validate_probe(probe: Probe, path: str) -> Iterator[FieldError]:
    """Validate one probe lazily. The daemon uses it too, as a NodePodProbe may be edited by hand."""
    yield from _handlers(probe, path)
    yield from _numbers(probe, path)


def within_limits(probe: Probe) -> Probe:
    """Return the probe with its timeout clamped: a larger one may be stored from before there was a maximum.
    `validate_probe` reports it.
    """
    if (probe.timeout_seconds or 0) <= MAX_TIMEOUT_SECONDS:
        return probe
    return msgspec.structs.replace(probe, timeout_seconds=MAX_TIMEOUT_SECONDS)


def idle_fields(spec: PodProbeMarkerSpec) -> tuple[str, ...]:
    """Paths of allowed fields without effect: kubelet uses them to restart containers, we never restart any."""
    return tuple(
        f"spec.probes[{index}].probe.terminationGracePeriodSeconds"
        for index, each in enumerate(spec.probes or ())
        if each.probe.termination_grace_period_seconds
    )


def _selector(selector: LabelSelector | None, path: str) -> Iterator[FieldError]:
    labels = (selector and selector.match_labels) or {}
    expressions = (selector and selector.match_expressions) or ()
    if not labels and not expressions:
        yield FieldError(
            path,
            ErrorKind.REQUIRED,
            remedies.SELECTOR_EMPTY,
        )
    yield from _bounded(labels, MAX_SELECTOR_ITEMS, f"{path}.matchLabels")
    yield from _bounded(expressions, MAX_SELECTOR_ITEMS, f"{path}.matchExpressions")
    yield from _label_map(labels, f"{path}.matchLabels")
    for index, each in enumerate(expressions):
        at = f"{path}.matchExpressions[{index}]"
        if problem := label_key_error(each.key):
            yield FieldError(f"{at}.key", ErrorKind.INVALID, problem, each.key)
        yield from _bounded(each.values or (), MAX_SELECTOR_ITEMS, f"{at}.values")
        match each.operator:
            case "In" | "NotIn":
                if not each.values:
                    yield FieldError(
                        f"{at}.values",
                        ErrorKind.REQUIRED,
                        remedies.VALUES_NEEDED,
                    )
            case "Exists" | "DoesNotExist":
                if each.values:
                    yield FieldError(
                        f"{at}.values",
                        ErrorKind.FORBIDDEN,
                        remedies.VALUES_EXCESS,
                    )
            case _:
                yield FieldError(
                    f"{at}.operator",
                    ErrorKind.NOT_SUPPORTED,
                    "use In, NotIn, Exists or DoesNotExist",
                    each.operator,
                )
        for value in each.values or ():
            if problem := label_value_error(value):
                yield FieldError(f"{at}.values", ErrorKind.INVALID, problem, value)


def _probes(spec: PodProbeMarkerSpec, allowed_labels: Collection[str]) -> Iterator[FieldError]:
    probes = spec.probes or ()
    if not probes:
        yield FieldError("spec.probes", ErrorKind.REQUIRED, remedies.PROBES_EMPTY)
    yield from _bounded(probes, MAX_PROBES, "spec.probes")
    yield from _unique((each.name for each in probes), "spec.probes[{}].name")
    yield from _unique(
        (each.pod_condition_type or None for each in probes), "spec.probes[{}].podConditionType"
    )
    keys = _PolicyKeys(_selector_keys(spec.selector), allowed_labels)
    for index, each in enumerate(probes):
        yield from _container_probe(each, f"spec.probes[{index}]", keys)


def _selector_keys(selector: LabelSelector | None) -> frozenset[str]:
    if selector is None:
        return frozenset()
    return frozenset(selector.match_labels or ()) | {
        each.key for each in selector.match_expressions or ()
    }


def _container_probe(
    probe: PodContainerProbe, path: str, keys: _PolicyKeys
) -> Iterator[FieldError]:
    if not probe.name:
        yield FieldError(f"{path}.name", ErrorKind.REQUIRED, "must name the probe")
    elif "#" in probe.name:
        yield FieldError(
            f"{path}.name",
            ErrorKind.INVALID,
            remedies.NAME_WITH_HASH,
            probe.name,
        )
    yield from _capped(probe.name, MAX_NAME, f"{path}.name")
    if not probe.container_name:
        yield FieldError(
            f"{path}.containerName", ErrorKind.REQUIRED, "must name the container to probe"
        )
    yield from _capped(probe.container_name, MAX_CONTAINER_NAME, f"{path}.containerName")
    yield from validate_probe(probe.probe, f"{path}.probe")
    if not probe.pod_condition_type and not probe.marker_policy:
        yield FieldError(
            path,
            ErrorKind.REQUIRED,
            remedies.RESULT_NOWHERE,
        )
    if probe.pod_condition_type:
        yield from _condition_type(probe.pod_condition_type, f"{path}.podConditionType")
    yield from _policies(probe.marker_policy or (), f"{path}.markerPolicy", keys)


def _condition_type(condition_type: str, path: str) -> Iterator[FieldError]:
    problem = condition_reserved(condition_type) or label_key_error(condition_type)
    if problem:
        yield FieldError(path, ErrorKind.INVALID, problem, condition_type)


def _policies(
    policies: tuple[MarkerPolicy, ...], path: str, keys: _PolicyKeys
) -> Iterator[FieldError]:
    yield from _bounded(policies, MAX_POLICIES, path)
    states = (each.state for each in policies)
    yield from _unique(states, path + "[{}].state", remedies.UNIQUE_STATE)
    for index, policy in enumerate(policies):
        at = f"{path}[{index}]"
        if policy.state not in _POLICY_STATES:
            yield FieldError(
                f"{at}.state", ErrorKind.NOT_SUPPORTED, "use Succeeded or Failed", policy.state
            )
        labels, annotations = policy.labels or {}, policy.annotations or {}
        if not labels and not annotations:
            yield FieldError(at, ErrorKind.REQUIRED, remedies.POLICY_EMPTY)
        yield from _bounded(labels, MAX_MARKS, f"{at}.labels")
        yield from _bounded(annotations, MAX_MARKS, f"{at}.annotations")
        yield from _label_map(labels, f"{at}.labels")
        yield from _annotation_map(annotations, f"{at}.annotations")
        for key in labels:
            if problem := _label_forbidden(key, keys):
                yield FieldError(
                    f"{at}.labels", ErrorKind.FORBIDDEN, f"key {_cut(key)!r} {problem}"
                )


def _label_forbidden(key: str, keys: _PolicyKeys) -> str | None:
    if key in keys.of_selector:
        return remedies.OWN_SELECTOR_KEY
    return label_reserved(key, keys.allowed)


def _label_map(labels: Mapping[str, str], path: str) -> Iterator[FieldError]:
    for key, value in labels.items():
        if problem := label_key_error(key):
            yield FieldError(path, ErrorKind.INVALID, problem, key)
        if problem := label_value_error(value):
            yield FieldError(path, ErrorKind.INVALID, problem, value)


def _annotation_map(annotations: Mapping[str, str], path: str) -> Iterator[FieldError]:
    for key, value in annotations.items():
        if problem := annotation_reserved(key):
            yield FieldError(path, ErrorKind.FORBIDDEN, f"key {_cut(key)!r} {problem}")
        elif problem := annotation_key_error(key):
            yield FieldError(path, ErrorKind.INVALID, problem, key)
        if problem := annotation_value_error(key, value):
            yield FieldError(path, ErrorKind.INVALID, problem, value)
        yield from _capped(value, MAX_ANNOTATION_VALUE, f"{path}[{_cut(key)}]")


def _handlers(probe: Probe, path: str) -> Iterator[FieldError]:
    given = [
        name
        for name, action in (
            ("exec", probe.exec),
            ("httpGet", probe.http_get),
            ("tcpSocket", probe.tcp_socket),
            ("grpc", probe.grpc),
        )
        if action is not None
    ]
    if not given:
        yield FieldError(path, ErrorKind.REQUIRED, remedies.HANDLER_NEEDED)
    for name in given[1:]:
        yield FieldError(
            f"{path}.{name}",
            ErrorKind.FORBIDDEN,
            f"{remedies.HANDLER_EXCESS}; {given[0]} is given already",
        )
    if probe.exec is not None:
        yield from _exec(probe.exec, f"{path}.exec")
    if probe.http_get is not None:
        yield from _http_get(probe.http_get, f"{path}.httpGet")
    if probe.tcp_socket is not None:
        yield from _tcp_socket(probe.tcp_socket, f"{path}.tcpSocket")
    if probe.grpc is not None:
        yield from _grpc(probe.grpc, f"{path}.grpc")


def _exec(action: ExecAction, path: str) -> Iterator[FieldError]:
    command = action.command or ()
    if not command:
        yield FieldError(f"{path}.command", ErrorKind.REQUIRED, remedies.COMMAND_NEEDED)
    yield from _bounded(command, MAX_COMMAND, f"{path}.command")
    for index, word in enumerate(command):
        yield from _capped(word, MAX_COMMAND_BYTES, f"{path}.command[{index}]")
    size = sum(len(word.encode(errors="replace")) for word in command)
    if size > MAX_COMMAND_BYTES:
        yield FieldError(f"{path}.command", ErrorKind.INVALID, remedies.COMMAND_TOO_LONG, size)


def _http_get(action: HTTPGetAction, path: str) -> Iterator[FieldError]:
    yield from _no_host(action.host, path)
    yield from _port(action.port, f"{path}.port")
    yield from _capped(action.path or "", MAX_TEXT, f"{path}.path")
    if action.scheme and action.scheme not in ("HTTP", "HTTPS"):
        yield FieldError(f"{path}.scheme", ErrorKind.NOT_SUPPORTED, remedies.SCHEME, action.scheme)
    headers = action.http_headers or ()
    yield from _bounded(headers, MAX_HEADERS, f"{path}.httpHeaders")
    for index, header in enumerate(headers):
        at = f"{path}.httpHeaders[{index}]"
        if not _HEADER_NAME.fullmatch(header.name):
            yield FieldError(
                f"{at}.name",
                ErrorKind.INVALID,
                remedies.HEADER_NAME,
                header.name,
            )
        yield from _capped(header.name, MAX_NAME, f"{at}.name")
        yield from _capped(header.value, MAX_TEXT, f"{at}.value")


def _tcp_socket(action: TCPSocketAction, path: str) -> Iterator[FieldError]:
    yield from _no_host(action.host, path)
    yield from _port(action.port, f"{path}.port")


def _grpc(action: GRPCAction, path: str) -> Iterator[FieldError]:
    yield from _port(action.port, f"{path}.port")
    yield from _capped(action.service or "", MAX_TEXT, f"{path}.service")
    if action.mode and action.mode not in ("Plaintext", "TLS"):
        yield FieldError(f"{path}.mode", ErrorKind.NOT_SUPPORTED, remedies.MODE, action.mode)


def _no_host(host: str | None, path: str) -> Iterator[FieldError]:
    if host:
        yield FieldError(
            f"{path}.host",
            ErrorKind.FORBIDDEN,
            remedies.HOST,
        )


def _port(port: int | str, path: str) -> Iterator[FieldError]:
    if isinstance(port, int):
        if not 1 <= port <= MAX_PORT:
            yield FieldError(
                path, ErrorKind.INVALID, f"must be between 1 and {MAX_PORT}, inclusive", port
            )
    elif not port_name_is_valid(port):
        yield FieldError(
            path,
            ErrorKind.INVALID,
            remedies.PORT_NAME,
            port,
        )


def port_name_is_valid(name: str) -> bool:
    """Whether `name` is a container port name (IANA_SVC_NAME)."""
    return (
        len(name) <= MAX_PORT_NAME
        and "--" not in name
        and bool(_PORT_NAME.fullmatch(name))
        and any(letter.isalpha() for letter in name)
    )


def _numbers(probe: Probe, path: str) -> Iterator[FieldError]:
    for wire_name, attribute, most in _NUMBERS:
        number = getattr(probe, attribute)
        if number is None:
            continue
        if number < 0:
            yield FieldError(
                f"{path}.{wire_name}",
                ErrorKind.INVALID,
                "must be greater than or equal to 0 (0 means absent)",
                number,
            )
        elif number > most:
            problem = f"must be at most {most}"
            if most == MAX_TIMEOUT_SECONDS:
                problem += f"; until it is corrected, {most} is used"
            yield FieldError(f"{path}.{wire_name}", ErrorKind.INVALID, problem, number)


def _bounded(items: Iterable[object], most: int, path: str) -> Iterator[FieldError]:
    count = sum(1 for _ in items)
    if count > most:
        yield FieldError(path, ErrorKind.TOO_MANY, f"must have at most {most} items", count)


def _capped(text: str, most: int, path: str) -> Iterator[FieldError]:
    if len(text) > most:
        yield FieldError(path, ErrorKind.TOO_LONG, f"may not be more than {most} characters")


def _unique(
    names: Iterable[str | None], path: str, remedy: str = remedies.UNIQUE
) -> Iterator[FieldError]:
    """Report duplicate names. `path` has a `{}` for the index; None is ignored."""
    seen: Counter[str] = Counter()
    for index, name in enumerate(names):
        if name is None:
            continue
        if seen[name]:
            yield FieldError(path.format(index), ErrorKind.DUPLICATE, remedy, name)
        seen[name] += 1
