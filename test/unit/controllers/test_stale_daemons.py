"""Daemons that do not renew their Leases. The whole product over a fake API server."""

from datetime import timedelta

import pytest
from support.builders import pod_status_wire, pod_wire, state_wire
from support.cases import cases
from support.fake_source import raising
from support.metrics import counted, metric
from support.running_manager import loop_clock, running_manager, settle
from support.scene import BARE, MARKED, C, Scene
from support.wire import Json, decoded
from unit.controllers.common import (
    HASH,
    Action,
    Condition,
    assert_pod_writes,
    held_lease,
    labels_patch,
    no_writes,
    put_lease,
    put_pod,
    stamp,
    writes_since_now,
)

from kruise_probe.api.errors import ConnectionFailed
from kruise_probe.api.names import daemon_lease_name
from kruise_probe.api.resources import LEASES, NODE_POD_PROBES, NODES, PODS
from kruise_probe.api.times import format_time
from kruise_probe.controllers.daemon_leases import DaemonLeases


def probed(second: int = 5, **more: str) -> Json:
    """A result of this second."""
    return state_wire(probed=stamp(second), **more)


FRESH = ("True", "")
STALE = ("Unknown", "ProbeDaemonStale")
EARLY = "2025-12-31T23:00:00Z"
LEASE = daemon_lease_name("node-1")
UNREACHABLE = raising(ConnectionFailed("no connection"))


def stale_daemons() -> float:
    return metric("kruise_probe_daemons_stale")


def remove_lease(api: Scene) -> None:
    api.remove(LEASES, LEASE, "kruise-system")


async def assert_fresh_after(api: Scene, seconds: float) -> None:
    await settle(seconds)
    assert api.condition() == FRESH


async def assert_stale_after(api: Scene, seconds: float) -> None:
    await settle(seconds)
    assert api.condition() == STALE


async def look_repeatedly(api: Scene, count: int) -> None:
    """Relabels the pod every 5 s, so that the manager checks the daemon's Lease."""
    for _ in range(count):
        await settle(5)
        await api.relabel(
            looked=str(loop_clock()),
            seconds=0,
        )


async def renew_repeatedly(api: Scene, count: int) -> None:
    """Every 10 s."""
    for _ in range(count):
        api.renew()
        await settle(10)


@pytest.fixture
def api(api: Scene) -> Scene:
    put_lease(api)
    return api


async def test_stale_conditions_are_unknown_marks_stay_and_both_recover(api: Scene) -> None:
    async with api.running(probed(moved=stamp(5))):
        await assert_fresh_after(api, 55)
        await assert_stale_after(api, 9)
        assert api.marks() == MARKED
        condition = api.conditions()[C]
        assert "node-1" in condition["message"]
        assert condition["lastTransitionTime"] == stamp(64)
        assert stale_daemons() == 1

        put_lease(api, renewed=stamp(72))
        await settle(1)
        assert stale_daemons() == 0
        assert api.condition() == FRESH
        assert api.conditions()[C]["lastTransitionTime"] > stamp(64)
        assert_pod_writes(api, 3)


@cases("deleted", lease_stays=False, lease_is_deleted=True)
async def test_a_restarted_manager_still_knows_from_the_conditions_that_a_daemon_is_stale(
    api: Scene,
    deleted: bool,
) -> None:
    async with api.running(probed()):
        await assert_stale_after(api, 70)
    if deleted:
        remove_lease(api)
    pod_writes = writes_since_now(api, "Pod")
    async with running_manager(api):
        await settle(130)
        assert pod_writes() == {}
        assert stale_daemons() == 1
        api.renew()
        await assert_fresh_after(api, 4)


async def test_stale_conditions_are_unknown_without_recorded_states(api: Scene) -> None:
    async with api.running(probed()):
        await api.drop(NODE_POD_PROBES, "node-1", seconds=70)
        assert api.marks() == MARKED
        assert api.condition() == STALE
    before = len(api.writes)
    async with running_manager(api):
        await settle(70)
        assert api.count(since=before) == {}
        api.renew()
        await settle()
        assert api.count("Pod", since=before) == {}
        await api.report(probed(150))
        assert api.condition() == FRESH


async def test_renewals_in_time_write_nothing(api: Scene) -> None:
    """And no renewal but the first causes a reconcile."""
    total = "controller_runtime_reconcile_total"
    async with api.running(probed()):
        of_pods = counted(total, controller="podmarks", result="success")
        of_daemons = counted(total, controller="daemons", result="requeue_after")
        with no_writes(api):
            await renew_repeatedly(api, 29)
        assert of_pods() == 0
        assert of_daemons() <= 6


async def test_a_write_of_the_status_of_a_node_is_a_sign_of_life(api: Scene) -> None:
    async with api.running():
        for number in range(12):
            await api.report(
                probed(number, probe_hash=HASH),
                seconds=10,
            )
        assert api.condition() == FRESH
        await assert_stale_after(api, 55)


