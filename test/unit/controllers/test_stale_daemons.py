"""Daemons that do not renew their Leases. The whole product over a fake API server."""

from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest
from support.builders import entry_of, lease_wire, pod_status_wire, pod_wire, state_wire
from support.cases import cases
from support.fake_source import raising
from support.metrics import counted, metric
from support.running_manager import loop_clock, running_manager, settle
from support.scene import BARE, MARKED, C, Scene
from support.wire import Json

from kruise_probe.api.errors import ConnectionFailed
from kruise_probe.api.names import daemon_lease_name
from kruise_probe.api.probe import ExecAction, Probe
from kruise_probe.api.resources import LEASES, NODE_POD_PROBES, NODES, PODS
from kruise_probe.api.times import format_time
from kruise_probe.controllers.daemon_leases import DaemonLeases


def probed(at: str = "00:00:05", state: str = "Succeeded", **more: str) -> Json:
    """A result of this time of the first day."""
    return state_wire(state=state, probed=f"2026-01-01T{at}Z", **more)


STALE = ("Unknown", "ProbeDaemonStale")
FRESH = ("True", "")
EARLY = "2025-12-31T23:00:00Z"
LEASE = daemon_lease_name("node-1")
HASH = entry_of(Probe(exec=ExecAction(("true",)))).hash
UNREACHABLE = raising(ConnectionFailed("no connection"))


@pytest.fixture
def api(api: Scene) -> Scene:
    api.put(LEASES, lease_wire())
    return api


async def test_stale_conditions_are_unknown_marks_stay_and_both_recover(api: Scene) -> None:
    async with api.running(probed(moved="2026-01-01T00:00:05Z")):
        await settle(55)
        assert api.condition() == FRESH
        await settle(9)
        assert (api.marks(), api.condition()) == (MARKED, STALE)
        assert "node-1" in api.conditions()[C]["message"]
        assert api.conditions()[C]["lastTransitionTime"] == "2026-01-01T00:01:04Z"
        assert metric("kruise_probe_daemons_stale") == 1

        api.put(LEASES, lease_wire(renewed="2026-01-01T00:01:12Z"))
        await settle(1)
        assert metric("kruise_probe_daemons_stale") == 0
        assert api.condition() == FRESH
        assert api.conditions()[C]["lastTransitionTime"] > "2026-01-01T00:01:04Z"
        assert api.count("Pod") == {"Pod/status": 3}


@cases("deleted", lease_stays=False, lease_is_deleted=True)
async def test_a_restarted_manager_still_knows_from_the_conditions_that_a_daemon_is_stale(
    api: Scene, deleted: bool
) -> None:
    async with api.running(probed()):
        await settle(70)
        assert api.condition() == STALE
    if deleted:
        api.remove(LEASES, LEASE, "kruise-system")
    before = len(api.writes)
    async with running_manager(api):
        await settle(130)
        assert api.count("Pod", since=before) == {}
        assert metric("kruise_probe_daemons_stale") == 1
        api.renew()
        await settle()
        assert api.condition() == FRESH


async def test_stale_conditions_are_unknown_without_recorded_states(api: Scene) -> None:
    async with api.running(probed()):
        await api.drop(NODE_POD_PROBES, "node-1", seconds=70)
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
    """And no renewal but the first causes a reconcile."""
    async with api.running(probed()):
        before = len(api.writes)
        reconciled = [
            counted("controller_runtime_reconcile_total", controller=each, result=result)
            for each, result in (("podmarks", "success"), ("daemons", "requeue_after"))
        ]
        for _ in range(29):
            api.renew()
            await settle(10)
        assert api.count(since=before) == {}
        of_pods, of_daemons = (count() for count in reconciled)
        assert of_pods == 0
        assert of_daemons <= 6


