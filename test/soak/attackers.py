"""Pods, markers and connections that try to stop the probes of others. They reach this machine's own pods and ports only."""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding
from support.background import background
from support.flood_servers import BEGUN, SETTINGS, frame, tls_certificates
from support.hollow import marker_object, probe
from support.real_node import busybox_pod
from support.wire import Json, typed

from kruise_probe.api.times import utc_now

GRPC_PORT = 50051
FOLDED_PORT = 8081
DRIP_PORT = 8082
REDIRECT_PORT = 8083
UNFINISHED_PORT = 9000
"""The first port of those that send a part of a message."""

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
nc -ll -p {GRPC_PORT} -e /tmp/flood & nc -ll -p {FOLDED_PORT} -e /tmp/fold &
nc -ll -p {DRIP_PORT} -e /tmp/drip & nc -ll -p {REDIRECT_PORT} -e /tmp/turn &
wait
"""


def attacker_pod() -> Json:
    """A pod whose servers flood, fold, drip and redirect."""
    return busybox_pod(
        "attacker",
        "sh",
        "-c",
        _SERVERS,
        labels={"attacker": "yes"},
    )


def ballast_pod(number: int) -> Json:
    """A pod that never starts: it only fills its node's NodePodProbe."""
    pod = busybox_pod(f"ballast-{number}", "true", labels={"ballast": "yes"})
    container = pod["spec"]["containers"][0]
    container |= {"image": "kruise-probe-test:does-not-exist", "imagePullPolicy": "Never"}
    return pod


FLAPPING_SECONDS = 11

_FLAPPING = f"""
mkdir -p /tmp/www; cd /tmp/www; httpd -p 8080
while :; do touch ok; sleep {FLAPPING_SECONDS}; rm ok; sleep {FLAPPING_SECONDS}; done
"""

HELD_SECONDS = 20
"""How long a server waits after a part of a message."""

GRPC: Json = {"grpc": {}}
HTTPS: Json = {"httpGet": {"path": "/", "scheme": "HTTPS"}}


def _tiny_certificate() -> bytes:
    key = Ed25519PrivateKey.generate()
    no_name = x509.Name([])
    builder = x509.CertificateBuilder(
        no_name,
        no_name,
        key.public_key(),
        1,
        utc_now(),
        utc_now() + timedelta(days=1),
    )
    return builder.sign(key, None).public_bytes(Encoding.DER)


def unfinished() -> dict[str, tuple[Json, bytes]]:
    """What servers send before they wait, and the handlers that read it: rows 9 and 10."""
    page = {"httpGet": {"path": "/"}}
    part_of_frame = (250_000).to_bytes(3) + frame(0, 0, 1, bytes(20_000))[3:]
    part_of_message = frame(0, 0, 1, bytes(16_000)) * 4
    part_of_head = b"HTTP/1.1 200 OK\r\nA: " + b"a" * 60_000
    chain = [_tiny_certificate()] * 431
    return {
        "frame": (GRPC, SETTINGS + part_of_frame),
        "message": (GRPC, BEGUN + part_of_message),
        "head": (page, part_of_head),
        "handshake": (HTTPS, tls_certificates(bytes(30_000), declared=99_000)),
        "chain": (HTTPS, tls_certificates(*chain)),
    }


def sent_data() -> Json:
    """The ConfigMap of holding pods."""
    data = {name: base64.b64encode(sent).decode() for name, (_, sent) in unfinished().items()}
    return typed("ConfigMap", metadata={"name": "unfinished"}, binaryData=data)


def _flapping_pod(number: int) -> Json:
    """Row 7."""
    return busybox_pod(
        f"flapping-{number}",
        "sh",
        "-c",
        _FLAPPING,
        labels={"flapping": "yes"},
    )


def _shouting_pod(number: int) -> Json:
    """Row 8."""
    return busybox_pod(
        f"shouting-{number}",
        "sleep",
        "100000",
        labels={"shouting": "yes"},
    )


def _holding_pod(number: int) -> Json:
    """Rows 9 and 10: each port sends part of a message."""
    lines = ["cd /tmp"]
    for port, name in enumerate(unfinished(), UNFINISHED_PORT):
        lines.append(f"printf '#!/bin/sh\ncat /data/{name}; sleep {HELD_SECONDS}\n' > {name}")
        lines.append(f"chmod +x {name}; nc -ll -p {port} -e /tmp/{name} &")
    lines.append("wait")
    pod = busybox_pod(
        f"holding-{number}",
        "sh",
        "-c",
        "\n".join(lines),
        labels={"holding": "yes"},
        volumes=[
            {
                "name": "data",
                "configMap": {"name": "unfinished"},
            }
        ],
    )
    pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    return pod


