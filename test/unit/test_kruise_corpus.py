"""Objects as Kruise's manager, daemon and webhook write them: our manager and daemon continue from them."""

import asyncio
import json
from typing import Any

import msgspec
import pytest
from support.builders import node_wire
from support.cases import cases
from support.fake_api import FakeApi
from support.kruise_corpus import corpus, written
from support.running_manager import running_manager, settle
from support.scripted_node import ScriptedNode
from support.wire import Json

from kruise_probe.api.meta import Resource
from kruise_probe.api.names import SERVERLESS_MARKERS_ANNOTATION, SERVERLESS_PROBES_ANNOTATION
from kruise_probe.api.probe import Probe
from kruise_probe.api.resources import MARKERS, NODE_POD_PROBES, NODES, PODS
from kruise_probe.daemon.probers.prober import ProbeResult, Target
from kruise_probe.webhook.admission import AdmissionRequest, annotate_pod

RESOURCES: dict[str, Resource[Any]] = {
    "PodProbeMarker": MARKERS,
    "NodePodProbe": NODE_POD_PROBES,
}


def decoded(name: str) -> Any:
    recorded = corpus()[name]
    return RESOURCES[recorded.kind].decode(msgspec.json.encode(recorded.object))


def answered_states() -> dict[str, Json]:
    """The results that Kruise's daemon reported, by `<pod>/<probe>`."""
    states = {}
    for pod in written("report-answered")["status"]["podProbeStatuses"]:
        for state in pod["probeStates"]:
            states[f"{pod['name']}/{state['name']}"] = state
    return states


def by_name(items: list[Json]) -> dict[str, Json]:
    return {item["name"]: item for item in items}


# Decoding and encoding.


@pytest.mark.parametrize(
    "name", [name for name, recorded in corpus().items() if recorded.kind in RESOURCES]
)
def test_what_is_read_is_what_stands_there(name: str) -> None:
    """Decoded and encoded again, an object is the same JSON: times, absent numbers, `IP` and order. An absent list of results becomes empty."""
    wire = written(name)
    read = decoded(name)

    status = json.loads(msgspec.json.encode(read.status))
    assert json.loads(msgspec.json.encode(read.spec)) == wire["spec"]
    assert status == (wire["status"] or {"podProbeStatuses": []})


# Our manager, after Kruise's.


def taken_over(npp: str, *pods: str) -> FakeApi:
    """A cluster with objects that Kruise's manager wrote."""
    api = FakeApi()
    api.put(NODES, node_wire())
    for marker in ("marker", "marker-late"):
        api.put(MARKERS, written(marker))
    for pod in pods:
        api.put(PODS, written(pod))
    api.put(NODE_POD_PROBES, written(npp))
    return api


async def run_manager(api: FakeApi, seconds: float = 4) -> None:
    async with running_manager(api):
        await settle(seconds)


def stored_pod(api: FakeApi, name: str) -> Json:
    return api.read(PODS, name, "games")


def stored_report(api: FakeApi) -> Json:
    return api.read(NODE_POD_PROBES, "node-1", "games")


def conditions(pod: Json) -> dict[str, Json]:
    return {condition["type"]: condition for condition in pod["status"]["conditions"]}


@cases(
    "npp pods",
    asked=("report-asked", ("pod-asked", "pod-without-address")),
    answered=("report-answered", ("pod-succeeded", "pod-failed")),
)
async def test_our_manager_asks_what_kruises_asked_and_leaves_pods_as_they_are(
    npp: str, pods: tuple[str, ...]
) -> None:
    """It writes the NodePodProbe once: the owner reference, with an unchanged spec. Its next run writes nothing."""
    api = taken_over(npp, *pods)
    await run_manager(api, 70)
    ours = by_name(stored_report(api)["spec"]["podProbes"])
    theirs = by_name(written(npp)["spec"]["podProbes"])
    for entry in (*ours.values(), *theirs.values()):
        entry["probes"] = by_name(entry["probes"])
    assert ours == theirs
    assert api.count("Pod") == {}
    assert api.count("NodePodProbe") == {"NodePodProbe": 1}

    before = len(api.writes)
    await run_manager(api, 70)
    assert api.count(since=before) == {}


async def test_results_of_kruises_daemon_reach_pods_as_kruises_manager_would_show_them() -> None:
    """The same conditions and marks with the same timestamps, although the status is not sorted."""
    api = taken_over("report-answered", "pod-asked", "pod-without-address")
    address = {"podIP": "127.1.0.2"}
    api.edit(PODS, "web-1", {"status": address}, namespace="games")
    await run_manager(api)

    for theirs in ("pod-succeeded", "pod-failed"):
        shown = written(theirs)
        mine = stored_pod(api, shown["metadata"]["name"])
        for marks in ("labels", "annotations"):
            assert mine["metadata"][marks] == shown["metadata"][marks]
        assert conditions(mine) == conditions(shown)
    assert api.count("Pod") == {"Pod/status": 2}


