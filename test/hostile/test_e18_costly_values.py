"""Pods whose output of 256 KiB is costly to search for a value: no step of the daemon is long, and others get theirs."""

import asyncio
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path

from hostile.process_node import ADDRESS, daemon_with_victim, process_node
from support.connections import listening
from support.output import print_line
from support.wire import Json

KIB_256 = 256 * 1024
PROBES_OF_A_POD = 4
ATTACK_SECONDS = 15.0
MAX_PEAK_MB = 128

ONE_SAMPLE = {"metric": {"name": "a"}}
WITH_LABEL = {"metric": {"name": "a", "labels": {"b": "d"}}}
COSTLY: dict[str, tuple[Json, bytes]] = {
    "samples": (WITH_LABEL, b'a{b="c"} 1\n' * (KIB_256 // 11)),
    "long-samples": (WITH_LABEL, (b'a{b="' + rb"\\" * 4000 + b'"} 1\n') * 32),
    "other-names": (ONE_SAMPLE, b'b{a="c"} 1\n' * (KIB_256 // 11)),
    "objects": ({"jsonPath": "[1].x"}, b"[" + b'{"":0},' * (KIB_256 // 7) + b"0]"),
    "lists": ({"jsonPath": "[0]"}, b"[" + b"[]," * (KIB_256 // 3 - 1) + b"0]"),
    "pattern": ({"regex": "(?:[ab]{0,900}){1}c"}, (b"ab" * 500 + b"\n") * 16),
    "small-pattern": ({"regex": "(a|b)*c.{0,20}d"}, (b"ab" * 500 + b"\n") * 250),
}


def serving(body: bytes) -> AbstractAsyncContextManager[int]:
    """A server that sends this body in each response."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _ = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        writer.close()

    return listening(answer, host=ADDRESS, tls=None)


async def test_e18_costly_values_of_a_namespace_make_no_step_long_and_delay_no_other(
    tmp_path: Path,
) -> None:
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(process_node(tmp_path))
        daemon, victim = await stack.enter_async_context(daemon_with_victim(node))

        async def probe_of(body: bytes) -> Json:
            port = await stack.enter_async_context(serving(body))
            return {
                "httpGet": {"port": port, "path": "/"},
                "periodSeconds": 1,
            }

        for number, (extract, body) in enumerate(COSTLY.values()):
            hostile = {**await probe_of(body), "timeoutSeconds": 5}
            probes = [hostile] * PROBES_OF_A_POD
            beside = {"extract": extract}
            for pod in range(2):
                name = f"bad-{number}-{pod}"
                node.add_pod(
                    name,
                    probes,
                    namespace="bad",
                    beside=beside,
                )
        good = await probe_of(b"queue 7\n")
        node.add_pod("quiet", [good], beside={"extract": {"metric": {"name": "queue"}}})
        await node.write_spec()
        await asyncio.sleep(ATTACK_SECONDS)

        await node.until_results_of(["quiet"])
        await victim.assert_unaffected(daemon, "costly values")
        states = node.states()
        print_line(str({name: states.get(name) for name in ("bad-0-0", "bad-2-0", "quiet")}))

        assert states["quiet"] == ("Succeeded", "7")
        assert daemon.peak_mb < MAX_PEAK_MB
