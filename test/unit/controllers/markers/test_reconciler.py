"""Status and finalizer of markers. The whole product over a fake API server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import permutations
from typing import Any

import pytest
from support.builders import (
    container_wire,
    lease_wire,
    marker_wire,
    node_wire,
    pod_status_wire,
    pod_wire,
    policy_wire,
    probe_wire,
    state_wire,
)
from support.fake_api import FakeApi, Write, refusing
from support.running_manager import (
    RecordingRecorder,
    loop_clock,
    metric,
    running_manager,
    settle,
    settled_manager,
)

from kruise_probe.api.errors import ConnectionFailed, Forbidden, Invalid, ServerError
from kruise_probe.api.names import MARKER_FINALIZER
from kruise_probe.api.resources import LEASES, MARKERS, NODE_POD_PROBES, NODES, PODS
from kruise_probe.api.times import format_micro_time
from kruise_probe.controllers.markers import reconciler

Json = dict[str, Any]
BOTH = (policy_wire("Succeeded", {"healthy": "true"}), policy_wire("Failed", {"sick": "true"}))


@pytest.fixture
def api() -> FakeApi:
    """Two nodes, a pod on each, and one marker."""
    api = FakeApi()
    for number in (1, 2):
        api.put(NODES, node_wire(f"node-{number}"))
        api.put(PODS, pod_wire(f"web-{number}", node=f"node-{number}"))
    api.put(MARKERS, marker_wire(probes=[probe_wire(policies=BOTH)]))
    return api


def report(
    api: FakeApi, results: dict[str, str], probe: str = "web#healthy", message: str = ""
) -> None:
    """Publishes the state of the pods `web-<number>` on their nodes."""
    for pod, state in results.items():
        wire = api.read(PODS, pod)
        status = pod_status_wire(wire, state_wire(probe, state, message=message))
        api.publish(status, node=wire["spec"]["nodeName"])


@asynccontextmanager
async def reported(
    api: FakeApi, results: dict[str, str], message: str = "", **options: Any
) -> AsyncIterator[RecordingRecorder]:
    """A running manager that has written the first results."""
    async with settled_manager(api, **options) as recorder:
        report(api, results, message=message)
        await settle()
        yield recorder


def status_of(api: FakeApi, name: str = "web") -> Json:
    status: Json = api.read(MARKERS, name)["status"]
    return status


def condition(api: FakeApi, type: str, name: str = "web") -> tuple[str, str, str]:
    found = next(each for each in status_of(api, name)["conditions"] if each["type"] == type)
    return found["status"], found["reason"], found["message"]


def numbers(api: FakeApi) -> tuple[int, ...]:
    status = status_of(api)
    fields = ("matchedPods", "succeeded", "failed", "unknown", "nodesBehind")
    return tuple(status[each] for each in fields)


def errors() -> float:
    """Failed reconciles of markers so far."""
    return metric("controller_runtime_reconcile_errors_total", controller="podprobemarker")


async def test_counts_add_up_to_the_matched_pods(api: FakeApi) -> None:
    async with settled_manager(api):
        assert numbers(api) == (2, 0, 0, 2, 0)
        report(api, {"web-1": "Succeeded", "web-2": "Failed"})
        await settle()
        assert numbers(api) == (2, 1, 1, 0, 0)
        api.edit(PODS, "web-2", {"metadata": {"labels": {"app": "other"}}})
        await settle()
        assert numbers(api) == (1, 1, 0, 0, 0)
        for each, reason in (
            ("Synced", "NodesCurrent"),
            ("Conflict", "NoConflict"),
            ("Degraded", "AsExpected"),
        ):
            assert condition(api, each)[1] == reason


async def test_fields_without_effect_are_reported_and_degrade_nothing(api: FakeApi) -> None:
    restarting = probe_wire("late", condition="c/late", terminationGracePeriodSeconds=5)
    api.put(MARKERS, marker_wire(probes=[probe_wire(), restarting]))
    async with settled_manager(api):
        pass

    status, reason, message = condition(api, "Degraded")
    assert (status, reason) == ("False", "FieldsWithoutEffect")
    assert "spec.probes[1].probe.terminationGracePeriodSeconds" in message


async def test_pods_without_a_valid_value_are_counted(api: FakeApi) -> None:
    """Only for keys that this marker owns, and only while there is a result."""
    values = [{"label": "role", "regex": "role=(.*)"}, {"annotation": "why"}]
    policies = [policy_wire("Succeeded", from_message=values)]
    api.put(MARKERS, marker_wire(probes=[probe_wire(policies=policies)]))
    younger = probe_wire(condition="c/other", policies=policies)
    api.put(MARKERS, marker_wire("young", created="2027-01-01T00:00:00Z", probes=[younger]))
    async with settled_manager(api):
        assert condition(api, "Degraded")[1] == "AsExpected"
        report(api, {"web-1": "Succeeded", "web-2": "Failed"})
        await settle()
        assert condition(api, "Degraded") == (
            "True",
            "ValueInvalid",
            "The messages of 1 of 2 pods have no valid value: annotation 'why' of probe 'healthy' (1 pods); label 'role' "
            "of probe 'healthy' (1 pods). These pods have the static value, or none. Correct regex in the marker, or what "
            "the probe prints; kruise-probe explain shows the message.",
        )
        assert condition(api, "Degraded", "young")[1] == "AsExpected"
        report(api, {"web-1": "Failed"})
        await settle()
        assert condition(api, "Degraded")[1] == "AsExpected"


async def test_value_that_a_cut_message_lacks_is_not_blamed_on_the_pattern(api: FakeApi) -> None:
    policies = [policy_wire("Succeeded", from_message=[{"label": "role", "regex": "role=(.*)"}])]
    api.put(MARKERS, marker_wire(probes=[probe_wire(policies=policies)]))
    async with reported(api, {"web-1": "Succeeded"}, message="x" * 1021):
        message = condition(api, "Degraded")[2]
        assert "(1 pods, only the first 1,024 bytes of the output are searched)" in message
        assert "Print less, with the value at the beginning; " in message


async def test_counting_in_slices_counts_every_pod_once(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "SLICE_SECONDS", 0.0)
    async with reported(api, {"web-1": "Succeeded", "web-2": "Failed"}):
        pass
    assert numbers(api) == (2, 1, 1, 0, 0)


async def test_observed_generation_advances_whatever_fails(api: FakeApi) -> None:
    api.before = refusing(ServerError("no"), kind="NodePodProbe")
    async with settled_manager(api):
        api.edit(MARKERS, "web", {"spec": {"probes": [probe_wire(periodSeconds=9)]}})
        await settle()
        assert status_of(api)["observedGeneration"] == 2
        assert status_of(api)["nodesBehind"] == 2


async def test_a_new_generation_within_the_pause_of_the_status_is_observed_after_it(
    api: FakeApi,
) -> None:
    """Also if the edit changes no probe, so that nothing else updates the status."""
    async with settled_manager(api):
        api.edit(PODS, "web-2", {"metadata": {"labels": {"app": "other"}}})
        await settle(0.1)
        assert numbers(api) == (1, 0, 0, 1, 0)
        wire = api.read(MARKERS, "web")
        api.put(MARKERS, wire | {"metadata": wire["metadata"] | {"generation": 7}})
        await settle(0.1)
        assert status_of(api)["observedGeneration"] == 1
        await settle(2)
        assert status_of(api)["observedGeneration"] == 7


async def test_a_conflict_of_finalizers_is_no_error(api: FakeApi) -> None:
    """Others write finalizers too, so the marker is read again after a moment."""

    def edit_once(write: Write) -> None:
        if write.kind == "PodProbeMarker":
            api.before = lambda write: None
            api.edit(MARKERS, "web", {"metadata": {"finalizers": ["example.com/theirs"]}})

    api.before = edit_once
    before = errors()
    async with settled_manager(api):
        assert errors() == before
    marker = api.read(MARKERS, "web")
    assert marker["metadata"]["finalizers"] == ["example.com/theirs", MARKER_FINALIZER]


@pytest.mark.parametrize("subresource", ["", "status"], ids=["finalizer", "status"])
async def test_a_marker_deleted_during_its_write_is_no_error(
    api: FakeApi, subresource: str
) -> None:
    def remove(write: Write) -> None:
        if write.kind == "PodProbeMarker" and write.subresource == subresource:
            api.before = lambda write: None
            api.edit(MARKERS, "web", {"metadata": {"finalizers": None}})
            api.remove(MARKERS, "web")

    api.before = remove
    before = errors()
    async with running_manager(api):
        await settle(60)
        assert errors() == before
    assert api.get(MARKERS, "web") is None
    assert api.count("PodProbeMarker")["PodProbeMarker/status"] == bool(subresource)
    assert api.read(NODE_POD_PROBES, "node-1")["spec"] == {}


async def test_the_status_is_written_if_the_finalizer_is_refused(api: FakeApi) -> None:
    """As Kruise's webhook refuses it while its own gate is off."""
    refusing = True

    def refuse(write: Write) -> None:
        if refusing and write.kind == "PodProbeMarker" and not write.subresource:
            raise Forbidden("admission webhook denied the request", code=403)

    api.before = refuse
    async with settled_manager(api):
        assert status_of(api)["observedGeneration"] == 1
        report(api, {"web-1": "Succeeded"})
        await settle()
        assert numbers(api) == (2, 1, 0, 1, 0)
        refusing = False
        await settle(700)
    assert api.read(MARKERS, "web")["metadata"]["finalizers"] == [MARKER_FINALIZER]


