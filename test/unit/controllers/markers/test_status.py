"""The status of a marker, and its finalizer while it is not deleted. The whole product over a fake API server."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from support.builders import policy_wire, probe_wire
from support.cases import cases
from support.fake_api import Write, refusing
from support.metrics import counted
from support.running_manager import loop_clock, settle
from support.scene import Scene
from support.wire import Json
from unit.controllers.common import (
    WITHOUT_FINALIZERS,
    assert_marker_is_gone,
    marker_condition,
    marker_message,
    marker_reason,
    no_writes,
    put_lease,
    writes_since_now,
)

from kruise_probe.api.errors import Forbidden, ServerError
from kruise_probe.api.names import MARKER_FINALIZER
from kruise_probe.api.resources import MARKERS, PODS
from kruise_probe.controllers import visit_reconciler

FROM_ROLE = {"label": "role", "regex": "role=(.*)"}
STATUS = "PodProbeMarker/status"
THEIRS = "example.com/theirs"


def reconcile_errors() -> Callable[[], float]:
    """Count reconcile errors of markers from now on."""
    return counted("controller_runtime_reconcile_errors_total", controller="podprobemarker")


async def test_counts_add_up_to_the_matched_pods(api: Scene) -> None:
    async with api.running():
        assert api.counts() == (2, 0, 0, 2, 0)
        await api.report_each("Succeeded", "Failed")
        assert api.counts() == (2, 1, 1, 0, 0)
        await api.relabel("web-2", app="other")
        assert api.counts() == (1, 1, 0, 0, 0)
        assert marker_reason(api, "Synced") == "NodesCurrent"
        assert marker_reason(api, "Conflict") == "NoConflict"
        assert marker_reason(api) == "AsExpected"


async def test_fields_without_effect_are_reported_and_degrade_nothing(api: Scene) -> None:
    restarting = probe_wire("late", condition="c/late", terminationGracePeriodSeconds=5)
    api.put_marker(probe_wire(), restarting)
    await api.run()
    assert marker_condition(api) == ("False", "FieldsWithoutEffect")
    assert "spec.probes[1].probe.terminationGracePeriodSeconds" in marker_message(api)


async def test_pods_without_a_valid_value_are_counted(api: Scene) -> None:
    """Only for keys that this marker owns, and only while there is a result."""
    policies = [policy_wire(from_message=[FROM_ROLE, {"annotation": "why"}])]
    api.put_marker(probe_wire(policies=policies))
    younger = probe_wire(condition="c/other", policies=policies)
    api.put_marker(younger, name="young", created="2027-01-01T00:00:00Z")
    async with api.running():
        assert marker_reason(api) == "AsExpected"
        await api.report_each("Succeeded", "Failed")
        assert api.says() == (
            "True",
            "ValueInvalid",
            "The messages of 1 of 2 pods have no valid value: annotation 'why' of probe 'healthy' (1 pods); label 'role' "
            "of probe 'healthy' (1 pods). These pods have the static value, or none. Correct regex in the marker, or what "
            "the probe prints; kruise-probe explain shows the message.",
        )
        assert marker_reason(api, marker="young") == "AsExpected"
        await api.report_each("Failed")
        assert marker_reason(api) == "AsExpected"


async def test_value_that_a_cut_message_lacks_is_not_blamed_on_the_pattern(api: Scene) -> None:
    api.put_marker(probe_wire(policies=[policy_wire(from_message=[FROM_ROLE])]))
    async with api.reported("Succeeded", message="x" * 1021):
        _, _, message = api.says()
        assert "(1 pods, only the first 1,024 bytes of the output are searched)" in message
        assert "Print less, with the value at the beginning; " in message


async def test_counting_in_slices_counts_every_pod_once(
    api: Scene,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(visit_reconciler, "PODS_PER_STEP", 1)
    async with api.reported("Succeeded", "Failed"):
        assert api.counts() == (2, 1, 1, 0, 0)


async def test_a_new_generation_within_the_pause_of_the_status_is_observed_after_it(
    api: Scene,
) -> None:
    """Also if the edit changes no probe, so that nothing else updates the status."""
    async with api.running():
        await api.relabel("web-2", app="other", seconds=0.5)
        assert api.counts() == (1, 0, 0, 1, 0)
        api.edit(MARKERS, "web", {"metadata": {"generation": 7}})
        await settle(0.1)
        assert api.status()["observedGeneration"] == 1
        await settle(2)
        assert api.status()["observedGeneration"] == 7


async def test_a_conflict_of_finalizers_is_no_error(api: Scene) -> None:
    """Others write finalizers too, so the marker is read again after a moment."""

    def edit_once(write: Write) -> None:
        if write.kind == "PodProbeMarker":
            api.before = lambda write: None
            api.edit(MARKERS, "web", {"metadata": {"finalizers": [THEIRS]}})

    api.before = edit_once
    errors = reconcile_errors()
    async with api.running():
        assert errors() == 0
    finalizers = api.read(MARKERS, "web")["metadata"]["finalizers"]
    assert finalizers == [THEIRS, MARKER_FINALIZER]


@cases("subresource", finalizer="", status="status")
async def test_a_marker_deleted_during_its_write_is_no_error(api: Scene, subresource: str) -> None:
    def remove(write: Write) -> None:
        if write.kind == "PodProbeMarker" and write.subresource == subresource:
            api.before = lambda write: None
            api.edit(MARKERS, "web", WITHOUT_FINALIZERS)
            api.remove(MARKERS, "web")

    api.before = remove
    errors = reconcile_errors()
    await api.run(seconds=60)
    assert errors() == 0
    assert_marker_is_gone(api)
    assert api.count("PodProbeMarker")[STATUS] == bool(subresource)
    assert api.probes() == {}


async def test_the_status_is_written_if_the_finalizer_is_refused(api: Scene) -> None:
    """As Kruise's webhook refuses it while its own gate is off."""
    refused = Forbidden("admission webhook denied the request", code=403)
    api.before = refusing(refused, kind="PodProbeMarker", subresource="")
    async with api.running():
        assert api.status()["observedGeneration"] == 1
        await api.report_each("Succeeded")
        assert api.counts() == (2, 1, 0, 1, 0)
        await api.recover(seconds=700)
    assert api.read(MARKERS, "web")["metadata"]["finalizers"] == [MARKER_FINALIZER]


