"""Ports that never respond hold the places of their own namespace, and leave descriptors to everything else."""

import asyncio
import contextlib
import socket
from pathlib import Path

from hostile.process_node import ADDRESS, NODE, ProcessNode, process_node
from support import programs
from support.background import background
from support.cases import cases
from support.fake_runtime import served
from support.hollow import marker_object, pod_object, probe
from support.output import print_line
from support.programs import Program
from support.target import labels, marker_path, pod_path
from support.wire import Json

from kruise_probe.api.times import format_time, utc_now

PERIOD_SECONDS = 1
HTTP_PROBES = 2000
GRPC_PROBES = 200
PODS = 16
VICTIM_ADDRESS = "127.0.0.10"
VICTIM_NAMESPACE = "good"
HANDLERS = ("tcpSocket", "httpGet")
"""The handlers of the victim's probes. Each probe writes its own label."""
SLOW_MACHINE_SECONDS = 2.0
"""Beyond a period and a second: this machine runs the test, the API server, the manager and the attack too."""
RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


def silent_port() -> socket.socket:
    """A port that accepts connections and never responds."""
    return socket.create_server((ADDRESS, 0), backlog=4096)


async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(RESPONSE)
        await writer.drain()
    writer.close()


async def poll_health(daemon: Program, codes: list[int]) -> None:
    while True:
        code, _ = await daemon.get("healthz")
        codes.append(code)
        await asyncio.sleep(0.2)


async def attack(node: ProcessNode, port: int) -> None:
    """Probes of another namespace, written by hand: the manager serves the victim's namespace alone."""
    hanging = [{"httpGet": {"port": port}, "timeoutSeconds": 10}] * HTTP_PROBES
    hanging += [{"grpc": {"port": port}, "timeoutSeconds": 10}] * GRPC_PROBES
    for pod in range(PODS):
        node.add_pod(f"bad-{pod}", hanging[pod::PODS], namespace="bad")
    await node.write_spec()


async def add_victim(node: ProcessNode, port: int) -> None:
    """A pod with a label for each of its two probes."""
    await node.api.create("/api/v1/namespaces", {"metadata": {"name": VICTIM_NAMESPACE}})
    body = pod_object(
        "victim",
        node=NODE,
        ip=VICTIM_ADDRESS,
        at=format_time(utc_now()),
    )
    status = body.pop("status")
    pod = await node.api.create(f"/api/v1/namespaces/{VICTIM_NAMESPACE}/pods", body)
    node.runtime.start(pod["metadata"]["uid"], ip=VICTIM_ADDRESS)
    await node.api.merge(pod_path("victim", VICTIM_NAMESPACE, "status"), {"status": status})
    probes: list[Json] = []
    for handler in HANDLERS:
        label = f"example.com/{handler}"
        of_handler = probe(
            handler,
            probe={
                handler: {"port": port},
                "periodSeconds": PERIOD_SECONDS,
                "timeoutSeconds": 10,
            },
            podConditionType=None,
            markerPolicy=[
                {"state": "Succeeded", "labels": {label: "Succeeded"}},
                {"state": "Failed", "labels": {label: "Failed"}},
            ],
        )
        probes.append(of_handler)
    path = marker_path("", VICTIM_NAMESPACE).rstrip("/")
    await node.api.create(path, marker_object(*probes))


async def seconds_until_labels(node: ProcessNode, state: str) -> float:
    def has_labels(pod: Json) -> bool:
        values = [labels(pod).get(f"example.com/{handler}") for handler in HANDLERS]
        return values == [state, state]

    loop = asyncio.get_running_loop()
    began = loop.time()
    await node.api.pods.until(
        f"is {state} by both probes",
        has_labels,
        name="victim",
        namespace=VICTIM_NAMESPACE,
    )
    return loop.time() - began


@cases("open_files", soft="1024:", hard="1024:1024")
async def test_e16_hanging_ports_of_a_tenant_delay_no_other_and_leave_descriptors(
    tmp_path: Path, open_files: str
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        node: ProcessNode = await stack.enter_async_context(process_node(tmp_path))
        silent = stack.enter_context(silent_port())
        server = await asyncio.start_server(respond, VICTIM_ADDRESS)
        port = server.sockets[0].getsockname()[1]
        endpoint = await stack.enter_async_context(served(node.runtime))
        daemon = await programs.start(
            "daemon",
            node.cluster.proxy.write_kubeconfig(tmp_path),
            tmp_path,
            f"--node-name={NODE}",
            f"--cri-endpoint={endpoint}",
            open_files=open_files,
        )
        stack.push_async_callback(daemon.end)
        await daemon.ready()
        await stack.enter_async_context(node.cluster.manager(f"--namespace={VICTIM_NAMESPACE}"))
        codes: list[int] = []
        _ = await stack.enter_async_context(background(poll_health(daemon, codes)))
        await attack(node, silent.getsockname()[1])

        async def is_under_attack() -> bool:
            return await daemon.metric("kruise_probe_socket_in_flight") > 400

        await programs.until("hundreds of probes of the attack hang", is_under_attack)
        await add_victim(node, port)
        delays = [await seconds_until_labels(node, "Succeeded")]
        for _ in range(4):
            server.close()
            delays.append(await seconds_until_labels(node, "Failed"))
            server = await asyncio.start_server(respond, VICTIM_ADDRESS, port)
            delays.append(await seconds_until_labels(node, "Succeeded"))
        server.close()
        print_line(" ".join(f"{seconds:.2f}" for seconds in delays))

        assert max(delays) <= PERIOD_SECONDS + 1 + SLOW_MACHINE_SECONDS
        assert len(codes) > 20
        assert set(codes) == {200}
        assert not daemon.has_logged("too many open files")
        for state, message in node.states().values():
            assert "open files" not in message, state
