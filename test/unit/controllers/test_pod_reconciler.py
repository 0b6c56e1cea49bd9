"""Results are written to pods once, and removed when they no longer apply. The whole product over a fake API server."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest
from support.builders import (
    condition_wire,
    entry_of,
    lease_wire,
    node_wire,
    npp_wire,
    owned_fields,
    pod_status_wire,
    pod_wire,
    policy_wire,
    probe_wire,
    state_wire,
)
from support.cases import cases
from support.fake_api import LATENCY_SECONDS, Write, refusing
from support.metrics import metric
from support.running_manager import loop_clock, running_manager, settle
from support.scene import Scene, scene
from support.wire import Json

from kruise_probe.api.core import ExecAction, GRPCAction, Probe, TCPSocketAction
from kruise_probe.api.errors import ConnectionFailed, Invalid, ServerError
from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.names import daemon_lease_name
from kruise_probe.api.resources import LEASES, MARKERS, NODE_POD_PROBES, NODES, PODS
from kruise_probe.api.times import format_time
from kruise_probe.controllers.pod_reconciler import CONTESTED_SECONDS

C = "example.com/healthy"
POLICIES = (
    policy_wire("Succeeded", {"healthy": "true"}, {"cost": "10"}),
    policy_wire("Failed", {"sick": "true"}),
)
MARKED = ({"healthy": "true"}, {"cost": "10"}, {C})
BARE: tuple[dict[str, str], dict[str, str], set[str]] = ({}, {}, set())
FAILED = state_wire(state="Failed")

APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
LATENCY = "kruise_probe_result_to_condition_seconds"
HASH = entry_of(Probe(exec=ExecAction(("true",)))).hash


@pytest.fixture
def api() -> Scene:
    """One node, one pod, one marker with a condition and two policies, and nothing planned yet."""
    return scene(*POLICIES)


def reconciles(result: str = "success") -> float:
    """Reconciles of pods so far."""
    return metric("controller_runtime_reconcile_total", controller="podmarks", result=result)


def raising(error: Exception) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise error

    return fail


async def test_result_of_another_handler_is_neither_written_nor_counted(api: Scene) -> None:
    async with api.running(state_wire(probe_hash="of another command")):
        assert (api.marks(), api.counts()) == (BARE, (1, 0, 0, 1, 0))
        await api.report(state_wire(probe_hash=HASH))
        assert (api.marks(), api.counts()) == (MARKED, (1, 1, 0, 0, 0))


async def test_result_counts_where_the_api_server_alters_the_probe(api: Scene) -> None:
    """The daemon reports the hash of the stored probe. The second result arrives while no manager runs."""

    def prune_mode(wire: Json) -> None:
        for entry in (wire.get("spec") or {}).get("podProbes", ()):
            entry["probes"][0]["probe"]["grpc"].pop("mode", None)

    api.prune = prune_mode
    api.put_marker(probe_wire(handler={"grpc": {"port": 80, "mode": "TLS"}}, policies=POLICIES))
    stored = entry_of(Probe(grpc=GRPCAction(port=80, service=""))).hash
    async with api.running(state_wire(probe_hash=stored)):
        assert (api.marks(), api.counts()) == (MARKED, (1, 1, 0, 0, 0))
    await api.report(state_wire(state="Failed", probe_hash=stored))
    async with api.running():
        assert (api.labels(), api.counts()) == ({"sick": "true"}, (1, 0, 1, 0, 0))


async def test_the_hash_of_a_named_port_is_that_of_its_number(api: Scene) -> None:
    container = {"name": "main", "ports": [{"name": "web", "containerPort": 80}]}
    api.put(PODS, pod_wire(containers=[container]))
    api.put_marker(probe_wire(handler={"tcpSocket": {"port": "web"}}, policies=POLICIES))
    numbered = entry_of(Probe(tcp_socket=TCPSocketAction(port=80))).hash
    async with api.running(state_wire(probe_hash=numbered)):
        assert (api.marks(), api.counts()) == (MARKED, (1, 1, 0, 0, 0))


async def test_the_opposite_state_removes_the_other_keys(api: Scene) -> None:
    async with api.running(state_wire()):
        await api.report(state_wire(state="Failed", moved="2026-01-01T00:02:00Z"))
        assert api.marks() == ({"sick": "true"}, {}, {C})
        assert api.condition() == ("False", "")
        assert api.conditions()[C]["lastTransitionTime"] == "2026-01-01T00:02:00Z"
        await api.report(state_wire(moved="2026-01-01T00:03:00Z"))
        assert api.marks() == MARKED
        assert api.count("Pod") == {"Pod/status": 3}


async def test_a_new_state_is_written_once_while_the_informer_lags(api: Scene) -> None:
    async with api.running():
        async with api.lagging(PODS):
            await api.report(state_wire(), seconds=0.5)
            for minute in (2, 3):
                again = state_wire(probed=f"2026-01-01T00:0{minute}:00Z", message="again")
                await api.report(again, seconds=0.2)
            for type in ("virtual-kubelet", None):
                await api.change(
                    NODES, "node-1", {"metadata": {"labels": {"type": type}}}, seconds=0
                )
            await settle(0.5)
        assert api.count("Pod") == {"Pod/status": 2}


async def test_probing_starts_and_ends_with_the_matching_label(api: Scene) -> None:
    api.edit(PODS, "web-0", {"metadata": {"labels": {"app": "other"}}})
    async with api.running():
        assert api.probes() == {}
        await api.relabel(app="web", seconds=1)
        await api.report(state_wire(), seconds=1)
        assert api.marks() == MARKED
        await api.relabel(app="other", seconds=1)
        assert (api.probes(), api.marks()) == ({}, BARE)


def succeeded(labels: dict[str, str]) -> Json:
    return probe_wire(policies=[policy_wire("Succeeded", labels)])


@cases(
    "edit marks",
    probe_removed=({"probes": []}, BARE),
    selector_edited=({"selector": {"matchLabels": {"app": "other"}}}, BARE),
    annotation_removed_from_the_policy=(
        {"probes": [succeeded({"healthy": "true"})]},
        ({"healthy": "true"}, {}, {C}),
    ),
    policy_edited=(
        {"probes": [succeeded({"healthy": "yes", "new": "1"})]},
        ({"healthy": "yes", "new": "1"}, {}, {C}),
    ),
    condition_type_renamed=(
        {"probes": [probe_wire(condition="c/other", policies=POLICIES)]},
        (*MARKED[:2], {"c/other"}),
    ),
    probe_renamed_keeps_marks_until_its_first_result=(
        {"probes": [probe_wire("renamed", policies=POLICIES)]},
        MARKED,
    ),
)
@cases("running", running=True, manager_was_down=False)
async def test_marks_follow_edits_of_the_marker(
    api: Scene, edit: Json, marks: object, running: bool
) -> None:
    async with api.running(state_wire()):
        if running:
            await api.change(MARKERS, "web", {"spec": edit})
    if not running:
        api.edit(MARKERS, "web", {"spec": edit})
        await api.run()
    assert api.marks() == marks


def latency() -> tuple[float, float]:
    """The number of changes so far, and their seconds from result to condition."""
    return metric(f"{LATENCY}_count"), metric(f"{LATENCY}_sum")


async def test_the_time_from_result_to_condition_is_observed_once_per_change(api: Scene) -> None:
    async with api.running():
        count, seconds = latency()
        await api.report(state_wire())
        await api.report(state_wire(probed="2026-01-01T00:09:00Z"))
        assert latency()[0] == count + 1
        assert latency()[1] - seconds == pytest.approx(LATENCY_SECONDS, abs=1e-6)


async def test_a_delayed_write_is_part_of_the_time_from_result_to_condition(api: Scene) -> None:
    async with api.running():
        for number in range(4):
            await api.report(state_wire(message=f"m{number}"), seconds=0.1)
        _, seconds = latency()
        await api.report(state_wire(message="the last but one"), seconds=7)
        await api.report(state_wire(message="the last"), seconds=4)
        assert api.conditions()[C]["message"] == "the last"
        assert latency()[1] - seconds > 5


async def test_a_retry_of_a_new_state_has_no_limit_of_writes(api: Scene) -> None:
    """A write that times out is retried with the same cause."""

    def hang(write: Write) -> None:
        if write.kind == "Pod":
            api.before = lambda write: None
            raise TimeoutError

    async with api.running(state_wire()):
        for _ in range(12):  # the bucket of other writes is empty
            await api.relabel(healthy=None, seconds=0.1)
        api.before = hang
        await api.report(FAILED, seconds=1)
        assert api.labels() == {"sick": "true"}


def edit_command(api: Scene, *others: Json) -> str:
    """Edit the command of the probe; returns the hash of its results."""
    command = ["true", "again"]
    api.put_marker(probe_wire(handler={"exec": {"command": command}}, policies=POLICIES), *others)
    return entry_of(Probe(exec=ExecAction(tuple(command)))).hash


FIRST = state_wire(probed="2026-01-01T00:00:01Z", probe_hash=HASH)


@cases(
    "leads second",
    leader=(True, 9),
    standby_as_its_leader_does=(False, 1),
)
async def test_the_first_result_of_an_edited_probe_writes_the_condition_once(
    api: Scene, leads: bool, second: int
) -> None:
    await api.run(FIRST)
    before = len(api.writes)
    async with api.running(leads=leads):
        edited = edit_command(api)
        await settle()
        for each in (9, 10, 11):
            stamp = f"2026-01-01T00:00:{each:02}Z"
            await api.report(state_wire(probed=stamp, probe_hash=edited))
    assert api.count("Pod", since=before) == ({"Pod/status": 1} if leads else {})
    assert api.conditions()[C]["lastProbeTime"] == f"2026-01-01T00:00:0{second}Z"


async def test_an_edited_probe_is_written_after_a_failure_and_a_result_of_another(
    api: Scene,
) -> None:
    other = probe_wire("other", condition="c/other")
    api.put_marker(probe_wire(policies=POLICIES), other)
    async with api.running(FIRST):
        edited = state_wire(probed="2026-01-01T00:00:09Z", probe_hash=edit_command(api, other))
        await settle()
        api.before = raising(ServerError("no"))
        await api.report(edited, seconds=1)
        await api.report(edited, state_wire("web#other", "Failed"), seconds=1)
        await api.recover()
    assert api.conditions()[C]["lastProbeTime"] == "2026-01-01T00:00:09Z"
    assert api.condition("c/other") == ("False", "")


@cases(
    "edit",
    label_removed={"labels": {"healthy": None}},
    label_edited={"labels": {"healthy": "no"}},
    annotation_edited={"annotations": {"cost": "99"}},
)
async def test_marks_that_others_change_are_written_again(api: Scene, edit: Json) -> None:
    async with api.running(state_wire()):
        await api.relabel(mine="1")
        await api.change(PODS, "web-0", {"metadata": edit})
        assert api.marks() == ({"healthy": "true", "mine": "1"}, {"cost": "10"}, {C})


@pytest.mark.parametrize("message", ["idle\n", "\n idle \r\n", "\x1b[32midle\x1b[0m\n"])
async def test_a_message_of_another_daemon_is_normalised_before_matching(
    api: Scene, message: str
) -> None:
    """Kruise's daemon publishes the output as it is."""
    values = [{"label": "role", "regex": "^[a-z]+$"}, {"annotation": "line"}]
    api.put_marker(probe_wire(policies=[policy_wire("Succeeded", from_message=values)]))
    await api.run(state_wire(message=message))
    assert api.marks() == ({"role": "idle"}, {"line": "idle"}, {C})


