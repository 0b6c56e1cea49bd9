"""Results are written to pods once, and removed when they no longer apply. The whole product over a fake API server."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from copy import deepcopy
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from support.builders import (
    condition_wire,
    entry_of,
    lease_wire,
    marker_wire,
    node_wire,
    npp_wire,
    owned_fields,
    pod_status_wire,
    pod_wire,
    policy_wire,
    probe_wire,
    state_wire,
)
from support.fake_api import (
    LATENCY_SECONDS,
    FakeApi,
    FakeGetter,
    Write,
    cluster_with,
    refusing,
    report,
)
from support.running_manager import (
    RecordingRecorder,
    loop_clock,
    metric,
    running_manager,
    settle,
    settled_manager,
)

from kruise_probe.api.core import ExecAction, GRPCAction, Probe, TCPSocketAction
from kruise_probe.api.errors import ConnectionFailed, Invalid, ServerError
from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.names import daemon_lease_name
from kruise_probe.api.resources import LEASES, MARKERS, NODE_POD_PROBES, NODES, PODS
from kruise_probe.api.times import format_micro_time
from kruise_probe.controllers.pods.reconciler import CONTESTED_SECONDS

POLICIES = (
    policy_wire("Succeeded", {"healthy": "true"}, {"cost": "10"}),
    policy_wire("Failed", {"sick": "true"}),
)

LATENCY = "kruise_probe_result_to_condition_seconds"
HASH = entry_of(Probe(exec=ExecAction(("true",)))).hash


@pytest.fixture
def api() -> FakeApi:
    """One node, one pod, one marker with a condition and two policies, and nothing planned yet."""
    return cluster_with(*POLICIES)


@asynccontextmanager
async def reported(
    api: FakeApi, *states: dict[str, Any], **options: Any
) -> AsyncIterator[RecordingRecorder]:
    """A running manager that has written the first results."""
    async with settled_manager(api, **options) as recorder:
        report(api, *states)
        await settle()
        yield recorder


def reconciles(result: str = "success") -> float:
    """Reconciles of pods so far."""
    return metric("controller_runtime_reconcile_total", controller="podmarks", result=result)


def shown(
    api: FakeApi, pod: str = "web-0"
) -> tuple[dict[str, str], dict[str, str], dict[str, Any]]:
    """Labels beside `app`, annotations, and conditions beside kubelet's own."""
    wire = api.read(PODS, pod)
    meta = wire["metadata"]
    labels = {key: value for key, value in meta["labels"].items() if key != "app"}
    conditions = {
        each["type"]: each for each in wire["status"]["conditions"] if each["type"] != "Initialized"
    }
    return labels, meta.get("annotations", {}), conditions


async def test_a_result_becomes_a_condition_and_marks_in_one_patch(api: FakeApi) -> None:
    async with reported(api, state_wire(message="fine")):
        labels, annotations, conditions = shown(api)
        assert labels == {"healthy": "true"}
        assert annotations == {"cost": "10"}
        assert conditions["example.com/healthy"] == {
            "type": "example.com/healthy",
            "status": "True",
            "message": "fine",
            "lastProbeTime": "2026-01-01T00:01:00Z",
            "lastTransitionTime": "2026-01-01T00:01:00Z",
        }
        assert api.count("Pod") == {"Pod/status": 1}


async def test_result_of_another_handler_is_neither_written_nor_counted(api: FakeApi) -> None:
    async with reported(api, state_wire(probe_hash="of another command")):
        assert shown(api) == ({}, {}, {})
        assert _counted(api) == (0, 1)

        report(api, state_wire(probe_hash=entry_of(Probe(exec=ExecAction(("true",)))).hash))
        await settle()
        assert shown(api)[0] == {"healthy": "true"}
        assert _counted(api) == (1, 0)


def _counted(api: FakeApi) -> tuple[int, int]:
    """How many pods the marker's status counts as succeeded, and as unknown."""
    marker = api.read(MARKERS, "web")
    return marker["status"]["succeeded"], marker["status"]["unknown"]


async def test_result_counts_where_the_api_server_alters_the_probe(api: FakeApi) -> None:
    """The daemon reports the hash of the stored probe. The second result arrives while no manager runs."""

    def prune_mode(wire: dict[str, Any]) -> None:
        for entry in (wire.get("spec") or {}).get("podProbes", ()):
            entry["probes"][0]["probe"]["grpc"].pop("mode", None)

    api.prune = prune_mode
    handler = {"grpc": {"port": 80, "mode": "TLS"}}
    api.put(MARKERS, marker_wire(probes=[probe_wire(handler=handler, policies=POLICIES)]))
    stored_hash = entry_of(Probe(grpc=GRPCAction(port=80, service=""))).hash
    async with reported(api, state_wire(probe_hash=stored_hash)):
        assert (shown(api)[0], _counted(api)) == ({"healthy": "true"}, (1, 0))
    report(api, state_wire(state="Failed", probe_hash=stored_hash))
    async with settled_manager(api):
        assert (shown(api)[0], _counted(api)) == ({"sick": "true"}, (0, 0))


async def test_the_hash_of_a_named_port_is_that_of_its_number(api: FakeApi) -> None:
    container = {"name": "main", "ports": [{"name": "web", "containerPort": 80}]}
    api.put(PODS, pod_wire(containers=[container]))
    handler = {"tcpSocket": {"port": "web"}}
    api.put(MARKERS, marker_wire(probes=[probe_wire(handler=handler, policies=POLICIES)]))
    numbered = entry_of(Probe(tcp_socket=TCPSocketAction(port=80))).hash
    async with reported(api, state_wire(probe_hash=numbered)):
        assert (shown(api)[0], _counted(api)) == ({"healthy": "true"}, (1, 0))


async def test_the_opposite_state_removes_the_other_keys(api: FakeApi) -> None:
    async with reported(api, state_wire()):
        report(api, state_wire(state="Failed", moved="2026-01-01T00:02:00Z"))
        await settle()
        labels, annotations, conditions = shown(api)
        assert (labels, annotations) == ({"sick": "true"}, {})
        assert conditions["example.com/healthy"]["status"] == "False"
        assert conditions["example.com/healthy"]["lastTransitionTime"] == "2026-01-01T00:02:00Z"

        report(api, state_wire(moved="2026-01-01T00:03:00Z"))
        await settle()
        labels, annotations, _ = shown(api)
        assert (labels, annotations) == ({"healthy": "true"}, {"cost": "10"})
        assert api.count("Pod") == {"Pod/status": 3}


