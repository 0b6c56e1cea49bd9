"""Places of attempts: shares of hostile and good tenants, and what happens to those that wait."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from support.scripted_node import settle

from kruise_probe.daemon.places import EXECS, LONG_SECONDS, SOCKETS, Place, Places, Tenant


class Holders:
    """Attempts that hang until the end of the test."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.tasks: list[asyncio.Task[None]] = []

    async def hang(self, tenant: Tenant, count: int, *, long: bool = False) -> list[Place]:
        made = [self.places.place(tenant, long=long) for _ in range(count)]
        self.tasks += [asyncio.create_task(self._hold(each)) for each in made]
        await settle()
        return made

    async def _hold(self, place: Place) -> None:
        async with place:
            await asyncio.sleep(1e6)

    async def end(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.wait(self.tasks)


def held(places: list[Place]) -> int:
    return sum(each.has_place for each in places)


@pytest.mark.parametrize(
    ("namespaces", "left"),
    [
        pytest.param(1, 8, id="one"),
        pytest.param(3, 4, id="three"),
        pytest.param(6, 2, id="six"),
    ],
)
async def test_tenants_get_their_shares_and_no_more_than_the_places(
    namespaces: int, left: int
) -> None:
    places = Places(16, EXECS)
    holders = Holders(places)
    hostile = [Tenant(f"bad-{number}", pod) for number in range(namespaces) for pod in "ab"]
    for tenant in (Tenant("good", "uid"), *hostile):
        async with places.place(tenant, long=False):
            pass
    for tenant in hostile:
        await holders.hang(tenant, 20)
    good = await holders.hang(Tenant("good", "uid"), 20)
    assert held(good) >= left
    assert places.in_flight == 16
    await holders.end()
    assert places.in_flight == 0


async def test_long_attempts_hold_a_part_of_the_share_only() -> None:
    places = Places(16, EXECS)
    holders = Holders(places)
    long = [await holders.hang(Tenant("bad", f"uid-{pod}"), 20, long=True) for pod in range(5)]
    assert [held(each) for each in long] == [2, 2, 0, 0, 0]
    assert held(await holders.hang(Tenant("bad", "uid-0"), 5)) > 0, "short ones overtake"
    await holders.end()


async def test_pods_of_a_namespace_are_served_in_turns() -> None:
    places = Places(1, SOCKETS)
    order: list[str] = []

    async def attempt(pod: str) -> None:
        async with places.place(Tenant("ns", pod), long=False):
            order.append(pod)
            await asyncio.sleep(1)

    async with asyncio.TaskGroup() as group:
        for pod in ("a", "a", "a", "b", "c"):
            group.create_task(attempt(pod))
            await settle()
    assert order == ["a", "a", "b", "c", "a"]


@pytest.mark.parametrize("granted", [False, True])
async def test_cancelled_attempt_gives_its_place_to_the_next(granted: bool) -> None:
    places = Places(1, SOCKETS)
    holders = Holders(places)
    first = await holders.hang(Tenant("ns", "a"), 1)
    waiting = await holders.hang(Tenant("ns", "b"), 1)
    last = await holders.hang(Tenant("ns", "c"), 1)
    if granted:  # The place is granted, but its task has not run yet.
        places.leave(first[0])
        assert waiting[0].has_place
    holders.tasks[1].cancel()
    await settle()
    if not granted:
        holders.tasks[0].cancel()
        await settle()
    assert (held(waiting), held(last)) == (0, 1)
    await holders.end()


@pytest.mark.parametrize(
    ("hostile", "long", "text"),
    [
        pytest.param(
            Tenant("ns", "uid"), True,
            f"attempts with timeoutSeconds over {LONG_SECONDS:g} of this pod hold the 1 of this node's 4", id="own-long",
        ),
        pytest.param(Tenant("ns", "uid"), False, "attempts of this pod hold the 4 of this node's 4", id="own"),
        pytest.param(Tenant("other", "x"), False, "attempts of other pods hold the 4 of this node's 4", id="others"),
    ],
)  # fmt: skip
async def test_message_names_the_holders_and_no_other_namespace(
    hostile: Tenant, long: bool, text: str
) -> None:
    places = Places(4, SOCKETS)
    holders = Holders(places)
    await holders.hang(hostile, 4, long=long)
    (mine,) = await holders.hang(Tenant("ns", "uid"), 1, long=long)
    assert mine.waiting_since is not None
    assert mine.why_queued.startswith(f"AttemptQueued: no place to run the attempt; {text}")
    assert "other," not in mine.why_queued
    await holders.end()


async def test_tenant_that_has_ended_reduces_no_share() -> None:
    places = Places(16, SOCKETS)
    async with AsyncExitStack() as stack:
        for number in range(15):
            await stack.enter_async_context(places.place(Tenant(f"ns-{number}", "x"), long=False))
    await asyncio.sleep(122)
    holders = Holders(places)
    assert held(await holders.hang(Tenant("alone", "uid"), 20)) == 16
    await holders.end()