@cases(
    "deletes lost",
    label=(False, ("metadata", "labels")),
    deleted_condition=(True, ("status", "conditions")),
)
async def test_a_mark_that_the_response_lacks_is_written_again_after_a_second(
    api: Scene, deletes: bool, lost: tuple[str, str]
) -> None:
    """An admission webhook removes a field from our patch, so no event shows a change by others."""
    written: list[float] = []

    def lose(write: Write) -> None:
        if write.kind == "Pod":
            written.append(asyncio.get_running_loop().time())
            if len(written) == 1:
                del write.body[lost[0]][lost[1]]

    async with api.running(*[state_wire()] * deletes):
        api.before, before = lose, reconciles("requeue_after")
        if deletes:
            await api.change_probes(seconds=10)
        else:
            await api.report(state_wire(), seconds=10)
        assert api.marks() == (BARE if deletes else MARKED)
        assert reconciles("requeue_after") == before + 1
    first, second = written
    assert second - first == pytest.approx(CONTESTED_SECONDS + LATENCY_SECONDS, abs=0.001)


@cases(
    "policy",
    labels=policy_wire(labels={APPLIED: "x"}),
    annotations=policy_wire(annotations={APPLIED: "x"}),
)
async def test_a_key_that_kubectl_owns_causes_no_endless_writes_or_waits(
    api: Scene, policy: Json
) -> None:
    """A policy may not write this annotation, but an older marker may have it, and an older manager may have written it."""
    api.put_marker(probe_wire(policies=[policy]))
    api.put(PODS, pod_wire(annotations={APPLIED: "x"}, owned=owned_fields(annotations=[APPLIED])))
    async with api.running():
        await api.report(state_wire(), seconds=30)
        assert api.count("Pod") == {"Pod/status": 1}
        await api.drop(MARKERS, "web", seconds=30)
        assert api.find(MARKERS, "web") is None
        assert api.labels() == {}