async def test_the_same_results_with_newer_times_write_nothing(api: FakeApi) -> None:
    async with reported(api, state_wire()):
        before = len(api.writes)
        for second in range(10):
            report(api, state_wire(probed=f"2026-01-01T00:02:{second:02}Z"))
            await settle()
        assert api.count(since=before) == {}


async def test_a_new_state_is_written_once_while_the_informer_lags(api: FakeApi) -> None:
    async with settled_manager(api):
        pods = api.sources["pods"]
        pods.hold()
        report(api, state_wire())
        await settle(0.5)
        report(api, state_wire(probed="2026-01-01T00:02:00Z", message="again"))
        report(api, state_wire(probed="2026-01-01T00:03:00Z", message="again"))
        await settle(0.5)
        api.edit(NODES, "node-1", {"metadata": {"labels": {"type": "virtual-kubelet"}}})
        api.edit(NODES, "node-1", {"metadata": {"labels": {"type": None}}})
        await settle(0.5)
        pods.release()
        await settle()
        assert api.count("Pod") == {"Pod/status": 2}


async def test_probing_starts_and_ends_with_the_matching_label(
    api: FakeApi,
) -> None:
    api.edit(PODS, "web-0", {"metadata": {"labels": {"app": "other"}}})
    async with settled_manager(api):
        assert api.read(NODE_POD_PROBES, "node-1")["spec"] == {}

        api.edit(PODS, "web-0", {"metadata": {"labels": {"app": "web"}}})
        await settle(1)
        report(api, state_wire())
        await settle(1)
        assert shown(api)[0] == {"healthy": "true"}

        api.edit(PODS, "web-0", {"metadata": {"labels": {"app": "other"}}})
        await settle(1)
        assert api.read(NODE_POD_PROBES, "node-1")["spec"] == {}
        labels, annotations, conditions = shown(api)
        assert (labels, annotations, conditions) == ({}, {}, {})


@pytest.mark.parametrize(
    ("edit", "labels", "annotations", "conditions"),
    [
        pytest.param({"probes": []}, {}, {}, set(), id="probe-removed"),
        pytest.param(
            {"selector": {"matchLabels": {"app": "other"}}}, {}, {}, set(), id="selector-edited"
        ),
        pytest.param(
            {"probes": [probe_wire(policies=[policy_wire("Succeeded", {"healthy": "true"})])]},
            {"healthy": "true"},
            {},
            {"example.com/healthy"},
            id="annotation-removed-from-the-policy",
        ),
        pytest.param(
            {
                "probes": [
                    probe_wire(policies=[policy_wire("Succeeded", {"healthy": "yes", "new": "1"})])
                ]
            },
            {"healthy": "yes", "new": "1"},
            {},
            {"example.com/healthy"},
            id="policy-edited",
        ),
        pytest.param(
            {"probes": [probe_wire(condition="example.com/other", policies=POLICIES)]},
            {"healthy": "true"},
            {"cost": "10"},
            {"example.com/other"},
            id="condition-type-renamed",
        ),
        pytest.param(
            {"probes": [probe_wire("renamed", policies=POLICIES)]},
            {"healthy": "true"},
            {"cost": "10"},
            {"example.com/healthy"},
            id="probe-renamed-keeps-marks-until-its-first-result",
        ),
    ],
)
@pytest.mark.parametrize("running", [True, False], ids=["running", "manager-was-down"])
async def test_marks_follow_edits_of_the_marker(
    api: FakeApi,
    edit: dict[str, Any],
    labels: dict[str, str],
    annotations: dict[str, str],
    conditions: set[str],
    running: bool,
) -> None:
    async with reported(api, state_wire()):
        if running:
            api.edit(MARKERS, "web", {"spec": edit})
            await settle()
    if not running:
        api.edit(MARKERS, "web", {"spec": edit})
        async with settled_manager(api):
            pass
    found = shown(api)
    assert (found[0], found[1], set(found[2])) == (labels, annotations, conditions)


async def test_a_restart_writes_nothing(api: FakeApi) -> None:
    async with reported(api, state_wire()):
        pass
    before = len(api.writes)
    async with running_manager(api):
        await settle(700)
    assert api.count(since=before) == {}


async def test_the_time_from_result_to_condition_is_observed_once_per_change(
    api: FakeApi,
) -> None:
    async with settled_manager(api):
        count, total = metric(f"{LATENCY}_count"), metric(f"{LATENCY}_sum")
        report(api, state_wire())
        await settle()
        report(api, state_wire(probed="2026-01-01T00:09:00Z"))
        await settle()
        assert metric(f"{LATENCY}_count") == count + 1
        assert metric(f"{LATENCY}_sum") - total == pytest.approx(LATENCY_SECONDS, abs=1e-6)


async def test_a_failed_write_is_part_of_the_time_from_result_to_condition(api: FakeApi) -> None:
    failures = iter([ServerError("no"), ServerError("no")])

    def fail(write: Write) -> None:
        if write.kind == "Pod" and (error := next(failures, None)):
            raise error

    async with settled_manager(api):
        before = metric(f"{LATENCY}_sum")
        api.before = fail
        report(api, state_wire())
        await settle()
        assert next(failures, None) is None
        assert metric(f"{LATENCY}_sum") - before > LATENCY_SECONDS


async def test_a_delayed_write_is_part_of_the_time_from_result_to_condition(api: FakeApi) -> None:
    async with settled_manager(api):
        for number in range(4):
            report(api, state_wire(message=f"m{number}"))
            await settle(0.1)
        before = metric(f"{LATENCY}_sum")
        report(api, state_wire(message="the last but one"))
        await settle(7)
        report(api, state_wire(message="the last"))
        await settle(4)
        assert shown(api)[2]["example.com/healthy"]["message"] == "the last"
        assert metric(f"{LATENCY}_sum") - before > 5


