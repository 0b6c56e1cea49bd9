"""The condition Ready, and causes without a verdict in Degraded. The whole product over a fake API server."""

from support.builders import node_wire, pod_wire, probe_wire, state_wire
from support.cases import cases
from support.fake_api import refusing
from support.running_manager import running_manager, settle
from support.scene import Scene
from support.wire import Json
from unit.controllers.common import (
    HASH,
    TRUE,
    Condition,
    held_lease,
    make_node_virtual,
    marker_condition,
    marker_message,
    marker_reason,
    put_lease,
    put_pod,
)

from kruise_probe.api.errors import ServerError
from kruise_probe.api.resources import LEASES, NODES, PODS

MISSING = state_wire(state="Unknown", message="ExecImpossible: no such program")
NO_PORT = state_wire(state="Unknown", message="PortNameUnknown: no port http")
STUCK = state_wire(state="Failed", message="ExecStuck: command timed out after 1s every time")
STOPPED = state_wire(state="Unknown", message="ContainerNotRunning: it starts")
WAITING = ("Unknown", "WaitingForResults")
REPORTING = ("True", "Reporting")
NO_VERDICT = ("False", "NoVerdict")
NO_PODS = ("True", "NoPods")
AS_EXPECTED = ("False", "AsExpected")


def ready(api: Scene, marker: str = "web") -> Condition:
    return marker_condition(api, "Ready", marker)


async def test_a_marker_is_ready_once_each_probe_had_a_verdict_on_a_pod(api: Scene) -> None:
    """Failed is a verdict. Afterwards no pod, restart or unknown result makes it unready."""
    api.put_marker(
        probe_wire(),
        probe_wire("b", condition="c/b"),
    )
    async with api.running():
        assert ready(api) == WAITING
        await api.report(
            state_wire(state="Failed"),
            pod="web-1",
        )
        assert ready(api) == WAITING
        await api.report(
            state_wire("web#b"),
            pod="web-2",
            seconds=1.5,
        )
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
    api: Scene,
    edit: Json,
    now: Condition,
) -> None:
    async with api.running():
        await api.report(
            state_wire(probe_hash=HASH),
            pod="web-1",
        )
        assert ready(api) == REPORTING
        await api.change_probes(probe_wire(**edit))
        assert ready(api) == now


@cases(
    "pods after",
    none=([], NO_PODS),
    not_scheduled=([pod_wire("web-1", node="")], WAITING),
    not_initialised=([pod_wire("web-1", initialized=False)], WAITING),
    finished=([pod_wire("web-1", phase="Succeeded")], NO_PODS),
)
async def test_a_marker_without_pods_is_ready_after_10_s(
    api: Scene,
    pods: list[Json],
    after: Condition,
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
    program_missing=([MISSING, MISSING], WAITING, "ExecImpossible", NO_VERDICT),
    no_such_port=([NO_PORT, MISSING], WAITING, "ExecImpossible", NO_VERDICT),
    stuck=([STUCK, STUCK], WAITING, "ExecStuck", NO_VERDICT),
    on_one_pod=([MISSING, state_wire()], REPORTING, "ExecImpossible", REPORTING),
    one_pod_has_no_result_yet=([MISSING], WAITING, "ExecImpossible", WAITING),
    slow_image=([STOPPED, STOPPED], WAITING, "AsExpected", WAITING),
)
async def test_a_cause_that_all_pods_share_makes_a_marker_unready_after_a_minute(
    api: Scene,
    states: list[Json],
    before: Condition,
    reason: str,
    after: Condition,
) -> None:
    async with api.running():
        for number, state in enumerate(states, start=1):
            await api.report(state, pod=f"web-{number}")
        assert ready(api) == before
        assert marker_reason(api) == reason
        assert "in use" not in marker_message(api)
        await settle(65)
        assert ready(api) == after
        if after == NO_VERDICT:
            put_pod(api, "web-3")
            await settle()
            assert ready(api) == after, "a new pod shows nothing"
            await api.report(state_wire(), pod="web-3")
            assert ready(api) == REPORTING