async def test_a_pod_replaced_under_its_name_never_gets_the_old_marks(api: Scene) -> None:
    async with api.running():
        async with api.lagging(PODS):
            await api.report(state_wire(), seconds=0)
            api.remove(PODS, "web-0")
            api.put(PODS, pod_wire(uid="another"))
            await settle(0.5)
        assert api.marks() == BARE
        assert api.count("Pod") == {"Pod/status": 1}


async def test_results_of_another_pod_are_ignored(api: Scene) -> None:
    """With the uid of one pod and the name of another; beside the pod's own, and alone."""
    own = pod_status_wire(pod_wire(), state_wire())
    strange = {**pod_status_wire(pod_wire(), FAILED), "name": "web-1"}
    for statuses, labels in (([strange], {}), ([own, strange], {"healthy": "true"})):
        async with api.running():
            api.publish(*statuses)
            await settle()
            assert api.labels() == labels
        before = len(api.writes)
        await api.run(seconds=700)
        assert api.count(since=before) == {}
        assert api.status()["succeeded"] == len(labels)


@pytest.mark.parametrize("whole_pod", [False, True])
async def test_a_removed_state_is_no_longer_counted(api: Scene, whole_pod: bool) -> None:
    api.put_marker(probe_wire(condition="x.com/b"), name="other")
    async with api.running(state_wire(), state_wire("other#healthy", "Failed")):
        assert api.status("other")["failed"] == 1
        if whole_pod:
            api.publish()
            await settle()
        else:
            await api.report(state_wire())
        assert api.status("other")["failed"] == 0


