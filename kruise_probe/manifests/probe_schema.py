"""The schema of a probe: core/v1's, with the rules of markers where a user writes it.

Source: core/v1 Probe of Kubernetes 1.36, with `grpc.mode` of 1.37.
Differs: absent numbers stay absent, as Kruise gives them another meaning than core/v1.
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
    "initialDelaySeconds": "From the container's start to its first probe. Absent: 0.",
    "timeoutSeconds": "After which a probe has failed. Absent or 0: 1.",
    "periodSeconds": "From one probe to the next. Absent or 0: 1.",
    "successThreshold": "Successes in a row until the state is Succeeded. Absent or 0: 1.",
    "failureThreshold": "Failures in a row until the state is Failed. Absent or 0: 1.",
}


def probe(*, bounded: bool) -> Schema:
    """`bounded` for markers. A NodePodProbe takes what its manager wrote: one bad probe refused there would stop
    every other probe of the node; the daemon refuses that probe alone.
    """
    port_of_pod = described("Number, or name of a port of the container.", port(bounded=bounded))
    handlers = {
        "exec": described(
            "A command in the container; exit code 0 succeeds.", _exec(bounded=bounded)
        ),
        "httpGet": described(
            "A GET request to the pod; 200 to 399 succeed.", _http_get(bounded=bounded)
        ),
        "tcpSocket": described(
            "A connection to the pod; it succeeds when it is made.",
            record({"host": _host(bounded=bounded), "port": port_of_pod}, required=["port"]),
        ),
        "grpc": described("A call of the gRPC health protocol.", _grpc(bounded=bounded)),
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
                "Without effect: no probe here ends a container.", int64(least=least, most=most)
            ),
        }
    )
    return described(
        "A probe as of a container. Absent numbers mean 1 (initialDelaySeconds: 0).",
        ruled(schema, *rules.HANDLERS) if bounded else schema,
    )


def _exec(*, bounded: bool) -> Schema:
    meaning = "The program and its arguments; no shell is put around them."
    if not bounded:
        return record({"command": described(meaning, list_of(text()))})
    words = list_of(text(most=limits.MAX_COMMAND_BYTES), most=limits.MAX_COMMAND)
    return ruled(record({"command": described(meaning, words)}), *rules.COMMAND)


def _http_get(*, bounded: bool) -> Schema:
    name, value, path, scheme = text(), text(), text(), text()
    if bounded:
        name = ruled(text(most=limits.MAX_NAME), rules.HEADER_NAME)
        value = path = text(most=limits.MAX_TEXT)
        scheme = ruled(text(most=limits.MAX_NAME), rules.SCHEME)
    header = record(
        {"name": described("Of the header.", name), "value": described("Of the header.", value)},
        required=["name", "value"],
    )
    return record(
        {
            "host": _host(bounded=bounded),
            "httpHeaders": described(
                "Sent along. Host does not change where the request goes.",
                list_of(header, most=limits.MAX_HEADERS if bounded else None),
            ),
            "path": described("With the query.", {**path, "default": "/"}),
            "port": described("Number, or name of a port of the container.", port(bounded=bounded)),
            "scheme": described(
                "HTTPS: certificates are not verified.", {**scheme, "default": "HTTP"}
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
    meaning = "TLS: with TLS, without verification; Plaintext or absent: without TLS."
    return record(
        {
            "port": described("Number of the port.", number),
            "service": described("The service that the health check is about.", service),
            "mode": described(meaning, mode),
        },
        required=["port"],
    )


def _host(*, bounded: bool) -> Schema:
    schema = ruled(text(most=limits.MAX_NAME), rules.HOST) if bounded else text()
    return described("Not allowed: probes go to the pod's own IP.", schema)