@pytest.mark.parametrize("end", ["accepted", "deleted"])
async def test_a_pod_with_refused_marks_is_reported_until_they_are_accepted(
    api: Scene,
    end: str,
) -> None:
    """Or until the pod is deleted."""
    refused = Forbidden("pods web-1 is forbidden: says a policy\nat length", code=403)
    api.before = refusing(refused, name="web-1")
    async with api.reported("Succeeded", "Succeeded"):
        assert marker_condition(api) == ("True", "PodNotMarked")
        assert (
            "1 pod: default/web-1: 403 pods web-1 is forbidden: says a policy."
            in marker_message(api)
        )
        assert api.labels("web-2") == {"healthy": "true"}
        if end == "accepted":
            api.before = lambda write: None
        else:
            api.remove(PODS, "web-1")
        await settle(60)
        assert marker_reason(api) == "AsExpected"


async def test_a_transient_error_is_not_reported_as_a_refusal(api: Scene) -> None:
    api.before = refusing(
        ServerError("no", code=500),
        name="web-1",
    )
    async with api.reported("Succeeded"):
        assert marker_reason(api) == "AsExpected"


async def test_a_stale_daemon_sets_pods_unknown_and_the_marker_reports_it(api: Scene) -> None:
    for number in (1, 2):
        put_lease(api, f"node-{number}")
    async with api.reported("Succeeded", "Succeeded"):
        await settle(26)
        api.renew("node-2")
        await settle(50)
        assert api.counts() == (2, 1, 0, 1, 0)
        assert marker_condition(api) == ("True", "ProbeDaemonStale")
        assert "renew their Lease: node-1 (1 pods). Their results" in marker_message(api)


async def test_a_marker_reports_no_expiry_that_only_our_clock_shows(api: Scene) -> None:
    """The Lease was not read since, so a renewal may be missing."""
    step = timedelta()
    put_lease(api, "node-1")
    async with api.reported("Succeeded", now=lambda: loop_clock() + step):
        step = timedelta(seconds=120)
        await api.change(
            MARKERS,
            "web",
            {"metadata": {"annotations": {"looked": "at"}}},
            seconds=2,
        )
        assert marker_reason(api) == "AsExpected"
        assert api.counts() == (2, 1, 0, 1, 0)


async def test_the_status_is_written_at_most_once_a_second(api: Scene) -> None:
    async with api.running():
        marker_writes = writes_since_now(api, "PodProbeMarker")
        for state in ("Failed", "Succeeded") * 50:
            await api.report_each(state, seconds=0.1)
        assert marker_writes()[STATUS] <= 11


async def test_finalizer_and_status_are_written_once_while_the_informer_lags(api: Scene) -> None:
    api.remove(MARKERS, "web")
    async with api.running():
        api.put_marker(probe_wire())
        async with api.lagging(MARKERS):
            await settle(0.5)
            await api.report_each("Succeeded", seconds=2)
            marker_writes = writes_since_now(api, "PodProbeMarker")
            for message in ("first", "second"):
                await api.report_each("Succeeded", message=message, seconds=2)
        assert marker_writes() == {}
    assert api.count("PodProbeMarker")["PodProbeMarker"] == 1, "the finalizer"
    assert api.counts() == (2, 1, 0, 1, 0)


def prune_status(wire: Json) -> None:
    if wire["kind"] == "PodProbeMarker":
        for field in wire.get("status", {}).keys() - {"observedGeneration", "matchedPods"}:
            del wire["status"][field]


async def test_fields_that_kruises_crd_prunes_are_written_once(api: Scene) -> None:
    api.prune = prune_status
    api.put_marker(
        probe_wire("native", condition="Ready"),
        name="broken",
    )
    async with api.running():
        assert api.status() == {"observedGeneration": 1, "matchedPods": 2}
        marker_writes = writes_since_now(api, "PodProbeMarker")
        await api.report_each("Succeeded", seconds=700)
        tries = marker_writes()[STATUS]
        # The first results of two pods; and a watch lasts five to ten minutes, so two more may begin, for both markers.
        assert tries <= 2 + 2 * 2, "the definition may be another one with each new watch"
        (event,) = api.events
        assert event.about == "PodProbeMarker/broken"
        assert event.reason == "InvalidSpec"
        await api.relabel("web-2", app="other")
        assert api.status() == {"observedGeneration": 1, "matchedPods": 1}


async def test_a_new_definition_that_keeps_more_fields_gets_them(api: Scene) -> None:
    """A definition is replaced without an event, but its API server closes the watches of the old one."""
    api.prune = prune_status
    async with api.running():
        assert api.status() == {"observedGeneration": 1, "matchedPods": 2}
        api.prune = lambda wire: None
        api.sources["podprobemarkers"].drop_watches()
        await settle(35)
        assert api.counts() == (2, 0, 0, 2, 0)
        assert marker_reason(api) == "AsExpected"


async def test_a_steady_state_writes_nothing(api: Scene) -> None:
    async with api.reported("Succeeded", "Failed"):
        with no_writes(api):
            await settle(3600)