async def test_a_retry_of_a_new_state_has_no_limit_of_writes(api: FakeApi) -> None:
    """A write that times out is retried with the same cause."""

    def hang(write: Write) -> None:
        if write.kind == "Pod":
            api.before = lambda write: None
            raise TimeoutError

    async with reported(api, state_wire()):
        for _ in range(12):  # the bucket of other writes is empty
            api.edit(PODS, "web-0", {"metadata": {"labels": {"healthy": None}}})
            await settle(0.1)
        api.before = hang
        report(api, state_wire(state="Failed"))
        await settle(1)
        assert shown(api)[0] == {"sick": "true"}


@pytest.mark.parametrize(
    ("leads", "writes"),
    [
        pytest.param(True, {"Pod/status": 1}, id="leader"),
        pytest.param(False, {}, id="standby-as-its-leader-does"),
    ],
)
async def test_the_first_result_of_an_edited_probe_writes_the_condition_once(
    api: FakeApi, leads: bool, writes: dict[str, int]
) -> None:
    async with reported(api, state_wire(probed="2026-01-01T00:00:01Z", probe_hash=HASH)):
        pass
    before = len(api.writes)
    async with settled_manager(api, leads=leads):
        edited = edit_command(api)
        await settle()
        for second in (9, 10, 11):
            stamp = f"2026-01-01T00:00:{second:02}Z"
            report(api, state_wire(probed=stamp, probe_hash=edited))
            await settle()
    assert api.count("Pod", since=before) == writes
    stamp = "2026-01-01T00:00:09Z" if leads else "2026-01-01T00:00:01Z"
    assert shown(api)[2]["example.com/healthy"]["lastProbeTime"] == stamp


def edit_command(api: FakeApi, *others: dict[str, Any]) -> str:
    """Edit the command of the probe; returns the hash of its results."""
    probe = probe_wire(policies=POLICIES)
    probe["probe"]["exec"] = {"command": ["true", "again"]}
    api.put(MARKERS, marker_wire(probes=[probe, *others]))
    return entry_of(Probe(exec=ExecAction(("true", "again")))).hash


async def test_an_edited_probe_is_written_after_a_failure_and_a_result_of_another(
    api: FakeApi,
) -> None:
    other = probe_wire("other", condition="example.com/other")
    api.put(MARKERS, marker_wire(probes=[probe_wire(policies=POLICIES), other]))
    async with reported(api, state_wire(probed="2026-01-01T00:00:01Z", probe_hash=HASH)):
        edited = state_wire(probed="2026-01-01T00:00:09Z", probe_hash=edit_command(api, other))
        await settle()
        api.before = raising(ServerError("no"))
        report(api, edited)
        await settle(1)
        report(api, edited, state_wire("web#other", "Failed"))
        await settle(1)
        api.before = lambda write: None
        await settle(60)
        conditions = shown(api)[2]
    assert conditions["example.com/healthy"]["lastProbeTime"] == "2026-01-01T00:00:09Z"
    assert conditions["example.com/other"]["status"] == "False"


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param({"labels": {"healthy": None, "mine": "1"}}, id="label-removed"),
        pytest.param({"labels": {"healthy": "no", "mine": "1"}}, id="label-edited"),
        pytest.param(
            {"labels": {"mine": "1"}, "annotations": {"cost": "99"}}, id="annotation-edited"
        ),
    ],
)
async def test_marks_that_others_change_are_written_again(
    api: FakeApi, edit: dict[str, Any]
) -> None:
    async with reported(api, state_wire()):
        api.edit(PODS, "web-0", {"metadata": edit})
        await settle()
        assert shown(api)[:2] == ({"healthy": "true", "mine": "1"}, {"cost": "10"})


@pytest.mark.parametrize("message", ["idle\n", "\n idle \r\n", "\x1b[32midle\x1b[0m\n"])
async def test_a_message_of_another_daemon_is_normalised_before_matching(
    api: FakeApi, message: str
) -> None:
    """Kruise's daemon publishes the output as it is."""
    values = [{"label": "role", "regex": "^[a-z]+$"}, {"annotation": "line"}]
    policy = policy_wire("Succeeded", from_message=values)
    api.put(MARKERS, marker_wire(probes=[probe_wire(policies=[policy])]))
    async with reported(api, state_wire(message=message)):
        assert shown(api)[:2] == ({"role": "idle"}, {"line": "idle"})


@pytest.mark.parametrize(
    ("probes", "lost", "labels"),
    [
        pytest.param([probe_wire(policies=POLICIES)], ("metadata", "labels"), {"healthy": "true"}, id="label"),
        pytest.param([], ("status", "conditions"), {}, id="deleted-condition"),
    ],
)  # fmt: skip
async def test_a_mark_that_the_response_lacks_is_written_again_after_a_second(
    api: FakeApi, probes: list[Any], lost: tuple[str, str], labels: dict[str, str]
) -> None:
    """An admission webhook removes a field from our patch, so no event shows a change by others."""
    written: list[float] = []

    def lose(write: Write) -> None:
        if write.kind == "Pod":
            written.append(asyncio.get_running_loop().time())
            if len(written) == 1:
                del write.body[lost[0]][lost[1]]

    async with settled_manager(api):
        if not probes:
            report(api, state_wire())
            await settle()
        api.before, before = lose, reconciles("requeue_after")
        if probes:
            report(api, state_wire())
        else:
            api.edit(MARKERS, "web", {"spec": {"probes": probes}})
        await settle(10)
        assert (shown(api)[0], bool(shown(api)[2])) == (labels, bool(probes))
        assert reconciles("requeue_after") == before + 1
    assert [after - before for before, after in pairwise(written)] == pytest.approx(
        [CONTESTED_SECONDS + LATENCY_SECONDS], abs=0.001
    )


@pytest.mark.parametrize("field", ["labels", "annotations"])
async def test_a_key_that_kubectl_owns_causes_no_endless_writes_or_waits(
    api: FakeApi, field: str
) -> None:
    """A policy may not write this annotation, but an older marker may have it, and an older manager may have written it."""
    key = "kubectl.kubernetes.io/last-applied-configuration"
    marks = {key: "x"}
    policy = policy_wire("Succeeded", *((marks, None) if field == "labels" else (None, marks)))
    api.put(MARKERS, marker_wire(probes=[probe_wire(policies=[policy])]))
    owned = owned_fields(annotations=[key])
    api.put(PODS, pod_wire(annotations={key: "x"}, owned=owned))
    async with settled_manager(api):
        report(api, state_wire())
        await settle(30)
        assert api.count("Pod") == {"Pod/status": 1}
        api.remove(MARKERS, "web")
        await settle(30)
        assert api.get(MARKERS, "web") is None
        assert shown(api)[0] == {}