async def test_a_failing_pod_delays_no_other(api: Scene) -> None:
    api.put(PODS, pod_wire("web-1"))
    async with api.running():
        api.before = refusing(ServerError("no"), name="web-0")
        api.publish(*(pod_status_wire(pod_wire(f"web-{n}"), state_wire()) for n in range(2)))
        await settle(0.2)
        assert (api.marks("web-0"), api.marks("web-1")) == (BARE, MARKED)
        await api.recover()
        assert api.marks("web-0") == MARKED


class TestAValueThatTheServerRefuses:
    """Of two markers on one pod, `bad` writes it; `web` writes a condition, a label and an annotation."""

    BOTH = (state_wire("bad#healthy"), state_wire())

    @pytest.fixture
    def api(self, api: Scene) -> Scene:
        probe = probe_wire(condition="c/bad", policies=[policy_wire(annotations={"worse": "low"})])
        api.put_marker(probe, name="bad", created="2025-01-01T00:00:00Z")

        def refuse(write: Write) -> None:
            if "worse" in write.body.get("metadata", {}).get("annotations", {}):
                raise Invalid('metadata.annotations[worse]: Invalid value: "low"', code=422)

        api.before = refuse
        return api

    async def test_a_refused_value_affects_its_own_marker_only(self, api: Scene) -> None:
        errors = "controller_runtime_reconcile_errors_total"
        async with api.running():
            before, (measured, _) = metric(errors, controller="podmarks"), latency()
            await api.report(*self.BOTH, seconds=CONTESTED_SECONDS / 2)
            assert api.marks() == (*MARKED[:2], {C, "c/bad"})
            assert api.condition("c/bad") == ("True", "")
            assert metric(errors, controller="podmarks") > before
            await settle(6)
            assert latency()[0] == measured + 1
            _, reason, message = api.says(marker="bad")
            assert reason == "PodNotMarked"
            assert '422 metadata.annotations[worse]: Invalid value: "low"' in message
            assert api.says()[1] == "AsExpected"
            await api.change_probes(probe_wire(condition="c/bad"), marker="bad", seconds=2)
            assert api.says(marker="bad")[1] == "AsExpected"

    async def test_a_refused_value_is_retried_with_backoff(self, api: Scene) -> None:
        async with api.running():
            await api.report(*self.BOTH, seconds=60)
            before, measured = len(api.writes), latency()[0]
            await settle(600)
            assert 1 <= api.count("Pod", since=before)["Pod/status"] <= 20
            await api.recover(seconds=2000)
            assert api.annotations() == {"cost": "10", "worse": "low"}
            assert latency()[0] == measured

    async def test_a_refused_value_does_not_keep_marks_of_a_deleted_marker(
        self, api: Scene
    ) -> None:
        async with api.running(state_wire()):
            await api.report(*self.BOTH, seconds=0)
            await api.drop(MARKERS, "web", seconds=10)
            assert api.find(MARKERS, "web") is None
            assert api.marks() == ({}, {}, {"c/bad"})

    async def test_a_failure_between_two_parts_is_retried(self, api: Scene) -> None:
        refuse = api.before

        def fail_once(write: Write) -> None:
            refuse(write)
            if api.count("Pod")["Pod/status"] == 2:
                raise ServerError("no")

        api.before = fail_once
        async with api.running():
            await api.report(*self.BOTH, seconds=5)
            assert api.marks() == (*MARKED[:2], {C, "c/bad"})

    async def test_a_pod_deleted_during_its_write_is_no_error(self, api: Scene) -> None:
        refuse = api.before

        def go(write: Write) -> None:
            refuse(write)
            if write.kind == "Pod":
                api.remove(PODS, "web-0")

        api.before = go
        async with api.running():
            await api.report(*self.BOTH, seconds=60)
            assert api.count("Pod") == {"Pod/status": 2}
            assert api.says(marker="bad")[1] == "AsExpected"