async def test_a_pod_with_refused_marks_is_reported_until_they_are_accepted(api: FakeApi) -> None:
    api.before = refusing(
        Forbidden("pods web-1 is forbidden: says a policy\nat length", code=403), name="web-1"
    )
    async with reported(api, {"web-1": "Succeeded", "web-2": "Succeeded"}):
        status, reason, message = condition(api, "Degraded")
        assert (status, reason) == ("True", "PodNotMarked")
        assert "1 pod: default/web-1: 403 pods web-1 is forbidden: says a policy." in message
        assert api.read(PODS, "web-2")["metadata"]["labels"]["healthy"] == "true"

        api.before = lambda write: None
        await settle(60)
        assert condition(api, "Degraded")[1] == "AsExpected"


async def test_a_deleted_pod_is_no_longer_reported_as_refused(api: FakeApi) -> None:
    api.before = refusing(Invalid("labels: too many", code=422), name="web-1")
    async with reported(api, {"web-1": "Succeeded"}):
        assert condition(api, "Degraded")[1] == "PodNotMarked"
        api.remove(PODS, "web-1")
        await settle(60)
        assert condition(api, "Degraded")[1] == "AsExpected"


async def test_a_transient_error_is_not_reported_as_a_refusal(api: FakeApi) -> None:
    api.before = refusing(ServerError("no", code=500), name="web-1")
    async with reported(api, {"web-1": "Succeeded"}):
        assert condition(api, "Degraded")[1] == "AsExpected"