async def test_a_pod_whose_probes_all_have_a_cause_adds_to_that_of_one_probe(api: Scene) -> None:
    api.put_marker(
        probe_wire(),
        probe_wire("b", condition="c/b"),
    )
    missing_b = MISSING | {"name": "web#b"}
    async with api.running():
        await api.report(MISSING, missing_b, pod="web-1")
        await api.report(state_wire(), missing_b, pod="web-2")
        assert marker_reason(api) == "ExecImpossible"
        assert "probe 'b' on 2 of 2 pods; probe 'healthy' on 1 of 2 pods" in marker_message(api)
        await settle(65)
        assert ready(api) == NO_VERDICT
        assert "'b'" in marker_message(api, "Ready")


async def test_a_missing_container_is_a_cause_too(api: Scene) -> None:
    api.put_marker(probe_wire(container="other"))
    async with api.running():
        assert marker_condition(api) == ("True", "ContainerNotFound")
        await settle(65)
        assert ready(api) == NO_VERDICT


@cases(
    "probe reason",
    invalid=(probe_wire(condition="Ready"), "InvalidSpec"),
    claimed=(probe_wire(), "ClaimedByAnother"),
)
async def test_a_mistake_in_the_marker_makes_it_unready_at_once(
    api: Scene,
    probe: Json,
    reason: str,
) -> None:
    api.put_marker(probe, name="young", created="2027-01-01T00:00:00Z")
    async with api.reported("Succeeded", "Succeeded"):
        assert ready(api, "young") == ("False", reason)
        assert ready(api) == REPORTING


async def test_a_node_that_lags_for_30_s_makes_a_marker_unready(api: Scene) -> None:
    async with api.reported("Succeeded"):
        api.before = refusing(
            ServerError("no"),
            kind="NodePodProbe",
        )
        await api.change_probes(
            probe_wire(periodSeconds=3),
            seconds=20,
        )
        assert ready(api) == REPORTING
        await settle(15)
        assert ready(api) == ("False", "NodesBehind")


@cases(
    "labels windows",
    linux=({}, False),
    windows=({"kubernetes.io/os": "windows"}, True),
)
async def test_a_node_without_a_sign_of_a_daemon_is_named_after_a_minute(
    api: Scene,
    labels: Json,
    windows: bool,
) -> None:
    api.put(NODES, node_wire(labels=labels))
    async with api.running():
        await settle(50)
        assert marker_condition(api) == AS_EXPECTED
        await settle(15)
        assert marker_condition(api) == ("True", "NoDaemon")
        message = marker_message(api)
        assert "node-1 (1 pods); node-2 (1 pods)" in message
        assert ("Windows" in message) is windows
        await settle(65)
        assert ready(api) == NO_VERDICT
        api.renew()
        api.renew("node-2")
        await settle()
        assert marker_condition(api) == AS_EXPECTED


async def test_kruises_daemon_needs_no_lease(api: Scene) -> None:
    async with api.reported("Succeeded", "Succeeded"):
        await settle(600)
        assert marker_condition(api) == AS_EXPECTED
        assert marker_message(api) == "Every probe of this marker is in use."
        assert api.condition(pod="web-1") == TRUE


@cases("serverless reason", gate_off=(False, "NoDaemon"), gate_on=(True, "AsExpected"))
async def test_virtual_nodes_have_a_provider_only_with_the_gate(
    api: Scene,
    serverless: bool,
    reason: str,
) -> None:
    make_node_virtual(api)
    async with api.running(serverless=serverless):
        assert marker_reason(api) == reason


async def test_two_daemons_of_one_node_are_named(api: Scene) -> None:
    put_lease(api)
    async with api.reported("Succeeded", "Succeeded"):
        for number, holder in enumerate("ab" * 6):
            api.put(
                LEASES,
                held_lease(f"node-1_{holder}", 60 + number),
            )
            await settle(5)
        assert marker_condition(api) == ("True", "TwoDaemons")
        assert "node-1 (node-1_a and node-1_b)" in marker_message(api)
        assert api.condition(pod="web-1") == TRUE


async def test_only_what_is_in_use_is_called_so(api: Scene) -> None:
    async with api.reported("Succeeded"):
        assert api.says() == ("False", "AsExpected", "No problem is known.")