async def test_a_pod_replaced_under_its_name_never_gets_the_old_marks(
    api: FakeApi,
) -> None:
    async with settled_manager(api):
        pods = api.sources["pods"]
        pods.hold()
        report(api, state_wire())
        api.remove(PODS, "web-0")
        api.put(PODS, pod_wire(uid="another"))
        await settle(0.5)
        pods.release()
        await settle()
        assert shown(api) == ({}, {}, {})
        assert api.count("Pod") == {"Pod/status": 1}


async def test_results_of_another_pod_are_ignored(
    api: FakeApi,
) -> None:
    """With the uid of one pod and the name of another; beside the pod's own, and alone."""
    own = pod_status_wire(pod_wire(), state_wire())
    strange = {**pod_status_wire(pod_wire(), state_wire(state="Failed")), "name": "web-1"}
    for statuses, labels in (([strange], {}), ([own, strange], {"healthy": "true"})):
        async with settled_manager(api):
            api.publish(*statuses)
            await settle()
            assert shown(api)[0] == labels
        before = len(api.writes)
        async with running_manager(api):
            await settle(700)
        assert api.count(since=before) == {}
        assert api.read(MARKERS, "web")["status"]["succeeded"] == len(labels)


@pytest.mark.parametrize("whole_pod", [False, True])
async def test_a_removed_state_is_no_longer_counted(api: FakeApi, whole_pod: bool) -> None:
    api.put(MARKERS, marker_wire("other", probes=[probe_wire(condition="x.com/b")]))
    async with settled_manager(api):
        report(api, state_wire(), state_wire("other#healthy", "Failed"))
        await settle(2)
        counts = [api.get(MARKERS, "other")]
        if whole_pod:
            api.publish()
        else:
            report(api, state_wire())
        await settle(2)
        counts.append(api.get(MARKERS, "other"))
    assert [each and each["status"]["failed"] for each in counts] == [1, 0]


async def test_a_failing_pod_delays_no_other(api: FakeApi) -> None:
    api.put(PODS, pod_wire("web-1"))
    async with settled_manager(api):
        api.before = refusing(ServerError("no"), name="web-0")
        statuses = [pod_status_wire(pod_wire(each), state_wire()) for each in ("web-0", "web-1")]
        api.publish(*statuses)
        await settle(0.2)
        assert shown(api, "web-1")[0] == {"healthy": "true"}
        assert shown(api, "web-0")[0] == {}
        api.before = lambda write: None
        await settle(60)
        assert shown(api, "web-0")[0] == {"healthy": "true"}


class TestAValueThatTheServerRefuses:
    """Of two markers on one pod, `bad` writes it; `web` writes a condition, a label and an annotation."""

    @pytest.fixture
    def api(self, api: FakeApi) -> FakeApi:
        probe = probe_wire(
            condition="example.com/bad", policies=[policy_wire("Succeeded", None, {"worse": "low"})]
        )
        api.put(MARKERS, marker_wire("bad", created="2025-01-01T00:00:00Z", probes=[probe]))

        def refuse(write: Write) -> None:
            if "worse" in write.body.get("metadata", {}).get("annotations", {}):
                raise Invalid('metadata.annotations[worse]: Invalid value: "low"', code=422)

        api.before = refuse
        return api

    def degraded(self, api: FakeApi, marker: str) -> tuple[str, str]:
        found = {each["type"]: each for each in api.read(MARKERS, marker)["status"]["conditions"]}
        return found["Degraded"]["reason"], found["Degraded"]["message"]

    async def test_a_refused_value_affects_its_own_marker_only(self, api: FakeApi) -> None:
        async with reported(api, state_wire("bad#healthy"), state_wire()):
            labels, annotations, conditions = shown(api)
            assert (labels, annotations) == ({"healthy": "true"}, {"cost": "10"})
            assert {each["status"] for each in conditions.values()} == {"True"}
            assert conditions.keys() == {"example.com/healthy", "example.com/bad"}
            await settle(2)
            reason, message = self.degraded(api, "bad")
            assert reason == "PodNotMarked"
            assert '422 metadata.annotations[worse]: Invalid value: "low"' in message
            assert self.degraded(api, "web")[0] == "AsExpected"

            api.edit(
                MARKERS, "bad", {"spec": {"probes": [probe_wire(condition="example.com/bad")]}}
            )
            await settle(2)
            assert self.degraded(api, "bad")[0] == "AsExpected"

    async def test_a_reconcile_with_a_refused_value_is_an_error(self, api: FakeApi) -> None:
        errors = "controller_runtime_reconcile_errors_total"
        async with settled_manager(api):
            before = metric(errors, controller="podmarks")
            report(api, state_wire("bad#healthy"), state_wire())
            await settle(CONTESTED_SECONDS / 2)
            assert shown(api)[0] == {"healthy": "true"}
            assert metric(errors, controller="podmarks") > before

    async def test_a_refused_value_is_retried_with_backoff(self, api: FakeApi) -> None:
        async with settled_manager(api):
            report(api, state_wire("bad#healthy"), state_wire())
            await settle(60)
            before = len(api.writes)
            await settle(600)
            assert 1 <= api.count("Pod", since=before)["Pod/status"] <= 20
            api.before = lambda write: None
            await settle(2000)
            assert shown(api)[1] == {"cost": "10", "worse": "low"}

    async def test_a_refused_value_does_not_keep_marks_of_a_deleted_marker(
        self, api: FakeApi
    ) -> None:
        async with reported(api, state_wire()):
            report(api, state_wire("bad#healthy"), state_wire())
            api.remove(MARKERS, "web")
            await settle(10)
            assert api.get(MARKERS, "web") is None
            labels, annotations, conditions = shown(api)
            assert (labels, annotations, [*conditions]) == ({}, {}, ["example.com/bad"])

    async def test_a_delayed_result_is_measured(self, api: FakeApi) -> None:
        async with settled_manager(api):
            before = metric(f"{LATENCY}_count")
            report(api, state_wire("bad#healthy"), state_wire())
            await settle()
            assert metric(f"{LATENCY}_count") == before + 1
            api.before = lambda write: None
            await settle(60)
            assert metric(f"{LATENCY}_count") == before + 1

    async def test_a_failure_between_two_parts_is_retried(self, api: FakeApi) -> None:
        refuse, seen = api.before, 0

        def fail_once(write: Write) -> None:
            nonlocal seen
            refuse(write)
            seen += write.kind == "Pod"
            if seen == 2:
                raise ServerError("no")

        api.before = fail_once
        async with settled_manager(api):
            report(api, state_wire("bad#healthy"), state_wire())
            await settle(5)
            assert shown(api)[:2] == ({"healthy": "true"}, {"cost": "10"})

    async def test_a_pod_deleted_during_its_write_is_no_error(self, api: FakeApi) -> None:
        refuse = api.before

        def go(write: Write) -> None:
            refuse(write)
            if write.kind == "Pod":
                api.remove(PODS, "web-0")

        api.before = go
        async with settled_manager(api):
            report(api, state_wire("bad#healthy"), state_wire())
            await settle(60)
            assert api.count("Pod") == {"Pod/status": 2}
            assert self.degraded(api, "bad")[0] == "AsExpected"


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(
            {"status": {"conditions": [condition_wire("Initialized", "False")]}},
            id="not-initialised",
        ),
        pytest.param({"spec": {"nodeName": "node-2"}}, id="moved"),
        pytest.param(None, id="node-deleted"),
    ],
)
async def test_marks_stay_while_the_pod_is_not_probed_for_a_while(
    api: FakeApi, change: dict[str, Any] | None
) -> None:
    api.put(NODES, node_wire("node-2"))
    async with reported(api, state_wire()):
        before, marks = len(api.writes), shown(api)
        if change is None:
            api.remove(NODES, "node-1")
        elif "spec" in change:
            wire = api.read(PODS, "web-0")
            api.put(PODS, wire | {"spec": wire["spec"] | change["spec"]})
        else:
            api.edit(PODS, "web-0", change)
        await settle()
        assert shown(api) == marks
        assert marks[0] == {"healthy": "true"}
        assert api.count("Pod", since=before) == {}
        npp = api.get(NODE_POD_PROBES, "node-1")
        assert npp is None or npp["spec"] == {}


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"status": {"phase": "Succeeded"}}, id="finished"),
        pytest.param(
            {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]}},
            id="terminating",
        ),
    ],
)
async def test_pods_that_have_ended_are_not_written(api: FakeApi, change: dict[str, Any]) -> None:
    api.edit(PODS, "web-0", change)
    async with reported(api, state_wire()):
        assert shown(api) == ({}, {}, {})


