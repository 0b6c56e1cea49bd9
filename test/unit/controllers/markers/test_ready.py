"""The condition Ready, and causes without a verdict in Degraded. The whole product over a fake API server."""

from support.builders import (
    entry_of,
    lease_wire,
    node_wire,
    pod_wire,
    probe_wire,
    state_wire,
)
from support.cases import cases
from support.fake_api import refusing
from support.running_manager import running_manager, settle
from support.scene import Scene
from support.wire import Json

from kruise_probe.api.errors import ServerError
from kruise_probe.api.probe import ExecAction, Probe
from kruise_probe.api.resources import LEASES, NODES, PODS

MISSING = state_wire(state="Unknown", message="ExecImpossible: no such program")
NO_PORT = state_wire(state="Unknown", message="PortNameUnknown: no port http")
STUCK = state_wire(
    state="Failed",
    message="ExecStuck: command timed out after 1s every time",
)
STOPPED = state_wire(state="Unknown", message="ContainerNotRunning: it starts")
HASH = entry_of(Probe(exec=ExecAction(("true",)))).hash
WAITING = ("Unknown", "WaitingForResults")
REPORTING = ("True", "Reporting")
AS_EXPECTED = ("False", "AsExpected")


def ready(api: Scene, marker: str = "web") -> tuple[str, str]:
    return api.says("Ready", marker)[:2]


def degraded(api: Scene) -> tuple[str, str]:
    return api.says()[:2]


async def test_a_marker_is_ready_once_each_probe_had_a_verdict_on_a_pod(api: Scene) -> None:
    """Failed is a verdict. Afterwards no pod, restart or unknown result makes it unready."""
    api.put_marker(probe_wire(), probe_wire("b", condition="c/b"))
    async with api.running():
        assert ready(api) == WAITING
        await api.report(state_wire("web#healthy", "Failed"), pod="web-1")
        assert ready(api) == WAITING
        await api.report(state_wire("web#b"), pod="web-2", seconds=1.5)
        assert ready(api) == REPORTING
        await api.report(pod="web-1")
        await api.report(MISSING, pod="web-1")
    async with running_manager(api):
        await api.drop(PODS, "web-1")
        await api.drop(PODS, "web-2", seconds=90)
        assert ready(api) == REPORTING


@cases(
    "edit now",
    of_the_command=({"handler": {"exec": {"command": ["false"]}}}, WAITING),
    of_the_period=({"periodSeconds": 9}, REPORTING),
)
async def test_each_generation_awaits_its_own_verdicts(
    api: Scene, edit: Json, now: tuple[str, str]
) -> None:
    async with api.running():
        await api.report(state_wire(probe_hash=HASH), pod="web-1")
        assert ready(api) == REPORTING
        await api.change_probes(probe_wire(**edit))
        assert ready(api) == now


@cases(
    "pods after",
    none=([], ("True", "NoPods")),
    not_scheduled=([pod_wire("web-1", node="")], WAITING),
    not_initialised=([pod_wire("web-1", initialized=False)], WAITING),
    finished=([pod_wire("web-1", phase="Succeeded")], ("True", "NoPods")),
)
async def test_a_marker_without_pods_is_ready_after_10_s(
    api: Scene, pods: list[Json], after: tuple[str, str]
) -> None:
    """A workload that was created with the marker has pods by then."""
    for name in ("web-1", "web-2"):
        api.remove(PODS, name)
    for wire in pods:
        api.put(PODS, wire)
    async with api.running():
        await settle(4)
        assert ready(api) == WAITING
        await settle(9)
        assert ready(api) == after


@cases(
    "states before reason after",
    program_missing=([MISSING, MISSING], WAITING, "ExecImpossible", ("False", "NoVerdict")),
    no_such_port=([NO_PORT, MISSING], WAITING, "ExecImpossible", ("False", "NoVerdict")),
    stuck=([STUCK, STUCK], WAITING, "ExecStuck", ("False", "NoVerdict")),
    on_one_pod=([MISSING, state_wire()], REPORTING, "ExecImpossible", REPORTING),
    one_pod_has_no_result_yet=([MISSING], WAITING, "ExecImpossible", WAITING),
    slow_image=([STOPPED, STOPPED], WAITING, "AsExpected", WAITING),
)
async def test_a_cause_that_all_pods_share_makes_a_marker_unready_after_a_minute(
    api: Scene,
    states: list[Json],
    before: tuple[str, str],
    reason: str,
    after: tuple[str, str],
) -> None:
    async with api.running():
        for number, state in enumerate(states, start=1):
            await api.report(state, pod=f"web-{number}")
        assert ready(api) == before
        assert degraded(api)[1] == reason
        assert "in use" not in api.says()[2]
        await settle(65)
        assert ready(api) == after
        if after[1] == "NoVerdict":
            api.put(PODS, pod_wire("web-3"))
            await settle()
            assert ready(api) == after, "a new pod shows nothing"
            await api.report(state_wire(), pod="web-3")
            assert ready(api) == REPORTING


