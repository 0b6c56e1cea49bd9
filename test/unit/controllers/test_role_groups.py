"""At most one pod of a group carries the marks of an exclusive probe. The whole manager over a fake API server."""

from typing import Any

import pytest
from support.builders import marker, pod_status_wire, policy_wire, probe_wire, state_wire
from support.cases import cases
from support.fake_api import RecordedEvent, Write, refusing
from support.metrics import counted
from support.running_manager import settle
from support.scene import C, Scene
from support.wire import Json

from kruise_probe.api.errors import Forbidden, NoResponse
from kruise_probe.api.resources import MARKERS, PODS
from kruise_probe.controllers.compiled import compile_marker
from kruise_probe.controllers.role_fence import LATE_SECONDS

PRIMARY, REPLICA = {"role": "primary"}, {"role": "replica"}
DB = ("web-0", "web-1", "web-2")


def role(*more: Json, exclusive: Json | None = None, **fields: Any) -> Json:
    policies = [policy_wire("Succeeded", PRIMARY), policy_wire("Failed", REPLICA), *more]
    return probe_wire(policies=policies) | {"exclusive": exclusive or {}} | fields


class Database(Scene):
    """Pods of one node whose probe says who is primary. No write may make two pods carry its label."""

    def __init__(self) -> None:
        super().__init__()
        self.states: dict[str, str] = {}
        self.put_node("node-1", *DB)
        self.put_marker(role())

    def _store(self, resource: Any, key: Any, wire: Json) -> Any:
        stored = super()._store(resource, key, wire)
        if resource is PODS and self.writes and self.writes[-1].key == key:
            assert len(self.primaries()) <= 1, f"after a write of {key}"
        return stored

    def primaries(self) -> list[str]:
        return [name for name in DB if self.find(PODS, name) and self.role(name) == "primary"]

    def role(self, pod: str) -> str:
        return self.labels(pod).get("role", "")

    async def say(self, seconds: float = 4.0, **states: str) -> None:
        """The daemon publishes these states of `web_0` …, beside those that it published before."""
        self.states |= {pod.replace("_", "-"): state for pod, state in states.items()}
        statuses: list[Json] = []
        for pod, state in self.states.items():
            if self.find(PODS, pod) is not None:
                statuses.append(pod_status_wire(self.read(PODS, pod), state_wire(state=state)))
        self.publish(*statuses)
        await settle(seconds)

    async def begin(self) -> None:
        await self.say(web_0="Succeeded", web_1="Failed", web_2="Failed")

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
    async with db.running():
        await db.begin()
        handovers = counted("kruise_probe_role_handover_seconds_count")
        assert db.roles() == ["primary", "replica", "replica"]
        since = len(db.patches())
        await db.say(web_1="Succeeded")
        assert db.roles() == ["replica", "primary", "replica"]
        assert db.patches()[since:] == [("web-0", "replica"), ("web-1", "primary")]
        assert db.condition(pod="web-0") == ("True", "NotHolder")
        assert db.condition(pod="web-1") == ("True", "")
        assert handovers() == 1
    text = "web#healthy: role=primary web-0 → web-1"
    moved = [event for event in db.events if event.message == text]
    assert {event.about for event in moved} == {"Pod/web-0", "Pod/web-1", "PodProbeMarker/web"}
    assert moved[0] == RecordedEvent("Pod/web-1", "Normal", "KruiseProbeHolderChanged", text)


async def test_a_failover_needs_no_more_writes_than_without_exclusive(db: Database) -> None:
    async with db.running():
        await db.begin()
        since = len(db.writes)
        await db.say(web_0="Failed")
        await db.say(web_2="Succeeded")
        assert db.roles() == ["replica", "replica", "primary"]
        assert db.count("Pod", since) == {"Pod/status": 2}


