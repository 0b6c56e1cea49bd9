"""The Lease of a whole daemon on a scripted node."""

import asyncio
import copy

import msgspec
import pytest
from structlog.testing import capture_logs
from support.cases import cases
from support.scripted_node import NODE, ScriptedNode, exec_probe, gaps, loop_time, one
from support.wire import typed

from kruise_probe.api.errors import AlreadyExists, ConnectionFailed, Forbidden
from kruise_probe.api.node_pod_probe import NodePodProbeSpec
from kruise_probe.daemon import metrics
from kruise_probe.daemon.probers.prober import ProbeResult, success

RETRY_SECONDS = 2.0


SPEC = one(exec_probe())
EXISTING = {"metadata": {"name": "x"}, "spec": {}}
"""A Lease that another client has created."""


def duration(node: ScriptedNode) -> int:
    assert node.api.lease is not None
    seconds: int = node.api.lease["spec"]["leaseDurationSeconds"]
    return seconds


@pytest.fixture
async def node(node: ScriptedNode) -> ScriptedNode:
    """A node with an entry, whose first result is written at once."""
    node.api.put(SPEC)
    node.containers.start()
    return node


async def test_lease_is_created_at_once_renewed_after_twenty_seconds_and_never_released(
    node: ScriptedNode,
) -> None:
    async with node.daemon():
        await asyncio.sleep(60)
    assert gaps(node.api.lease_writes) == pytest.approx([20.0] * 3, abs=2)
    lease = node.api.lease
    assert lease is not None
    assert lease["spec"].pop("holderIdentity").startswith(f"{NODE}_")
    assert lease["spec"].pop("renewTime").startswith("2026-11-21T12:01:00.2")
    metadata = {
        "name": "kruise-probe-node-1",
        "namespace": "kruise-system",
        "ownerReferences": [msgspec.to_builtins(node.api.node)],
    }
    assert lease == typed("Lease", metadata=metadata, spec={"leaseDurationSeconds": 60})


async def test_without_entries_the_lease_is_renewed_once_for_years(node: ScriptedNode) -> None:
    async with node.daemon(30):
        assert duration(node) == 60
        node.api.put(NodePodProbeSpec())
        await asyncio.sleep(3600)
        assert duration(node) > 10**8
        assert len(node.api.lease_writes) == 3
        node.api.put(SPEC)
        await asyncio.sleep(0.1)
        assert duration(node) == 60


async def test_entries_that_come_and_go_cause_two_renewals_in_twenty_seconds(
    node: ScriptedNode,
) -> None:
    async with node.daemon():
        for _ in range(600):
            node.api.put(NodePodProbeSpec())
            await asyncio.sleep(0.5)
            node.api.put(SPEC)
            await asyncio.sleep(0.5)
    assert len(node.api.lease_writes) <= 60


async def test_a_write_of_the_status_delays_a_renewal(node: ScriptedNode) -> None:
    async def count(*_: object) -> ProbeResult:
        return success(str(loop_time()))

    node.probers.behaviour = count
    async with node.daemon():
        await asyncio.sleep(600)
    assert len(node.api.writes) > 50
    assert gaps(node.api.lease_writes) == pytest.approx([40.0] * 15)


async def test_lease_that_another_client_creates_first_is_renewed(node: ScriptedNode) -> None:
    async def fail(request: str) -> None:
        if request == "create Lease":
            node.api.lease = copy.deepcopy(EXISTING)
            raise AlreadyExists("there is")

    node.api.fail = fail
    async with node.daemon(2 * RETRY_SECONDS):
        assert node.api.lease is not None
        assert node.api.lease["spec"]["holderIdentity"].startswith(f"{NODE}_")


async def test_failures_are_retried_after_a_random_pause_and_logged_once(
    node: ScriptedNode,
) -> None:
    """So that the daemons of many nodes do not retry together after an outage of the API server."""
    tried_at: list[float] = []
    failures = metrics.HEARTBEAT_FAILURES._value.get
    failures_before = failures()

    async def refuse(kind: str) -> None:
        if kind == "Lease":
            tried_at.append(loop_time())
            raise ConnectionFailed("refused")

    with capture_logs() as logs:
        async with node.daemon():
            node.api.fail = refuse
            await asyncio.sleep(1000)
            node.api.fail = None
            await asyncio.sleep(45)
    pauses = gaps(tried_at)
    assert RETRY_SECONDS <= min(pauses) < 1.2 * RETRY_SECONDS
    assert 1.8 * RETRY_SECONDS < max(pauses) <= 2 * RETRY_SECONDS
    assert failures() == failures_before + len(tried_at)
    assert [log["log_level"] for log in logs] == ["warning", "info"]
    assert len(node.api.lease_writes) >= 3


async def test_request_that_hangs_is_cancelled(node: ScriptedNode) -> None:
    async def hang(_: str) -> None:
        await asyncio.Event().wait()

    async with node.daemon():
        node.api.fail = hang
        await asyncio.sleep(22)
        node.api.fail = None
        await asyncio.sleep(15)
    assert 25 < max(gaps(node.api.lease_writes)) < 35


async def test_lease_is_renewed_without_an_owner_until_it_is_accepted(node: ScriptedNode) -> None:
    with capture_logs() as logs:
        node.api.refuses_owner = True
        node.api.lease = copy.deepcopy(EXISTING)
        async with node.daemon():
            await asyncio.sleep(700)
            assert "ownerReferences" not in node.api.lease["metadata"]
            node.api.refuses_owner = False
            await asyncio.sleep(600)
    assert 60 < len(node.api.lease_writes) < 66
    assert node.api.lease["metadata"]["ownerReferences"]
    warning, _ = logs  # one in ten minutes
    assert "refuses it" in warning["event"]
    assert warning["error"] == "403: cannot set an ownerRef on a resource you can't delete"


async def test_a_short_403_of_every_write_refuses_no_owner(node: ScriptedNode) -> None:
    async def refuse(_: str) -> None:
        raise Forbidden("the token is not valid yet")

    with capture_logs() as logs:
        node.api.fail = refuse
        async with node.daemon():
            await asyncio.sleep(15)
            node.api.fail = None
            await asyncio.sleep(10)
    assert node.api.lease
    assert node.api.lease["metadata"]["ownerReferences"]
    warning, *_ = (log for log in logs if "lease" in log["event"])
    assert "owner" not in warning["event"]
    assert warning["error"] == "403: the token is not valid yet"


@cases(
    "seconds warnings",
    of_a_rolling_update=(25, 0),
    of_two_machines=(100, 1),
)
async def test_a_daemon_names_another_one_that_renews_its_lease_beside_it(
    node: ScriptedNode, seconds: int, warnings: int
) -> None:
    with capture_logs() as logs:
        async with node.daemon():
            await asyncio.sleep(5)
            for _ in range(seconds // 20):
                node.api.renew_as("node-1_another")
                await asyncio.sleep(20)
            await asyncio.sleep(60)
    others = [log["other"] for log in logs if log["log_level"] == "warning"]
    assert others == ["node-1_another"] * warnings
    assert max(gaps(node.api.lease_writes)) < 22


async def test_slow_responses_do_not_delay_renewals(node: ScriptedNode) -> None:
    async def slow(_: str) -> None:
        await asyncio.sleep(3)

    async with node.daemon():
        node.api.fail = slow
        await asyncio.sleep(105)
    assert gaps(node.api.lease_writes[1:]) == pytest.approx([20.0] * 4)
