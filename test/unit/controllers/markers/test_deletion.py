"""What a marker that is deleted leaves, and when its finalizer is removed. The whole product over a fake API server."""

import pytest
from support.builders import container_wire, policy_wire, probe_wire
from support.cases import cases
from support.fake_api import Write, refusing
from support.running_manager import settle
from support.scene import BARE, POLICIES, Scene
from support.wire import Json
from unit.controllers.common import (
    WITHOUT_FINALIZERS,
    assert_marker_is_gone,
    delete_marker,
    labels_patch,
    marker_condition,
    marker_message,
    no_writes,
    put_pod,
    writes_since_now,
)

from kruise_probe.api.errors import ConnectionFailed, Forbidden, ServerError
from kruise_probe.api.resources import MARKERS, PODS

THEIRS = {"metadata": {"finalizers": ["example.com/theirs"]}}


def assert_nothing_is_left(api: Scene) -> None:
    assert_marker_is_gone(api)
    for number in (1, 2):
        assert api.marks(f"web-{number}") == BARE
        assert api.probes(f"node-{number}") == {}


async def test_a_deletion_removes_marks_then_entries_then_the_finalizer(api: Scene) -> None:
    async with api.reported("Succeeded", "Failed"):
        before = len(api.writes)
        await delete_marker(api)
    assert_nothing_is_left(api)
    order = [(write.kind, write.key.name) for write in api.writes[before:]]
    assert order[-1] == ("PodProbeMarker", "web")
    for number in (1, 2):
        pair = [("Pod", f"web-{number}"), ("NodePodProbe", f"node-{number}")]
        assert [target for target in order if target in pair] == pair


async def test_a_refusal_that_delays_the_deletion_is_reported_with_node_and_pod(api: Scene) -> None:
    async with api.reported("Succeeded", "Failed"):
        refused = Forbidden("pods web-1 is forbidden", code=403)
        api.before = refusing(refused, kind="Pod", name="web-1")
        await delete_marker(api, seconds=12)
        assert marker_condition(api, "Synced") == ("False", "MarkerDeleting")
        assert "node-1" in marker_message(api, "Synced")
        assert api.probes("node-2") == {}
        assert marker_condition(api) == ("True", "PodNotMarked")
        assert "default/web-1: 403 pods web-1 is forbidden" in marker_message(api)
        await api.recover()
        assert_nothing_is_left(api)


async def test_labels_that_changed_before_the_deletion_hide_no_mark(api: Scene) -> None:
    async with api.reported("Succeeded", "Failed"):
        pass
    api.edit(
        PODS,
        "web-1",
        labels_patch(app="other"),
    )
    api.remove(MARKERS, "web")
    await api.run()
    assert_nothing_is_left(api)


@cases(
    "probe",
    label=probe_wire(condition=None, policies=[policy_wire(labels={"l": "1"})]),
    annotation=probe_wire(condition=None, policies=[policy_wire(annotations={"a": "1"})]),
    condition=probe_wire(),
)
async def test_a_mark_on_a_pod_that_is_not_probed_keeps_the_finalizer(
    api: Scene,
    probe: Json,
) -> None:
    api.put_marker(probe)
    async with api.reported("Succeeded"):
        api.before = refusing(
            ConnectionFailed("reset"),
            name="web-1",
        )
        await api.relabel("web-1", app="other")
        await delete_marker(api, seconds=12)
        assert "Pod default/web-1" in marker_message(api, "Synced")
        await api.recover()
        assert_nothing_is_left(api)


async def test_a_marker_kept_by_other_finalizers_reports_that_nothing_is_left(api: Scene) -> None:
    api.edit(MARKERS, "web", THEIRS)
    async with api.reported("Succeeded", "Failed"):
        await delete_marker(api)
        assert api.status()["matchedPods"] == 0
        await api.change_probes(probe_wire("other"))
        metadata = api.read(MARKERS, "web")["metadata"]
        assert metadata["finalizers"] == ["example.com/theirs"]
        assert api.status()["observedGeneration"] == metadata["generation"]
        assert api.counts()[:4] == (0, 0, 0, 0)
        assert [condition["type"] for condition in api.status()["conditions"]] == ["Synced"]
        assert api.says("Synced") == (
            "True",
            "MarkerHeld",
            "The manager has removed all probes and marks of this marker. Finalizers of other controllers block its "
            "deletion; check metadata.finalizers.",
        )
    with no_writes(api):
        await api.run(seconds=3600)