@cases(
    "error",
    refused=Forbidden("policy x"),
    without_response=NoResponse("no response"),
)
async def test_the_new_holder_waits_for_a_clear_that_fails(db: Database, error: Exception) -> None:
    async with db.running():
        await db.begin()
        db.before = refusing(error, kind="Pod", name="web-0")
        await db.say(web_1="Succeeded", seconds=30)
        assert db.roles() == ["primary", "replica", "replica"]
        assert db.condition(pod="web-1")[0] == "True"
        if isinstance(error, Forbidden):
            message = db.conditions("web-1")[C]["message"]
            assert (
                message == "WaitingForPod: waiting for pod web-0 to lose role=primary: 403 policy x"
            )
            assert db.says()[1] == "PodNotMarked"
        await db.recover()
        assert db.roles() == ["replica", "primary", "replica"]
        assert db.condition(pod="web-1") == ("True", "")


async def test_a_lost_response_of_a_set_keeps_the_role_from_others_until_it_is_known(
    db: Database,
) -> None:
    """The set of web-1 may still take effect, until its version is outdated or it is late."""
    async with db.running():
        await db.begin()
        await db.say(web_0="Failed")

        def lose(write: Write) -> None:
            if write.key.name == "web-1" and "resourceVersion" in write.body["metadata"]:
                raise NoResponse("lost")

        db.before = lose
        await db.say(web_1="Succeeded", seconds=0.1)
        db.before = refusing(NoResponse("lost"), kind="Pod", name="web-1")
        await db.say(web_1="Failed", web_2="Succeeded", seconds=LATE_SECONDS - 5)
        assert db.primaries() == []
        await settle(10)
        assert db.primaries() == ["web-2"]
        await db.recover()
        assert db.roles() == ["replica", "replica", "primary"]


async def test_a_set_is_conditional_on_the_version_of_the_pod(db: Database) -> None:
    async with db.running():
        await db.begin()
        await db.say(web_0="Failed")
        async with db.lagging(PODS):
            db.edit(PODS, "web-1", {"metadata": {"labels": {"other": "x"}}})
            since = len(db.writes)
            await db.say(web_1="Succeeded", seconds=1)
            assert db.primaries() == []
            assert all(
                "resourceVersion" in each.body["metadata"]
                for each in db.writes[since:]
                if each.kind == "Pod"
            )
        await settle()
        assert db.primaries() == ["web-1"]


@cases("ahead", restarted=False, after_an_older_claim=True)
async def test_a_restart_changes_no_holder(db: Database, ahead: bool) -> None:
    async with db.running():
        await db.begin()
        await db.say(web_2="Succeeded")
        if ahead:
            await db.say(web_1="Succeeded")
    before = db.roles()
    since = len(db.writes)
    await db.run(seconds=30)
    assert db.roles() == before
    assert db.count("Pod", since) == {}


async def test_a_new_leader_sees_what_the_old_one_wrote_before_it_sets_another_pod(
    db: Database,
) -> None:
    async with db.running():
        await db.begin()
        await db.say(web_0="Failed")
    async with db.running(follows_seconds=5):
        db.sources["pods"].hold()
        labels = {"metadata": {"labels": {"role": "primary"}}}
        db.edit(PODS, "web-1", labels, manager="kruise-probe-manager")
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
    async with db.running():
        await db.begin()
        await db.relabel("web-2", role="primary")
        assert db.roles() == ["primary", "replica", "replica"]
        await db.change(
            PODS, "web-1", {"metadata": {"annotations": {"kruise-probe.io/paused": "true"}}}
        )
        await db.relabel("web-1", role="primary")
        await db.say(web_0="Failed")
        await db.say(web_2="Succeeded", seconds=30)
        assert db.roles() == ["replica", "primary", "replica"]
        message = db.conditions("web-2")[C]["message"]
        assert message == "WaitingForPod: waiting for pod web-1 to lose role=primary: it is paused"
        await db.relabel("web-1", role=None)
        assert db.primaries() == ["web-2"]


async def test_a_template_with_the_mark_gives_no_role(db: Database) -> None:
    for name in DB:
        db.edit(PODS, name, {"metadata": {"labels": {"role": "primary"}}})
    async with db.running():
        assert db.primaries() == []
        await db.begin()
        assert db.roles() == ["primary", "replica", "replica"]


async def test_a_new_exclusive_marker_removes_the_mark_of_a_pod_without_a_result(
    db: Database,
) -> None:
    db.remove(MARKERS, "web")
    db.edit(PODS, "web-1", {"metadata": {"labels": PRIMARY}})
    async with db.running():
        await settle()
        assert db.roles() == ["", "primary", ""]
        db.put_marker(role())
        await settle()
        assert db.roles() == ["", "", ""]


