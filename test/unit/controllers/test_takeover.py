"""What only the manager before this one has seen stays in the status of the markers. The whole product over a fake API server."""

from collections.abc import Awaitable, Callable

from support.builders import lease_wire, policy_wire, probe_wire, state_wire
from support.cases import cases
from support.running_manager import settle
from support.scene import Scene
from support.wire import Json

from kruise_probe.api.resources import LEASES, PODS

Said = tuple[str, str]
NO_CONFLICT = ("False", "NoConflict")
AS_EXPECTED = ("False", "AsExpected")


def says(api: Scene, type: str) -> Said:
    return api.says(type)[:2]


def with_label(role: str) -> Json:
    return {"metadata": {"labels": {"role": role}}}


async def is_changed(api: Scene) -> None:
    """Another client changes a label."""
    await api.report(state_wire())
    await api.change(PODS, "web-0", with_label("mine"), manager="kubectl-label")


async def is_changed_by_admission(api: Scene) -> None:
    def replace(wire: Json) -> None:
        wire["metadata"]["labels"]["role"] = "policy"

    api.mutate = replace
    await api.report(state_wire())
    api.mutate = lambda wire: None
    await settle(60)


async def has_no_daemon(api: Scene) -> None:
    await settle(130)
    assert says(api, "Ready") == ("False", "NoVerdict")


async def has_two_daemons(api: Scene) -> None:
    await api.report(state_wire())
    await renew_in_turns(api, "ab" * 6)


async def renew_in_turns(api: Scene, holders: str) -> None:
    for number, holder in enumerate(holders):
        lease = lease_wire(renewed=f"2026-01-01T00:{number:02}:00Z")
        lease["spec"]["holderIdentity"] = f"node-1_{holder}"
        api.put(LEASES, lease)
        await settle(20)


@cases(
    "happens said forgotten seconds",
    another=(is_changed, ("Conflict", "ChangedByAnother"), NO_CONFLICT, 600),
    admission=(is_changed_by_admission, ("Conflict", "ChangedByAdmission"), NO_CONFLICT, 600),
    two_daemons=(has_two_daemons, ("Degraded", "TwoDaemons"), AS_EXPECTED, 160),
)
async def test_a_new_manager_reports_it_until_it_could_have_seen_it(
    api: Scene,
    happens: Callable[[Scene], Awaitable[None]],
    said: Said,
    forgotten: Said,
    seconds: float,
) -> None:
    api.put_marker(probe_wire(policies=[policy_wire("Succeeded", {"role": "primary"})]))
    type, reason = said
    async with api.running():
        await happens(api)
        assert says(api, type) == ("True", reason)
    before = len(api.writes)
    async with api.running():
        for _ in range(int(seconds / 20) - 1):
            api.renew()
            await settle(20)
        assert api.count(since=before) == {}
        assert says(api, type) == ("True", reason)
        api.renew()
        await settle(30)
        assert says(api, type) == forgotten


async def test_a_new_manager_knows_that_a_node_has_no_daemon_until_one_shows_life(
    api: Scene,
) -> None:
    async with api.running():
        await has_no_daemon(api)
    before = len(api.writes)
    async with api.running():
        await settle(30)
        assert api.count(since=before) == {}
        api.renew()
        await settle()
        assert says(api, "Degraded") == AS_EXPECTED
        assert says(api, "Ready") == ("Unknown", "WaitingForResults")


async def test_an_edit_ends_what_another_manager_reported(api: Scene) -> None:
    api.put_marker(probe_wire(policies=[policy_wire("Succeeded", {"role": "primary"})]))
    async with api.running():
        await is_changed(api)
    await api.change_probes(probe_wire())
    async with api.running():
        assert says(api, "Conflict") == NO_CONFLICT


async def test_what_changes_now_replaces_what_another_manager_reported(api: Scene) -> None:
    api.put_marker(probe_wire(policies=[policy_wire("Succeeded", {"role": "primary"})]))
    async with api.running():
        await is_changed(api)
    async with api.running():
        await api.change(PODS, "web-0", with_label("other"), manager="someone-else")
        assert "someone-else" in api.says("Conflict")[2]
        assert "kubectl-label" not in api.says("Conflict")[2]