async def test_the_status_of_a_kept_marker_is_written_at_most_once_a_second(api: Scene) -> None:
    """Holders of other finalizers may edit it often, and its newest generation is observed in the end."""
    api.edit(MARKERS, "web", THEIRS)
    async with api.running():
        await delete_marker(api)
        marker_writes = writes_since_now(api, "PodProbeMarker")
        for number in range(30):
            await api.change_probes(
                probe_wire(periodSeconds=number),
                seconds=0.1,
            )
        assert marker_writes()["PodProbeMarker/status"] <= 4
        await settle(2)
        generation = api.read(MARKERS, "web")["metadata"]["generation"]
        assert api.status()["observedGeneration"] == generation


async def test_a_readiness_gate_is_updated_before_entry_and_finalizer_are_removed(
    api: Scene,
) -> None:
    put_pod(api, "web-1", readiness_gates=["example.com/healthy"])
    api.put_marker(probe_wire())

    def on_node() -> list[str]:
        return [write.kind for write in api.writes[before:] if write.key.name != "node-2"]

    async with api.reported("Succeeded"):
        before = len(api.writes)
        api.latency_seconds["Pod"] = 1.0
        await delete_marker(api, seconds=0.5)
        assert on_node() == ["Pod"]
        await settle(1.0)  # enqueued when the patch ends, not by the check every few seconds
    assert on_node() == ["Pod", "NodePodProbe", "PodProbeMarker"]
    assert_marker_is_gone(api)
    assert api.condition(pod="web-1") == ("True", "ProbeRemoved")


@pytest.mark.parametrize("informer_lags", [False, True])
@pytest.mark.parametrize("refused", [False, True])
async def test_a_patch_in_flight_keeps_the_finalizer(
    api: Scene,
    informer_lags: bool,
    refused: bool,
) -> None:
    """A patch is computed before the deletion of the marker, and its response arrives after it."""

    def refuse(write: Write) -> None:
        if write.kind == "Pod":
            api.before = lambda write: None
            raise ServerError("no")

    async with api.running():
        if refused:
            api.before = refuse
        if informer_lags:
            api.sources["pods"].hold()
        api.latency_seconds["Pod"] = 1.0
        await api.report_each("Succeeded", seconds=0.5)
        marker_writes = writes_since_now(api, "PodProbeMarker")
        await delete_marker(api, seconds=0.4)
        assert not marker_writes()["PodProbeMarker"]
        await settle(1.5)
        api.sources["pods"].release()
        await settle(1.5)
    assert_nothing_is_left(api)


@cases(
    "container labels conditions",
    absent=("absent", {}, 0),
    plain_init_container=("setup", {}, 0),
    main=("main", {"healthy": "true"}, 1),
    sidecar=("side", {"healthy": "true"}, 1),
)
async def test_marks_are_removed_if_their_new_owner_cannot_probe_the_pod(
    api: Scene,
    container: str,
    labels: Json,
    conditions: int,
) -> None:
    inits = [container_wire("setup"), container_wire("side", sidecar=True)]
    put_pod(api, "web-1", init_containers=inits)
    api.put_marker(
        probe_wire(container=container, policies=POLICIES),
        name="zz",
    )
    async with api.reported("Succeeded"):
        await delete_marker(api)
    assert_marker_is_gone(api)
    assert api.labels("web-1") == labels
    assert len(api.conditions("web-1")) == conditions


async def test_a_marker_deleted_without_finalizer_is_cleaned_up(api: Scene) -> None:
    async with api.reported("Succeeded"):
        api.edit(MARKERS, "web", WITHOUT_FINALIZERS)
        await delete_marker(api)
    assert_nothing_is_left(api)
