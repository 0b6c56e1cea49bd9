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
    pod_wire,
    policy_wire,
    probe_wire,
    state_wire,
)
from support.cases import cases
from support.fake_api import Write, refusing
from support.metrics import metric
from support.running_manager import loop_clock, running_manager, settle
from support.scene import Scene
from support.wire import Json

from kruise_probe.api.errors import ConnectionFailed, Forbidden, ServerError
from kruise_probe.api.names import MARKER_FINALIZER
from kruise_probe.api.resources import LEASES, MARKERS, PODS
from kruise_probe.controllers import marker_reconciler as reconciler

BOTH = (policy_wire("Succeeded", {"healthy": "true"}), policy_wire("Failed", {"sick": "true"}))
THEIRS = {"metadata": {"finalizers": ["example.com/theirs"]}}
NATIVE = probe_wire("native", condition="Ready")
"""A probe whose condition type is reserved."""


@pytest.fixture
def api() -> Scene:
    """Two nodes, a pod on each, and one marker."""
    api = Scene()
    for number in (1, 2):
        api.put_node(f"node-{number}", f"web-{number}")
    api.put_marker(probe_wire(policies=BOTH))
    return api


async def report(api: Scene, *states: str, message: str = "", seconds: float = 4.0) -> None:
    """The daemons publish the states of `web-1` and `web-2`."""
    for number, state in enumerate(states, start=1):
        result = state_wire(state=state, message=message)
        await api.report(result, pod=f"web-{number}", seconds=0)
    await settle(seconds)


@asynccontextmanager
async def reported(
    api: Scene, *states: str, message: str = "", **options: Any
) -> AsyncIterator[None]:
    """A running manager that has written the first results."""
    async with api.running(**options):
        await report(api, *states, message=message)
        yield


def errors() -> float:
    """Failed reconciles of markers so far."""
    return metric("controller_runtime_reconcile_errors_total", controller="podprobemarker")


async def test_counts_add_up_to_the_matched_pods(api: Scene) -> None:
    async with api.running():
        assert api.counts() == (2, 0, 0, 2, 0)
        await report(api, "Succeeded", "Failed")
        assert api.counts() == (2, 1, 1, 0, 0)
        await api.relabel("web-2", app="other")
        assert api.counts() == (1, 1, 0, 0, 0)
        reasons = [api.says(each)[1] for each in ("Synced", "Conflict", "Degraded")]
        assert reasons == ["NodesCurrent", "NoConflict", "AsExpected"]


async def test_fields_without_effect_are_reported_and_degrade_nothing(api: Scene) -> None:
    restarting = probe_wire("late", condition="c/late", terminationGracePeriodSeconds=5)
    api.put_marker(probe_wire(), restarting)
    await api.run()
    assert api.says()[:2] == ("False", "FieldsWithoutEffect")
    assert "spec.probes[1].probe.terminationGracePeriodSeconds" in api.says()[2]


async def test_pods_without_a_valid_value_are_counted(api: Scene) -> None:
    """Only for keys that this marker owns, and only while there is a result."""
    values = [{"label": "role", "regex": "role=(.*)"}, {"annotation": "why"}]
    policies = [policy_wire("Succeeded", from_message=values)]
    api.put_marker(probe_wire(policies=policies))
    younger = probe_wire(condition="c/other", policies=policies)
    api.put_marker(younger, name="young", created="2027-01-01T00:00:00Z")
    async with api.running():
        assert api.says()[1] == "AsExpected"
        await report(api, "Succeeded", "Failed")
        assert api.says() == (
            "True",
            "ValueInvalid",
            "The messages of 1 of 2 pods have no valid value: annotation 'why' of probe 'healthy' (1 pods); label 'role' "
            "of probe 'healthy' (1 pods). These pods have the static value, or none. Correct regex in the marker, or what "
            "the probe prints; kruise-probe explain shows the message.",
        )
        assert api.says(marker="young")[1] == "AsExpected"
        await report(api, "Failed")
        assert api.says()[1] == "AsExpected"