async def test_a_static_pod_is_never_written(api: FakeApi) -> None:
    """Its kubelet owns its status; a result of it can only come from a NodePodProbe that was edited."""
    mirror = {"kubernetes.io/config.mirror": "x"}
    owned = owned_fields(labels=["healthy"])
    labels = {"app": "web", "healthy": "old"}
    api.put(PODS, pod_wire(annotations=mirror, labels=labels, owned=owned))
    async with reported(api, state_wire()):
        api.remove(MARKERS, "web")
        await settle()
    assert api.count("Pod") == {}


def raising(error: Exception) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise error

    return fail


def renew(api: FakeApi) -> None:
    api.put(LEASES, lease_wire(renewed=format_micro_time(loop_clock())))


class TestSilentAgents:
    @pytest.fixture
    def api(self, api: FakeApi) -> FakeApi:
        api.put(LEASES, lease_wire())
        return api

    @pytest.fixture
    def reader(self, api: FakeApi) -> FakeGetter:
        return FakeGetter(api)

    async def test_stale_conditions_are_unknown_marks_stay_and_both_recover(
        self, api: FakeApi
    ) -> None:
        async with reported(
            api, state_wire(probed="2026-01-01T00:00:05Z", moved="2026-01-01T00:00:05Z")
        ):
            await settle(60)
            labels, annotations, conditions = shown(api)
            assert (labels, annotations) == ({"healthy": "true"}, {"cost": "10"})
            condition = conditions["example.com/healthy"]
            assert (condition["status"], condition["reason"]) == ("Unknown", "ProbeDaemonStale")
            assert condition["lastTransitionTime"] == "2026-01-01T00:01:00Z"
            assert metric("kruise_probe_daemons_stale") == 1
            assert "node-1" in condition["message"]

            api.put(LEASES, lease_wire(renewed="2026-01-01T00:01:08Z"))
            await settle(1)
            assert metric("kruise_probe_daemons_stale") == 0
            condition = shown(api)[2]["example.com/healthy"]
            assert condition["status"] == "True"
            assert "reason" not in condition
            assert condition["lastTransitionTime"] > "2026-01-01T00:01:00Z"
            assert api.count("Pod") == {"Pod/status": 3}

    async def test_stale_conditions_are_unknown_without_recorded_states(self, api: FakeApi) -> None:
        async with reported(api, state_wire(probed="2026-01-01T00:00:05Z")):
            api.remove(NODE_POD_PROBES, "node-1")
            await settle(60)
            labels, annotations, conditions = shown(api)
            assert (labels, annotations) == ({"healthy": "true"}, {"cost": "10"})
            condition = conditions["example.com/healthy"]
            assert (condition["status"], condition["reason"]) == ("Unknown", "ProbeDaemonStale")
        before = len(api.writes)
        async with running_manager(api):
            await settle(70)
            assert api.count(since=before) == {}
            api.put(LEASES, lease_wire(renewed=format_micro_time(loop_clock())))
            await settle()
            assert api.count("Pod", since=before) == {}
            report(api, state_wire(probed="2026-01-01T00:02:30Z"))
            await settle()
            condition = shown(api)[2]["example.com/healthy"]
            assert (condition["status"], condition.get("reason")) == ("True", None)

    async def test_renewals_in_time_write_nothing(self, api: FakeApi) -> None:
        async with reported(api, state_wire(probed="2026-01-01T00:00:05Z")):
            before, reconciled = len(api.writes), reconciles()
            for second in range(10, 300, 10):
                api.put(
                    LEASES, lease_wire(renewed=f"2026-01-01T00:{second // 60:02}:{second % 60:02}Z")
                )
                await settle(10)
            assert api.count(since=before) == {}
            assert reconciles() == reconciled

    @pytest.mark.parametrize(
        ("renewed", "probed", "change"),
        [
            pytest.param(
                "2026-01-01T00:00:00Z",
                "2025-12-31T22:59:00Z",
                lambda api: api.put(LEASES, lease_wire(renewed="2025-12-31T23:00:00Z")),
                id="the-lease-is-set-back",
            ),
            pytest.param(
                "2026-01-01T00:00:00Z",
                "2025-12-31T22:59:00Z",
                lambda api: api.put(LEASES, lease_wire(seconds=1)),
                id="the-lease-is-shortened",
            ),
            pytest.param(
                "2026-01-01T02:00:00Z", "2026-01-01T02:00:05Z", None, id="its-clock-is-ahead"
            ),
            pytest.param(
                "2026-01-01T00:00:00Z",
                "2026-01-01T01:00:00Z",
                None,
                id="its-result-is-of-our-future",
            ),
            pytest.param(
                "2025-12-31T23:00:00Z",
                "2026-01-01T00:00:03Z",
                lambda api: api.remove(NODE_POD_PROBES, "node-1"),
                id="a-newer-result-goes-with-the-object",
            ),
            pytest.param(
                "2025-12-31T23:00:00Z",
                "2026-01-01T00:00:03Z",
                lambda api: api.publish(),
                id="a-newer-result-leaves-the-status",
            ),
            pytest.param(
                "2025-12-31T23:00:00Z",
                "2026-01-01T00:00:03Z",
                lambda api: report(api, state_wire(probed="2025-12-31T23:00:05Z")),
                id="a-newer-result-is-set-back",
            ),
        ],
    )
    async def test_a_daemon_without_renewals_becomes_stale_also_if(
        self, api: FakeApi, renewed: str, probed: str, change: Callable[[FakeApi], None] | None
    ) -> None:
        api.put(LEASES, lease_wire(renewed=renewed))
        async with reported(api, state_wire(probed=probed)):
            if change is not None:
                change(api)
            await settle(1)
            assert shown(api)[2]["example.com/healthy"]["status"] == "True"
            await settle(70 if change is None else 20)
            assert shown(api)[2]["example.com/healthy"]["reason"] == "ProbeDaemonStale"

    async def test_a_lease_that_became_malformed_expires_and_is_read_once(
        self, api: FakeApi, reader: FakeGetter
    ) -> None:
        read: list[NamespacedName] = []
        reader.before = read.append
        async with reported(api, state_wire(probed="2026-01-01T00:00:05Z"), reader=reader):
            api.put(LEASES, lease_wire(renewed="soon"))
            await settle(60)
            assert shown(api)[2]["example.com/healthy"]["reason"] == "ProbeDaemonStale"
        assert len(read) == 1

    async def test_a_silent_watch_of_leases_makes_no_daemon_stale(self, api: FakeApi) -> None:
        """But a daemon that stops meanwhile becomes stale in time."""
        async with reported(api, state_wire(probed="2026-01-01T00:00:05Z")):
            before = len(api.writes)
            api.sources["leases"].hold()
            for _ in range(20):
                await settle(10)
                renew(api)
                api.edit(PODS, "web-0", {"metadata": {"labels": {"looked": str(loop_clock())}}})
            assert api.count(since=before) == {}
            await settle(125)  # each read of a Lease counts as a renewal
            assert shown(api)[2]["example.com/healthy"]["reason"] == "ProbeDaemonStale"

    @pytest.mark.parametrize("away", ["reads", "hanging-reads", "watches"])
    async def test_after_an_outage_daemons_have_time_to_renew_their_leases(
        self, api: FakeApi, reader: FakeGetter, away: str
    ) -> None:
        refuse = raising(ConnectionFailed("no connection"))
        api.put(LEASES, lease_wire("node-2"))
        async with reported(api, state_wire(probed="2026-01-01T00:00:05Z"), reader=reader):
            before = len(api.writes)
            leases = api.sources["leases"]
            if away == "reads":
                leases.hold()
                reader.before = refuse
            elif away == "hanging-reads":
                leases.hold()
                reader.latency_seconds = 3600.0
            else:
                leases.on_list = leases.on_watch = refuse
                leases.drop_watches()
            for _ in range(20):
                await settle(5)
                api.edit(PODS, "web-0", {"metadata": {"labels": {"looked": str(loop_clock())}}})
            reader.before, reader.latency_seconds = lambda _: None, 0.0
            leases.on_list = leases.on_watch = lambda: None
            await settle(20)
            renew(api)
            await settle(40)
            assert api.count("Pod", since=before) == {}
            await settle(60)
            assert shown(api)[2]["example.com/healthy"]["reason"] == "ProbeDaemonStale"

    async def test_marks_without_an_owner_go_while_the_lease_cannot_be_read(
        self, api: FakeApi, reader: FakeGetter
    ) -> None:
        async with reported(api, state_wire(probed="2026-01-01T00:00:05Z"), reader=reader):
            reader.before = raising(ConnectionFailed("no connection"))
            await settle(60)
            api.edit(PODS, "web-0", {"metadata": {"labels": {"app": "other"}}})
            await settle()
            assert shown(api) == ({}, {}, {})

    async def test_a_result_that_waits_for_a_lease_stays_a_change_of_state(
        self, api: FakeApi, reader: FakeGetter
    ) -> None:
        """Its latency is measured, and it has no limit of writes."""
        reader.before = raising(ConnectionFailed("no connection"))
        async with settled_manager(api, reader=reader):
            report(api, state_wire(probed="2026-01-01T00:00:05Z"))
            await settle(60)
            report(api, state_wire(state="Failed", probed="2026-01-01T00:00:30Z"))
            await settle(1)
            assert shown(api)[2]["example.com/healthy"]["status"] == "True"
            before = metric(f"{LATENCY}_count")
            renew(api)
            await settle(1)
            assert shown(api)[2]["example.com/healthy"]["status"] == "False"
            assert metric(f"{LATENCY}_count") == before + 1

    async def test_a_resync_is_no_read_of_a_lease(self, api: FakeApi, reader: FakeGetter) -> None:
        reader.before = raising(ConnectionFailed("no connection"))
        async with settled_manager(api, reader=reader, resync_seconds=100):
            report(api, state_wire(probed="2026-01-01T00:00:05Z"))
            await settle(150)
            assert shown(api)[2]["example.com/healthy"]["status"] == "True"

    async def test_a_manager_that_starts_after_an_outage_gives_daemons_time(
        self, api: FakeApi
    ) -> None:
        failures = iter(range(3))

        def refuse_at_first() -> None:
            if next(failures, None) is not None:
                raise ConnectionFailed("no connection")

        api.sources["leases"].on_watch = refuse_at_first
        api.put(LEASES, lease_wire(renewed="2025-12-31T23:00:00Z"))
        async with settled_manager(api):
            report(api, state_wire(probed="2025-12-31T23:00:00Z"))
            await settle(10)
            assert shown(api)[2] == {}
            renew(api)
            await settle()
            assert shown(api)[2]["example.com/healthy"]["status"] == "True"

    async def test_a_renewal_after_the_expiry_sets_another_timer(self, api: FakeApi) -> None:
        """Kruise's daemon ran beside the Lease of ours."""
        async with running_manager(api):
            await settle(70)
            report(api, state_wire(probed="2026-01-01T00:01:05Z"))
            await settle()
            assert shown(api)[2]["example.com/healthy"]["status"] == "True"
            renew(api)
            await settle(65)
            assert shown(api)[2]["example.com/healthy"]["reason"] == "ProbeDaemonStale"

    async def test_a_lease_that_is_gone_while_its_watch_is_silent_is_forgotten(
        self, api: FakeApi
    ) -> None:
        async with reported(api, state_wire(probed="2026-01-01T00:00:05Z")):
            api.sources["leases"].hold()
            api.remove(LEASES, daemon_lease_name("node-1"), "kruise-system")
            await settle(70)
            report(api, state_wire(state="Failed", probed="2026-01-01T00:00:30Z"))
            await settle()
            assert shown(api)[2]["example.com/healthy"]["status"] == "False"

    async def test_a_renewal_that_arrives_during_the_read_of_a_lease_counts(
        self, api: FakeApi, reader: FakeGetter
    ) -> None:
        reader.latency_seconds = 1.0
        async with settled_manager(api, reader=reader):
            report(api, state_wire(probed="2026-01-01T00:00:05Z"))
            await settle(56.5)
            before = len(api.writes)
            renew(api)
            await settle(30)
            assert api.count("Pod", since=before) == {}

    async def test_the_daemon_of_a_deleted_node_is_no_longer_counted(self, api: FakeApi) -> None:
        """Nobody deletes the Lease of its daemon."""
        async with running_manager(api):
            await settle(70)
            assert metric("kruise_probe_daemons_stale") == 1
            api.remove(NODES, "node-1")
            await settle(1)
            assert metric("kruise_probe_daemons_stale") == 0
            api.put(NODES, node_wire(uid="another"))
            await settle(1)
            assert metric("kruise_probe_daemons_stale") == 1

    async def test_a_daemon_without_a_lease_is_never_stale(self, api: FakeApi) -> None:
        api.remove(LEASES, daemon_lease_name("node-1"), "kruise-system")
        async with settled_manager(api):
            report(api, state_wire())
            await settle(3600)
            assert shown(api)[2]["example.com/healthy"]["status"] == "True"

    @pytest.mark.parametrize("seconds", [-3600, 120], ids=["back", "forward"])
    async def test_a_step_of_our_clock_makes_no_daemon_stale(
        self, api: FakeApi, seconds: int
    ) -> None:
        step = timedelta()
        async with reported(
            api, state_wire(probed="2026-01-01T00:00:05Z"), now=lambda: loop_clock() + step
        ):
            before = len(api.writes)
            step = timedelta(seconds=seconds)
            for _ in range(12):
                renew(api)
                await settle(10)
            assert api.count("Pod", since=before) == {}

    @pytest.mark.parametrize(
        "stamp",
        [
            pytest.param("2025-12-31T23:58:30Z", id="90-s-behind"),
            pytest.param("2025-12-31T22:00:00Z", id="two-hours-behind"),
        ],
    )
    async def test_a_clock_that_is_behind_makes_no_daemon_stale_at_the_start(
        self, api: FakeApi, stamp: str
    ) -> None:
        """The daemon renews its Lease each 10 s, with the time of its node."""
        at = datetime.fromisoformat(stamp)
        api.put(LEASES, lease_wire(renewed=format_micro_time(at)))
        condition = condition_wire("example.com/healthy", "True", message="fine")
        api.put(
            PODS,
            pod_wire(
                labels={"app": "web", "healthy": "true"},
                annotations={"cost": "10"},
                conditions=[condition],
                owned=owned_fields(
                    labels=["healthy"], annotations=["cost"], conditions=["example.com/healthy"]
                ),
            ),
        )
        result = state_wire(message="fine", probed=stamp, probe_hash=HASH)
        api.put(NODE_POD_PROBES, npp_wire(statuses=[pod_status_wire(pod_wire(), result)]))
        async with running_manager(api):
            for _ in range(10):
                await settle(9.5)
                at += timedelta(seconds=10)
                api.put(LEASES, lease_wire(renewed=format_micro_time(at)))
        assert api.count("Pod") == {}

    async def test_a_result_with_a_hash_exempts_no_daemon(self, api: FakeApi) -> None:
        """A daemon that reports, and does not renew its Lease, is ours."""
        async with running_manager(api):
            await settle(65)
            report(api, state_wire(probed="2026-01-01T00:01:04Z", probe_hash=HASH))
            await settle()
            assert "True" not in str(shown(api)[2])