async def test_a_write_of_the_status_of_a_node_is_a_sign_of_life(api: Scene) -> None:
    async with api.running():
        for number in range(12):
            await api.report(probed(f"00:00:{number:02}", probe_hash=HASH), seconds=10)
        assert api.condition() == FRESH
        await settle(55)
        assert api.condition() == STALE


@cases(
    "change",
    lease_is_deleted=lambda api: api.remove(LEASES, LEASE, "kruise-system"),
    lease_is_labelled=lambda api: api.edit(LEASES, LEASE, {"metadata": {"labels": {"a": "b"}}}, namespace="kruise-system"),
    lease_is_shortened=lambda api: api.put(LEASES, lease_wire(seconds=1)),
    node_pod_probe_is_labelled=lambda api: api.edit(NODE_POD_PROBES, "node-1", {"metadata": {"labels": {"a": "b"}}}),
)  # fmt: skip
async def test_no_sign_of_life_is_that_a(api: Scene, change: Callable[[Scene], None]) -> None:
    async with api.running(probed(probe_hash=HASH)):
        await settle(40)
        change(api)
        await settle(15)
        assert api.condition() == FRESH
        await settle(10)
        assert api.condition() == STALE


@cases("renewed", set_back=EARLY, ahead="2026-01-01T02:00:00Z", malformed="soon")
async def test_a_renewal_counts_from_when_it_is_seen_whatever_its_stamp(
    api: Scene, renewed: str
) -> None:
    async with api.running(probed()):
        await settle(30)
        api.put(LEASES, lease_wire(renewed=renewed))
        await settle(55)
        assert api.condition() == FRESH
        await settle(6)
        assert api.condition() == STALE


@cases(
    "sign fresh",
    renewed=(lambda api: api.renew(), True),
    as_it_was=(lambda api: api.put(LEASES, lease_wire()), False),
    result_without_hash=(lambda api: api.publish(pod_status_wire(pod_wire(), probed("00:02:00"))), True),
)  # fmt: skip
async def test_a_stale_daemon_without_its_lease_stays_stale_until(
    api: Scene, sign: Callable[[Scene], None], fresh: bool
) -> None:
    async with api.running(probed()):
        await settle(70)
        api.remove(LEASES, LEASE, "kruise-system")
        await settle(600)
        assert api.condition() == STALE
        sign(api)
        await settle()
        assert api.condition() == (FRESH if fresh else STALE)


@cases("result stale", without_hash=("", False), with_hash=(HASH, True))
async def test_kruises_daemon_beside_an_expired_lease_of_ours_becomes_stale(
    api: Scene, result: str, stale: bool
) -> None:
    """Its results have no hash, and unchanged ones come every ten minutes only."""
    async with running_manager(api):
        await settle(70)
        await api.report(probed("00:01:05", probe_hash=result))
        assert api.condition() == FRESH
        await settle(300)
        assert api.condition() == (STALE if stale else FRESH)
        api.renew()
        await settle(65)
        assert api.condition() == STALE


@cases("by_hand", the_lease_is_deleted=True, the_lease_stays=False)
async def test_kruises_daemon_that_replaces_ours_is_never_stale_if(
    api: Scene, by_hand: bool
) -> None:
    """Its first results arrive before our Lease expires."""
    async with api.running(probed(probe_hash=HASH)):
        await api.report(probed("00:00:20"))
        if by_hand:
            api.remove(LEASES, LEASE, "kruise-system")
        await settle(300)
        assert api.condition() == (FRESH if by_hand else STALE)


async def test_the_stamps_of_the_node_decide_between_a_lease_and_results_seen_first(
    api: Scene,
) -> None:
    api.put(LEASES, lease_wire(renewed=EARLY))
    await api.run(probed())
    async with running_manager(api):
        await settle(300)
        assert api.condition() == FRESH


