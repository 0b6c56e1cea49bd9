"""Probes that an annotation on the marker or on the pod pauses. The whole product over a fake API server."""

from typing import Any

import pytest
from support.builders import probe_wire, state_wire
from support.cases import cases
from support.running_manager import settle
from support.scene import C, Scene
from unit.controllers.common import (
    FALSE,
    TRUE,
    assert_marker_is_gone,
    delete_marker,
    make_node_virtual,
    marker_condition,
    marker_message,
    no_writes,
)

from kruise_probe.api.meta import Resource
from kruise_probe.api.names import PAUSED_ANNOTATION
from kruise_probe.api.resources import MARKERS, PODS

FINE = state_wire(message="fine")
PROBE_PAUSED = ("True", "ProbePaused")
HEALTHY = {"healthy": "true"}
PROBED = {"web-0": ["web#healthy"]}

Where = tuple[Resource[Any], str]
"""The kind and the name of the annotated object."""

MARKER: Where = (MARKERS, "web")
POD: Where = (PODS, "web-0")
either = cases("where", marker=MARKER, pod=POD)


async def annotate(api: Scene, where: Where, value: str | None = "true") -> None:
    patch = {"metadata": {"annotations": {PAUSED_ANNOTATION: value}}}
    await api.change(*where, patch)


async def pause(api: Scene, where: Where) -> None:
    """The annotation is set, and the daemon drops the results of probes that it no longer has."""
    await annotate(api, where)
    if not api.probes():
        api.publish()
    await settle()


@either
async def test_a_pause_is_one_write_of_the_pod_and_so_is_its_end(api: Scene, where: Where) -> None:
    async with api.running(FINE):
        before = api.conditions()[C]
        writes = len(api.writes)
        await pause(api, where)
        assert api.probes() == {}
        assert api.labels() == HEALTHY
        assert api.conditions()[C] == before | {"reason": "ProbePaused"}
        await settle(600)
        assert api.count("Pod", since=writes) == {"Pod/status": 1}
        assert api.count("NodePodProbe", since=writes) == {"NodePodProbe": 1}

        await annotate(api, where, None)
        assert api.probes() == PROBED
        await api.report(FINE)
        assert api.conditions()[C] == before
        assert api.count("Pod", since=writes) == {"Pod/status": 2}


async def test_a_result_during_the_pause_is_not_written(api: Scene) -> None:
    async with api.running(FINE):
        await annotate(api, POD)
        await api.report(state_wire(state="Failed", message="late"))
        assert api.condition() == PROBE_PAUSED
        assert api.labels() == HEALTHY
        assert api.conditions()[C]["message"] == "fine"


@pytest.mark.parametrize("value", ["True", "yes", "1", "", "false"])
@either
async def test_only_the_value_true_pauses(api: Scene, where: Where, value: str) -> None:
    async with api.running(FINE):
        await annotate(api, where, value)
        assert api.probes() == PROBED
        assert api.condition() == TRUE


async def test_a_paused_marker_leaves_the_probes_of_others(api: Scene) -> None:
    api.put_marker(
        probe_wire(condition="c/other"),
        name="other",
    )
    async with api.running():
        assert api.probes() == {"web-0": ["other#healthy", "web#healthy"]}
        await annotate(api, MARKER)
        assert api.probes() == {"web-0": ["other#healthy"]}


@either
async def test_a_restart_while_paused_writes_nothing(api: Scene, where: Where) -> None:
    async with api.running(FINE):
        await pause(api, where)
    with no_writes(api):
        await api.run(seconds=60)


@either
async def test_a_paused_probe_does_not_become_stale(api: Scene, where: Where) -> None:
    api.renew()
    async with api.running(FINE):
        await pause(api, where)
        with no_writes(api, "Pod"):
            await settle(120)
        assert api.condition() == PROBE_PAUSED
        await annotate(api, where, None)
        await settle(60)  # from the entry
        assert api.condition() == ("Unknown", "ProbeDaemonStale")


@either
async def test_a_pod_that_was_stale_before_the_pause_stays_unknown(
    api: Scene,
    where: Where,
) -> None:
    api.renew()
    async with api.running(FINE):
        await settle(120)
        await annotate(api, where)
        assert api.condition() == ("Unknown", "ProbePaused")
        api.renew(ahead_seconds=1)
        await settle()
        assert api.condition() == ("Unknown", "ProbePaused")


@either
async def test_a_marker_deleted_while_paused_leaves_nothing(api: Scene, where: Where) -> None:
    async with api.running(FINE):
        await pause(api, where)
        await delete_marker(api)
        assert_marker_is_gone(api)
        assert api.labels() == {}
        assert api.conditions() == {}


@either
async def test_a_new_pod_gets_no_condition_while_paused(api: Scene, where: Where) -> None:
    await annotate(api, where)
    async with api.running():
        assert api.probes() == {}
        assert api.count("Pod") == {}


@cases(
    "where message",
    pod=(POD, "1 of 2 pods are not probed, because they have"),
    marker=(MARKER, "2 of 2 pods are not probed, because this PodProbeMarker has"),
)
async def test_the_marker_counts_paused_pods_by_their_conditions(
    api: Scene,
    where: Where,
    message: str,
) -> None:
    api.put_node("node-1", "web-1")
    async with api.running(FINE):
        await pause(api, where)
        assert api.counts() == (2, 1, 0, 1, 0)
        assert marker_condition(api) == ("False", "ProbePaused")
        assert marker_message(api).startswith(message)


@either
async def test_marks_of_a_serverless_pod_stay_while_paused(api: Scene, where: Where) -> None:
    make_node_virtual(api)
    async with api.running(serverless=True):
        await api.provider_reports("True")
        await annotate(api, where)
        await api.provider_reports("False")
        assert api.labels() == HEALTHY
        await annotate(api, where, None)
        assert api.labels() == {"sick": "true"}
        assert api.condition() == FALSE