@cases(
    "change",
    not_initialised={"status": {"conditions": [condition_wire("Initialized", "False")]}},
    moved={"spec": {"nodeName": "node-2"}},
    node_deleted=None,
)
async def test_marks_stay_while_the_pod_is_not_probed_for_a_while(
    api: Scene, change: Json | None
) -> None:
    api.put_node("node-2")
    async with api.running(state_wire()):
        before = len(api.writes)
        if change is None:
            api.remove(NODES, "node-1")
        elif "spec" in change:
            wire = api.read(PODS, "web-0")
            api.put(PODS, wire | {"spec": wire["spec"] | change["spec"]})
        else:
            api.edit(PODS, "web-0", change)
        await settle()
        assert api.marks() == MARKED
        assert api.count("Pod", since=before) == {}
        npp = api.find(NODE_POD_PROBES, "node-1")
        assert npp is None or npp["spec"] == {}


@cases(
    "change",
    finished={"status": {"phase": "Succeeded"}},
    terminating={"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]}},
)
async def test_pods_that_have_ended_are_not_written(api: Scene, change: Json) -> None:
    api.edit(PODS, "web-0", change)
    await api.run(state_wire())
    assert api.marks() == BARE


async def test_a_static_pod_is_never_written(api: Scene) -> None:
    """Its kubelet owns its status; a result of it can only come from a NodePodProbe that was edited."""
    mirror = {"kubernetes.io/config.mirror": "x"}
    labels = {"app": "web", "healthy": "old"}
    api.put(
        PODS, pod_wire(annotations=mirror, labels=labels, owned=owned_fields(labels=["healthy"]))
    )
    async with api.running(state_wire()):
        await api.drop(MARKERS, "web")
    assert api.count("Pod") == {}


def probed(at: str = "00:00:05", state: str = "Succeeded", **more: str) -> Json:
    """A result of this time of the first day."""
    return state_wire(state=state, probed=f"2026-01-01T{at}Z", **more)


STALE = ("Unknown", "ProbeDaemonStale")
FRESH = ("True", "")


EARLY, LATE = "2025-12-31T23:00:00Z", "2025-12-31T22:59:00Z"
NOW, SOON = "2026-01-01T00:00:00Z", "2026-01-01T00:00:03Z"
SET_BACK = pod_status_wire(pod_wire(), state_wire(probed="2025-12-31T23:00:05Z"))


class TestSilentAgents:
    @pytest.fixture
    def api(self, api: Scene) -> Scene:
        api.put(LEASES, lease_wire())
        return api

    async def test_stale_conditions_are_unknown_marks_stay_and_both_recover(
        self, api: Scene
    ) -> None:
        async with api.running(probed(moved="2026-01-01T00:00:05Z")):
            await settle(60)
            assert (api.marks(), api.condition()) == (MARKED, STALE)
            assert "node-1" in api.conditions()[C]["message"]
            assert api.conditions()[C]["lastTransitionTime"] == "2026-01-01T00:01:00Z"
            assert metric("kruise_probe_daemons_stale") == 1

            api.put(LEASES, lease_wire(renewed="2026-01-01T00:01:08Z"))
            await settle(1)
            assert metric("kruise_probe_daemons_stale") == 0
            assert api.condition() == FRESH
            assert api.conditions()[C]["lastTransitionTime"] > "2026-01-01T00:01:00Z"
            assert api.count("Pod") == {"Pod/status": 3}

    async def test_stale_conditions_are_unknown_without_recorded_states(self, api: Scene) -> None:
        async with api.running(probed()):
            await api.drop(NODE_POD_PROBES, "node-1", seconds=60)
            assert (api.marks(), api.condition()) == (MARKED, STALE)
        before = len(api.writes)
        async with running_manager(api):
            await settle(70)
            assert api.count(since=before) == {}
            api.renew()
            await settle()
            assert api.count("Pod", since=before) == {}
            await api.report(probed("00:02:30"))
            assert api.condition() == FRESH

    async def test_renewals_in_time_write_nothing(self, api: Scene) -> None:
        async with api.running(probed()):
            before, reconciled = len(api.writes), reconciles()
            for _ in range(29):
                api.renew()
                await settle(10)
            assert api.count(since=before) == {}
            assert reconciles() == reconciled

    @cases(
        "renewed at change",
        the_lease_is_set_back=(NOW, LATE, lambda api: api.put(LEASES, lease_wire(renewed=EARLY))),
        the_lease_is_shortened=(NOW, LATE, lambda api: api.put(LEASES, lease_wire(seconds=1))),
        its_clock_is_ahead=("2026-01-01T02:00:00Z", "2026-01-01T02:00:05Z", None),
        its_result_is_of_our_future=(NOW, "2026-01-01T01:00:00Z", None),
        a_newer_result_goes_with_the_object=(EARLY, SOON, lambda api: api.remove(NODE_POD_PROBES, "node-1")),
        a_newer_result_leaves_the_status=(EARLY, SOON, lambda api: api.publish()),
        a_newer_result_is_set_back=(EARLY, SOON, lambda api: api.publish(SET_BACK)),
    )  # fmt: skip
    async def test_a_daemon_without_renewals_becomes_stale_also_if(
        self, api: Scene, renewed: str, at: str, change: Callable[[Scene], None] | None
    ) -> None:
        api.put(LEASES, lease_wire(renewed=renewed))
        async with api.running(state_wire(probed=at)):
            if change is not None:
                change(api)
            await settle(1)
            assert api.condition() == FRESH
            await settle(70 if change is None else 20)
            assert api.condition() == STALE

    async def test_a_lease_that_became_malformed_expires_and_is_read_once(self, api: Scene) -> None:
        read: list[NamespacedName] = []
        api.before_read = read.append
        async with api.running(probed()):
            api.put(LEASES, lease_wire(renewed="soon"))
            await settle(60)
            assert api.condition() == STALE
        assert len(read) == 1

    async def test_a_silent_watch_of_leases_makes_no_daemon_stale(self, api: Scene) -> None:
        """But a daemon that stops meanwhile becomes stale in time."""
        async with api.running(probed()):
            before = len(api.writes)
            api.sources["leases"].hold()
            for _ in range(20):
                await settle(10)
                api.renew()
                await api.relabel(looked=str(loop_clock()), seconds=0)
            assert api.count(since=before) == {}
            await settle(125)  # each read of a Lease counts as a renewal
            assert api.condition() == STALE

    @pytest.mark.parametrize("away", ["reads", "hanging-reads", "watches"])
    async def test_after_an_outage_daemons_have_time_to_renew_their_leases(
        self, api: Scene, away: str
    ) -> None:
        refuse = raising(ConnectionFailed("no connection"))
        api.put(LEASES, lease_wire("node-2"))
        async with api.running(probed()):
            before = len(api.writes)
            leases = api.sources["leases"]
            if away == "watches":
                leases.on_list = leases.on_watch = refuse
                leases.drop_watches()
            else:
                leases.hold()
            if away == "reads":
                api.before_read = refuse
            elif away == "hanging-reads":
                api.read_seconds = 3600.0
            for _ in range(20):
                await settle(5)
                await api.relabel(looked=str(loop_clock()), seconds=0)
            api.before_read, api.read_seconds = lambda _: None, 0.0
            leases.on_list = leases.on_watch = lambda: None
            await settle(20)
            api.renew()
            await settle(40)
            assert api.count("Pod", since=before) == {}
            await settle(60)
            assert api.condition() == STALE

    async def test_marks_without_an_owner_go_while_the_lease_cannot_be_read(
        self, api: Scene
    ) -> None:
        async with api.running(probed()):
            api.before_read = raising(ConnectionFailed("no connection"))
            await settle(60)
            await api.relabel(app="other")
            assert api.marks() == BARE

    async def test_a_result_that_waits_for_a_lease_stays_a_change_of_state(
        self, api: Scene
    ) -> None:
        """Its latency is measured, and it has no limit of writes."""
        api.before_read = raising(ConnectionFailed("no connection"))
        async with api.running(probed()):
            await settle(60)
            await api.report(probed("00:00:30", "Failed"), seconds=1)
            assert api.condition() == FRESH
            before = latency()[0]
            api.renew()
            await settle(1)
            assert api.condition() == ("False", "")
            assert latency()[0] == before + 1

    async def test_a_resync_is_no_read_of_a_lease(self, api: Scene) -> None:
        api.before_read = raising(ConnectionFailed("no connection"))
        async with api.running(probed(), resync_seconds=100):
            await settle(150)
            assert api.condition() == FRESH

    async def test_a_manager_that_starts_after_an_outage_gives_daemons_time(
        self, api: Scene
    ) -> None:
        failures = iter(range(3))

        def refuse_at_first() -> None:
            if next(failures, None) is not None:
                raise ConnectionFailed("no connection")

        api.sources["leases"].on_watch = refuse_at_first
        api.put(LEASES, lease_wire(renewed="2025-12-31T23:00:00Z"))
        async with api.running(state_wire(probed="2025-12-31T23:00:00Z")):
            await settle(6)
            assert api.conditions() == {}
            api.renew()
            await settle()
            assert api.condition() == FRESH

    async def test_a_renewal_after_the_expiry_sets_another_timer(self, api: Scene) -> None:
        """Kruise's daemon ran beside the Lease of ours."""
        async with running_manager(api):
            await settle(70)
            await api.report(probed("00:01:05"))
            assert api.condition() == FRESH
            api.renew()
            await settle(65)
            assert api.condition() == STALE

    async def test_a_lease_that_is_gone_while_its_watch_is_silent_is_forgotten(
        self, api: Scene
    ) -> None:
        async with api.running(probed()):
            api.sources["leases"].hold()
            api.remove(LEASES, daemon_lease_name("node-1"), "kruise-system")
            await settle(70)
            await api.report(probed("00:00:30", "Failed"))
            assert api.condition() == ("False", "")

    async def test_a_renewal_that_arrives_during_the_read_of_a_lease_counts(
        self, api: Scene
    ) -> None:
        api.read_seconds = 1.0
        async with api.running():
            await api.report(probed(), seconds=56.5)
            before = len(api.writes)
            api.renew()
            await settle(30)
            assert api.count("Pod", since=before) == {}

    async def test_the_daemon_of_a_deleted_node_is_no_longer_counted(self, api: Scene) -> None:
        """Nobody deletes the Lease of its daemon."""
        async with running_manager(api):
            await settle(70)
            assert metric("kruise_probe_daemons_stale") == 1
            await api.drop(NODES, "node-1", seconds=1)
            assert metric("kruise_probe_daemons_stale") == 0
            api.put_node("node-1", uid="another")
            await settle(1)
            assert metric("kruise_probe_daemons_stale") == 1

    async def test_a_daemon_without_a_lease_is_never_stale(self, api: Scene) -> None:
        api.remove(LEASES, daemon_lease_name("node-1"), "kruise-system")
        async with api.running(state_wire()):
            await settle(3600)
            assert api.condition() == FRESH

    @cases("seconds", back=-3600, forward=120)
    async def test_a_step_of_our_clock_makes_no_daemon_stale(
        self, api: Scene, seconds: int
    ) -> None:
        step = timedelta()
        async with api.running(probed(), now=lambda: loop_clock() + step):
            before = len(api.writes)
            step = timedelta(seconds=seconds)
            for _ in range(12):
                api.renew()
                await settle(10)
            assert api.count("Pod", since=before) == {}

    @pytest.mark.parametrize("behind_seconds", [90, 7200])
    async def test_a_clock_that_is_behind_makes_no_daemon_stale_at_the_start(
        self, api: Scene, behind_seconds: float
    ) -> None:
        """The daemon renews its Lease each 10 s, with the time of its node."""
        stamp = format_time(loop_clock() - timedelta(seconds=behind_seconds))
        await api.run(state_wire(probed=stamp, probe_hash=HASH))
        before = len(api.writes)
        async with running_manager(api):
            for _ in range(10):
                api.renew(ahead_seconds=-behind_seconds)
                await settle(10)
        assert api.count("Pod", since=before) == {}

    async def test_a_result_with_a_hash_exempts_no_daemon(self, api: Scene) -> None:
        """A daemon that reports, and does not renew its Lease, is ours."""
        async with running_manager(api):
            await settle(65)
            await api.report(probed("00:01:04", probe_hash=HASH))
            assert api.condition()[0] != "True"


class TestEmptiedManagedFields:
    """Nothing on the pod shows that we wrote its marks: a webhook or a user emptied `managedFields`."""

    @pytest.fixture
    def api(self, api: Scene) -> Scene:
        wire = pod_wire(
            labels={"app": "web", "healthy": "true", "own": "true"},
            annotations={"cost": "10"},
            conditions=[condition_wire(C), condition_wire("c/users")],
        )
        api.put(PODS, wire)
        api.put(NODE_POD_PROBES, npp_wire(statuses=[pod_status_wire(wire, probed("00:00:01"))]))
        return api

    @cases(
        "end",
        marker_deleted=lambda api: api.remove(MARKERS, "web"),
        probe_removed=lambda api: api.put_marker(probe_wire("another", condition="c/b")),
        no_longer_selected=lambda api: api.edit(
            PODS, "web-0", {"metadata": {"labels": {"app": "x"}}}
        ),
    )
    async def test_marks_that_nobody_owns_are_removed_when_the_intent_ends(
        self, api: Scene, end: Callable[[Scene], None]
    ) -> None:
        async with api.running():
            end(api)
            await settle(15)
        assert api.marks() == ({"own": "true"}, {}, {"c/users"})

    async def test_marks_are_removed_if_the_marker_was_deleted_while_no_manager_ran(
        self, api: Scene
    ) -> None:
        await api.run()
        api.remove(MARKERS, "web")
        await api.run(seconds=15)
        assert api.marks() == ({"own": "true"}, {}, {"c/users"})
        assert api.find(MARKERS, "web") is None

    async def test_values_that_another_manager_owns_stay(self, api: Scene) -> None:
        wire = api.read(PODS, "web-0")
        users = owned_fields(labels=["healthy"], annotations=["cost"])
        fields = [users | {"manager": "kubectl", "subresource": ""}]
        api.put(PODS, wire | {"metadata": wire["metadata"] | {"managedFields": fields}})
        async with api.running():
            await api.drop(MARKERS, "web", seconds=15)
        assert api.marks() == ({"healthy": "true", "own": "true"}, {"cost": "10"}, {"c/users"})


class TestServerless:
    @pytest.fixture
    def api(self, api: Scene) -> Scene:
        api.put(NODES, node_wire(labels={"type": "virtual-kubelet"}))
        return api

    async def test_policies_follow_the_providers_conditions_both_ways(self, api: Scene) -> None:
        async with api.running(serverless=True):
            for status, label in (
                ("True", "healthy"),
                ("False", "sick"),
                ("Unknown", "sick"),
                ("True", "healthy"),
            ):
                await api.provider_reports(status)
                assert api.labels() == {label: "true"}
            assert api.counts() == (1, 1, 0, 0, 0)
        assert api.find(NODE_POD_PROBES, "node-1") is None
        assert all("status" not in each.body for each in api.writes if each.kind == "Pod")

    async def test_every_new_state_of_a_provider_is_applied_at_once(self, api: Scene) -> None:
        async with api.running(serverless=True):
            for number in range(40):
                status, label = (("True", "healthy"), ("False", "sick"))[number % 2]
                await api.provider_reports(status, seconds=0.1)
                assert api.labels() == {label: "true"}

    async def test_messages_of_a_provider_are_normalised_and_have_the_limit_of_messages(
        self, api: Scene
    ) -> None:
        policy = policy_wire("Succeeded", from_message=[{"annotation": "line", "regex": "^n.*$"}])
        api.put_marker(probe_wire(policies=[policy]))
        async with api.running(serverless=True):
            await api.provider_reports("True", "n0\n")
            assert api.annotations() == {"line": "n0"}
            before = len(api.writes)
            for number in range(1, 20):
                await api.provider_reports("True", f"n{number}\n", seconds=0.3)
            assert api.count("Pod", since=before)["Pod/status"] <= 4
            await settle(11)
            assert api.annotations() == {"line": "n19"}

    async def test_a_marker_without_a_place_in_the_annotations_is_degraded(
        self, api: Scene
    ) -> None:
        full = {"kruise.io/podprobemarker-list": "other", "kruise.io/podprobe": "x" * 262_080}
        api.put(PODS, pod_wire(annotations=full))
        await api.run(serverless=True)
        assert api.says()[1] == "AnnotationsFull"

    async def test_without_the_gate_nothing_is_written(self, api: Scene) -> None:
        async with api.running(serverless=False):
            await api.provider_reports("True")
        assert api.count("Pod") == {}