def pods_of_rows(count: int) -> Iterator[Json]:
    """Those of rows 7 to 10; half as many flap."""
    for number in range(count):
        yield _shouting_pod(number)
        yield _holding_pod(number)
    for number in range(max(count // 2, 1)):
        yield _flapping_pod(number)


def markers_of_rows() -> Iterator[Json]:
    """Up to 120 probes for each pod of rows 7 to 10."""
    page = {"httpGet": {"port": 8080, "path": "/ok"}}
    shout = {"exec": {"command": ["sh", "-c", "yes '<' | tr -d '\\n' | head -c 1024"]}}
    for number in range(4):
        flapping = _probes(30, f"f{number}", page, periodSeconds=10)
        yield _marker(f"flapping-{number}", "flapping", flapping)
        shouting = _probes(30, f"s{number}", shout, periodSeconds=300)
        yield _marker(f"shouting-{number}", "shouting", shouting)
    for port, (name, (action, _)) in enumerate(unfinished().items(), UNFINISHED_PORT):
        ((handler, fields),) = action.items()
        held = {handler: {**fields, "port": port}}
        holding = _probes(
            24,
            name,
            held,
            timeoutSeconds=30,
            periodSeconds=30,
        )
        yield _marker(name, "holding", holding)


def _probe(name: str, handler: Json, **numbers: int) -> Json:
    return probe(
        name,
        probe={**handler, **numbers},
        podConditionType=f"attack.example.com/{name}",
        markerPolicy=None,
    )


def _probes(count: int, name: str, handler: Json, **numbers: int) -> list[Json]:
    return [_probe(f"{name}-{number}", handler, **numbers) for number in range(count)]


def _marker(name: str, of: str, probes: list[Json]) -> Json:
    """A marker of the pods of one attack."""
    return marker_object(*probes, name=name, selector={"matchLabels": {of: "yes"}})


def markers(*, crowd: int) -> Iterator[Json]:
    """One marker for each kind of attack, and `crowd` small ones on one pod."""
    hang = {"exec": {"command": ["sleep", "100000"]}}
    yield _marker(
        "hang",
        "attacker",
        _probes(16, "hang", hang, timeoutSeconds=3600),
    )
    again: list[Json] = []
    for number in range(16):
        command = ["sleep", f"{1000 + number}"]
        again.append(_probe(f"again-{number}", {"exec": {"command": command}}))
    yield _marker("hang-again", "attacker", again)
    shout = {"exec": {"command": ["dd", "if=/dev/zero", "bs=1M", "count=15"]}}
    yield _marker("shout", "attacker", [_probe("shout", shout, periodSeconds=2)])
    servers = [
        _probe("grpc", {"grpc": {"port": GRPC_PORT}}),
        _probe("folded", {"httpGet": {"port": FOLDED_PORT}}),
        _probe("drip", {"httpGet": {"port": DRIP_PORT}}),
        _probe("redirect", {"httpGet": {"port": REDIRECT_PORT}}),
    ]
    yield _marker("servers", "attacker", servers)
    yield _cycle(
        "cycle-a",
        {"key": "loop-y", "operator": "DoesNotExist"},
        "loop-x",
    )
    yield _cycle(
        "cycle-b",
        {"key": "loop-x", "operator": "Exists"},
        "loop-y",
    )
    for number in range(crowd):
        small = _probes(
            4,
            f"c{number}",
            {"tcpSocket": {"port": 9}},
            periodSeconds=5,
        )
        yield _marker(f"crowd-{number}", "attacker", small)
    large = {"exec": {"command": ["true", "x" * 7000]}}
    yield _marker(
        "large",
        "ballast",
        _probes(8, "large", large, periodSeconds=60),
    )


def _cycle(name: str, requirement: Json, key: str) -> Json:
    cycling = _probe(name, {"tcpSocket": {"port": DRIP_PORT}})
    cycling["markerPolicy"] = [{"state": "Succeeded", "labels": {key: "1"}}]
    marker = _marker(name, "attacker", [cycling])
    marker["spec"]["selector"]["matchExpressions"] = [requirement]
    return marker


@asynccontextmanager
async def strangers(*ports: int, count: int) -> AsyncIterator[None]:
    """Connections from outside to every port that the programs listen on."""
    async with AsyncExitStack() as stack:
        for port in ports:
            holding = background(_hold_connections(port, count=count))
            _ = await stack.enter_async_context(holding)
            pipelining = background(_pipeline_metrics(port, count=count // 4))
            _ = await stack.enter_async_context(pipelining)
        yield


async def _hold_connections(port: int, *, count: int, first: bytes = b"G") -> None:
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


async def _pipeline_metrics(port: int, *, count: int) -> None:
    """Sends requests for /metrics on `count` connections and reads no answer until the connection ends."""
    request = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n" * 16
    await _hold_connections(port, count=count, first=request)