async def test_unknown_that_kruise_showed_as_false_is_told_as_unknown_once() -> None:
    """A deliberate difference, see docs/differences.md. The marks stay."""
    api = taken_over("report-begun", "pod-begun", "pod-failed")
    await run_manager(api)

    pod = stored_pod(api, "web-0")
    assert conditions(pod)["game.kruise.io/idle"]["status"] == "Unknown"
    assert pod["metadata"]["labels"] == {"app": "game"}
    assert api.count("Pod") == {"Pod/status": 1}


async def test_what_kruises_daemon_has_left_over_changes_nothing() -> None:
    """Results of probes that no marker requests, and an object with nothing but its name."""
    for npp in ("report-left-over", "report-emptied", "report-created"):
        api = FakeApi()
        api.put(NODES, node_wire())
        api.put(PODS, written("pod-asked"))
        wire = written(npp)
        wire["metadata"] |= {"uid": "uid-npp", "resourceVersion": "1", "generation": 1}
        api.put(NODE_POD_PROBES, wire)
        await run_manager(api)

        assert api.count("Pod") == {}, npp
        assert stored_report(api)["spec"] == {}, npp


def test_our_webhook_tells_a_provider_what_kruises_tells_it() -> None:
    theirs = written("pod-annotated")
    told = theirs["metadata"].pop("annotations")
    request = AdmissionRequest(
        uid="u",
        operation="CREATE",
        namespace="games",
        object=msgspec.Raw(msgspec.json.encode(theirs)),
    )
    (addition,) = annotate_pod(request, [decoded("marker"), decoded("marker-late")]).patch
    mine = addition["value"]

    assert mine[SERVERLESS_MARKERS_ANNOTATION] == told[SERVERLESS_MARKERS_ANNOTATION]
    probes = json.loads(mine[SERVERLESS_PROBES_ANNOTATION])
    assert probes == json.loads(told[SERVERLESS_PROBES_ANNOTATION])


# Our daemon, after Kruise's, and beside Kruise's manager.


def name_of(probe: Probe) -> str:
    if probe.exec:
        return "game#idle"
    return "game#web" if probe.http_get else "a-late-one#door"


def node_that_kruise_has_probed(npp: str) -> ScriptedNode:
    """Its containers have run for an hour, and every probe has the result that Kruise's daemon reported."""
    node = ScriptedNode()
    read = decoded(npp)
    node.api.put(read.spec, read.status)
    for pod, ip in (("web-0", "127.1.0.1"), ("web-1", "127.1.0.2")):
        for container in ("main", "proxy"):
            node.containers.start(
                pod,
                container,
                id=f"{pod}/{container}",
                age=3600,
                ips=(ip,),
            )
    said = answered_states()

    async def behave(probe: Probe, target: Target) -> ProbeResult:
        pod = target.container_id.partition("/")[0]
        state = said[f"{pod}/{name_of(probe)}"]
        return ProbeResult(state["state"] == "Succeeded", state.get("message", ""))

    node.probers.behaviour = behave
    return node


async def test_our_daemon_probes_what_kruises_manager_asks() -> None:
    node = node_that_kruise_has_probed("report-begun")
    async with node.daemon():
        await asyncio.sleep(60)

    probes = {name_of(attempt.probe): attempt.probe for attempt in node.probers.attempts}
    idle = probes["game#idle"]
    assert idle.exec
    assert idle.exec.command == ("/idle.sh", "<5")
    assert idle.effective_period_seconds == 1
    web = probes["game#web"]
    assert web.http_get
    assert web.http_get.port == 8080
    assert web.effective_failure_threshold == 3
    assert probes["a-late-one#door"].tcp_socket
    ours = {name: state.state for name, state in node.api.states().items()}
    theirs = {name: state["state"] for name, state in answered_states().items()}
    assert ours == theirs


@cases("prunes", kruises_crd=True, our_crd=False)
async def test_our_daemon_goes_on_where_kruises_ended_and_refreshes_once(prunes: bool) -> None:
    """Every result is unchanged, so there is no event and only one write: the refresh, a minute after the start."""
    node = node_that_kruise_has_probed("report-answered")
    node.api.prunes = prunes
    async with node.daemon(200):
        assert len(node.probers.attempts) > 300

        (refresh,) = node.api.writes
        assert refresh.at == pytest.approx(61.5, abs=2)
        assert node.recorder.events == []


async def test_our_daemon_drops_what_nobody_asks_for_any_more() -> None:
    node = node_that_kruise_has_probed("report-left-over")
    async with node.daemon():
        await asyncio.sleep(10)

    assert node.api.states() == {}
    assert len(node.api.writes) == 1
