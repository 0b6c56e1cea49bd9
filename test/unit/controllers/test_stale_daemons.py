"""Daemons that do not renew their Leases. The whole product over a fake API server."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from support.builders import entry_of, lease_wire, pod_status_wire, pod_wire, state_wire
from support.cases import cases
from support.fake_source import raising
from support.metrics import counted, metric
from support.running_manager import loop_clock, running_manager, settle
from support.scene import BARE, MARKED, C, Scene
from support.wire import Json

from kruise_probe.api.core import ExecAction, Probe
from kruise_probe.api.errors import ConnectionFailed
from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.names import daemon_lease_name
from kruise_probe.api.resources import LEASES, NODE_POD_PROBES, NODES, PODS
from kruise_probe.api.times import format_time


def probed(at: str = "00:00:05", state: str = "Succeeded", **more: str) -> Json:
    """A result of this time of the first day."""
    return state_wire(state=state, probed=f"2026-01-01T{at}Z", **more)


STALE = ("Unknown", "ProbeDaemonStale")
FRESH = ("True", "")
EARLY, LATE = "2025-12-31T23:00:00Z", "2025-12-31T22:59:00Z"
NOW, SOON = "2026-01-01T00:00:00Z", "2026-01-01T00:00:03Z"
SET_BACK = pod_status_wire(pod_wire(), state_wire(probed="2025-12-31T23:00:05Z"))
HASH = entry_of(Probe(exec=ExecAction(("true",)))).hash
UNREACHABLE = raising(ConnectionFailed("no connection"))


@pytest.fixture
def api(api: Scene) -> Scene:
    api.put(LEASES, lease_wire())
    return api


async def test_stale_conditions_are_unknown_marks_stay_and_both_recover(api: Scene) -> None:
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


async def test_stale_conditions_are_unknown_without_recorded_states(api: Scene) -> None:
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


async def test_renewals_in_time_write_nothing(api: Scene) -> None:
    async with api.running(probed()):
        before = len(api.writes)
        reconciled = counted(
            "controller_runtime_reconcile_total", controller="podmarks", result="success"
        )
        for _ in range(29):
            api.renew()
            await settle(10)
        assert api.count(since=before) == {}
        assert reconciled() == 0


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
    api: Scene, renewed: str, at: str, change: Callable[[Scene], None] | None
) -> None:
    api.put(LEASES, lease_wire(renewed=renewed))
    async with api.running(state_wire(probed=at)):
        if change is not None:
            change(api)
        await settle(1)
        assert api.condition() == FRESH
        await settle(70 if change is None else 20)
        assert api.condition() == STALE


async def test_a_lease_that_became_malformed_expires_and_is_read_once(api: Scene) -> None:
    read: list[NamespacedName] = []
    api.before_read = read.append
    async with api.running(probed()):
        api.put(LEASES, lease_wire(renewed="soon"))
        await settle(60)
        assert api.condition() == STALE
    assert len(read) == 1


async def test_a_silent_watch_of_leases_makes_no_daemon_stale(api: Scene) -> None:
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
    api: Scene, away: str
) -> None:
    api.put(LEASES, lease_wire("node-2"))
    async with api.running(probed()):
        before = len(api.writes)
        leases = api.sources["leases"]
        if away == "watches":
            leases.on_list = leases.on_watch = UNREACHABLE
            leases.drop_watches()
        else:
            leases.hold()
        if away == "reads":
            api.before_read = UNREACHABLE
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


async def test_marks_without_an_owner_go_while_the_lease_cannot_be_read(api: Scene) -> None:
    async with api.running(probed()):
        api.before_read = UNREACHABLE
        await settle(60)
        await api.relabel(app="other")
        assert api.marks() == BARE


async def test_a_result_that_waits_for_a_lease_stays_a_change_of_state(api: Scene) -> None:
    """Its latency is measured, and it has no limit of writes."""
    api.before_read = UNREACHABLE
    async with api.running(probed()):
        await settle(60)
        await api.report(probed("00:00:30", "Failed"), seconds=1)
        assert api.condition() == FRESH
        measured = counted("kruise_probe_result_to_condition_seconds_count")
        api.renew()
        await settle(1)
        assert api.condition() == ("False", "")
        assert measured() == 1


async def test_a_resync_is_no_read_of_a_lease(api: Scene) -> None:
    api.before_read = UNREACHABLE
    async with api.running(probed(), resync_seconds=100):
        await settle(150)
        assert api.condition() == FRESH


async def test_a_manager_that_starts_after_an_outage_gives_daemons_time(api: Scene) -> None:
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


async def test_a_renewal_after_the_expiry_sets_another_timer(api: Scene) -> None:
    """Kruise's daemon ran beside the Lease of ours."""
    async with running_manager(api):
        await settle(70)
        await api.report(probed("00:01:05"))
        assert api.condition() == FRESH
        api.renew()
        await settle(65)
        assert api.condition() == STALE