async def test_a_stale_daemon_sets_pods_unknown_and_the_marker_reports_it(api: FakeApi) -> None:
    for number in (1, 2):
        api.put(LEASES, lease_wire(f"node-{number}"))
    async with settled_manager(api):
        report(api, {"web-1": "Succeeded", "web-2": "Succeeded"})
        await settle(30)
        api.put(LEASES, lease_wire("node-2", renewed=format_micro_time(loop_clock())))
        await settle(50)
        assert numbers(api) == (2, 1, 0, 1, 0)
        status, reason, message = condition(api, "Degraded")
        assert (status, reason) == ("True", "ProbeDaemonStale")
        assert "renew their Lease: node-1 (1 pods). Check the kruise-probe-daemon pod" in message


async def test_a_marker_reports_no_expiry_that_only_our_clock_shows(api: FakeApi) -> None:
    """The Lease was not read since, so a renewal may be missing."""
    step = timedelta()
    api.put(LEASES, lease_wire("node-1"))
    async with reported(api, {"web-1": "Succeeded"}, now=lambda: loop_clock() + step):
        step = timedelta(seconds=120)
        api.edit(MARKERS, "web", {"metadata": {"annotations": {"looked": "at"}}})
        await settle(2)
        assert condition(api, "Degraded")[1] == "AsExpected"
        assert numbers(api) == (2, 1, 0, 1, 0)


