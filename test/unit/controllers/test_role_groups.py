"""At most one pod of a group carries the marks of an exclusive probe. The whole manager over a fake API server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.builders import pod_status_wire, policy_wire, probe_wire, state_wire
from support.cases import cases
from support.fake_api import RecordedEvent, Write, refusing
from support.metrics import counted
from support.running_manager import settle
from support.scene import C, Scene
from support.wire import Json
from unit.controllers.common import (
    PAUSED,
    TERMINATING,
    TRUE,
    change_pod,
    compiled,
    labels_patch,
    marker_reason,
    no_writes,
    writes_since_now,
)

from kruise_probe.api.errors import Forbidden, NoResponse
from kruise_probe.api.resources import MARKERS, PODS
from kruise_probe.controllers.role_fence import LATE_SECONDS

PRIMARY = {"role": "primary"}
POLICIES = [policy_wire("Succeeded", PRIMARY), policy_wire("Failed", {"role": "replica"})]
SHARED = probe_wire(policies=POLICIES)
EXCLUSIVE: Json = SHARED | {"exclusive": {}}
DB = ("web-0", "web-1", "web-2")
WEB_0_LEADS = ["primary", "replica", "replica"]
WEB_1_LEADS = ["replica", "primary", "replica"]
WEB_2_LEADS = ["replica", "replica", "primary"]


def pod_named(web_number: str) -> str:
    """Convert `web_0`, valid as a keyword argument, to `web-0`."""
    return web_number.replace("_", "-")


class Database(Scene):
    """Pods of one node whose probe says who is primary.

    Attributes:
        checks_primaries: fail on a write that gives two pods the label.
    """

    checks_primaries = True

    def __init__(self) -> None:
        super().__init__()
        self.states: dict[str, str] = {}
        self.put_node("node-1", *DB)
        self.put_marker(EXCLUSIVE)

    def _store(self, resource: Any, key: Any, wire: Json) -> Any:
        stored = super()._store(resource, key, wire)
        by_manager = self.writes and self.writes[-1].key == key
        if self.checks_primaries and resource is PODS and by_manager:
            assert len(self.primaries()) <= 1, f"after a write of {key}"
        return stored

    def primaries(self) -> list[str]:
        return [name for name in DB if self.find(PODS, name) and self.role(name) == "primary"]

    def role(self, pod: str) -> str:
        return self.labels(pod).get("role", "")

    async def say(self, seconds: float = 4.0, **states: str) -> None:
        """The daemon publishes these states of `web_0` …, beside those that it published before."""
        self.states |= {pod_named(pod): state for pod, state in states.items()}
        statuses = []
        for pod, state in self.states.items():
            if self.find(PODS, pod) is not None:
                statuses.append(
                    pod_status_wire(
                        self.read(PODS, pod),
                        state_wire(state=state),
                    )
                )
        self.publish(*statuses)
        await settle(seconds)

    async def begin(self) -> None:
        """Make `web-0` primary, and assert it."""
        await self.say(web_0="Succeeded", web_1="Failed", web_2="Failed")
        assert self.roles() == WEB_0_LEADS

    @asynccontextmanager
    async def led(self) -> AsyncIterator[None]:
        """A manager runs, and `web-0` is primary."""
        async with self.running():
            await self.begin()
            yield

    def message(self, pod: str) -> str:
        found: str = self.conditions(pod)[C]["message"]
        return found

    def roles(self) -> list[str]:
        return [self.role(name) for name in DB]

    def patches(self) -> list[tuple[str, str | None]]:
        """The roles that were sent, in order."""
        found: list[tuple[str, str | None]] = []
        for write in self.writes:
            labels = write.body.get("metadata", {}).get("labels") or {}
            if write.kind == "Pod" and "role" in labels:
                found.append((write.key.name, labels["role"]))
        return found


@pytest.fixture
def db() -> Database:
    return Database()


async def test_the_old_holder_is_cleared_before_the_new_one_is_set(db: Database) -> None:
    async with db.led():
        handovers = counted("kruise_probe_role_handover_seconds_count")
        since = len(db.patches())
        await db.say(web_1="Succeeded")
        assert db.roles() == WEB_1_LEADS
        assert db.patches()[since:] == [("web-0", "replica"), ("web-1", "primary")]
        assert db.condition(pod="web-0") == ("True", "NotHolder")
        assert db.condition(pod="web-1") == TRUE
        assert handovers() == 1
    text = "web#healthy: role=primary web-0 → web-1"
    moved = [event for event in db.events if event.message == text]
    assert {event.about for event in moved} == {"Pod/web-0", "Pod/web-1", "PodProbeMarker/web"}
    assert moved[0] == RecordedEvent("Pod/web-1", "Normal", "KruiseProbeHolderChanged", text)


async def test_a_failover_needs_no_more_writes_than_without_exclusive(db: Database) -> None:
    async with db.led():
        pod_writes = writes_since_now(db, "Pod")
        await db.say(web_0="Failed")
        await db.say(web_2="Succeeded")
        assert db.roles() == WEB_2_LEADS
        assert pod_writes() == {"Pod/status": 2}


@cases(
    "error",
    refused=Forbidden("policy x"),
    without_response=NoResponse("no response"),
)
async def test_the_new_holder_waits_for_a_clear_that_fails(db: Database, error: Exception) -> None:
    async with db.led():
        db.before = refusing(error, kind="Pod", name="web-0")
        await db.say(web_1="Succeeded", seconds=30)
        assert db.roles() == WEB_0_LEADS
        assert db.condition(pod="web-1")[0] == "True"
        if isinstance(error, Forbidden):
            reason = "waiting for pod web-0 to lose role=primary: 403 policy x"
            assert db.message("web-1") == f"WaitingForPod: {reason}"
            assert marker_reason(db) == "PodNotMarked"
        await db.recover()
        assert db.roles() == WEB_1_LEADS
        assert db.condition(pod="web-1") == TRUE


async def test_a_lost_response_of_a_set_keeps_the_role_from_others_until_it_is_known(
    db: Database,
) -> None:
    """The set of web-1 may still take effect, until its version is outdated or it is late."""
    async with db.led():
        await db.say(web_0="Failed")

        def lose(write: Write) -> None:
            if write.key.name == "web-1" and "resourceVersion" in write.body["metadata"]:
                raise NoResponse("lost")

        db.before = lose
        await db.say(web_1="Succeeded", seconds=0.1)
        db.before = refusing(
            NoResponse("lost"),
            kind="Pod",
            name="web-1",
        )
        await db.say(web_1="Failed", web_2="Succeeded", seconds=LATE_SECONDS - 5)
        assert db.primaries() == []
        await settle(10)
        assert db.primaries() == ["web-2"]
        await db.recover()
        assert db.roles() == WEB_2_LEADS


async def test_a_set_is_conditional_on_the_version_of_the_pod(db: Database) -> None:
    async with db.led():
        await db.say(web_0="Failed")
        async with db.lagging(PODS):
            db.edit(
                PODS,
                "web-1",
                labels_patch(other="x"),
            )
            since = len(db.writes)
            await db.say(web_1="Succeeded", seconds=1)
            assert db.primaries() == []
            sets = [write for write in db.writes[since:] if write.kind == "Pod"]
            assert sets
            assert all("resourceVersion" in write.body["metadata"] for write in sets)
        await settle()
        assert db.primaries() == ["web-1"]


@cases("ahead", restarted=False, after_an_older_claim=True)
async def test_a_restart_changes_no_holder(db: Database, ahead: bool) -> None:
    async with db.led():
        await db.say(web_2="Succeeded")
        if ahead:
            await db.say(web_1="Succeeded")
    with no_writes(db, "Pod"):
        await db.run(seconds=30)


async def test_a_new_leader_sees_what_the_old_one_wrote_before_it_sets_another_pod(
    db: Database,
) -> None:
    async with db.led():
        await db.say(web_0="Failed")
    async with db.running(follows_seconds=5):
        db.sources["pods"].hold()
        db.edit(
            PODS,
            "web-1",
            labels_patch(**PRIMARY),
            manager="kruise-probe-manager",
        )
        await db.say(web_2="Succeeded", seconds=30)
        assert db.primaries() == ["web-1"]
        db.sources["pods"].release()
        await settle()
        assert db.primaries() == ["web-2"]


async def test_a_standby_sees_a_claim_while_nobody_leads(db: Database) -> None:
    async with db.running():
        await db.begin()
        leader = db.roles()
    async with db.running(follows_seconds=30):
        await db.say(web_1="Succeeded")
        await settle(30)
        assert leader == ["primary", "replica", "replica"]
        assert db.roles() == ["replica", "primary", "replica"]


async def test_a_label_set_by_hand_takes_no_role_and_is_removed(db: Database) -> None:
    async with db.led():
        await db.relabel("web-2", role="primary")
        assert db.roles() == WEB_0_LEADS
        await change_pod(db, "web-1", metadata=PAUSED)
        await db.relabel("web-1", role="primary")
        await db.say(web_0="Failed")
        await db.say(web_2="Succeeded", seconds=30)
        assert db.roles() == WEB_1_LEADS
        reason = "waiting for pod web-1 to lose role=primary: it is paused"
        assert db.message("web-2") == f"WaitingForPod: {reason}"
        await db.relabel("web-1", role=None)
        assert db.primaries() == ["web-2"]


async def test_a_template_with_the_mark_gives_no_role(db: Database) -> None:
    for name in DB:
        db.edit(
            PODS,
            name,
            labels_patch(**PRIMARY),
        )
    async with db.running():
        assert db.primaries() == []
        await db.begin()
        assert db.roles() == WEB_0_LEADS


async def test_a_new_exclusive_marker_removes_the_mark_of_a_pod_without_a_result(
    db: Database,
) -> None:
    db.remove(MARKERS, "web")
    db.edit(
        PODS,
        "web-1",
        labels_patch(**PRIMARY),
    )
    async with db.running():
        await settle()
        assert db.roles() == ["", "primary", ""]
        db.put_marker(EXCLUSIVE)
        await settle()
        assert db.roles() == ["", "", ""]


async def test_a_terminating_holder_loses_the_role_at_once(db: Database) -> None:
    async with db.led():
        await change_pod(db, metadata=TERMINATING)
        assert db.primaries() == []
        await db.say(web_1="Succeeded")
        assert db.primaries() == ["web-1"]


async def test_a_deleted_holder_is_cleared(db: Database) -> None:
    async with db.led():
        db.before = refusing(
            NoResponse("lost"),
            kind="Pod",
            name="web-0",
        )
        await db.say(web_1="Succeeded")
        assert db.primaries() == ["web-0"]
        await db.drop(PODS, "web-0")
        assert db.primaries() == ["web-1"]


@cases(
    "more holder",
    unknown_keeps_it=([], ["web-0"]),
    unless_a_policy_for_unknown_applies=([policy_wire("Unknown", {"role": "lost"})], []),
)
async def test_an_unknown_holder(db: Database, more: list[Json], holder: list[str]) -> None:
    db.put_marker(EXCLUSIVE | {"markerPolicy": POLICIES + more})
    async with db.led():
        await db.say(web_0="Unknown")
        assert db.primaries() == holder
        await db.say(web_1="Succeeded")
        assert db.primaries() == ["web-1"]


async def test_groups_are_by_label_and_follow_it(db: Database) -> None:
    db.put_marker(SHARED | {"exclusive": {"groupByLabel": "shard"}})
    db.edit(
        PODS,
        "web-0",
        labels_patch(shard="a"),
    )
    db.edit(
        PODS,
        "web-1",
        labels_patch(shard="b"),
    )
    db.checks_primaries = False
    async with db.running():
        await db.say(web_0="Succeeded", web_1="Succeeded", web_2="Succeeded")
        assert db.roles() == ["primary"] * 3
        assert marker_reason(db) == "GroupMissing"
        await db.relabel("web-2", shard="b")
        assert db.roles().count("primary") == 2
        assert db.role("web-0") == "primary"
        await db.change_probes(EXCLUSIVE)
        assert len(db.primaries()) == 1


async def test_exclusive_on_a_live_marker_leaves_one_holder(db: Database) -> None:
    db.put_marker(SHARED)
    db.checks_primaries = False
    async with db.running():
        await db.say(web_0="Succeeded", web_1="Succeeded", web_2="Failed")
        assert db.primaries() == ["web-0", "web-1"]
        await db.change_probes(EXCLUSIVE)
        assert db.roles() == WEB_0_LEADS


async def test_what_becomes_succeeded_in_one_event_leaves_the_holder(db: Database) -> None:
    async with db.led():
        await db.say(web_0="Failed")
        await db.say(web_0="Succeeded", web_1="Succeeded", web_2="Succeeded")
        assert len(db.primaries()) == 1
        await db.say(web_1="Failed", web_2="Failed")
        await db.say(web_2="Succeeded")
        assert db.primaries() == ["web-2"]


async def test_a_late_claim_of_an_older_epoch_takes_no_role(db: Database) -> None:
    probe = SHARED | {"exclusive": {"epoch": {"regex": "[0-9]+"}}}
    db.put_marker(probe)
    result = state_wire(probe_hash=compiled(probe).probes[0].hash)

    async def claim(**epochs: int | None) -> None:
        statuses = []
        for pod, epoch in epochs.items():
            wire = db.read(PODS, pod_named(pod))
            of_epoch = result if epoch is None else result | {"epoch": epoch}
            statuses.append(pod_status_wire(wire, of_epoch))
        db.publish(*statuses)
        await settle()

    async with db.running():
        await claim(web_0=7)
        assert db.primaries() == ["web-0"]
        await claim(web_0=7, web_1=8)
        assert db.primaries() == ["web-1"]
        await claim(web_1=8)
        await claim(web_0=7, web_1=8, web_2=None)
        assert db.primaries() == ["web-1"]
        await claim(web_0=9, web_1=8, web_2=None)
        assert db.primaries() == ["web-0"]
    messages = {event.message for event in db.events}
    assert "web#healthy: role=primary web-1 → web-0 (epoch 9)" in messages