async def test_a_pod_whose_probes_all_have_a_cause_adds_to_that_of_one_probe(api: Scene) -> None:
    api.put_marker(probe_wire(), probe_wire("b", condition="c/b"))
    missing_b = {**MISSING, "name": "web#b"}
    async with api.running():
        await api.report(MISSING, missing_b, pod="web-1")
        await api.report(state_wire(), missing_b, pod="web-2")
        _, reason, message = api.says()
        assert reason == "ExecImpossible"
        assert "probe 'b' on 2 of 2 pods; probe 'healthy' on 1 of 2 pods" in message
        await settle(65)
        assert ready(api) == ("False", "NoVerdict")
        assert "'b'" in api.says("Ready")[2]


async def test_a_missing_container_is_a_cause_too(api: Scene) -> None:
    api.put_marker(probe_wire(container="other"))
    async with api.running():
        assert degraded(api) == ("True", "ContainerNotFound")
        await settle(65)
        assert ready(api) == ("False", "NoVerdict")


@cases(
    "probe reason",
    invalid=(probe_wire(condition="Ready"), "InvalidSpec"),
    claimed=(probe_wire(), "ClaimedByAnother"),
)
async def test_a_mistake_in_the_marker_makes_it_unready_at_once(
    api: Scene, probe: Json, reason: str
) -> None:
    api.put_marker(probe, name="young", created="2027-01-01T00:00:00Z")
    async with api.reported("Succeeded", "Succeeded"):
        assert ready(api, "young") == ("False", reason)
        assert ready(api) == REPORTING


async def test_a_node_that_lags_for_30_s_makes_a_marker_unready(api: Scene) -> None:
    async with api.reported("Succeeded"):
        api.before = refusing(ServerError("no"), kind="NodePodProbe")
        await api.change_probes(probe_wire(periodSeconds=3), seconds=20)
        assert ready(api) == REPORTING
        await settle(15)
        assert ready(api) == ("False", "NodesBehind")


@cases(
    "labels windows",
    linux=({}, False),
    windows=({"kubernetes.io/os": "windows"}, True),
)
async def test_a_node_without_a_sign_of_a_daemon_is_named_after_a_minute(
    api: Scene, labels: dict[str, str], windows: bool
) -> None:
    api.put(NODES, node_wire(labels=labels))
    async with api.running():
        await settle(50)
        assert degraded(api) == AS_EXPECTED
        await settle(15)
        assert degraded(api) == ("True", "NoDaemon")
        message = api.says()[2]
        assert "node-1 (1 pods); node-2 (1 pods)" in message
        assert ("Windows" in message) is windows
        await settle(65)
        assert ready(api) == ("False", "NoVerdict")
        api.renew()
        api.renew("node-2")
        await settle()
        assert degraded(api) == AS_EXPECTED


async def test_kruises_daemon_needs_no_lease(api: Scene) -> None:
    async with api.reported("Succeeded", "Succeeded"):
        await settle(600)
        assert degraded(api) == AS_EXPECTED
        assert api.says()[2] == "Every probe of this marker is in use."
        assert api.condition(pod="web-1") == ("True", "")


@cases("serverless reason", gate_off=(False, "NoDaemon"), gate_on=(True, "AsExpected"))
async def test_virtual_nodes_have_a_provider_only_with_the_gate(
    api: Scene, serverless: bool, reason: str
) -> None:
    api.put(NODES, node_wire(labels={"type": "virtual-kubelet"}))
    async with api.running(serverless=serverless):
        assert degraded(api)[1] == reason


async def test_two_daemons_of_one_node_are_named(api: Scene) -> None:
    api.put(LEASES, lease_wire())
    async with api.reported("Succeeded", "Succeeded"):
        for number in range(12):
            wire = lease_wire(renewed=f"2026-01-01T00:01:{number:02}Z")
            wire["spec"]["holderIdentity"] = f"node-1_{'ab'[number % 2]}"
            api.put(LEASES, wire)
            await settle(5)
        assert degraded(api) == ("True", "TwoDaemons")
        assert "node-1 (node-1_a and node-1_b)" in api.says()[2]
        assert api.condition(pod="web-1") == ("True", "")


async def test_only_what_is_in_use_is_called_so(api: Scene) -> None:
    async with api.reported("Succeeded"):
        assert api.says() == ("False", "AsExpected", "No problem is known.")