async def test_the_status_is_written_at_most_once_a_second(api: FakeApi) -> None:
    async with settled_manager(api):
        before = len(api.writes)
        for number in range(100):
            report(api, {"web-1": "Succeeded" if number % 2 else "Failed"})
            await settle(0.1)
        assert api.count("PodProbeMarker", since=before)["PodProbeMarker/status"] <= 11


async def test_finalizer_and_status_are_written_once_while_the_informer_lags(api: FakeApi) -> None:
    api.remove(MARKERS, "web")
    async with settled_manager(api):
        markers = api.sources["podprobemarkers"]
        api.put(MARKERS, marker_wire())
        markers.hold()
        await settle(0.5)
        report(api, {"web-1": "Succeeded"})
        await settle(2)
        before = len(api.writes)
        for message in ("first", "second"):
            report(api, {"web-1": "Succeeded"}, message=message)
            await settle(2)
        assert api.count("PodProbeMarker", since=before) == {}
        markers.release()
        await settle()
        assert api.count("PodProbeMarker", since=before) == {}
    finalizers = api.count("PodProbeMarker")["PodProbeMarker"]
    assert (finalizers, numbers(api)) == (1, (2, 1, 0, 1, 0))


def prune_status(wire: Json) -> None:
    kept = ("observedGeneration", "matchedPods")
    if wire["kind"] == "PodProbeMarker" and "status" in wire:
        wire["status"] = {key: wire["status"][key] for key in kept if key in wire["status"]}


async def test_fields_that_kruises_crd_prunes_are_written_once(api: FakeApi) -> None:
    api.prune = prune_status
    api.put(MARKERS, marker_wire("broken", probes=[probe_wire("native", condition="Ready")]))
    async with settled_manager(api) as recorder:
        assert status_of(api) == {"observedGeneration": 1, "matchedPods": 2}
        before = len(api.writes)
        report(api, {"web-1": "Succeeded"})
        await settle(700)
        tries = api.count("PodProbeMarker", since=before)["PodProbeMarker/status"]
        # A watch lasts five to ten minutes, so two more may begin in this time, for both markers.
        assert tries <= 1 + 2 * 2, "the definition may be another one with each new watch"
        warned = [(each.about, each.reason) for each in recorder.events]
        assert warned == [("PodProbeMarker/broken", "InvalidSpec")]
        api.edit(PODS, "web-2", {"metadata": {"labels": {"app": "other"}}})
        await settle()
        assert status_of(api) == {"observedGeneration": 1, "matchedPods": 1}


async def test_a_new_definition_that_keeps_more_fields_gets_them(api: FakeApi) -> None:
    """A definition is replaced without an event, but its API server closes the watches of the old one."""

    api.prune = prune_status
    async with settled_manager(api):
        assert status_of(api) == {"observedGeneration": 1, "matchedPods": 2}
        api.prune = lambda wire: None
        api.sources["podprobemarkers"].drop_watches()
        await settle(35)
        assert numbers(api) == (2, 0, 0, 2, 0)
        assert condition(api, "Degraded")[1] == "AsExpected"


async def test_a_steady_state_writes_nothing(api: FakeApi) -> None:
    async with reported(api, {"web-1": "Succeeded", "web-2": "Failed"}):
        before = len(api.writes)
        await settle(3600)
        assert api.count(since=before) == {}


