"""Pods, markers and connections that try to stop the probes of others. They reach this machine's own pods and ports only."""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

from support.hollow import marker_object, probe
from support.real_node import busybox_pod

Object = dict[str, Any]

GRPC_PORT, FOLDED_PORT, DRIP_PORT, REDIRECT_PORT = 50051, 8081, 8082, 8083

_SERVERS = rf"""
cd /tmp
# 1 MiB of HTTP/2 frames of a type that does not exist, without contents
printf '\000\000\000\372\000\000\000\000\000' > frame
i=0; while [ $i -lt 17 ]; do cat frame frame > twice; mv twice frame; i=$((i+1)); done
printf '\000\000\000\004\000\000\000\000\000' > settings
cat > flood <<'END'
#!/bin/sh
cat /tmp/settings
while :; do cat /tmp/frame || exit; done
END
# a header field that is folded again and again
{{ printf 'HTTP/1.1 200 OK\r\nX: a\r\n'; yes ' b' | head -c 262144; }} > folded
cat > fold <<'END'
#!/bin/sh
cat /tmp/folded
sleep 60
END
cat > drip <<'END'
#!/bin/sh
printf 'HTTP/1.1 200 OK\r\n'
while :; do printf 'X: a\r\n' || exit; usleep 200000; done
END
cat > turn <<'END'
#!/bin/sh
printf 'HTTP/1.1 302 Found\r\nLocation: /again\r\nContent-Length: 0\r\n'
head -c 65536 /tmp/folded | tail -n +3
printf '\r\n\r\n'
END
chmod +x flood fold drip turn
nc -lk -p {GRPC_PORT} -e /tmp/flood & nc -lk -p {FOLDED_PORT} -e /tmp/fold &
nc -lk -p {DRIP_PORT} -e /tmp/drip & nc -lk -p {REDIRECT_PORT} -e /tmp/turn &
wait
"""


def attacker_pod() -> Object:
    """A pod whose servers flood, fold, drip and redirect."""
    return busybox_pod("attacker", "sh", "-c", _SERVERS, labels={"attacker": "yes"})


def ballast_pod(number: int) -> Object:
    """A pod that never starts: it only fills its node's NodePodProbe."""
    pod = busybox_pod(f"ballast-{number}", "true", labels={"ballast": "yes"})
    container = pod["spec"]["containers"][0]
    container |= {"image": "kruise-probe-test:does-not-exist", "imagePullPolicy": "Never"}
    return pod


def _probe(name: str, handler: Object, **numbers: int) -> Object:
    kind = f"attack.example.com/{name}"
    return probe(name, probe={**handler, **numbers}, podConditionType=kind, markerPolicy=None)


def _marker(name: str, selector: Object, probes: list[Object]) -> Object:
    return marker_object(*probes, name=name, selector=selector)


def markers(*, crowd: int) -> Iterator[Object]:
    """One marker for each kind of attack, and `crowd` small ones on one pod."""
    attacker = {"matchLabels": {"attacker": "yes"}}
    hang = {"exec": {"command": ["sleep", "100000"]}}
    shout = {"exec": {"command": ["dd", "if=/dev/zero", "bs=1M", "count=15"]}}
    yield _marker(
        "hang", attacker, [_probe(f"hang-{n}", hang, timeoutSeconds=3600) for n in range(16)]
    )
    yield _marker(
        "hang-again",
        attacker,
        [_probe(f"again-{n}", {"exec": {"command": ["sleep", f"{1000 + n}"]}}) for n in range(16)],
    )
    yield _marker("shout", attacker, [_probe("shout", shout, periodSeconds=2)])
    yield _marker(
        "servers",
        attacker,
        [
            _probe("grpc", {"grpc": {"port": GRPC_PORT}}),
            _probe("folded", {"httpGet": {"port": FOLDED_PORT}}),
            _probe("drip", {"httpGet": {"port": DRIP_PORT}}),
            _probe("redirect", {"httpGet": {"port": REDIRECT_PORT}}),
        ],
    )
    yield _cycle("cycle-a", {"key": "loop-y", "operator": "DoesNotExist"}, "loop-x")
    yield _cycle("cycle-b", {"key": "loop-x", "operator": "Exists"}, "loop-y")
    for number in range(crowd):
        yield _marker(
            f"crowd-{number}",
            attacker,
            [
                _probe(f"c{number}-{n}", {"tcpSocket": {"port": 9}}, periodSeconds=5)
                for n in range(4)
            ],
        )
    large = {"exec": {"command": ["true", "x" * 7000]}}
    yield _marker(
        "large",
        {"matchLabels": {"ballast": "yes"}},
        [_probe(f"large-{n}", large, periodSeconds=60) for n in range(8)],
    )


def _cycle(name: str, requirement: Object, key: str) -> Object:
    policy = {"state": "Succeeded", "labels": {key: "1"}}
    one = {**_probe(name, {"tcpSocket": {"port": DRIP_PORT}}), "markerPolicy": [policy]}
    return _marker(
        name, {"matchLabels": {"attacker": "yes"}, "matchExpressions": [requirement]}, [one]
    )


async def hold_connections(port: int, *, count: int, first: bytes = b"G") -> None:
    """Keeps `count` connections open that never finish their request, and replaces those that end."""
    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            _ = group.create_task(_keep_connected(port, first))


async def _keep_connected(port: int, first: bytes) -> None:
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(first)
                while await reader.read(65536):
                    pass
            finally:
                writer.transport.abort()
        await asyncio.sleep(0.5)


async def pipeline_metrics(port: int, *, count: int) -> None:
    """Sends requests for /metrics on `count` connections and reads no answer until the connection ends."""
    request = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n" * 16
    await hold_connections(port, count=count, first=request)
