"""Places of attempts: shares of hostile and good tenants, and who comes next."""

import asyncio

import pytest
from prometheus_client import CollectorRegistry
from support.cases import cases

from kruise_probe.daemon.metrics import PlacesCollector
from kruise_probe.daemon.places import (
    EXECS,
    LONG_SECONDS,
    MAX_HELD_BYTES,
    SOCKETS,
    Place,
    Places,
    Tenant,
)
from kruise_probe.daemon.probers.prober import MAX_ATTEMPT_BYTES, TLS_BYTES, BytesQueued

MINE = Tenant("ns", "uid")


def request(places: Places, tenant: Tenant, *, long: bool = False) -> Place:
    """Request a place for an attempt that hangs."""
    return places.request(tenant, long=long)


def hang(
    places: Places,
    tenant: Tenant,
    count: int,
    *,
    long: bool = False,
) -> list[Place]:
    """Request places for attempts that hang."""
    return [request(places, tenant, long=long) for _ in range(count)]


def held(places: list[Place]) -> int:
    return sum(place.granted for place in places)


SHARES = {
    "one": (1, 2, 4),
    "one-pod": (1, 1, 8),
    "three": (3, 2, 4),
    "six": (6, 2, 3),
    "fifteen": (15, 2, 1),
}


@cases("namespaces pods left", **SHARES)
async def test_tenants_leave_places_to_others_who_get_one_at_once(
    namespaces: int, pods: int, left: int
) -> None:
    """Also while their attempts end, and begin again at once."""
    places = Places(16, EXECS)
    hostile: list[Place] = []
    for pod in range(pods):
        for namespace in range(namespaces):
            hostile += hang(places, Tenant(f"bad-{namespace}", f"pod-{pod}"), 20)
    for _ in range(6):
        for number, place in enumerate(hostile):
            if place.granted:
                places.release(place)
                hostile[number] = request(places, place.tenant)
    assert 16 - places.in_flight == left
    assert request(places, Tenant("new", "uid")).granted


@pytest.mark.parametrize("count", [1, 2, 3])
async def test_few_places_are_all_used_by_one_namespace(count: int) -> None:
    places = Places(count, EXECS)
    for pod in range(3):
        hang(places, Tenant("ns", f"uid-{pod}"), count)
    assert places.in_flight == count


@cases(
    "count most",
    one=(1, 1),
    two=(2, 1),
    three=(3, 1),
    four=(4, 2),
    sixteen=(16, 8),
)
async def test_pod_has_at_most_half_of_the_places_rounded_down(count: int, most: int) -> None:
    places = Places(count, EXECS)
    hang(places, MINE, count)
    assert places.in_flight == most


async def test_long_attempts_share_half_of_the_places() -> None:
    places = Places(16, EXECS)
    long = []
    for pod in range(3):
        tenant = Tenant("bad", f"uid-{pod}")
        long.append(hang(places, tenant, 20, long=True))
    assert [held(of_pod) for of_pod in long] == [4, 2, 0]
    other = request(places, Tenant("other", "uid"), long=True)
    assert other.granted
    short = hang(places, Tenant("bad", "uid-2"), 5)
    assert held(short) == 5, "short ones overtake"


async def test_pods_of_a_namespace_are_served_in_turns() -> None:
    places = Places(1, SOCKETS)
    waiting = [request(places, Tenant("ns", pod)) for pod in "aaabc"]
    order = []
    while waiting:
        (place,) = (place for place in waiting if place.granted)
        order.append(place.tenant.pod_uid)
        waiting.remove(place)
        places.release(place)
    assert order == ["a", "a", "b", "c", "a"]
    assert places.in_flight == 0