async def test_a_lease_that_is_gone_while_its_watch_is_silent_is_forgotten(api: Scene) -> None:
    async with api.running(probed()):
        api.sources["leases"].hold()
        api.remove(LEASES, daemon_lease_name("node-1"), "kruise-system")
        await settle(70)
        await api.report(probed("00:00:30", "Failed"))
        assert api.condition() == ("False", "")


async def test_a_renewal_that_arrives_during_the_read_of_a_lease_counts(api: Scene) -> None:
    api.read_seconds = 1.0
    async with api.running():
        await api.report(probed(), seconds=56.5)
        before = len(api.writes)
        api.renew()
        await settle(30)
        assert api.count("Pod", since=before) == {}


async def test_the_daemon_of_a_deleted_node_is_no_longer_counted(api: Scene) -> None:
    """Nobody deletes the Lease of its daemon."""
    async with running_manager(api):
        await settle(70)
        assert metric("kruise_probe_daemons_stale") == 1
        await api.drop(NODES, "node-1", seconds=1)
        assert metric("kruise_probe_daemons_stale") == 0
        api.put_node("node-1", uid="another")
        await settle(1)
        assert metric("kruise_probe_daemons_stale") == 1


async def test_a_daemon_without_a_lease_is_never_stale(api: Scene) -> None:
    api.remove(LEASES, daemon_lease_name("node-1"), "kruise-system")
    async with api.running(state_wire()):
        await settle(3600)
        assert api.condition() == FRESH


@cases("seconds", back=-3600, forward=120)
async def test_a_step_of_our_clock_makes_no_daemon_stale(api: Scene, seconds: int) -> None:
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
    api: Scene, behind_seconds: float
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


async def test_a_result_with_a_hash_exempts_no_daemon(api: Scene) -> None:
    """A daemon that reports, and does not renew its Lease, is ours."""
    async with running_manager(api):
        await settle(65)
        await api.report(probed("00:01:04", probe_hash=HASH))
        assert api.condition()[0] != "True"


async def test_a_standby_that_becomes_the_leader_writes_no_stale_result(api: Scene) -> None:
    """It saw the Lease while it was fresh, and has decided nothing since."""
    pods = [f"web-{number}" for number in range(6)]
    for number, name in enumerate(pods):
        api.put_node(f"node-{number}", name)
        api.put(LEASES, lease_wire(f"node-{number}"))
    async with api.running(), running_manager(api, follows_seconds=100):
        for name in pods:
            await api.report(probed(), pod=name, seconds=0)
        await settle(90)
        assert {api.condition(pod=name) for name in pods} == {STALE}
        api.read_seconds = 1.0  # Four workers read the Leases.
        before = len(api.writes)
        await settle(40)
    assert api.count(since=before) == {}


async def test_a_standby_queues_no_pod_and_writes_every_one_as_the_leader(api: Scene) -> None:
    """A standby may see pods come and go for weeks. The Lease is deleted, so only the resync decides on the node."""
    api.put(LEASES, lease_wire(renewed=EARLY))
    await api.run()
    async with running_manager(api, follows_seconds=100):
        await api.report(probed())
        api.remove(LEASES, daemon_lease_name("node-1"), "kruise-system")
        await api.drop(PODS, "web-0", seconds=80)
        api.put(PODS, pod_wire())
        await settle(10)
        assert metric("workqueue_adds_total", name="podmarks", controller="podmarks") == 0
        await settle(20)
        assert api.condition() == FRESH
