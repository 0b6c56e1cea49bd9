import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs
from support.scripted_node import NODE, FakeNodeApi, gaps, settle, wall_clock

from kruise_probe.api.errors import AlreadyExists, ConnectionFailed, Forbidden, NotFound
from kruise_probe.api.meta import ObjectMeta
from kruise_probe.daemon import metrics
from kruise_probe.daemon.heartbeat import Heartbeat

RETRY_SECONDS = 2.0


@asynccontextmanager
async def beating(api: FakeNodeApi) -> AsyncIterator[Heartbeat]:
    heartbeat = Heartbeat(
        client=api, node_name=NODE, system_namespace="kruise-system", now=wall_clock
    )
    task = asyncio.create_task(heartbeat.run())
    try:
        await settle()
        yield heartbeat
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_a_missing_lease_is_created_at_once() -> None:
    api = FakeNodeApi()
    async with beating(api):
        assert api.lease == {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "kruise-probe-node-1", "namespace": "kruise-system"},
            "spec": {
                "holderIdentity": NODE,
                "leaseDurationSeconds": 60,
                "acquireTime": "2026-11-21T12:00:00.250000Z",
                "renewTime": "2026-11-21T12:00:00.250000Z",
            },
        }


async def test_lease_is_renewed_every_ten_seconds_and_never_released() -> None:
    api = FakeNodeApi()
    async with beating(api):
        await asyncio.sleep(60)
    assert gaps(api.lease_writes) == pytest.approx([10.0] * 6)
    assert api.lease is not None
    assert api.lease["spec"]["holderIdentity"] == NODE
    assert api.lease["spec"]["renewTime"] == "2026-11-21T12:01:00.250000Z"


async def test_lease_that_another_client_creates_first_is_renewed() -> None:
    api = FakeNodeApi()
    errors = iter([NotFound("none"), AlreadyExists("there is")])

    async def fail(_: str) -> None:
        if error := next(errors, None):
            api.lease = {"metadata": {"name": "x"}, "spec": {}}
            raise error

    api.fail = fail
    async with beating(api):
        assert api.lease is not None
        assert api.lease["spec"]["holderIdentity"] == NODE


async def test_failures_are_retried_after_a_random_pause_and_logged_once() -> None:
    """So that the daemons of many nodes do not retry together after an outage of the API server."""
    api = FakeNodeApi()
    tried_at: list[float] = []
    counted = metrics.HEARTBEAT_FAILURES._value.get()

    async def refuse(_: str) -> None:
        tried_at.append(asyncio.get_running_loop().time())
        raise ConnectionFailed("refused")

    with capture_logs() as logs:
        async with beating(api):
            api.fail = refuse
            await asyncio.sleep(1000)
            api.fail = None
            await asyncio.sleep(25)
    pauses = gaps(tried_at)
    assert RETRY_SECONDS <= min(pauses) < 1.2 * RETRY_SECONDS
    assert 1.8 * RETRY_SECONDS < max(pauses) <= 2 * RETRY_SECONDS
    assert metrics.HEARTBEAT_FAILURES._value.get() == counted + len(tried_at)
    assert [log["log_level"] for log in logs] == ["warning", "info"]
    assert len(api.lease_writes) >= 3


async def test_request_that_hangs_is_cancelled() -> None:
    api = FakeNodeApi()

    async def hang(_: str) -> None:
        await asyncio.Event().wait()

    async with beating(api):
        api.fail = hang
        await asyncio.sleep(12)
        api.fail = None
        await asyncio.sleep(15)
    assert max(gaps(api.lease_writes)) < 25


async def test_lease_is_renewed_without_an_owner_that_is_refused() -> None:
    api = FakeNodeApi()
    requests = 0

    async def refuse(kind: str) -> None:
        nonlocal requests
        requests += 1
        if requests == 1:
            raise Forbidden("cannot set an ownerRef on a resource you can't delete")

    with capture_logs() as logs:
        async with beating(api) as heartbeat:
            heartbeat.observe(ObjectMeta(NODE, owner_references=(api.node,)))
            api.fail = refuse
            await asyncio.sleep(60)
    assert api.lease
    assert "ownerReferences" not in api.lease["metadata"]
    assert gaps(api.lease_writes) == pytest.approx([10.0] * 6)
    assert requests == 7, "one more than renewals"
    assert [log["log_level"] for log in logs] == ["warning"]


async def test_slow_responses_do_not_delay_renewals() -> None:
    api = FakeNodeApi()

    async def slow(_: str) -> None:
        await asyncio.sleep(3)

    async with beating(api):
        api.fail = slow
        await asyncio.sleep(65)
    assert gaps(api.lease_writes[1:]) == pytest.approx([10.0] * 5)
