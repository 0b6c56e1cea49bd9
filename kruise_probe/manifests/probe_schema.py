"""Schema of a probe: that of core/v1, with CEL rules in markers.

Source: core/v1 Probe of Kubernetes 1.36, with `grpc.mode` of 1.37.
Differs: absent numbers get no default, as Kruise's defaults differ from those of core/v1.
"""

from typing import Final

from kruise_probe.api import validation as limits
from kruise_probe.api.core import MAX_SECONDS, MAX_TIMEOUT_SECONDS
from kruise_probe.manifests import rules
from kruise_probe.manifests.schema import (
    Schema,
    described,
    int32,
    int64,
    list_of,
    port,
    record,
    ruled,
    text,
)

_NUMBERS: Final = {
    "initialDelaySeconds": "Seconds from the container's start to the first probe. Default: 0.",
    "timeoutSeconds": "Seconds after which an attempt times out. Default (absent or 0): 1.",
    "periodSeconds": "Seconds between two probes. Default (absent or 0): 1.",
    "successThreshold": "Consecutive successes until the state is Succeeded. Default (absent or 0): 1.",
    "failureThreshold": "Consecutive failures until the state is Failed. Default (absent or 0): 1.",
}


def probe(*, bounded: bool) -> Schema:
    """Schema of a probe; `bounded` for markers.

    A NodePodProbe has no bounds: one invalid probe would block all probes of the node. The daemon refuses only that
    probe.
    """
    port_of_pod = described("Port number, or name of a container port.", port(bounded=bounded))
    handlers = {
        "exec": described(
            "Runs a command in the container; exit code 0 is a success.", _exec(bounded=bounded)
        ),
        "httpGet": described(
            "Sends a GET request to the pod; status 200 to 399 is a success.",
            _http_get(bounded=bounded),
        ),
        "tcpSocket": described(
            "Opens a TCP connection to the pod; an established connection is a success.",
            record({"host": _host(bounded=bounded), "port": port_of_pod}, required=["port"]),
        ),
        "grpc": described("Calls the gRPC health service of the pod.", _grpc(bounded=bounded)),
    }
    least, most = (0, MAX_SECONDS) if bounded else (None, None)
    numbers = {
        name: described(meaning, int32(least=least, most=most))
        for name, meaning in _NUMBERS.items()
    }
    if bounded:
        numbers["timeoutSeconds"]["maximum"] = MAX_TIMEOUT_SECONDS
    schema = record(
        {
            **handlers,
            **numbers,
            "terminationGracePeriodSeconds": described(
                "No effect: these probes never terminate a container.",
                int64(least=least, most=most),
            ),
        }
    )
    return described(
        "A container probe as in core/v1. Absent numbers default to 1 (initialDelaySeconds: 0).",
        ruled(schema, *rules.HANDLERS) if bounded else schema,
    )


def _exec(*, bounded: bool) -> Schema:
    meaning = "Program and arguments; not run in a shell."
    if not bounded:
        return record({"command": described(meaning, list_of(text()))})
    words = list_of(text(most=limits.MAX_COMMAND_BYTES), most=limits.MAX_COMMAND)
    return ruled(record({"command": described(meaning, words)}), *rules.COMMAND)


def _http_get(*, bounded: bool) -> Schema:
    name, value, path, scheme = text(), text(), text(), text()
    if bounded:
        name = ruled(text(most=limits.MAX_NAME), rules.HEADER_NAME)
        value = text(most=limits.MAX_TEXT)
        path = ruled(text(most=limits.MAX_TEXT), *rules.PATH)
        scheme = ruled(text(most=limits.MAX_NAME), rules.SCHEME)
    header = record(
        {"name": described("Header name.", name), "value": described("Header value.", value)},
        required=["name", "value"],
    )
    return record(
        {
            "host": _host(bounded=bounded),
            "httpHeaders": described(
                "Request headers. A Host header does not change the target of the request.",
                list_of(header, most=limits.MAX_HEADERS if bounded else None),
            ),
            "path": described(
                "Path of the request, including the query.", {**path, "default": "/"}
            ),
            "port": described("Port number, or name of a container port.", port(bounded=bounded)),
            "scheme": described(
                "HTTP or HTTPS; certificates are not verified.", {**scheme, "default": "HTTP"}
            ),
        },
        required=["port"],
    )


def _grpc(*, bounded: bool) -> Schema:
    number, service, mode = int32(), text(), text()
    if bounded:
        number = int32(least=1, most=limits.MAX_PORT)
        service = text(most=limits.MAX_TEXT)
        mode = ruled(text(most=limits.MAX_NAME), rules.MODE)
    meaning = "TLS: uses TLS without verification. Plaintext or absent: no TLS."
    return record(
        {
            "port": described("Port number.", number),
            "service": described("Service name in the health check request.", service),
            "mode": described(meaning, mode),
        },
        required=["port"],
    )


def _host(*, bounded: bool) -> Schema:
    schema = ruled(text(most=limits.MAX_NAME), rules.HOST) if bounded else text()
    return described("Not allowed: probes always use the pod's own IP.", schema)
