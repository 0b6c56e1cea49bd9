"""Schema of a probe: that of core/v1, with CEL rules in markers.

Source: core/v1 Probe of Kubernetes 1.36, with `grpc.mode` of 1.37.
Differs: absent numbers get no default, as Kruise's defaults differ from those of core/v1.
"""

from typing import Final

from kruise_probe.api import probe_validation
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


def probe() -> Schema:
    """Schema of a marker's probe. A NodePodProbe has an open one: an invalid probe would block all probes of the node."""
    handlers = {
        "exec": described("Runs a command in the container; exit code 0 is a success.", _exec()),
        "httpGet": described(
            "Sends a GET request to the pod; status 200 to 399 is a success.", _http_get()
        ),
        "tcpSocket": described(
            "Opens a TCP connection to the pod; an established connection is a success.",
            record({"host": _host(), "port": _port()}, required=["port"]),
        ),
        "grpc": described("Calls the gRPC health service of the pod.", _grpc()),
    }
    numbers = {
        name: described(meaning, int32(minimum=0, maximum=MAX_SECONDS))
        for name, meaning in _NUMBERS.items()
    }
    numbers["timeoutSeconds"]["maximum"] = MAX_TIMEOUT_SECONDS
    schema = record(
        {
            **handlers,
            **numbers,
            "terminationGracePeriodSeconds": described(
                "No effect: these probes never terminate a container.",
                int64(minimum=0, maximum=MAX_SECONDS),
            ),
        }
    )
    return described(
        "A container probe as in core/v1. Absent numbers default to 1 (initialDelaySeconds: 0).",
        ruled(schema, *rules.HANDLERS),
    )


def _exec() -> Schema:
    words = list_of(
        text(maximum=probe_validation.MAX_COMMAND_BYTES), maximum=probe_validation.MAX_COMMAND
    )
    command = described("Program and arguments; not run in a shell.", words)
    return ruled(record({"command": command}), *rules.COMMAND)


def _http_get() -> Schema:
    name = ruled(text(maximum=probe_validation.MAX_NAME), rules.HEADER_NAME)
    value = ruled(text(maximum=probe_validation.MAX_TEXT), rules.HEADER_VALUE)
    path = ruled(text(maximum=probe_validation.MAX_TEXT), *rules.PATH)
    scheme = ruled(text(maximum=probe_validation.MAX_NAME), rules.SCHEME)
    header = record(
        {
            "name": described("Header name.", name),
            "value": described("Header value.", value),
        },
        required=["name", "value"],
    )
    return record(
        {
            "host": _host(),
            "httpHeaders": described(
                "Request headers. A Host header does not change the target of the request.",
                list_of(header, maximum=probe_validation.MAX_HEADERS),
            ),
            "path": described(
                "Path of the request, including the query.", {**path, "default": "/"}
            ),
            "port": _port(),
            "scheme": described(
                "HTTP or HTTPS; certificates are not verified.", {**scheme, "default": "HTTP"}
            ),
        },
        required=["port"],
    )


def _grpc() -> Schema:
    mode = ruled(text(maximum=probe_validation.MAX_NAME), rules.MODE)
    return record(
        {
            "port": described("Port number.", int32(minimum=1, maximum=probe_validation.MAX_PORT)),
            "service": described(
                "Service name in the health check request.", text(maximum=probe_validation.MAX_TEXT)
            ),
            "mode": described(
                "TLS: uses TLS without verification. Plaintext or absent: no TLS.", mode
            ),
        },
        required=["port"],
    )


def _port() -> Schema:
    return described("Port number, or name of a container port.", port())


def _host() -> Schema:
    schema = ruled(text(maximum=probe_validation.MAX_NAME), rules.HOST)
    return described("Not allowed: probes always use the pod's own IP.", schema)
