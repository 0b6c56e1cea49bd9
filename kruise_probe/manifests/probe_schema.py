"""The schema of a probe: core/v1's, with the rules of markers where a user writes it.

Source: core/v1 Probe of Kubernetes 1.36, with `grpc.mode` of 1.37.
Differs: absent numbers stay absent, as Kruise gives them another meaning than core/v1.
"""

from kruise_probe.api import validation as limits
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


def probe(*, bounded: bool) -> Schema:
    """`bounded` for markers. A NodePodProbe takes what its manager wrote: one bad probe refused there would stop
    every other probe of the node; the daemon refuses that probe alone.
    """
    handlers = {
        "exec": _exec(bounded=bounded),
        "httpGet": _http_get(bounded=bounded),
        "tcpSocket": record(
            {"host": _host(bounded=bounded), "port": port(bounded=bounded)}, required=["port"]
        ),
        "grpc": _grpc(bounded=bounded),
    }
    least, most = (0, limits.MAX_SECONDS) if bounded else (None, None)
    numbers = {
        name: int32(least=least, most=most)
        for name in (
            "initialDelaySeconds",
            "timeoutSeconds",
            "periodSeconds",
            "successThreshold",
            "failureThreshold",
        )
    }
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
    if not bounded:
        return record({"command": list_of(text())})
    word = text(most=limits.MAX_COMMAND_WORD)
    return ruled(record({"command": list_of(word, most=limits.MAX_COMMAND)}), rules.COMMAND)


def _http_get(*, bounded: bool) -> Schema:
    name, value, path, scheme = text(), text(), text(), text()
    if bounded:
        name = ruled(text(most=limits.MAX_NAME), rules.HEADER_NAME)
        value = path = text(most=limits.MAX_TEXT)
        scheme = ruled(text(most=limits.MAX_NAME), rules.SCHEME)
    header = record({"name": name, "value": value}, required=["name", "value"])
    return record(
        {
            "host": _host(bounded=bounded),
            "httpHeaders": list_of(header, most=limits.MAX_HEADERS if bounded else None),
            "path": {**path, "default": "/"},
            "port": port(bounded=bounded),
            "scheme": {**scheme, "default": "HTTP"},
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
        {"port": number, "service": service, "mode": described(meaning, mode)}, required=["port"]
    )


def _host(*, bounded: bool) -> Schema:
    schema = ruled(text(most=limits.MAX_NAME), rules.HOST) if bounded else text()
    return described("Not allowed: probes go to the pod's own IP.", schema)