def label_lease(api: Scene) -> None:
    api.edit(
        LEASES,
        LEASE,
        labels_patch(a="b"),
        namespace="kruise-system",
    )


@cases(
    "change",
    lease_is_deleted=remove_lease,
    lease_is_labelled=label_lease,
    lease_is_shortened=lambda api: put_lease(api, seconds=1),
    node_pod_probe_is_labelled=lambda api: api.edit(
        NODE_POD_PROBES,
        "node-1",
        labels_patch(a="b"),
    ),
)
async def test_no_sign_of_life_is_that_a(api: Scene, change: Action) -> None:
    async with api.running(probed(probe_hash=HASH)):
        await settle(40)
        change(api)
        await assert_fresh_after(api, 15)
        await assert_stale_after(api, 10)


@cases("renewed", set_back=EARLY, ahead="2026-01-01T02:00:00Z", malformed="soon")
async def test_a_renewal_counts_from_when_it_is_seen_whatever_its_stamp(
    api: Scene,
    renewed: str,
) -> None:
    async with api.running(probed()):
        await settle(30)
        put_lease(api, renewed=renewed)
        await assert_fresh_after(api, 55)
        await assert_stale_after(api, 6)


RESULT_WITHOUT_HASH = pod_status_wire(pod_wire(), probed(120))


@cases(
    "sign condition",
    renewed=(lambda api: api.renew(), FRESH),
    as_it_was=(lambda api: put_lease(api), STALE),
    result_without_hash=(lambda api: api.publish(RESULT_WITHOUT_HASH), FRESH),
)
async def test_a_stale_daemon_without_its_lease_stays_stale_until(
    api: Scene,
    sign: Action,
    condition: Condition,
) -> None:
    async with api.running(probed()):
        await settle(70)
        remove_lease(api)
        await assert_stale_after(api, 600)
        sign(api)
        await settle()
        assert api.condition() == condition


@cases("result condition", without_hash=("", FRESH), with_hash=(HASH, STALE))
async def test_kruises_daemon_beside_an_expired_lease_of_ours_becomes_stale(
    api: Scene,
    result: str,
    condition: Condition,
) -> None:
    """Its results have no hash, and unchanged ones come every ten minutes only."""
    async with running_manager(api):
        await settle(70)
        await api.report(probed(65, probe_hash=result))
        assert api.condition() == FRESH
        await settle(300)
        assert api.condition() == condition
        api.renew()
        await assert_stale_after(api, 65)


@cases("deleted condition", the_lease_is_deleted=(True, FRESH), the_lease_stays=(False, STALE))
async def test_kruises_daemon_that_replaces_ours_is_never_stale_if(
    api: Scene,
    deleted: bool,
    condition: Condition,
) -> None:
    """Its first results arrive before our Lease expires."""
    async with api.running(probed(probe_hash=HASH)):
        await api.report(probed(20))
        if deleted:
            remove_lease(api)
        await settle(300)
        assert api.condition() == condition


async def test_the_stamps_of_the_node_decide_between_a_lease_and_results_seen_first(
    api: Scene,
) -> None:
    put_lease(api, renewed=EARLY)
    await api.run(probed())
    async with running_manager(api):
        await assert_fresh_after(api, 300)


async def test_a_daemon_is_first_stale_a_minute_after_its_node_gets_an_entry(api: Scene) -> None:
    """Without entries it need not renew its Lease."""
    api.renew()
    async with api.running(probed()):
        stale = stale_daemons()
        await api.drop(PODS, "web-0", seconds=600)
        assert stale_daemons() == stale
        put_pod(api, uid="another")
        await api.report(probed(probe_hash=HASH))
        await assert_fresh_after(api, 50)
        await assert_stale_after(api, 20)


async def test_results_of_a_silent_daemon_are_stale_again_after_a_time_without_entries(
    api: Scene,
) -> None:
    async with api.running(probed(probe_hash=HASH)):
        await settle(70)
        assert stale_daemons() == 1
        await api.relabel(app="other", seconds=600)
        assert stale_daemons() == 0
        await api.relabel(app="web")
        assert api.condition() == STALE
        assert stale_daemons() == 1


async def test_a_silent_watch_of_leases_makes_no_daemon_stale(api: Scene) -> None:
    """But a daemon that stops meanwhile becomes stale in time."""
    async with api.running(probed()):
        api.sources["leases"].hold()
        with no_writes(api):
            for _ in range(20):
                await look_repeatedly(api, 2)
                api.renew()
        # Each read of a Lease counts as a renewal.
        await assert_stale_after(api, 130)


