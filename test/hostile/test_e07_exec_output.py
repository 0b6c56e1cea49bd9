"""Commands print as much as the runtime lets them. The daemon's memory stays small, and each probe says why it has no result."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.fake_runtime import ExecCall
from support.hollow import marker_object
from support.kubectl import Kubectl, condition, status_of
from support.output import print_line
from support.process_node import process_node
from support.processes import Running
from support.programs import peak_mb_of
from support.real_node import busybox_pod
from support.victim import LONGEST_GAP_SECONDS, daemon_with_victim

from kruise_probe.daemon.cri.runtime import ExecResult

ATTACK_SECONDS = 12.0
TIMEOUT_SECONDS = 5
MAX_PEAK_MB = 128
TOO_LARGE = "ExecOutputTooLarge: the command printed more than 1048576 bytes; print less"
GRACE_SECONDS = 30.0
pytestmark = pytest.mark.timeout(300)


async def test_e7_sixteen_large_outputs_stay_out_of_memory(tmp_path: Path) -> None:
    output = ExecResult(0, b"x" * (16 << 20), b"")

    async def print_much(_: ExecCall) -> ExecResult:
        return output

    async with process_node(tmp_path) as node, daemon_with_victim(node) as (daemon, victim):
        names = [f"p{number}" for number in range(16)]
        for name in names:
            node.container(name, print_much)
            node.add_probe(name, periodSeconds=1, timeoutSeconds=TIMEOUT_SECONDS)
        await node.write_spec()
        await asyncio.sleep(ATTACK_SECONDS)

        # All pods are of one namespace, so its own pods may hold all places, each for one timeout.
        await victim.assert_unaffected(
            daemon,
            "16 outputs of 16 MiB a second",
            longest_gap_seconds=TIMEOUT_SECONDS + LONGEST_GAP_SECONDS,
        )
        assert daemon.peak_mb < MAX_PEAK_MB

        def told() -> bool:
            states = node.states()
            return all(states.get(name) == ("Unknown", TOO_LARGE) for name in names)

        await node.api.node_pod_probes.wait("all say why", told, seconds=GRACE_SECONDS + 30)


@pytest.mark.real_node
@pytest.mark.timeout(300)
def test_e7_containerd_sends_large_outputs_of_eight_probes(
    namespace: Kubectl, product: dict[str, Running]
) -> None:
    types = [f"hostile.example.com/large-{number}" for number in range(8)]
    script = f"head -c {15 << 20} /dev/zero | tr '\\0' x"
    probes = [_probe(number, each, f"{script} # {number}") for number, each in enumerate(types)]
    fine = "hostile.example.com/fine"
    marker = marker_object(*probes, _probe(99, fine, "echo fine"), name="web")
    namespace.apply(busybox_pod("web", "sleep", "100000"), marker)
    with namespace.watch("pods") as pods:

        def told(newest: dict[str, Any]) -> bool:
            pod = newest.get("web")
            return pod is not None and all(
                condition(pod, each).get("message") == TOO_LARGE for each in types
            )

        pods.until("every large output is reported", told, timeout=GRACE_SECONDS + 120)
        pods.until(
            "the probe beside them has its result",
            lambda newest: status_of(newest["web"], fine) == "True",
            timeout=GRACE_SECONDS,
        )
        assert {status_of(pods.newest["web"], each) for each in types} == {"Unknown"}
    peak_mb = peak_mb_of(product["daemon"].process.pid)
    print_line(f"8 outputs of 15 MiB a second by containerd: daemon's peak {peak_mb:.0f} MB")
    assert peak_mb < MAX_PEAK_MB


def _probe(number: int, condition_type: str, script: str) -> dict[str, Any]:
    return {
        "name": f"p{number}",
        "containerName": "main",
        "podConditionType": condition_type,
        "probe": {
            "exec": {"command": ["sh", "-c", script]},
            "periodSeconds": 1,
            "timeoutSeconds": 30,
        },
    }
