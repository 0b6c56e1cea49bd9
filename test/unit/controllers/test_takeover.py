"""What a new manager takes over from the previous one. The whole product over a fake API server."""

from collections.abc import Awaitable, Callable

import pytest
from support.builders import (
    entry_of,
    lease_wire,
    marker_wire,
    pod_status_wire,
    pod_wire,
    policy_wire,
    probe_wire,
    state_wire,
)
from support.cases import cases
from support.fake_api import Write
from support.metrics import metric
from support.running_manager import settle
from support.scene import C, Scene
from support.wire import Json

from kruise_probe.api.errors import Invalid
from kruise_probe.api.names import MANAGER_FIELD_MANAGER, daemon_lease_name
from kruise_probe.api.probe import ExecAction, Probe
from kruise_probe.api.resources import LEASES, MARKERS, PODS

Said = tuple[str, str]
NO_CONFLICT = ("False", "NoConflict")
AS_EXPECTED = ("False", "AsExpected")
HASH = entry_of(Probe(exec=ExecAction(("true",)))).hash
STALE = ("True", "ProbeDaemonStale")
LEASE = daemon_lease_name("node-1")
WITH_ROLE = probe_wire(policies=[policy_wire("Succeeded", {"role": "primary"})])
WITHOUT_CONDITION = probe_wire(
    condition="",
    policies=[
        policy_wire("Succeeded", {"alive": "yes"}),
        policy_wire("Unknown", {"alive": "unknown"}),
    ],
)


def says(api: Scene, type: str) -> Said:
    return api.says(type)[:2]


async def change_role(api: Scene, client: str) -> None:
    """Another client changes a label that the probe owns."""
    patch = {"metadata": {"labels": {"role": client}}}
    await api.change(PODS, "web-0", patch, manager=client)


async def is_changed(api: Scene) -> None:
    await api.report(state_wire())
    await change_role(api, "somebody")


async def is_changed_by_admission(api: Scene) -> None:
    def replace(wire: Json) -> None:
        wire["metadata"]["labels"]["role"] = "policy"

    api.mutate = replace
    await api.report(state_wire())
    api.mutate = lambda wire: None
    await settle(60)


async def has_two_daemons(api: Scene) -> None:
    await api.report(state_wire())
    for number in range(12):
        lease = lease_wire(renewed=f"2026-01-01T00:{number:02}:00Z")
        lease["spec"]["holderIdentity"] = f"node-1_{number % 2}"
        api.put(LEASES, lease)
        await settle(20)


@cases(
    "happens said forgotten seconds",
    another=(is_changed, ("Conflict", "ChangedByAnother"), NO_CONFLICT, 600),
    admission=(is_changed_by_admission, ("Conflict", "ChangedByAdmission"), NO_CONFLICT, 600),
    two_daemons=(has_two_daemons, ("Degraded", "TwoDaemons"), AS_EXPECTED, 160),
)
async def test_an_inherited_condition_stays_until_it_expires(
    api: Scene,
    happens: Callable[[Scene], Awaitable[None]],
    said: Said,
    forgotten: Said,
    seconds: float,
) -> None:
    api.put_marker(WITH_ROLE)
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


async def test_a_more_important_problem_hides_an_inherited_one_and_a_lesser_one_does_not(
    api: Scene,
) -> None:
    api.put_marker(WITH_ROLE)
    async with api.running():
        await has_two_daemons(api)
    async with api.running():
        await api.report(state_wire(state="Unknown", message="PortNameUnknown: no port http"))
        assert says(api, "Degraded") == ("True", "TwoDaemons")
        await settle(70)
        assert says(api, "Degraded") == STALE


async def test_an_edit_ends_what_another_manager_reported(api: Scene) -> None:
    api.put_marker(WITH_ROLE)
    async with api.running():
        await is_changed(api)
    await api.change_probes(probe_wire())
    async with api.running():
        assert says(api, "Conflict") == NO_CONFLICT


async def test_what_changes_now_replaces_what_another_manager_reported(api: Scene) -> None:
    api.put_marker(WITH_ROLE)
    async with api.running():
        await is_changed(api)
    async with api.running():
        await change_role(api, "somebody-else")
        message = api.says("Conflict")[2]
        assert "'somebody-else'" in message
        assert "'somebody'" not in message