class TestFinalizer:
    async def test_a_deletion_removes_marks_then_entries_then_the_finalizer(
        self, api: FakeApi
    ) -> None:
        async with reported(api, {"web-1": "Succeeded", "web-2": "Failed"}):
            before = len(api.writes)
            api.remove(MARKERS, "web")
            await settle()

        order = [each.kind for each in api.writes[before:]]
        assert order.count("Pod") == 2
        assert order.count("NodePodProbe") == 2
        assert order[-1] == "PodProbeMarker"
        for number in (1, 2):
            on_node = [
                each.kind
                for each in api.writes[before:]
                if each.key.name in (f"web-{number}", f"node-{number}")
            ]
            assert on_node == ["Pod", "NodePodProbe"]
        assert api.get(MARKERS, "web") is None
        for number in (1, 2):
            pod, npp = api.get(PODS, f"web-{number}"), api.get(NODE_POD_PROBES, f"node-{number}")
            assert pod is not None
            assert npp is not None
            assert pod["metadata"]["labels"] == {"app": "web"}
            assert [each["type"] for each in pod["status"]["conditions"]] == ["Initialized"]
            assert npp["spec"] == {}

    async def test_a_refusal_that_delays_the_deletion_is_reported_with_node_and_pod(
        self, api: FakeApi
    ) -> None:
        async with reported(api, {"web-1": "Succeeded", "web-2": "Failed"}):
            api.before = refusing(
                Forbidden("pods web-1 is forbidden", code=403), kind="Pod", name="web-1"
            )
            api.remove(MARKERS, "web")
            await settle(12)
            assert api.get(MARKERS, "web") is not None
            assert condition(api, "Synced")[:2] == ("False", "Deleting")
            assert "node-1" in condition(api, "Synced")[2]
            assert api.read(NODE_POD_PROBES, "node-2")["spec"] == {}
            status, reason, message = condition(api, "Degraded")
            assert (status, reason) == ("True", "PodNotMarked")
            assert "default/web-1: 403 pods web-1 is forbidden" in message

            api.before = lambda write: None
            await settle(60)
            assert api.get(MARKERS, "web") is None

    async def test_labels_that_changed_before_the_deletion_hide_no_mark(self, api: FakeApi) -> None:
        async with reported(api, {"web-1": "Succeeded", "web-2": "Failed"}):
            pass
        api.edit(PODS, "web-1", {"metadata": {"labels": {"app": "other"}}})
        api.remove(MARKERS, "web")
        async with settled_manager(api):
            pass
        assert api.get(MARKERS, "web") is None
        pod, npp = api.read(PODS, "web-1"), api.read(NODE_POD_PROBES, "node-1")
        assert pod["metadata"]["labels"] == {"app": "other"}
        assert npp["spec"] == {}

    async def test_a_mark_on_a_pod_that_is_not_probed_keeps_the_finalizer(
        self, api: FakeApi
    ) -> None:
        async with reported(api, {"web-1": "Succeeded"}):
            api.before = refusing(ConnectionFailed("reset"), name="web-1")
            api.edit(PODS, "web-1", {"metadata": {"labels": {"app": "other"}}})
            await settle()
            api.remove(MARKERS, "web")
            await settle(12)
            assert api.get(MARKERS, "web") is not None
            assert "Pod default/web-1" in condition(api, "Synced")[2]
            api.before = lambda write: None
            await settle(60)
            assert api.get(MARKERS, "web") is None

    async def test_a_marker_kept_by_other_finalizers_reports_that_nothing_is_left(
        self, api: FakeApi
    ) -> None:
        api.edit(MARKERS, "web", {"metadata": {"finalizers": ["example.com/theirs"]}})
        async with reported(api, {"web-1": "Succeeded", "web-2": "Failed"}):
            assert status_of(api)["matchedPods"] == 2
            api.remove(MARKERS, "web")
            await settle()
            assert status_of(api)["matchedPods"] == 0
            api.edit(MARKERS, "web", {"spec": {"probes": [probe_wire("other")]}})
            await settle()
            marker, status = api.get(MARKERS, "web"), status_of(api)
            assert marker is not None
            assert marker["metadata"]["finalizers"] == ["example.com/theirs"]
            assert status["observedGeneration"] == marker["metadata"]["generation"]
            counts = [status[each] for each in ("matchedPods", "succeeded", "failed", "unknown")]
            assert counts == [0, 0, 0, 0]
            assert [each["type"] for each in status["conditions"]] == ["Synced"]
            assert condition(api, "Synced") == (
                "True",
                "Deleting",
                "Nodes and pods hold nothing of this marker any more. Other controllers keep it by their "
                "finalizers; check metadata.finalizers.",
            )

        before = len(api.writes)
        async with running_manager(api):
            await settle(3600)
        assert api.count(since=before) == {}

    async def test_the_status_of_a_kept_marker_is_written_at_most_once_a_second(
        self, api: FakeApi
    ) -> None:
        """Holders of other finalizers may edit it often, and its newest generation is observed in the end."""
        api.edit(MARKERS, "web", {"metadata": {"finalizers": ["example.com/theirs"]}})
        async with settled_manager(api):
            api.remove(MARKERS, "web")
            await settle()
            before = len(api.writes)
            for number in range(30):
                api.edit(MARKERS, "web", {"spec": {"probes": [probe_wire(periodSeconds=number)]}})
                await settle(0.1)
            assert api.count("PodProbeMarker", since=before)["PodProbeMarker/status"] <= 4
            await settle(2)
            marker = api.read(MARKERS, "web")
            assert status_of(api)["observedGeneration"] == marker["metadata"]["generation"]

    async def test_a_readiness_gate_is_updated_before_entry_and_finalizer_are_removed(
        self, api: FakeApi
    ) -> None:
        api.put(PODS, pod_wire("web-1", readiness_gates=["example.com/healthy"]))
        api.edit(MARKERS, "web", {"spec": {"probes": [probe_wire()]}})
        async with reported(api, {"web-1": "Succeeded"}):
            before = len(api.writes)
            api.latency_seconds["Pod"] = 1.0
            api.remove(MARKERS, "web")
            await settle(0.5)
            on_node = [each.kind for each in api.writes[before:] if each.key.name != "node-2"]
            assert on_node == ["Pod"]
            await settle(1.0)  # enqueued when the patch ends, not by the check every few seconds
        on_node = [each.kind for each in api.writes[before:] if each.key.name != "node-2"]
        assert on_node == ["Pod", "NodePodProbe", "PodProbeMarker"]
        assert api.get(MARKERS, "web") is None
        conditions = {
            each["type"]: (each["status"], each.get("reason"))
            for each in api.read(PODS, "web-1")["status"]["conditions"]
        }
        assert conditions["example.com/healthy"] == ("True", "ProbeRemoved")

    @pytest.mark.parametrize("informer_lags", [False, True])
    @pytest.mark.parametrize("refused", [False, True])
    async def test_a_patch_in_flight_keeps_the_finalizer(
        self, api: FakeApi, informer_lags: bool, refused: bool
    ) -> None:
        """A patch is computed before the deletion of the marker, and its response arrives after it."""

        def refuse(write: Write) -> None:
            if write.kind == "Pod":
                api.before = lambda write: None
                raise ServerError("no")

        async with settled_manager(api):
            if refused:
                api.before = refuse
            if informer_lags:
                api.sources["pods"].hold()
            api.latency_seconds["Pod"] = 1.0
            report(api, {"web-1": "Succeeded"})
            await settle(0.5)
            before = len(api.writes)
            api.remove(MARKERS, "web")
            await settle(0.4)
            assert not api.count("PodProbeMarker", since=before)["PodProbeMarker"]
            await settle(1.5)
            api.sources["pods"].release()
            await settle(1.5)
        assert api.get(MARKERS, "web") is None
        assert api.read(PODS, "web-1")["metadata"]["labels"] == {"app": "web"}

    async def test_marks_are_removed_if_their_new_owner_cannot_probe_the_pod(
        self, api: FakeApi
    ) -> None:
        rival = probe_wire(container="absent", policies=BOTH)
        api.put(MARKERS, marker_wire("zz", probes=[rival]))
        async with reported(api, {"web-1": "Succeeded"}):
            api.remove(MARKERS, "web")
            await settle()
        assert api.get(MARKERS, "web") is None
        pod = api.read(PODS, "web-1")
        assert pod["metadata"]["labels"] == {"app": "web"}
        assert [each["type"] for each in pod["status"]["conditions"]] == ["Initialized"]

    async def test_a_marker_deleted_without_finalizer_is_cleaned_up(self, api: FakeApi) -> None:
        async with reported(api, {"web-1": "Succeeded"}):
            api.edit(MARKERS, "web", {"metadata": {"finalizers": None}})
            api.remove(MARKERS, "web")
            await settle()
        pod, npp = api.read(PODS, "web-1"), api.read(NODE_POD_PROBES, "node-1")
        assert pod["metadata"]["labels"] == {"app": "web"}
        assert npp["spec"] == {}