async def test_value_that_a_cut_message_lacks_is_not_blamed_on_the_pattern(api: Scene) -> None:
    policies = [policy_wire("Succeeded", from_message=[{"label": "role", "regex": "role=(.*)"}])]
    api.put_marker(probe_wire(policies=policies))
    async with reported(api, "Succeeded", message="x" * 1021):
        _, _, message = api.says()
        assert "(1 pods, only the first 1,024 bytes of the output are searched)" in message
        assert "Print less, with the value at the beginning; " in message


async def test_counting_in_slices_counts_every_pod_once(
    api: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "SLICE_SECONDS", 0.0)
    async with reported(api, "Succeeded", "Failed"):
        assert api.counts() == (2, 1, 1, 0, 0)


async def test_observed_generation_advances_whatever_fails(api: Scene) -> None:
    api.before = refusing(ServerError("no"), kind="NodePodProbe")
    async with api.running():
        await api.change_probes(probe_wire(periodSeconds=9))
        assert api.status()["observedGeneration"] == 2
        assert api.status()["nodesBehind"] == 2


async def test_a_new_generation_within_the_pause_of_the_status_is_observed_after_it(
    api: Scene,
) -> None:
    """Also if the edit changes no probe, so that nothing else updates the status."""
    async with api.running():
        await api.relabel("web-2", app="other", seconds=0.1)
        assert api.counts() == (1, 0, 0, 1, 0)
        wire = api.read(MARKERS, "web")
        api.put(MARKERS, wire | {"metadata": wire["metadata"] | {"generation": 7}})
        await settle(0.1)
        assert api.status()["observedGeneration"] == 1
        await settle(2)
        assert api.status()["observedGeneration"] == 7


async def test_a_conflict_of_finalizers_is_no_error(api: Scene) -> None:
    """Others write finalizers too, so the marker is read again after a moment."""

    def edit_once(write: Write) -> None:
        if write.kind == "PodProbeMarker":
            api.before = lambda write: None
            api.edit(MARKERS, "web", THEIRS)

    api.before = edit_once
    before = errors()
    async with api.running():
        assert errors() == before
    finalizers = api.read(MARKERS, "web")["metadata"]["finalizers"]
    assert finalizers == ["example.com/theirs", MARKER_FINALIZER]


@cases("subresource", finalizer="", status="status")
async def test_a_marker_deleted_during_its_write_is_no_error(api: Scene, subresource: str) -> None:
    def remove(write: Write) -> None:
        if write.kind == "PodProbeMarker" and write.subresource == subresource:
            api.before = lambda write: None
            api.edit(MARKERS, "web", {"metadata": {"finalizers": None}})
            api.remove(MARKERS, "web")

    api.before = remove
    before = errors()
    await api.run(seconds=60)
    assert errors() == before
    assert api.find(MARKERS, "web") is None
    assert api.count("PodProbeMarker")["PodProbeMarker/status"] == bool(subresource)
    assert api.probes() == {}


async def test_the_status_is_written_if_the_finalizer_is_refused(api: Scene) -> None:
    """As Kruise's webhook refuses it while its own gate is off."""

    def refuse(write: Write) -> None:
        if write.kind == "PodProbeMarker" and not write.subresource:
            raise Forbidden("admission webhook denied the request", code=403)

    api.before = refuse
    async with api.running():
        assert api.status()["observedGeneration"] == 1
        await report(api, "Succeeded")
        assert api.counts() == (2, 1, 0, 1, 0)
        await api.recover(seconds=700)
    assert api.read(MARKERS, "web")["metadata"]["finalizers"] == [MARKER_FINALIZER]


@pytest.mark.parametrize("end", ["accepted", "deleted"])
async def test_a_pod_with_refused_marks_is_reported_until_they_are_accepted(
    api: Scene, end: str
) -> None:
    """Or until the pod is deleted."""
    refused = Forbidden("pods web-1 is forbidden: says a policy\nat length", code=403)
    api.before = refusing(refused, name="web-1")
    async with reported(api, "Succeeded", "Succeeded"):
        assert api.says()[:2] == ("True", "PodNotMarked")
        assert "1 pod: default/web-1: 403 pods web-1 is forbidden: says a policy." in api.says()[2]
        assert api.labels("web-2") == {"healthy": "true"}
        if end == "accepted":
            api.before = lambda write: None
        else:
            api.remove(PODS, "web-1")
        await settle(60)
        assert api.says()[1] == "AsExpected"