@pytest.mark.parametrize("away", ["reads", "hanging-reads", "watches"])
async def test_after_an_outage_daemons_have_time_to_renew_their_leases(
    api: Scene,
    away: str,
) -> None:
    put_lease(api, "node-2")
    async with api.running(probed()):
        pod_writes = writes_since_now(api, "Pod")
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
        await look_repeatedly(api, 20)
        api.before_read = lambda _: None
        api.read_seconds = 0.0
        leases.on_list = leases.on_watch = lambda: None
        await settle(20)
        api.renew()
        await settle(40)
        assert pod_writes() == {}
        await assert_stale_after(api, 130)


async def test_marks_without_an_owner_go_while_the_lease_cannot_be_read(api: Scene) -> None:
    async with api.running(probed()):
        api.before_read = UNREACHABLE
        await settle(60)
        await api.relabel(app="other")
        assert api.marks() == BARE


async def test_a_resync_is_no_read_of_a_lease(api: Scene) -> None:
    api.before_read = UNREACHABLE
    async with api.running(probed(), resync_seconds=100):
        await assert_fresh_after(api, 150)


async def test_a_renewal_that_arrives_during_the_read_of_a_lease_counts(api: Scene) -> None:
    api.read_seconds = 1.0
    async with api.running():
        await api.report(probed(), seconds=56.5)
        with no_writes(api, "Pod"):
            api.renew()
            await settle(30)


async def test_the_daemon_of_a_deleted_node_is_no_longer_counted(api: Scene) -> None:
    """Nobody deletes the Lease of its daemon."""
    async with running_manager(api):
        await settle(70)
        assert stale_daemons() == 1
        await api.drop(NODES, "node-1", seconds=1)
        assert stale_daemons() == 0
        api.put_node("node-1", uid="another")
        await settle(70)
        assert stale_daemons() == 1


@cases("seconds", back=-3600, forward=120)
async def test_a_step_of_our_clock_changes_nothing(api: Scene, seconds: int) -> None:
    step = timedelta()
    async with api.running(probed(), now=lambda: loop_clock() + step, resync_seconds=30):
        step = timedelta(seconds=seconds)
        with no_writes(api, "Pod"):
            await renew_repeatedly(api, 12)
        step = timedelta()
        await assert_stale_after(api, 55)


@pytest.mark.parametrize("behind_seconds", [90, 7200])
async def test_a_clock_that_is_behind_makes_no_daemon_stale_at_the_start(
    api: Scene,
    behind_seconds: float,
) -> None:
    """The daemon renews its Lease each 40 s, with the time of its node."""
    behind = format_time(loop_clock() - timedelta(seconds=behind_seconds))
    await api.run(state_wire(probed=behind, probe_hash=HASH))
    with no_writes(api, "Pod"):
        async with running_manager(api):
            for _ in range(4):
                api.renew(ahead_seconds=-behind_seconds)
                await settle(40)


async def test_a_standby_that_becomes_the_leader_knows_which_daemons_are_silent(api: Scene) -> None:
    pods = [f"web-{number}" for number in range(6)]
    for number, name in enumerate(pods):
        api.put_node(f"node-{number}", name)
        put_lease(api, f"node-{number}")
    async with api.running(), running_manager(api, follows_seconds=100):
        for name in pods:
            await api.report(probed(), pod=name, seconds=0)
        await settle(90)
        assert {api.condition(pod=name) for name in pods} == {STALE}
        api.read_seconds = 1.0  # Four workers read the Leases.
        with no_writes(api, "Pod"):
            await settle(40)


async def test_a_standby_queues_no_pod_and_writes_every_one_as_the_leader(api: Scene) -> None:
    """A standby may see pods come and go for weeks."""
    await api.run()
    async with running_manager(api, follows_seconds=100):
        await api.report(probed())
        await api.drop(PODS, "web-0", seconds=80)
        put_pod(api)
        await settle(10)
        assert metric("workqueue_adds_total", name="podmarks", controller="podmarks") == 0
        api.renew()
        await assert_fresh_after(api, 20)


@cases(
    "holders two",
    one=("a" * 12, ()),
    replaced_by_another=("aaabbbbbbb", ()),
    both_during_a_rolling_update=("aaaababbbb", ()),
    in_a_crash_loop=("abcdefgh", ()),
    in_turns=("aaababab", ("a", "b")),
    one_twice_as_often=("abbabbabbabbabb", ("a", "b")),
    three_in_turns=("abcabcabc", ("a", "b", "c")),
    until_one_is_left=("aababab" + "b" * 8, ()),
)
def test_two_processes_renew_a_lease_if_they_come_back_in_turns(
    holders: str,
    two: tuple[str, ...],
) -> None:
    leases = DaemonLeases()
    for number, holder in enumerate(holders):
        lease = decoded(LEASES, held_lease(holder, number))
        leases.observe_lease("node-1", lease, float(number))
    assert leases.two_holders("node-1") == two