class TestConflicts:
    @pytest.fixture
    def api(self) -> FakeApi:
        api = FakeApi()
        api.put(NODES, node_wire())
        api.put(PODS, pod_wire("web-1"))
        return api

    def markers(self) -> dict[str, Json]:
        """The older marker is `zz`: age is compared before the name."""
        rival = probe_wire("other", condition="example.com/healthy", policies=[BOTH[0]])
        return {
            "zz": marker_wire("zz", created="2025-01-01T00:00:00Z", probes=[rival]),
            "aa": marker_wire("aa", probes=[probe_wire(policies=BOTH)]),
            "bb": marker_wire("bb", probes=[probe_wire("b", policies=[BOTH[1]], condition="b")]),
        }

    @pytest.mark.parametrize(
        "order", list(permutations(["aa", "bb", "zz"])), ids=lambda order: "-".join(order)
    )
    async def test_the_owner_is_the_same_in_every_order_of_events(
        self, api: FakeApi, order: tuple[str, ...]
    ) -> None:
        async with running_manager(api) as recorder:
            for name in order:
                api.put(MARKERS, self.markers()[name])
                await settle()
            results = {"zz#other": "Failed", "aa#healthy": "Succeeded", "bb#b": "Failed"}
            states = [state_wire(*each) for each in results.items()]
            api.publish(pod_status_wire(api.read(PODS, "web-1"), *states))
            await settle()

        wire = api.read(PODS, "web-1")
        assert wire["metadata"]["labels"] == {"app": "web"}
        shown = {each["type"]: each["status"] for each in wire["status"]["conditions"]}
        assert shown == {"Initialized": "True", "example.com/healthy": "False", "b": "False"}
        assert condition(api, "Conflict", "zz")[0] == "False"
        for name, owner in (("aa", "default/zz"), ("bb", "default/aa")):
            state, reason, message = condition(api, "Conflict", name)
            assert (state, reason) == ("True", "ClaimedByAnother")
            assert owner in message
        self.assert_warned(recorder)

    def assert_warned(self, recorder: RecordingRecorder) -> None:
        """One for each marker that lost a key; another one only if the conflict changes."""
        warned = [each.about for each in recorder.events if each.type == "Warning"]
        assert set(warned) == {"PodProbeMarker/aa", "PodProbeMarker/bb"}
        messages = [(each.about, each.message) for each in recorder.events]
        assert len(messages) == len(set(messages))

    async def test_a_restart_records_no_second_warning(self, api: FakeApi) -> None:
        for each in self.markers().values():
            api.put(MARKERS, each)
        async with settled_manager(api) as first:
            pass
        async with settled_manager(api) as second:
            pass
        assert len(first.events) == 2
        assert second.events == []

    async def test_an_older_marker_that_arrives_late_is_reported_to_the_loser_at_once(
        self, api: FakeApi
    ) -> None:
        api.put(MARKERS, self.markers()["aa"])
        async with settled_manager(api):
            assert condition(api, "Conflict", "aa")[0] == "False"
            api.put(MARKERS, self.markers()["zz"])
            await settle()
            assert condition(api, "Conflict", "aa")[0] == "True"

    async def test_deleting_the_owner_makes_the_next_probe_the_owner(self, api: FakeApi) -> None:
        for each in self.markers().values():
            api.put(MARKERS, each)
        async with settled_manager(api):
            states = state_wire("zz#other"), state_wire("aa#healthy")
            api.publish(pod_status_wire(api.read(PODS, "web-1"), *states))
            await settle()
            api.remove(MARKERS, "zz")
            await settle()
            assert condition(api, "Conflict", "aa")[0] == "False"
            assert api.get(MARKERS, "zz") is None
        assert api.read(PODS, "web-1")["metadata"]["labels"] == {"app": "web", "healthy": "true"}