def _remove_policy(api: FakeApi) -> None:
    api.put(MARKERS, marker_wire(probes=[probe_wire(name="another", condition="example.com/b")]))


class TestEmptiedManagedFields:
    """Nothing on the pod shows that we wrote its marks: a webhook or a user emptied `managedFields`."""

    @pytest.fixture
    def api(self, api: FakeApi) -> FakeApi:
        types = ["example.com/healthy", "example.com/users"]
        labels = {"app": "web", "healthy": "true", "own": "true"}
        wire = pod_wire(
            labels=labels,
            annotations={"cost": "10"},
            conditions=[condition_wire(each) for each in types],
        )
        api.put(PODS, wire)
        result = state_wire(probed="2026-01-01T00:00:01Z")
        api.put(NODE_POD_PROBES, npp_wire(statuses=[pod_status_wire(wire, result)]))
        return api

    @pytest.mark.parametrize(
        "end",
        [
            pytest.param(lambda api: api.remove(MARKERS, "web"), id="marker-deleted"),
            pytest.param(_remove_policy, id="probe-removed"),
            pytest.param(
                lambda api: api.edit(PODS, "web-0", {"metadata": {"labels": {"app": "x"}}}),
                id="no-longer-selected",
            ),
        ],
    )
    async def test_marks_that_nobody_owns_are_removed_when_the_intent_ends(
        self, api: FakeApi, end: Callable[[FakeApi], None]
    ) -> None:
        async with settled_manager(api):
            end(api)
            await settle(15)
        labels, annotations, conditions = shown(api)
        assert (labels, annotations) == ({"own": "true"}, {})
        assert "example.com/healthy" not in conditions
        assert "example.com/users" in conditions

    async def test_marks_are_removed_if_the_marker_was_deleted_while_no_manager_ran(
        self, api: FakeApi
    ) -> None:
        async with settled_manager(api):
            pass
        api.remove(MARKERS, "web")
        async with running_manager(api):
            await settle(15)
        assert shown(api)[:2] == ({"own": "true"}, {})
        assert api.get(MARKERS, "web") is None

    async def test_values_that_another_manager_owns_stay(self, api: FakeApi) -> None:
        wire = deepcopy(api.get(PODS, "web-0"))
        assert wire is not None
        users = owned_fields(labels=["healthy"], annotations=["cost"])
        wire["metadata"]["managedFields"] = [users | {"manager": "kubectl", "subresource": ""}]
        api.put(PODS, wire)
        async with settled_manager(api):
            api.remove(MARKERS, "web")
            await settle(15)
        assert shown(api)[:2] == ({"healthy": "true", "own": "true"}, {"cost": "10"})