async def test_a_daemon_is_first_stale_a_minute_after_its_node_gets_an_entry(api: Scene) -> None:
    """Without entries it need not renew its Lease."""
    api.renew()
    async with api.running(probed()):
        stale = metric("kruise_probe_daemons_stale")
        await api.drop(PODS, "web-0", seconds=600)
        assert metric("kruise_probe_daemons_stale") == stale
        api.put(PODS, pod_wire(uid="another"))
        await api.report(probed(probe_hash=HASH))
        await settle(50)
        assert api.condition() == FRESH
        await settle(20)
        assert api.condition() == STALE


async def test_results_of_a_silent_daemon_are_stale_again_after_a_time_without_entries(
    api: Scene,
) -> None:
    async with api.running(probed(probe_hash=HASH)):
        await settle(70)
        assert metric("kruise_probe_daemons_stale") == 1
        await api.relabel(app="other", seconds=600)
        assert metric("kruise_probe_daemons_stale") == 0
        await api.relabel(app="web")
        assert (api.condition(), metric("kruise_probe_daemons_stale")) == (STALE, 1)


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
        await settle(130)  # each read of a Lease counts as a renewal
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
        await settle(130)
        assert api.condition() == STALE


async def test_marks_without_an_owner_go_while_the_lease_cannot_be_read(api: Scene) -> None:
    async with api.running(probed()):
        api.before_read = UNREACHABLE
        await settle(60)
        await api.relabel(app="other")
        assert api.marks() == BARE


async def test_a_resync_is_no_read_of_a_lease(api: Scene) -> None:
    api.before_read = UNREACHABLE
    async with api.running(probed(), resync_seconds=100):
        await settle(150)
        assert api.condition() == FRESH


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
        await settle(70)
        assert metric("kruise_probe_daemons_stale") == 1


@cases("seconds", back=-3600, forward=120)
async def test_a_step_of_our_clock_changes_nothing(api: Scene, seconds: int) -> None:
    step = timedelta()
    async with api.running(probed(), now=lambda: loop_clock() + step, resync_seconds=30):
        before = len(api.writes)
        step = timedelta(seconds=seconds)
        for _ in range(12):
            api.renew()
            await settle(10)
        assert api.count("Pod", since=before) == {}
        step = timedelta()
        await settle(55)
        assert api.condition() == STALE


@pytest.mark.parametrize("behind_seconds", [90, 7200])
async def test_a_clock_that_is_behind_makes_no_daemon_stale_at_the_start(
    api: Scene, behind_seconds: float
) -> None:
    """The daemon renews its Lease each 40 s, with the time of its node."""
    stamp = format_time(loop_clock() - timedelta(seconds=behind_seconds))
    await api.run(state_wire(probed=stamp, probe_hash=HASH))
    before = len(api.writes)
    async with running_manager(api):
        for _ in range(4):
            api.renew(ahead_seconds=-behind_seconds)
            await settle(40)
    assert api.count("Pod", since=before) == {}


async def test_a_standby_that_becomes_the_leader_knows_which_daemons_are_silent(api: Scene) -> None:
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
    assert api.count("Pod", since=before) == {}


async def test_a_standby_queues_no_pod_and_writes_every_one_as_the_leader(api: Scene) -> None:
    """A standby may see pods come and go for weeks."""
    await api.run()
    async with running_manager(api, follows_seconds=100):
        await api.report(probed())
        await api.drop(PODS, "web-0", seconds=80)
        api.put(PODS, pod_wire())
        await settle(10)
        assert metric("workqueue_adds_total", name="podmarks", controller="podmarks") == 0
        api.renew()
        await settle(20)
        assert api.condition() == FRESH


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
    holders: str, two: tuple[str, ...]
) -> None:
    leases = DaemonLeases()
    for number, holder in enumerate(holders):
        wire = lease_wire(renewed=f"2026-01-01T00:00:{number:02}Z")
        wire["spec"]["holderIdentity"] = holder
        lease = LEASES.decode(msgspec.json.encode(wire))
        leases.observe_lease("node-1", lease, float(number))
    assert leases.two_holders("node-1") == two