class TestDegraded:
    async def test_an_invalid_marker_reports_it_and_affects_no_other(self, api: FakeApi) -> None:
        bad = probe_wire("bad", handler={"httpGet": {"port": 80, "host": "10.0.0.1"}})
        native = probe_wire("native", condition="Ready", policies=BOTH)
        api.put(MARKERS, marker_wire("broken", probes=[bad, native]))
        async with reported(api, {"web-1": "Succeeded"}) as recorder:
            state, reason, message = condition(api, "Degraded", "broken")
            assert (state, reason) == ("True", "InvalidSpec")
            assert "spec.probes[0].probe.httpGet.host" in message
            assert "spec.probes[1].podConditionType" in message
            assert condition(api, "Degraded")[0] == "False"
        warned = [each[1:] for each in recorder.events if each.about == "PodProbeMarker/broken"]
        assert warned == [("Warning", "InvalidSpec", message)]
        npp = api.read(NODE_POD_PROBES, "node-1")
        names = [each["name"] for each in npp["spec"]["podProbes"][0]["probes"]]
        assert names == ["broken#native", "web#healthy"]

    async def test_each_marker_of_a_name_has_its_own_warning(self, api: FakeApi) -> None:
        bad = marker_wire("broken", probes=[probe_wire("native", condition="Ready")])
        async with running_manager(api) as recorder:
            for uid in ("first", "second"):
                api.put(MARKERS, {**bad, "metadata": {**bad["metadata"], "uid": uid}})
                await settle()
                api.remove(MARKERS, "broken")
                await settle()
                assert api.get(MARKERS, "broken") is None
        warned = [(each.about, each.reason) for each in recorder.events]
        assert warned == [("PodProbeMarker/broken", "InvalidSpec")] * 2

    async def test_an_error_that_changes_or_comes_back_has_another_warning(
        self, api: FakeApi
    ) -> None:
        async with running_manager(api) as recorder:
            for type in ("Ready", "PodScheduled", "example.com/a", "Ready"):
                edited = {"probes": [probe_wire("native", condition=type)]}
                api.edit(MARKERS, "web", {"spec": edited})
                await settle()
        assert [each.reason for each in recorder.events] == ["InvalidSpec"] * 3

    async def test_a_warning_is_recorded_after_the_status_that_reports_it(
        self, api: FakeApi
    ) -> None:
        """So a manager that is restarted before it can write the status records no second one."""

        def refuse(write: Write) -> None:
            if write.subresource == "status":
                raise ServerError("no")

        api.edit(MARKERS, "web", {"spec": {"probes": [probe_wire("native", condition="Ready")]}})
        api.before = refuse
        async with settled_manager(api) as first:
            pass
        api.before = lambda write: None
        async with settled_manager(api) as second:
            pass
        assert [each.reason for each in (*first.events, *second.events)] == ["InvalidSpec"]

    async def test_a_probe_of_a_plain_init_container_is_reported(self, api: FakeApi) -> None:
        api.put(PODS, pod_wire("web-1", init_containers=[container_wire("setup")]))
        api.edit(
            MARKERS,
            "web",
            {"spec": {"probes": [probe_wire(), probe_wire("p", container="setup", condition="p")]}},
        )
        async with settled_manager(api):
            state, reason, message = condition(api, "Degraded")
            assert (state, reason) == ("True", "ContainerNotFound")
            assert "'setup'" in message
            assert "2 of 2 pods. Correct containerName in the marker" in message

    async def test_a_full_node_reports_how_many_pods_are_left_out(self) -> None:
        api = FakeApi()
        api.put(NODES, node_wire())
        for number in range(20):
            api.put(PODS, pod_wire(f"web-{number:02}"))
        command = {"exec": {"command": ["sh", "-c", "x" * 7_500]}}
        api.put(
            MARKERS,
            marker_wire(
                probes=[probe_wire(f"p{n}", condition=f"c{n}", handler=command) for n in range(8)]
            ),
        )
        async with settled_manager(api):
            state, reason, message = condition(api, "Degraded")
            assert (state, reason) == ("True", "NoRoom")
            assert "node-1 (5 pods)" in message
            npp = api.read(NODE_POD_PROBES, "node-1")
            probed = {each["name"] for each in npp["spec"]["podProbes"]}
            assert len(probed) == 15

            before = len(api.writes)
            api.put(PODS, pod_wire("web-00-newer"))
            await settle(700)
            npp = api.read(NODE_POD_PROBES, "node-1")
            assert {each["name"] for each in npp["spec"]["podProbes"]} == probed
            assert api.count("NodePodProbe", since=before) == {}


async def test_a_refused_status_is_retried_with_growing_backoff(api: FakeApi) -> None:
    attempts = 0

    def refuse(write: Write) -> None:
        nonlocal attempts
        if write.kind == "PodProbeMarker" and write.subresource == "status":
            attempts += 1
            raise Forbidden("status is forbidden")

    api.before = refuse
    async with running_manager(api):
        await settle(300)
    assert attempts < 30