async def test_a_transient_error_is_not_reported_as_a_refusal(api: Scene) -> None:
    api.before = refusing(ServerError("no", code=500), name="web-1")
    async with reported(api, "Succeeded"):
        assert api.says()[1] == "AsExpected"


async def test_a_stale_daemon_sets_pods_unknown_and_the_marker_reports_it(api: Scene) -> None:
    for number in (1, 2):
        api.put(LEASES, lease_wire(f"node-{number}"))
    async with reported(api, "Succeeded", "Succeeded"):
        await settle(26)
        api.renew("node-2")
        await settle(50)
        assert api.counts() == (2, 1, 0, 1, 0)
        assert api.says()[:2] == ("True", "ProbeDaemonStale")
        expected = "renew their Lease: node-1 (1 pods). Check the kruise-probe-daemon pod"
        assert expected in api.says()[2]


async def test_a_marker_reports_no_expiry_that_only_our_clock_shows(api: Scene) -> None:
    """The Lease was not read since, so a renewal may be missing."""
    step = timedelta()
    api.put(LEASES, lease_wire("node-1"))
    async with reported(api, "Succeeded", now=lambda: loop_clock() + step):
        step = timedelta(seconds=120)
        await api.change(MARKERS, "web", {"metadata": {"annotations": {"looked": "at"}}}, seconds=2)
        assert api.says()[1] == "AsExpected"
        assert api.counts() == (2, 1, 0, 1, 0)


async def test_the_status_is_written_at_most_once_a_second(api: Scene) -> None:
    async with api.running():
        before = len(api.writes)
        for number in range(100):
            await report(api, ("Failed", "Succeeded")[number % 2], seconds=0.1)
        assert api.count("PodProbeMarker", since=before)["PodProbeMarker/status"] <= 11


async def test_finalizer_and_status_are_written_once_while_the_informer_lags(api: Scene) -> None:
    api.remove(MARKERS, "web")
    async with api.running():
        api.put_marker(probe_wire())
        async with api.lagging(MARKERS):
            await settle(0.5)
            await report(api, "Succeeded", seconds=2)
            before = len(api.writes)
            for message in ("first", "second"):
                await report(api, "Succeeded", message=message, seconds=2)
            assert api.count("PodProbeMarker", since=before) == {}
        assert api.count("PodProbeMarker", since=before) == {}
    assert api.count("PodProbeMarker")["PodProbeMarker"] == 1, "the finalizer"
    assert api.counts() == (2, 1, 0, 1, 0)


def prune_status(wire: Json) -> None:
    kept = ("observedGeneration", "matchedPods")
    if wire["kind"] == "PodProbeMarker" and "status" in wire:
        wire["status"] = {key: wire["status"][key] for key in kept if key in wire["status"]}


async def test_fields_that_kruises_crd_prunes_are_written_once(api: Scene) -> None:
    api.prune = prune_status
    api.put_marker(NATIVE, name="broken")
    async with api.running():
        assert api.status() == {"observedGeneration": 1, "matchedPods": 2}
        before = len(api.writes)
        await report(api, "Succeeded", seconds=700)
        tries = api.count("PodProbeMarker", since=before)["PodProbeMarker/status"]
        # A watch lasts five to ten minutes, so two more may begin in this time, for both markers.
        assert tries <= 1 + 2 * 2, "the definition may be another one with each new watch"
        warned = [(each.about, each.reason) for each in api.events]
        assert warned == [("PodProbeMarker/broken", "InvalidSpec")]
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
        assert api.says()[1] == "AsExpected"


async def test_a_steady_state_writes_nothing(api: Scene) -> None:
    async with reported(api, "Succeeded", "Failed"):
        before = len(api.writes)
        await settle(3600)
        assert api.count(since=before) == {}