async def test_a_marker_of_the_same_name_inherits_nothing(api: Scene) -> None:
    api.put_marker(WITH_ROLE)
    async with api.running():
        await is_changed(api)
        assert says(api, "Conflict") == ("True", "ChangedByAnother")
        api.sources[MARKERS.plural].hold()
        api.remove(MARKERS, "web")
        api.put(MARKERS, marker_wire(uid="another", probes=[WITH_ROLE]))
        api.sources[MARKERS.plural].release()
        await settle()
        assert says(api, "Conflict") == NO_CONFLICT


async def test_a_refused_value_is_reported_without_a_break(api: Scene) -> None:
    def refuse(write: Write) -> None:
        if "role" in write.body.get("metadata", {}).get("labels", {}):
            raise Invalid("metadata.labels: Invalid value", code=422)

    api.put_marker(WITH_ROLE)
    api.before = refuse
    api.latency_seconds["Pod"] = 2.0
    async with api.running():
        await api.report(state_wire(), seconds=30)
        assert says(api, "Degraded") == ("True", "PodNotMarked")
    before = len(api.writes)
    async with api.running():
        await settle(120)
        assert api.count("PodProbeMarker", since=before) == {}
        assert says(api, "Degraded") == ("True", "PodNotMarked")


async def test_a_node_without_a_daemon_is_known_until_one_shows_life(api: Scene) -> None:
    async with api.running():
        await settle(130)
        assert says(api, "Ready") == ("False", "NoVerdict")
    before = len(api.writes)
    async with api.running():
        await settle(30)
        assert api.count(since=before) == {}
        assert metric("kruise_probe_daemons_absent") == 1
        api.renew()
        await settle()
        assert says(api, "Degraded") == AS_EXPECTED
        assert says(api, "Ready") == ("Unknown", "WaitingForResults")


async def test_a_new_node_has_its_minute_also_if_another_has_no_daemon(api: Scene) -> None:
    async with api.running():
        await settle(130)
        api.put_node("node-2", "web-2")
        await settle()
    async with api.running():
        await settle(40)
        assert metric("kruise_probe_daemons_absent") == 1
        assert "node-2" not in api.says()[2]
        await settle(30)
        assert "node-2" in api.says()[2]


@cases("reason", silent="ProbeDaemonStale", hidden_by_a_node_without_a_daemon="NoDaemon")
async def test_marks_of_a_silent_daemon_stay_also_without_a_condition(
    api: Scene, reason: str
) -> None:
    if reason == "NoDaemon":
        api.put_node("node-9", "web-9")
    api.put_marker(WITHOUT_CONDITION)
    api.put(LEASES, lease_wire())
    async with api.running(state_wire()):
        assert api.labels() == {"alive": "yes"}
        await settle(70)
        assert api.labels() == {"alive": "unknown"}
        assert says(api, "Degraded") == ("True", reason)
    before = len(api.writes)
    async with api.running():
        assert metric("kruise_probe_daemons_stale") == 1
        await settle(130)
        assert metric("kruise_probe_daemons_stale") == 1
        assert api.count(since=before) == {}
        api.renew()
        await settle()
        assert api.labels() == {"alive": "yes"}


@cases("is_silent", one_is_silent=True, all_show_life=False)
async def test_an_expired_lease_is_doubted_only_if_a_daemon_was_found_silent(
    api: Scene, is_silent: bool
) -> None:
    """The daemon of node-1 may be silent; node-2 has a slow clock."""
    api.put_node("node-2", "web-2")
    api.put_node("node-3", "web-3")
    api.renew()
    async with api.running():
        for pod in ("web-0", "web-2", "web-3"):
            await api.report(state_wire(probe_hash=HASH), pod=pod)
        for _ in range(4):
            renew(api, is_silent)
            await settle(20)
        assert (says(api, "Degraded") == STALE) is is_silent
    for node in ("2", "3"):
        wire = api.read(PODS, f"web-{node}")
        failed = pod_status_wire(wire, state_wire(state="Failed", probe_hash=HASH))
        api.publish(failed, node=f"node-{node}")
    async with api.running():
        assert api.condition(pod="web-3")[0] == "False"
        assert api.condition(pod="web-2")[0] == ("True" if is_silent else "False")
        renew(api, is_silent)
        await settle()
        assert api.condition(pod="web-2")[0] == "False"


