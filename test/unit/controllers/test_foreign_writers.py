"""Other clients, and admission policies, that change what probes write. The whole manager over a fake API server."""

import pytest
from support.builders import policy_wire, probe_wire, state_wire
from support.cases import cases
from support.fake_api import refusing
from support.running_manager import settle
from support.scene import C, Scene
from support.wire import Json
from unit.controllers.common import (
    TRUE,
    labels_patch,
    marker_condition,
    marker_message,
    marker_reason,
    stamp,
    writes_since_now,
)

from kruise_probe.api.errors import ConnectionFailed
from kruise_probe.api.resources import PODS

FINE = state_wire(probed=stamp(5))
PRIMARY = {"role": "primary"}


@pytest.fixture
def api(api: Scene) -> Scene:
    api.put_marker(probe_wire(policies=[policy_wire("Succeeded", PRIMARY)]))
    return api


async def change_by_kubectl(api: Scene, patch: Json) -> None:
    await api.change(
        PODS,
        "web-0",
        patch,
        manager="kubectl-label",
    )


FALSE_CONDITION = {"status": {"conditions": [{"type": C, "status": "False"}]}}


@cases(
    "patch what",
    a_label=(
        labels_patch(role="mine"),
        "label 'role' of pod default/web-0 (field manager 'kubectl-label')",
    ),
    removal=(
        labels_patch(role=None),
        "label 'role' of pod default/web-0 (a client that removed it)",
    ),
    condition=(
        FALSE_CONDITION,
        f"condition type '{C}' of pod default/web-0 (field manager 'kubectl-label')",
    ),
)
async def test_a_client_that_changes_our_mark_is_named_for_ten_minutes(
    api: Scene,
    patch: Json,
    what: str,
) -> None:
    async with api.running(FINE):
        await change_by_kubectl(api, patch)
        assert api.labels() == PRIMARY
        assert api.condition() == TRUE
        assert marker_condition(api, "Conflict") == ("True", "ChangedByAnother")
        assert what in marker_message(api, "Conflict")
        assert api.says("Ready")[0] == "True"
        await settle(590)
        assert marker_reason(api, "Conflict") == "ChangedByAnother"
        await settle(20)
        assert marker_condition(api, "Conflict") == ("False", "NoConflict")


@cases(
    "patch",
    a_label_of_its_own=labels_patch(other="x"),
    the_phase={"status": {"phase": "Succeeded"}},
)
async def test_what_no_probe_writes_is_no_conflict(api: Scene, patch: Json) -> None:
    async with api.running(FINE):
        await change_by_kubectl(api, patch)
        assert marker_reason(api, "Conflict") == "NoConflict"


async def test_a_preset_value_and_the_end_of_an_intent_are_no_conflict(api: Scene) -> None:
    api.edit(
        PODS,
        "web-0",
        labels_patch(role="template"),
    )
    async with api.running(FINE):
        assert api.labels() == PRIMARY
        api.put_marker(
            probe_wire("o", condition="c/o"),
            name="other",
        )
        await api.change_probes(probe_wire())
        assert api.labels() == {}
        assert marker_reason(api, "Conflict") == "NoConflict"


async def test_an_own_write_whose_event_comes_first_is_no_conflict(api: Scene) -> None:
    async with api.running(FINE):
        api.sources["pods"].hold()
        api.before = refusing(
            ConnectionFailed("the response is lost"),
            kind="Pod",
        )
        await api.report(
            state_wire(state="Failed"),
            seconds=0.5,
        )
        api.edit(
            PODS,
            "web-0",
            labels_patch(role=None),
            manager="kruise-probe-manager",
        )
        api.sources["pods"].release()
        await api.recover(seconds=40)
        assert api.labels() == {}
        assert marker_reason(api, "Conflict") == "NoConflict"


async def test_a_standby_takes_no_write_of_the_leader_for_a_foreign_one(api: Scene) -> None:
    async with api.running(FINE), api.running(follows_seconds=60):
        await api.report(state_wire(state="Failed"))
        await settle(80)
        assert marker_reason(api, "Conflict") == "NoConflict"


@cases("value", replaced="policy", removed=None)
async def test_an_admission_policy_that_changes_our_request_is_reported(
    api: Scene,
    value: str | None,
) -> None:
    def replace(wire: Json) -> None:
        labels = wire["metadata"]["labels"]
        if labels.pop("role", None) and value:
            labels["role"] = value

    api.mutate = replace
    async with api.running(FINE):
        assert marker_condition(api, "Conflict") == ("True", "ChangedByAdmission")
        assert "label 'role' of pod default/web-0" in marker_message(api, "Conflict")
        pod_writes = writes_since_now(api, "Pod")
        await settle(100)
        assert pod_writes()["Pod/status"] <= 20
        api.mutate = lambda wire: None
        await settle(700)
        assert api.labels() == PRIMARY
        assert marker_reason(api, "Conflict") == "NoConflict"
