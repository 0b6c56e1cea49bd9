"""A value that the API server refuses. The whole product over a fake API server.

Of two markers on one pod, `bad` writes the value; `web` writes a condition, a label and an annotation.
"""

from collections import Counter

import pytest
from support.builders import policy_wire, probe_wire, state_wire
from support.fake_api import Write
from support.metrics import counted
from support.running_manager import settle
from support.scene import MARKED, C, Scene
from support.wire import Json
from unit.controllers.common import (
    TRUE,
    assert_marker_is_gone,
    assert_pod_writes,
    delete_marker,
    marker_message,
    marker_reason,
    writes_since_now,
)

from kruise_probe.api.errors import Invalid, ServerError
from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.resources import PODS
from kruise_probe.controllers import refused
from kruise_probe.controllers.pod_reconciler import CONTESTED_SECONDS
from kruise_probe.controllers.refused import RefusedPods
from kruise_probe.controllers.writes import EVERY_MARKER

MEASURED = "kruise_probe_result_to_condition_seconds_count"
BAD = state_wire("bad#healthy")
BOTH = (BAD, state_wire())
REFUSAL = 'metadata.annotations[worse]: Invalid value: "low"'
ALL_MARKS = (*MARKED[:2], {C, "c/bad"})
"""All but the refused value."""


def has_value(write: Write, field: str, name: str) -> bool:
    values: Json = write.body.get("metadata", {}).get(field, {})
    return name in values


@pytest.fixture
def api(api: Scene) -> Scene:
    probe = probe_wire(
        condition="c/bad",
        policies=[policy_wire(annotations={"worse": "low"})],
    )
    api.put_marker(probe, name="bad", created="2025-01-01T00:00:00Z")

    def refuse(write: Write) -> None:
        if has_value(write, "annotations", "worse"):
            raise Invalid(REFUSAL, code=422)

    api.before = refuse
    return api


async def test_a_refused_value_affects_its_own_marker_only(api: Scene) -> None:
    async with api.running():
        errors = counted("controller_runtime_reconcile_errors_total", controller="podmarks")
        measured = counted(MEASURED)
        await api.report(*BOTH, seconds=CONTESTED_SECONDS / 2)
        assert api.marks() == ALL_MARKS
        assert api.condition("c/bad") == TRUE
        assert errors() > 0
        await settle(6)
        assert measured() == 1
        assert marker_reason(api, marker="bad") == "PodNotMarked"
        assert f"422 {REFUSAL}" in marker_message(api, marker="bad")
        assert marker_reason(api) == "AsExpected"
        await api.change_probes(
            probe_wire(condition="c/bad"),
            marker="bad",
            seconds=2,
        )
        assert marker_reason(api, marker="bad") == "AsExpected"


async def test_a_refused_value_is_retried_with_backoff(api: Scene) -> None:
    async with api.running():
        await api.report(*BOTH, seconds=60)
        pod_writes = writes_since_now(api, "Pod")
        measured = counted(MEASURED)
        await settle(600)
        assert 1 <= pod_writes()["Pod/status"] <= 20
        await api.recover(seconds=2000)
        assert api.annotations() == {"cost": "10", "worse": "low"}
        assert measured() == 0


async def test_the_more_pods_of_a_namespace_are_refused_the_longer_each_waits(
    api: Scene,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(refused, "RETRY_SECONDS", 20.0)
    async with api.running():
        await api.report(*BOTH, seconds=5)
        pod_writes = writes_since_now(api, "Pod")
        await settle(14)
        assert pod_writes() == {}
        await settle(8)
        assert pod_writes() == {"Pod/status": 1}


def test_refused_pods_wait_for_those_of_their_own_namespace() -> None:
    pods = RefusedPods()
    for number in range(300):
        pods.record(
            NamespacedName("theirs", f"pod-{number}"),
            {"m": "422 no"},
        )
    one = NamespacedName("ours", "pod")
    pods.record(one, {EVERY_MARKER: "403 no"})
    assert pods.pause_seconds("theirs") == pytest.approx(30.0)
    assert pods.pause_seconds("ours") == pytest.approx(0.1)
    assert pods.why("any", one) == "403 no"
    pods.record(one, {})
    assert pods.pause_seconds("ours") == 0.0
    assert not pods.why("any", one)


async def writes_of_failure(api: Scene) -> Counter[str]:
    """Count pod writes when the other probe fails after a refusal."""
    await api.report(*BOTH, seconds=60)
    pod_writes = writes_since_now(api, "Pod")
    failed = state_wire(state="Failed")
    await api.report(BAD, failed, seconds=CONTESTED_SECONDS / 2)
    return pod_writes()


async def test_a_value_that_was_refused_is_sent_alone(api: Scene) -> None:
    async with api.running():
        assert await writes_of_failure(api) == {"Pod/status": 2}
        assert api.marks() == ({"sick": "true"}, {}, {C, "c/bad"})
        await api.recover(seconds=2000)
        assert api.annotations() == {"worse": "low"}
        assert marker_reason(api, marker="bad") == "AsExpected"


async def test_refused_conditions_keep_no_label_from_the_pod(api: Scene) -> None:
    def refuse(write: Write) -> None:
        if write.kind == "Pod" and "status" in write.body:
            raise Invalid("status.conditions: no", code=422)

    api.before = refuse
    async with api.running():
        assert await writes_of_failure(api) == {"Pod/status": 2}
        assert api.labels()["sick"] == "true"


async def test_a_refused_value_does_not_keep_marks_of_a_deleted_marker(api: Scene) -> None:
    async with api.running(state_wire()):
        await api.report(*BOTH, seconds=0)
        await delete_marker(api, seconds=10)
        assert_marker_is_gone(api)
        assert api.marks() == ({}, {}, {"c/bad"})


async def test_a_failure_between_two_parts_is_retried(api: Scene) -> None:
    refuse = api.before

    def fail_once(write: Write) -> None:
        refuse(write)
        if api.count("Pod")["Pod/status"] == 2:
            raise ServerError("no")

    api.before = fail_once
    async with api.running():
        await api.report(*BOTH, seconds=5)
        assert api.marks() == ALL_MARKS


async def test_a_pod_deleted_during_its_write_is_no_error(api: Scene) -> None:
    refuse = api.before

    def go(write: Write) -> None:
        refuse(write)
        if write.kind == "Pod":
            api.remove(PODS, "web-0")

    api.before = go
    async with api.running():
        await api.report(*BOTH, seconds=60)
        assert_pod_writes(api, 2)
        assert marker_reason(api, marker="bad") == "AsExpected"


async def test_only_the_labels_that_were_written_are_reported(api: Scene) -> None:
    def label(key: str) -> Json:
        policy = policy_wire(from_message=[{"label": key}])
        return probe_wire(condition=f"c/{key}", policies=[policy])

    def results(message: str) -> list[Json]:
        return [state_wire(name, message=message) for name in ("web#healthy", "zone#healthy")]

    def refuse(write: Write) -> None:
        if has_value(write, "labels", "role"):
            raise Invalid("metadata.labels: no", code=422)

    api.put_marker(label("role"))
    api.put_marker(label("zone"), name="zone")
    async with api.running(*results("r0")):
        api.before = refuse
        await api.report(*results("r1"))
        assert api.labels() == {"role": "r0", "zone": "r1"}
    changed = [event.message for event in api.events if event.reason == "KruiseProbeLabelChanged"]
    assert changed == ["zone#healthy: zone r0 → r1"]