@pytest.mark.parametrize("granted", [False, True])
async def test_cancelled_attempt_gives_its_place_to_the_next(granted: bool) -> None:
    places = Places(1, SOCKETS)
    first, cancelled, last = (request(places, Tenant("ns", pod)) for pod in "abc")
    wait = asyncio.create_task(cancelled.wait())
    await asyncio.sleep(0)
    if granted:  # The place is granted, but its task has not run yet.
        places.release(first)
        assert cancelled.granted
    wait.cancel()
    await asyncio.wait([wait])
    places.release(cancelled)
    if not granted:
        places.release(first)
    assert places.in_flight == 1
    assert last.granted


HOLDERS = {
    "own-long": (
        [MINE],
        True,
        f"attempts with timeoutSeconds over {LONG_SECONDS:g} of this pod hold 1 of the 2 places",
    ),
    "own": (
        [MINE],
        False,
        "attempts of this pod hold 2 of the 4 places",
    ),
    "namespace": (
        [Tenant("ns", "x"), MINE],
        False,
        "attempts of namespace ns hold 3 of the 4 places",
    ),
    "others": (
        [Tenant("x", "x"), Tenant("y", "x"), Tenant("z", "x")],
        False,
        "attempts of other pods hold 4 of the 4 places",
    ),
}


@cases("hostile long text", **HOLDERS)
async def test_message_names_the_holders_and_no_other_namespace(
    hostile: list[Tenant], long: bool, text: str
) -> None:
    places = Places(4, SOCKETS)
    for tenant in hostile:
        hang(places, tenant, 4, long=long)
    mine = request(places, MINE, long=long)
    assert not mine.granted
    message = places.describe(mine)
    assert message.startswith(f"no place to run the attempt; {text}")
    assert "namespace x" not in message


async def test_the_places_of_commands_and_of_sockets_are_exported() -> None:
    execs = Places(4, EXECS)
    registry = CollectorRegistry()
    collector = PlacesCollector(execs=execs, sockets=Places(8, SOCKETS))
    registry.register(collector)
    hang(execs, Tenant("ns", "uid"), 2)
    value = registry.get_sample_value
    for places, count in (("exec", 2), ("socket", 0)):
        name = f"kruise_probe_{places}"
        assert value(f"{name}_in_flight") == count
        assert value(f"{name}_queued_probes") == 0
        assert value(f"{name}_queue_seconds_count") == count


# The bytes that attempts hold.


def fill(places: Places, tenant: Tenant, count: int) -> list[Place]:
    """Attempts that hold 4 KiB more each in turn, until none of them may hold more."""
    running = hang(places, tenant, count)
    growing = [place for place in running if place.granted]
    size = 0
    while growing:
        size += 4096
        for place in tuple(growing):
            try:
                place.hold(size)
            except BytesQueued:
                growing.remove(place)
    return running


async def test_pods_hold_half_of_the_bytes_and_leave_some_to_other_namespaces() -> None:
    places = Places(4096, SOCKETS)
    first = fill(places, MINE, 100)
    fill(places, Tenant("ns", "second"), 100)
    held_bytes = sum(place.held_bytes for place in first)
    half = MAX_HELD_BYTES // 2
    assert half - 4096 < held_bytes <= half
    for number in range(5):
        fill(places, Tenant(f"bad-{number}", "uid"), 100)
    quiet = request(places, Tenant("quiet", "uid"))
    assert quiet.granted
    quiet.hold(16 * 1024)


async def test_attempt_over_its_bytes_gives_them_back_and_waits_for_all_that_it_can_need() -> None:
    places = Places(4096, SOCKETS)
    running = fill(places, MINE, 100)
    over = running.pop()
    places.request_again(over)
    assert not over.granted
    while not over.granted:
        places.release(running.pop())
    over.hold(TLS_BYTES + 2 * MAX_ATTEMPT_BYTES)
    assert len(running) > 50


async def test_message_of_an_attempt_that_waits_for_bytes_says_who_holds_them() -> None:
    places = Places(4096, SOCKETS)
    waiting = fill(places, MINE, 2000)[-1]
    text = "no memory to run the attempt; attempts of this pod hold 8388608 of the 16777216 bytes"
    assert places.describe(waiting).startswith(text)
