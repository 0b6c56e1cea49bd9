"""Other clients, and admission policies, that change what probes write. The whole manager over a fake API server."""

import pytest
from support.builders import marker_wire, policy_wire, probe_wire, state_wire
from support.cases import cases
from support.fake_api import refusing
from support.running_manager import settle
from support.scene import C, Scene
from support.wire import Json

from kruise_probe.api.errors import ConnectionFailed
from kruise_probe.api.resources import MARKERS, PODS

FINE = state_wire(probed="2026-01-01T00:00:05Z")


@pytest.fixture
def api(api: Scene) -> Scene:
    api.put_marker(probe_wire(policies=[policy_wire("Succeeded", {"role": "primary"})]))
    return api


def labels(role: str | None) -> Json:
    return {"metadata": {"labels": {"role": role}}}


FALSE = {"status": {"conditions": [{"type": C, "status": "False"}]}}


@cases(
    "patch what",
    a_label=(labels("mine"), "label 'role' of pod default/web-0 (field manager 'kubectl-label')"),
    removal=(labels(None), "label 'role' of pod default/web-0 (a client that removed it)"),
    condition=(FALSE, f"condition type '{C}' of pod default/web-0 (field manager 'kubectl-label')"),
)
async def test_a_client_that_changes_our_mark_is_named_for_ten_minutes(
    api: Scene, patch: Json, what: str
) -> None:
    async with api.running(FINE):
        await api.change(PODS, "web-0", patch, manager="kubectl-label")
        assert (api.labels(), api.condition()) == ({"role": "primary"}, ("True", ""))
        status, reason, message = api.says("Conflict")
        assert (status, reason) == ("True", "ChangedByAnother")
        assert what in message
        assert api.says("Ready")[0] == "True"
        await settle(590)
        assert api.says("Conflict")[1] == "ChangedByAnother"
        await settle(20)
        assert api.says("Conflict")[:2] == ("False", "NoConflict")


@cases(
    "patch",
    a_label_of_its_own=({"metadata": {"labels": {"other": "x"}}}),
    the_phase=({"status": {"phase": "Succeeded"}}),
)
async def test_what_no_probe_writes_is_no_conflict(api: Scene, patch: Json) -> None:
    async with api.running(FINE):
        await api.change(PODS, "web-0", patch, manager="kubectl-label")
        assert api.says("Conflict")[1] == "NoConflict"


async def test_a_preset_value_and_the_end_of_an_intent_are_no_conflict(api: Scene) -> None:
    api.edit(PODS, "web-0", labels("template"))
    async with api.running(FINE):
        assert api.labels() == {"role": "primary"}
        api.put(MARKERS, marker_wire("other", probes=[probe_wire("o", condition="c/o")]))
        await api.change_probes(probe_wire())
        assert api.labels() == {}
        assert api.says("Conflict")[1] == "NoConflict"


async def test_an_own_write_whose_event_comes_first_is_no_conflict(api: Scene) -> None:
    async with api.running(FINE):
        api.sources["pods"].hold()
        api.before = refusing(ConnectionFailed("the response is lost"), kind="Pod")
        await api.report(state_wire(state="Failed"), seconds=0.5)
        api.edit(PODS, "web-0", labels(None), manager="kruise-probe-manager")
        api.sources["pods"].release()
        await api.recover(seconds=40)
        assert api.labels() == {}
        assert api.says("Conflict")[1] == "NoConflict"


async def test_a_standby_takes_no_write_of_the_leader_for_a_foreign_one(api: Scene) -> None:
    async with api.running(FINE), api.running(follows_seconds=60):
        await api.report(state_wire(state="Failed"))
        await settle(80)
        assert api.says("Conflict")[1] == "NoConflict"


@cases("value", replaced="policy", removed=None)
async def test_an_admission_policy_that_changes_our_request_is_reported(
    api: Scene, value: str | None
) -> None:
    def replace(wire: Json) -> None:
        found = wire["metadata"]["labels"]
        if value is None:
            found.pop("role", None)
        elif "role" in found:
            found["role"] = value

    api.mutate = replace
    async with api.running(FINE):
        status, reason, message = api.says("Conflict")
        assert (status, reason) == ("True", "ChangedByAdmission")
        assert "label 'role' of pod default/web-0" in message
        before = len(api.writes)
        await settle(100)
        assert api.count("Pod", since=before)["Pod/status"] <= 20
        api.mutate = lambda wire: None
        await settle(700)
        assert api.labels() == {"role": "primary"}
        assert api.says("Conflict")[1] == "NoConflict"