def renew(api: Scene, is_silent: bool) -> None:
    if not is_silent:
        api.renew()
    api.renew("node-2", ahead_seconds=-600)
    api.renew("node-3")


TERMINATING = {
    "metadata": {
        "deletionTimestamp": "2026-01-01T00:01:00Z",
        "finalizers": ["example.com/backup"],
    }
}


@pytest.fixture
def two_pods(api: Scene) -> Scene:
    """Two pods on one node."""
    api.put_node("node-1", "web-0", "web-1")
    return api


async def publish_both(api: Scene) -> None:
    statuses = [pod_status_wire(api.read(PODS, pod), state_wire()) for pod in ("web-0", "web-1")]
    api.publish(*statuses)
    await settle()


async def test_a_condition_of_a_terminating_pod_is_no_news_of_its_daemon(two_pods: Scene) -> None:
    """It stays stale when the daemon shows life again."""
    api = two_pods
    api.renew()
    async with api.running():
        await publish_both(api)
        await settle(70)
        assert api.condition(pod="web-1") == ("Unknown", "ProbeDaemonStale")
        api.edit(PODS, "web-1", TERMINATING)
        api.renew()
        await publish_both(api)
        assert api.condition() == ("True", "")
        assert api.condition(pod="web-1") == ("Unknown", "ProbeDaemonStale")
    before = len(api.writes)
    async with api.running(follows_seconds=10):
        api.renew()
        await settle(5)
        api.edit(PODS, "web-1", {"metadata": {"annotations": {"any": "change"}}})
        await settle(15)
        assert api.count("Pod", since=before) == {}
    async with api.running():
        await settle(10)
        assert api.count("Pod", since=before) == {}


async def test_a_text_of_others_makes_no_daemon_silent(two_pods: Scene) -> None:
    """Without a Lease, that text would be written to all pods of the node."""
    api = two_pods
    async with api.running():
        await publish_both(api)
    forged = {"type": C, "status": "Unknown", "reason": "ProbeDaemonStale", "message": "Buy this"}
    patch = {"status": {"conditions": [forged]}}
    api.edit(PODS, "web-1", patch, manager=MANAGER_FIELD_MANAGER)
    async with api.running():
        await settle(30)
        assert api.condition() == ("True", "")
        assert api.condition(pod="web-1") == ("True", "")


async def test_a_holder_keeps_its_role_while_its_daemon_is_doubted(api: Scene) -> None:
    """The daemon of node-1 is silent; node-2, with the holder, has a slow clock."""
    api.put_node("node-2", "web-2")
    api.put_node("node-3", "web-3")
    api.put_marker(WITH_ROLE | {"exclusive": {}})
    api.renew()
    async with api.running():
        for pod in ("web-3", "web-0", "web-2"):
            await api.report(state_wire(probe_hash=HASH), pod=pod)
        for _ in range(4):
            renew(api, is_silent=True)
            await settle(20)
        assert says(api, "Degraded") == STALE
        assert api.labels("web-2") == {"role": "primary"}
    before = len(api.writes)
    api.renew("node-3")
    async with api.running():
        await settle(10)
        assert api.count("Pod", since=before) == {}


async def test_no_daemon_is_doubted_for_a_marker_that_is_not_on_its_node(api: Scene) -> None:
    """node-2 has a slow clock, and no probe of the marker that reports node-1."""
    api.put_node("node-2")
    api.put(PODS, pod_wire("db-0", node="node-2", labels={"app": "db"}))
    other = {"matchLabels": {"app": "db"}}
    api.put_marker(probe_wire(condition=C), name="db", selector=other)
    api.renew()
    result = state_wire("db#healthy", probe_hash=HASH)
    async with api.running():
        await api.report(state_wire(probe_hash=HASH))
        await api.report(result, pod="db-0")
        for _ in range(4):
            api.renew("node-2", ahead_seconds=-600)
            await settle(20)
        assert says(api, "Degraded") == STALE
    failed = pod_status_wire(api.read(PODS, "db-0"), result | {"state": "Failed"})
    api.publish(failed, node="node-2")
    async with api.running():
        assert api.condition(pod="db-0")[0] == "False"