class TestFinalizer:
    def assert_nothing_is_left(self, api: Scene) -> None:
        assert api.find(MARKERS, "web") is None
        for number in (1, 2):
            assert (api.labels(f"web-{number}"), api.conditions(f"web-{number}")) == ({}, {})
            assert api.probes(f"node-{number}") == {}

    async def test_a_deletion_removes_marks_then_entries_then_the_finalizer(
        self, api: Scene
    ) -> None:
        async with reported(api, "Succeeded", "Failed"):
            before = len(api.writes)
            await api.drop(MARKERS, "web")
        self.assert_nothing_is_left(api)
        order = [(each.kind, each.key.name) for each in api.writes[before:]]
        assert order[-1] == ("PodProbeMarker", "web")
        for number in (1, 2):
            pair = ("Pod", f"web-{number}"), ("NodePodProbe", f"node-{number}")
            assert [each for each in order if each in pair] == [*pair]

    async def test_a_refusal_that_delays_the_deletion_is_reported_with_node_and_pod(
        self, api: Scene
    ) -> None:
        async with reported(api, "Succeeded", "Failed"):
            refused = Forbidden("pods web-1 is forbidden", code=403)
            api.before = refusing(refused, kind="Pod", name="web-1")
            await api.drop(MARKERS, "web", seconds=12)
            assert api.says("Synced")[:2] == ("False", "Deleting")
            assert "node-1" in api.says("Synced")[2]
            assert api.probes("node-2") == {}
            assert api.says()[:2] == ("True", "PodNotMarked")
            assert "default/web-1: 403 pods web-1 is forbidden" in api.says()[2]
            await api.recover()
            self.assert_nothing_is_left(api)

    async def test_labels_that_changed_before_the_deletion_hide_no_mark(self, api: Scene) -> None:
        async with reported(api, "Succeeded", "Failed"):
            pass
        api.edit(PODS, "web-1", {"metadata": {"labels": {"app": "other"}}})
        api.remove(MARKERS, "web")
        await api.run()
        self.assert_nothing_is_left(api)

    @cases(
        "probe",
        label=probe_wire(condition=None, policies=BOTH),
        annotation=probe_wire(condition=None, policies=[policy_wire(annotations={"a": "1"})]),
        condition=probe_wire(),
    )
    async def test_a_mark_on_a_pod_that_is_not_probed_keeps_the_finalizer(
        self, api: Scene, probe: Json
    ) -> None:
        api.put_marker(probe)
        async with reported(api, "Succeeded"):
            api.before = refusing(ConnectionFailed("reset"), name="web-1")
            await api.relabel("web-1", app="other")
            await api.drop(MARKERS, "web", seconds=12)
            assert "Pod default/web-1" in api.says("Synced")[2]
            await api.recover()
            self.assert_nothing_is_left(api)

    async def test_a_marker_kept_by_other_finalizers_reports_that_nothing_is_left(
        self, api: Scene
    ) -> None:
        api.edit(MARKERS, "web", THEIRS)
        async with reported(api, "Succeeded", "Failed"):
            await api.drop(MARKERS, "web")
            assert api.status()["matchedPods"] == 0
            await api.change_probes(probe_wire("other"))
            metadata = api.read(MARKERS, "web")["metadata"]
            assert metadata["finalizers"] == ["example.com/theirs"]
            assert api.status()["observedGeneration"] == metadata["generation"]
            assert api.counts()[:4] == (0, 0, 0, 0)
            assert [each["type"] for each in api.status()["conditions"]] == ["Synced"]
            assert api.says("Synced") == (
                "True",
                "Deleting",
                "Nodes and pods hold nothing of this marker any more. Other controllers keep it by their "
                "finalizers; check metadata.finalizers.",
            )
        before = len(api.writes)
        await api.run(seconds=3600)
        assert api.count(since=before) == {}

    async def test_the_status_of_a_kept_marker_is_written_at_most_once_a_second(
        self, api: Scene
    ) -> None:
        """Holders of other finalizers may edit it often, and its newest generation is observed in the end."""
        api.edit(MARKERS, "web", THEIRS)
        async with api.running():
            await api.drop(MARKERS, "web")
            before = len(api.writes)
            for number in range(30):
                await api.change_probes(probe_wire(periodSeconds=number), seconds=0.1)
            assert api.count("PodProbeMarker", since=before)["PodProbeMarker/status"] <= 4
            await settle(2)
            generation = api.read(MARKERS, "web")["metadata"]["generation"]
            assert api.status()["observedGeneration"] == generation

    async def test_a_readiness_gate_is_updated_before_entry_and_finalizer_are_removed(
        self, api: Scene
    ) -> None:
        api.put(PODS, pod_wire("web-1", readiness_gates=["example.com/healthy"]))
        api.edit(MARKERS, "web", {"spec": {"probes": [probe_wire()]}})

        def on_node() -> list[str]:
            return [each.kind for each in api.writes[before:] if each.key.name != "node-2"]

        async with reported(api, "Succeeded"):
            before = len(api.writes)
            api.latency_seconds["Pod"] = 1.0
            await api.drop(MARKERS, "web", seconds=0.5)
            assert on_node() == ["Pod"]
            await settle(1.0)  # enqueued when the patch ends, not by the check every few seconds
        assert on_node() == ["Pod", "NodePodProbe", "PodProbeMarker"]
        assert api.find(MARKERS, "web") is None
        assert api.condition(pod="web-1") == ("True", "ProbeRemoved")

    @pytest.mark.parametrize("informer_lags", [False, True])
    @pytest.mark.parametrize("refused", [False, True])
    async def test_a_patch_in_flight_keeps_the_finalizer(
        self, api: Scene, informer_lags: bool, refused: bool
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
            await report(api, "Succeeded", seconds=0.5)
            before = len(api.writes)
            await api.drop(MARKERS, "web", seconds=0.4)
            assert not api.count("PodProbeMarker", since=before)["PodProbeMarker"]
            await settle(1.5)
            api.sources["pods"].release()
            await settle(1.5)
        self.assert_nothing_is_left(api)

    @pytest.mark.parametrize(
        ("container", "owns"), [("absent", False), ("setup", False), ("main", True), ("side", True)]
    )
    async def test_marks_are_removed_if_their_new_owner_cannot_probe_the_pod(
        self, api: Scene, container: str, owns: bool
    ) -> None:
        inits = [container_wire("setup"), container_wire("side", sidecar=True)]
        api.put(PODS, pod_wire("web-1", init_containers=inits))
        api.put_marker(probe_wire(container=container, policies=BOTH), name="zz")
        async with reported(api, "Succeeded"):
            await api.drop(MARKERS, "web")
        assert api.find(MARKERS, "web") is None
        assert api.labels("web-1") == ({"healthy": "true"} if owns else {})
        assert len(api.conditions("web-1")) == owns

    async def test_a_marker_deleted_without_finalizer_is_cleaned_up(self, api: Scene) -> None:
        async with reported(api, "Succeeded"):
            api.edit(MARKERS, "web", {"metadata": {"finalizers": None}})
            await api.drop(MARKERS, "web")
        self.assert_nothing_is_left(api)


class TestConflicts:
    @pytest.fixture
    def api(self) -> Scene:
        api = Scene()
        api.put_node("node-1", "web-0")
        return api

    def put(self, api: Scene, *names: str) -> None:
        """The older marker is `zz`: age is compared before the name."""
        rival = probe_wire("other", policies=[BOTH[0]])
        markers: dict[str, Json] = {
            "zz": {"probes": [rival], "created": "2025-01-01T00:00:00Z"},
            "aa": {"probes": [probe_wire(policies=BOTH)]},
            "bb": {"probes": [probe_wire("b", policies=[BOTH[1]], condition="b")]},
        }
        for name in names:
            more = dict(markers[name])
            api.put_marker(*more.pop("probes"), name=name, **more)

    @pytest.mark.parametrize(
        "order", list(permutations(["aa", "bb", "zz"])), ids=lambda order: "-".join(order)
    )
    async def test_the_owner_is_the_same_in_every_order_of_events(
        self, api: Scene, order: tuple[str, ...]
    ) -> None:
        """Each marker that lost a key has a warning, and another one only if the conflict changes."""
        async with running_manager(api):
            for name in order:
                self.put(api, name)
                await settle()
            results = {"zz#other": "Failed", "aa#healthy": "Succeeded", "bb#b": "Failed"}
            await api.report(*(state_wire(*each) for each in results.items()))
        assert api.labels() == {}
        assert api.condition() == api.condition("b") == ("False", "")
        assert api.says("Conflict", "zz")[0] == "False"
        for name, owner in (("aa", "default/zz"), ("bb", "default/aa")):
            assert api.says("Conflict", name)[:2] == ("True", "ClaimedByAnother")
            assert owner in api.says("Conflict", name)[2]
        warned = [each.about for each in api.events if each.type == "Warning"]
        assert set(warned) == {"PodProbeMarker/aa", "PodProbeMarker/bb"}
        messages = [(each.about, each.message) for each in api.events]
        assert len(messages) == len(set(messages))

    async def test_a_restart_records_no_second_warning(self, api: Scene) -> None:
        self.put(api, "aa", "bb", "zz")
        for _ in ("first", "second"):
            await api.run()
            assert len(api.events) == 2

    async def test_an_older_marker_that_arrives_late_is_reported_to_the_loser_at_once(
        self, api: Scene
    ) -> None:
        """And its deletion makes the next probe the owner."""
        self.put(api, "aa", "bb")
        async with api.running():
            assert api.says("Conflict", "aa")[0] == "False"
            self.put(api, "zz")
            await api.report(state_wire("zz#other"), state_wire("aa#healthy"))
            assert api.says("Conflict", "aa")[0] == "True"
            await api.drop(MARKERS, "zz")
            assert api.says("Conflict", "aa")[0] == "False"
            assert api.find(MARKERS, "zz") is None
        assert api.labels() == {"healthy": "true"}


class TestDegraded:
    async def test_an_invalid_marker_reports_it_and_affects_no_other(self, api: Scene) -> None:
        bad = probe_wire("bad", handler={"httpGet": {"port": 80, "host": "10.0.0.1"}})
        api.put_marker(bad, NATIVE | {"markerPolicy": list(BOTH)}, name="broken")
        async with reported(api, "Succeeded"):
            state, reason, message = api.says(marker="broken")
            assert (state, reason) == ("True", "InvalidSpec")
            assert "spec.probes[0].probe.httpGet.host" in message
            assert "spec.probes[1].podConditionType" in message
            assert api.says()[0] == "False"
        warned = [each[1:] for each in api.events if each.about == "PodProbeMarker/broken"]
        assert warned == [("Warning", "InvalidSpec", message)]
        assert api.probes() == {"web-1": ["broken#native", "web#healthy"]}

    async def test_each_marker_of_a_name_has_its_own_warning(self, api: Scene) -> None:
        async with running_manager(api):
            for uid in ("first", "second"):
                api.put_marker(NATIVE, name="broken", uid=uid)
                await settle()
                await api.drop(MARKERS, "broken")
                assert api.find(MARKERS, "broken") is None
        warned = [(each.about, each.reason) for each in api.events]
        assert warned == [("PodProbeMarker/broken", "InvalidSpec")] * 2

    async def test_an_error_that_changes_or_comes_back_has_another_warning(
        self, api: Scene
    ) -> None:
        async with running_manager(api):
            for type in ("Ready", "PodScheduled", "example.com/a", "Ready"):
                await api.change_probes(probe_wire("native", condition=type))
        assert [each.reason for each in api.events] == ["InvalidSpec"] * 3

    async def test_a_warning_is_recorded_after_the_status_that_reports_it(self, api: Scene) -> None:
        """So a manager that is restarted before it can write the status records no second one."""

        def refuse(write: Write) -> None:
            if write.subresource == "status":
                raise ServerError("no")

        api.put_marker(NATIVE)
        api.before = refuse
        await api.run()
        api.before = lambda write: None
        await api.run()
        assert [each.reason for each in api.events] == ["InvalidSpec"]

    async def test_a_probe_of_a_plain_init_container_is_reported(self, api: Scene) -> None:
        api.put(PODS, pod_wire("web-1", init_containers=[container_wire("setup")]))
        api.put_marker(probe_wire(), probe_wire("p", container="setup", condition="p"))
        await api.run()
        state, reason, message = api.says()
        assert (state, reason) == ("True", "ContainerNotFound")
        assert "'setup'" in message
        assert "2 of 2 pods. Correct containerName in the marker" in message
