"""Ports that never respond hold the places of their own namespace, and leave descriptors to everything else."""

import asyncio
import contextlib
import socket
from pathlib import Path

import pytest
from support import programs
from support.background import background
from support.fake_runtime import served
from support.output import print_line
from support.process_node import NODE, ProcessNode, process_node
from support.programs import Program

PERIOD_SECONDS = 1
HTTP_PROBES, GRPC_PROBES = 2000, 200
PODS = 20
VICTIM_ADDRESS, HOSTILE_ADDRESS = "127.0.0.10", "127.0.0.9"
SLOW_MACHINE_SECONDS = 3.0
"""Beyond a period and a second: this machine runs the test, the API server and the attack too."""

pytestmark = pytest.mark.timeout(300)


def listener(address: str, port: int = 0) -> socket.socket:
    """A port whose connections are established and never answered."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((address, port))
    made.listen(4096)
    return made


def entry(name: str, namespace: str, address: str, probes: list[dict[str, object]]) -> object:
    return {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{name}",
        "IP": address,
        "probes": [
            {"name": f"marker#p{number}", "containerName": "main", "probe": probe}
            for number, probe in enumerate(probes)
        ],
    }


async def poll_health(daemon: Program, codes: list[int]) -> None:
    while True:
        code, _ = await daemon.get("healthz")
        codes.append(code)
        await asyncio.sleep(0.2)


@pytest.mark.parametrize("open_files", ["1024:", "1024:1024"], ids=["soft", "hard"])
async def test_e16_hanging_ports_of_a_tenant_delay_no_other_and_leave_descriptors(
    tmp_path: Path, open_files: str
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        node: ProcessNode = await stack.enter_async_context(process_node(tmp_path))
        silent = stack.enter_context(listener(HOSTILE_ADDRESS))
        victim = stack.enter_context(listener(VICTIM_ADDRESS))
        victim_port = victim.getsockname()[1]
        timing = {"periodSeconds": PERIOD_SECONDS, "timeoutSeconds": 10}
        port = silent.getsockname()[1]
        hanging = [{"httpGet": {"port": port, "path": "/"}, **timing}] * HTTP_PROBES
        hanging += [{"grpc": {"port": port}, **timing}] * GRPC_PROBES
        share = len(hanging) // PODS
        entries = [
            entry(f"bad-{pod}", "bad", HOSTILE_ADDRESS, hanging[pod * share : (pod + 1) * share])
            for pod in range(PODS)
        ]
        entries.append(
            entry(
                "victim", "good", VICTIM_ADDRESS, [{"tcpSocket": {"port": victim_port}, **timing}]
            )
        )
        for pod in range(PODS):
            node.runtime.start(f"uid-bad-{pod}", ip=HOSTILE_ADDRESS)
        node.runtime.start("uid-victim", ip=VICTIM_ADDRESS)
        kubeconfig = node.cluster.proxy.write_kubeconfig(tmp_path)
        endpoint = await stack.enter_async_context(served(node.runtime))
        daemon = await programs.start(
            "daemon", kubeconfig, tmp_path,
            f"--node-name={NODE}", f"--cri-endpoint={endpoint}", open_files=open_files,
        )  # fmt: skip
        stack.push_async_callback(daemon.end)
        await daemon.ready()
        await node.cluster.api.merge(
            f"/apis/apps.kruise.io/v1alpha1/nodepodprobes/{NODE}", {"spec": {"podProbes": entries}}
        )
        codes: list[int] = []
        _ = await stack.enter_async_context(background(poll_health(daemon, codes)))
        await asyncio.sleep(12)  # The attempts that began before the victim was known have ended.

        limit = PERIOD_SECONDS + 1 + SLOW_MACHINE_SECONDS
        for _ in range(4):
            for state in ("Failed", "Succeeded"):
                if state == "Failed":
                    victim.close()
                else:
                    victim = stack.enter_context(listener(VICTIM_ADDRESS, victim_port))
                began = asyncio.get_running_loop().time()
                async with asyncio.timeout(limit):
                    await node.watched.node_pod_probes.wait(
                        f"the victim is {state}",
                        lambda state=state: node.states().get("victim", ("", ""))[0] == state,
                    )
                print_line(f"{state} after {asyncio.get_running_loop().time() - began:.2f} s")

        assert len(codes) > 20
        assert set(codes) == {200}
        assert "too many open files" not in daemon.log.read_text()
        messages = [message for _, message in node.states().values()]
        assert not [each for each in messages if "open files" in each]
