"""Ports that never respond hold the places of their own namespace, and leave descriptors to everything else."""

import asyncio
import contextlib
import socket
from pathlib import Path

import pytest
from hostile.process_node import NODE, ProcessNode, process_node
from support import programs
from support.background import background
from support.cases import cases
from support.fake_runtime import served
from support.hollow import marker_object, pod_object, spec_entry
from support.output import print_line
from support.programs import Program
from support.target import labels, marker_path, node_pod_probe_path, pod_path

from kruise_probe.api.times import format_time, utc_now

PERIOD_SECONDS = 1
HTTP_PROBES = 2000
GRPC_PROBES = 200
PODS = 16
VICTIM_ADDRESS = "127.0.0.10"
HOSTILE_ADDRESS = "127.0.0.9"
VICTIM_NAMESPACE = "good"
SLOW_MACHINE_SECONDS = 2.0
"""Beyond a period and a second: this machine runs the test, the API server, the manager and the attack too."""
RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

pytestmark = pytest.mark.timeout(300)


def silent_port() -> socket.socket:
    """A port whose connections are established and never answered."""
    made = socket.socket()
    made.bind((HOSTILE_ADDRESS, 0))
    made.listen(4096)
    return made


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
    """Probes of another namespace, written by hand: the manager serves the victim's namespace alone.

    Their names and fields are short, so that the victim's fit into the object too.
    """
    hanging = [{"httpGet": {"port": port}, "timeoutSeconds": 10}] * HTTP_PROBES
    hanging += [{"grpc": {"port": port}, "timeoutSeconds": 10}] * GRPC_PROBES
    entries = []
    for pod in range(PODS):
        probes = [
            {"name": f"m#{number}", "containerName": "main", "probe": probe}
            for number, probe in enumerate(hanging[pod::PODS])
        ]
        name = f"bad-{pod}"
        uid = f"uid-bad-{pod}"
        entries.append(spec_entry(name, uid, probes, namespace="bad", ip=HOSTILE_ADDRESS))
        node.runtime.start(uid, ip=HOSTILE_ADDRESS)
    await node.cluster.api.merge(node_pod_probe_path(NODE), {"spec": {"podProbes": entries}})


async def add_victim(node: ProcessNode, port: int) -> None:
    """A pod with a label for each of its two probes."""
    api = node.cluster.api
    await api.create("/api/v1/namespaces", {"metadata": {"name": VICTIM_NAMESPACE}})
    body = pod_object("victim", node=NODE, ip=VICTIM_ADDRESS, at=format_time(utc_now()))
    status = body.pop("status")
    pod = await api.create(f"/api/v1/namespaces/{VICTIM_NAMESPACE}/pods", body)
    node.runtime.start(pod["metadata"]["uid"], ip=VICTIM_ADDRESS)
    await api.merge(pod_path("victim", VICTIM_NAMESPACE, "status"), {"status": status})
    probes = [
        {
            "name": kind,
            "containerName": "main",
            "probe": {kind: {"port": port}, "periodSeconds": PERIOD_SECONDS, "timeoutSeconds": 10},
            "markerPolicy": [
                {"state": state, "labels": {f"example.com/{kind}": state}}
                for state in ("Succeeded", "Failed")
            ],
        }
        for kind in ("tcpSocket", "httpGet")
    ]
    path = marker_path("", VICTIM_NAMESPACE).rstrip("/")
    await api.create(path, marker_object(*probes))


async def seconds_until_labels(node: ProcessNode, state: str) -> float:
    loop = asyncio.get_running_loop()
    began = loop.time()

    def so(pod: dict[str, object]) -> bool:
        return [labels(pod).get(f"example.com/{kind}") for kind in ("tcpSocket", "httpGet")] == [
            state
        ] * 2

    await node.api.pods.until(
        f"is {state} by both probes", so, name="victim", namespace=VICTIM_NAMESPACE
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
        kubeconfig = node.cluster.proxy.write_kubeconfig(tmp_path)
        endpoint = await stack.enter_async_context(served(node.runtime))
        daemon = await programs.start(
            "daemon", kubeconfig, tmp_path,
            f"--node-name={NODE}", f"--cri-endpoint={endpoint}", open_files=open_files,
        )  # fmt: skip
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
        seconds = [await seconds_until_labels(node, "Succeeded")]
        for _ in range(4):
            server.close()
            seconds.append(await seconds_until_labels(node, "Failed"))
            server = await asyncio.start_server(respond, VICTIM_ADDRESS, port)
            seconds.append(await seconds_until_labels(node, "Succeeded"))
        server.close()
        print_line(" ".join(f"{each:.2f}" for each in seconds))

        assert max(seconds) <= PERIOD_SECONDS + 1 + SLOW_MACHINE_SECONDS
        assert len(codes) > 20
        assert set(codes) == {200}
        assert "too many open files" not in daemon.log.read_text()
        messages = [message for _, message in node.states().values()]
        assert not [each for each in messages if "open files" in each]
