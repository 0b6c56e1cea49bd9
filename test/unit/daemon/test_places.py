"""Places of attempts: shares of hostile and good tenants, and what happens to those that wait."""

import asyncio

import pytest
from support.scripted_node import settle

from kruise_probe.daemon.places import EXECS, LONG_SECONDS, SOCKETS, Place, Places, Tenant


class Holders:
    """Attempts that hang."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.tasks: list[asyncio.Task[None]] = []

    async def hang(
        self, tenant: Tenant, count: int, *, long: bool = False, seconds: float = 1e6
    ) -> list[Place]:
        """Attempts that take so long, and begin again at once."""
        made = [self.places.request(tenant, long=long) for _ in range(count)]
        self.tasks += [asyncio.create_task(self._hold(each, seconds)) for each in made]
        await settle()
        return made

    async def _hold(self, place: Place, seconds: float) -> None:
        while True:
            try:
                if not place.granted:
                    await place.wait()
                await asyncio.sleep(seconds)
            finally:
                self.places.release(place)
            place = self.places.request(place.tenant, long=place.long)

    async def end(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.wait(self.tasks)


def held(places: list[Place]) -> int:
    return sum(each.granted for each in places)


SHARES = {
    "one": (1, 2, 4),
    "one-pod": (1, 1, 7),
    "three": (3, 2, 4),
    "six": (6, 2, 3),
    "fifteen": (15, 2, 1),
}


@pytest.mark.parametrize(("namespaces", "pods", "left"), SHARES.values(), ids=SHARES)
async def test_tenants_leave_places_to_others_who_get_one_at_once(
    namespaces: int, pods: int, left: int
) -> None:
    places = Places(16, EXECS)
    holders = Holders(places)
    hostile = [
        Tenant(f"bad-{each}", f"pod-{pod}") for pod in range(pods) for each in range(namespaces)
    ]
    for tenant in hostile:
        await holders.hang(tenant, 20, seconds=10)
    await asyncio.sleep(60)
    assert 16 - places.in_flight == left
    assert held(await holders.hang(Tenant("new", "uid"), 1)) == 1
    await holders.end()
    assert places.in_flight == 0


@pytest.mark.parametrize("count", [1, 2, 3])
async def test_few_places_are_all_used_by_one_namespace(count: int) -> None:
    places = Places(count, EXECS)
    holders = Holders(places)
    for pod in range(2):
        await holders.hang(Tenant("ns", f"uid-{pod}"), count)
    assert places.in_flight == count
    await holders.end()


async def test_long_attempts_share_half_of_the_places() -> None:
    places = Places(16, EXECS)
    holders = Holders(places)
    long = [await holders.hang(Tenant("bad", f"uid-{pod}"), 20, long=True) for pod in range(3)]
    assert [held(each) for each in long] == [5, 1, 0]
    assert held(await holders.hang(Tenant("other", "uid"), 1, long=True)) == 1
    assert held(await holders.hang(Tenant("bad", "uid-2"), 5)) == 5, "short ones overtake"
    await holders.end()


async def test_pods_of_a_namespace_are_served_in_turns() -> None:
    places = Places(1, SOCKETS)
    order: list[str] = []

    async def attempt(pod: str) -> None:
        place = places.request(Tenant("ns", pod), long=False)
        if not place.granted:
            await place.wait()
        order.append(pod)
        await asyncio.sleep(1)
        places.release(place)

    async with asyncio.TaskGroup() as group:
        for pod in ("a", "a", "a", "b", "c"):
            group.create_task(attempt(pod))
            await settle()
    assert order == ["a", "a", "b", "c", "a"]


@pytest.mark.parametrize("granted", [False, True])
async def test_cancelled_attempt_gives_its_place_to_the_next(granted: bool) -> None:
    places = Places(1, SOCKETS)
    holders = Holders(places)
    await holders.hang(Tenant("ns", "a"), 1)
    waiting = await holders.hang(Tenant("ns", "b"), 1)
    last = await holders.hang(Tenant("ns", "c"), 1)
    if granted:  # The place is granted, but its task has not run yet.
        holders.tasks[0].cancel()
        await asyncio.sleep(0)
        assert waiting[0].granted
    holders.tasks[1].cancel()
    await settle()
    if not granted:
        holders.tasks[0].cancel()
        await settle()
    assert (places.in_flight, held(last)) == (1, 1)
    await holders.end()


MINE = Tenant("ns", "uid")


HOLDERS = {
    "own-long": ([MINE], True, f"attempts with timeoutSeconds over {LONG_SECONDS:g} of this pod hold 2 of the 2 places"),
    "own": ([MINE], False, "attempts of this pod hold 3 of the 4 places"),
    "namespace": ([Tenant("ns", "x"), MINE], False, "attempts of namespace ns hold 3 of the 4 places"),
    "others": ([Tenant("x", "x"), Tenant("y", "y")], False, "attempts of other pods hold 4 of the 4 places"),
}  # fmt: skip


@pytest.mark.parametrize(("hostile", "long", "text"), HOLDERS.values(), ids=HOLDERS)
async def test_message_names_the_holders_and_no_other_namespace(
    hostile: list[Tenant], long: bool, text: str
) -> None:
    places = Places(4, SOCKETS)
    holders = Holders(places)
    for tenant in hostile:
        await holders.hang(tenant, 4 // len(hostile) if tenant == MINE else 4, long=long)
    (mine,) = await holders.hang(MINE, 1, long=long)
    assert not mine.granted
    assert places.describe(mine).startswith(f"AttemptQueued: no place to run the attempt; {text}")
    assert "namespace x" not in places.describe(mine)
    await holders.end()
