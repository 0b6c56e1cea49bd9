"""Pods that send part of a message and then nothing: what the daemon holds of them is bounded, all attempts together."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from hostile.process_node import ADDRESS, daemon_with_victim, process_node
from support.connections import listening
from support.flood_servers import BEGUN, SETTINGS, frame, headers, tls_certificates
from support.output import print_line
from support.wire import Json

PODS = 16
PROBES_OF_A_POD = 75
TIMEOUT_SECONDS = 120
ATTACK_SECONDS = 15.0
MAX_PEAK_MB = 128

DATA_FRAME = frame(0, 0, 1, bytes(16_000))
CONTINUATION = frame(9, 0, 1, bytes(16_000))
OF_GRPC = (
    SETTINGS + frame(0, 0, 1, bytes(250_000))[:-1],
    SETTINGS + headers(b"", flags=0) + CONTINUATION * 15,
    BEGUN + DATA_FRAME * 4,
)
"""What a server sends before it waits: part of a frame, of the headers, of a message."""
OF_HTTPS = (
    tls_certificates(bytes(30_000), declared=99_000),
    tls_certificates(bytes(90_000), declared=99_000),
)
OF_HTTP = b"HTTP/1.1 200 OK\r\nA: " + b"a" * 60_000


@asynccontextmanager
async def sending(data: bytes) -> AsyncIterator[int]:
    """The port of a server that sends `data` and keeps the connection open."""

    async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        while await reader.read(65536):
            pass
        writer.close()

    async with listening(send, host=ADDRESS, tls=None) as port:
        yield port


async def test_e17_unfinished_messages_of_a_namespace_hold_16_mb_and_delay_no_other(
    tmp_path: Path,
) -> None:
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(process_node(tmp_path))

        async def port_of(data: bytes) -> int:
            return await stack.enter_async_context(sending(data))

        handlers: list[Json] = [{"grpc": {"port": await port_of(data)}} for data in OF_GRPC]
        handlers += [
            {"httpGet": {"port": await port_of(data), "scheme": "HTTPS"}} for data in OF_HTTPS
        ]
        handlers.append({"httpGet": {"port": await port_of(OF_HTTP)}})
        hostile: list[Json] = []
        probes_of_a_handler = PODS * PROBES_OF_A_POD // len(handlers)
        for handler in handlers:
            probe = {**handler, "timeoutSeconds": TIMEOUT_SECONDS}
            hostile += [probe] * probes_of_a_handler
        good_port = await port_of(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        daemon, victim = await stack.enter_async_context(daemon_with_victim(node))
        for pod in range(PODS):
            node.add_pod(f"bad-{pod}", hostile[pod::PODS], namespace="bad")
        await node.write_spec()
        await asyncio.sleep(ATTACK_SECONDS)
        node.add_probe("quiet", {"httpGet": {"port": good_port, "path": "/"}})
        await node.write_spec()

        await node.until_results_of(["quiet"])
        await victim.assert_unaffected(daemon, f"{len(hostile)} attempts that hold bytes")
        in_flight = await daemon.metric("kruise_probe_socket_in_flight")
        print_line(f"in flight: {in_flight:g}")

        state, _ = node.states()["quiet"]
        assert state == "Succeeded"
        assert in_flight > 50
        assert daemon.peak_mb < MAX_PEAK_MB