async def test_a_terminating_holder_loses_the_role_at_once(db: Database) -> None:
    end = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]}
    async with db.running():
        await db.begin()
        await db.change(PODS, "web-0", {"metadata": end})
        assert db.primaries() == []
        await db.say(web_1="Succeeded")
        assert db.primaries() == ["web-1"]


async def test_a_deleted_holder_is_cleared(db: Database) -> None:
    async with db.running():
        await db.begin()
        db.before = refusing(NoResponse("lost"), kind="Pod", name="web-0")
        await db.say(web_1="Succeeded")
        assert db.primaries() == ["web-0"]
        await db.drop(PODS, "web-0")
        assert db.primaries() == ["web-1"]


@cases(
    "more fields holder",
    unknown_keeps_it=((), {}, ["web-0"]),
    unless_a_policy_for_unknown_applies=((policy_wire("Unknown", {"role": "lost"}),), {}, []),
)
async def test_an_unknown_holder(
    db: Database, more: tuple[Json, ...], fields: Json, holder: list[str]
) -> None:
    db.put_marker(role(*more, **fields))
    async with db.running():
        await db.begin()
        await db.say(web_0="Unknown")
        assert db.primaries() == holder
        await db.say(web_1="Succeeded")
        assert db.primaries() == ["web-1"]


async def test_groups_are_by_label_and_follow_it(db: Database) -> None:
    db.put_marker(role(exclusive={"groupByLabel": "shard"}))
    db.edit(PODS, "web-0", {"metadata": {"labels": {"shard": "a"}}})
    db.edit(PODS, "web-1", {"metadata": {"labels": {"shard": "b"}}})
    async with db.running():
        db._store = super(Database, db)._store  # type: ignore[method-assign]
        await db.say(web_0="Succeeded", web_1="Succeeded", web_2="Succeeded")
        assert db.roles() == ["primary"] * 3
        assert db.says()[1] == "GroupMissing"
        await db.relabel("web-2", shard="b")
        assert db.roles().count("primary") == 2
        assert db.role("web-0") == "primary"
        await db.change_probes(role())
        assert len(db.primaries()) == 1


async def test_exclusive_on_a_live_marker_leaves_one_holder(db: Database) -> None:
    db.put_marker({key: value for key, value in role().items() if key != "exclusive"})
    async with db.running():
        db.writes.clear()
        store, db._store = db._store, super(Database, db)._store  # type: ignore[method-assign]
        await db.say(web_0="Succeeded", web_1="Succeeded", web_2="Failed")
        assert db.primaries() == ["web-0", "web-1"]
        await db.change_probes(role())
        assert db.roles() == ["primary", "replica", "replica"]
        db._store = store  # type: ignore[method-assign]
        await db.change_probes(
            {key: value for key, value in role().items() if key != "exclusive"}, seconds=0
        )


async def test_what_becomes_succeeded_in_one_event_leaves_the_holder(db: Database) -> None:
    async with db.running():
        await db.begin()
        await db.say(web_0="Failed")
        await db.say(web_0="Succeeded", web_1="Succeeded", web_2="Succeeded")
        holder = db.primaries()
        assert len(holder) == 1
        await db.say(web_1="Failed", web_2="Failed")
        await db.say(web_2="Succeeded", seconds=4)
        assert db.primaries() == ["web-2"]


async def test_a_late_claim_of_an_older_epoch_takes_no_role(db: Database) -> None:
    probe = role(exclusive={"epoch": {"regex": "[0-9]+"}})
    db.put_marker(probe)
    wanted = compile_marker(marker(probes=[probe])).probes[0].hash

    async def claim(**epochs: int | None) -> None:
        statuses: list[Json] = []
        for pod, epoch in epochs.items():
            result = state_wire(probe_hash=wanted) | ({} if epoch is None else {"epoch": epoch})
            statuses.append(pod_status_wire(db.read(PODS, pod.replace("_", "-")), result))
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
    assert "web#healthy: role=primary web-1 → web-0 (epoch 9)" in [
        event.message for event in db.events
    ]