class TestServerless:
    @pytest.fixture
    def api(self, api: FakeApi) -> FakeApi:
        api.put(NODES, node_wire(labels={"type": "virtual-kubelet"}))
        return api

    def provider_reports(self, api: FakeApi, status: str, message: str = "") -> None:
        condition = condition_wire("example.com/healthy", status) | {"message": message}
        api.edit(PODS, "web-0", {"status": {"conditions": [condition]}}, manager="provider")

    async def test_policies_follow_the_providers_conditions_both_ways(self, api: FakeApi) -> None:
        async with settled_manager(api, serverless=True):
            for status, labels in (
                ("True", {"healthy": "true"}),
                ("False", {"sick": "true"}),
                ("Unknown", {"sick": "true"}),
                ("True", {"healthy": "true"}),
            ):
                self.provider_reports(api, status)
                await settle()
                assert shown(api)[0] == labels
        assert api.get(NODE_POD_PROBES, "node-1") is None
        bodies = [each.body for each in api.writes if each.kind == "Pod"]
        assert all("status" not in body for body in bodies)

    async def test_the_marker_counts_the_providers_states_and_waits_for_no_entry(
        self, api: FakeApi
    ) -> None:
        async with settled_manager(api, serverless=True):
            self.provider_reports(api, "True")
            await settle()
            marker = api.read(MARKERS, "web")
            assert (marker["status"]["succeeded"], marker["status"]["nodesBehind"]) == (1, 0)

    async def test_every_new_state_of_a_provider_is_applied_at_once(self, api: FakeApi) -> None:
        async with settled_manager(api, serverless=True):
            for number in range(40):
                status, label = (("True", "healthy"), ("False", "sick"))[number % 2]
                self.provider_reports(api, status)
                await settle(0.1)
                assert shown(api)[0] == {label: "true"}

    async def test_messages_of_a_provider_are_normalised_and_have_the_limit_of_messages(
        self, api: FakeApi
    ) -> None:
        policy = policy_wire("Succeeded", from_message=[{"annotation": "line", "regex": "^n.*$"}])
        api.put(MARKERS, marker_wire(probes=[probe_wire(policies=[policy])]))
        async with settled_manager(api, serverless=True):
            self.provider_reports(api, "True", "n0\n")
            await settle()
            assert shown(api)[1] == {"line": "n0"}
            before = len(api.writes)
            for number in range(1, 20):
                self.provider_reports(api, "True", f"n{number}\n")
                await settle(0.3)
            assert api.count("Pod", since=before)["Pod/status"] <= 4
            await settle(11)
            assert shown(api)[1] == {"line": "n19"}

    async def test_a_marker_without_a_place_in_the_annotations_is_degraded(
        self, api: FakeApi
    ) -> None:
        full = {"kruise.io/podprobemarker-list": "other", "kruise.io/podprobe": "x" * 262_080}
        api.put(PODS, pod_wire(annotations=full))
        async with settled_manager(api, serverless=True):
            pass
        marker = api.read(MARKERS, "web")
        assert "AnnotationsFull" in {each["reason"] for each in marker["status"]["conditions"]}

    async def test_without_the_gate_nothing_is_written(self, api: FakeApi) -> None:
        async with settled_manager(api, serverless=False):
            self.provider_reports(api, "True")
            await settle()
        assert api.count("Pod") == {}


async def test_stale_marks_of_an_earlier_manager_are_removed_at_the_start(api: FakeApi) -> None:
    api.put(
        PODS,
        pod_wire(
            "old-0",
            labels={"app": "gone", "left": "1", "users": "1"},
            annotations={"cost": "5"},
            conditions=[condition_wire("example.com/left"), condition_wire("example.com/users")],
            owned=owned_fields(
                labels=["left"], annotations=["cost"], conditions=["example.com/left"]
            ),
        ),
    )
    api.put(NODE_POD_PROBES, npp_wire())
    async with settled_manager(api):
        pass
    wire = api.read(PODS, "old-0")
    assert wire["metadata"]["labels"] == {"app": "gone", "users": "1"}
    assert wire["metadata"]["annotations"] == {}
    types = {each["type"] for each in wire["status"]["conditions"]}
    assert types == {"Initialized", "example.com/users"}
