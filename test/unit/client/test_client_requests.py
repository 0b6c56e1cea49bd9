"""What the client of operators sends, over scripted answers: races, retries after conflicts, applies and deletions."""

import asyncio
from typing import Any

import msgspec
import pytest

from kruise_probe.api.declared import resource_of
from kruise_probe.api.errors import AlreadyExists, Conflict, NotFound
from kruise_probe.client.client import CONFLICT_DELAY_SECONDS, Client, retry_on_conflict
from kruise_probe.client.request import PatchType
from kruise_probe.runtime import Node, ObjectMeta

NODE = Node(ObjectMeta("n"))


class Attempts:
    """Raises the errors in turn, then returns."""

    def __init__(self, *errors: Exception) -> None:
        self.count = 0
        self._errors = list(errors)

    async def __call__(self) -> str:
        self.count += 1
        if self._errors:
            raise self._errors.pop(0)
        return "done"


async def test_an_attempt_without_a_conflict_is_made_once() -> None:
    attempts = Attempts()
    assert await retry_on_conflict(attempts) == "done"
    assert attempts.count == 1


async def test_conflicts_are_retried_after_10_ms(looptime: float) -> None:
    attempts = Attempts(Conflict("a"), Conflict("b"))
    assert await retry_on_conflict(attempts) == "done"
    assert (attempts.count, CONFLICT_DELAY_SECONDS) == (3, 0.01)
    assert looptime == pytest.approx(0.02)


@pytest.mark.parametrize("attempts", [1, 3, 5])
async def test_the_last_conflict_is_raised(attempts: int) -> None:
    failing = Attempts(*(Conflict(str(number)) for number in range(9)))
    limit = {} if attempts == 5 else {"attempts": attempts}
    with pytest.raises(Conflict, match=str(attempts - 1)):
        await retry_on_conflict(failing, **limit)
    assert failing.count == attempts


async def test_an_object_that_exists_is_no_conflict_to_retry() -> None:
    attempts = Attempts(AlreadyExists("exists"))
    with pytest.raises(AlreadyExists):
        await retry_on_conflict(attempts)
    assert attempts.count == 1


class Racing:
    """A server on which others create the object after each read, and delete it before the next; `wins` end that."""

    def __init__(self, *, wins_after: int) -> None:
        self.creates = 0
        self._wins_after = wins_after

    async def get(self, *_: Any, **__: Any) -> Node:
        await asyncio.sleep(0)
        raise NotFound("not found")

    async def create(self, *_: Any, **__: Any) -> Node:
        self.creates += 1
        if self.creates <= self._wins_after:
            raise AlreadyExists("exists")
        return NODE


async def test_a_lost_race_of_creations_is_tried_again() -> None:
    server = Racing(wins_after=4)
    client = Client(server)  # type: ignore[arg-type]
    assert await client.create_or_patch(NODE, lambda each: each) == NODE
    assert server.creates == 5


async def test_after_five_lost_races_the_object_exists() -> None:
    server = Racing(wins_after=9)
    client = Client(server)  # type: ignore[arg-type]
    with pytest.raises(AlreadyExists):
        await client.create_or_patch(NODE, lambda each: each)
    assert server.creates == 5


class Recording:
    """Notes requests, and returns `NODE`; a deletion returns `left`."""

    def __init__(self, left: Node | Exception | None = None) -> None:
        self.options: list[dict[str, Any]] = []
        self._left = left

    async def patch(self, *_: Any, **options: Any) -> Node:
        self.options.append(options)
        return NODE

    async def delete(self, *_: Any, **options: Any) -> Node | None:
        self.options.append(options)
        if isinstance(self._left, Exception):
            raise self._left
        return self._left


class Observer:
    def __init__(self) -> None:
        self.seen: list[str] = []

    def record_write(self, obj: Any) -> None:
        self.seen.append(f"wrote {obj.key}")

    def record_delete(self, obj: Any) -> None:
        self.seen.append(f"removed {obj.key}")


def observed(rest: Any) -> tuple[Client, Observer]:
    client, observer = Client(rest), Observer()
    client.observe_writes(resource_of(Node), observer)
    return client, observer


@pytest.mark.parametrize(("options", "force"), [({}, True), ({"force": False}, False)])
async def test_an_apply_takes_fields_from_others_unless_told_not_to(
    options: dict[str, Any], force: bool
) -> None:
    rest = Recording()
    client, observer = observed(rest)
    assert await client.apply(NODE, **options) is NODE
    assert rest.options == [{"patch_type": PatchType.APPLY, "subresource": "", "force": force}]
    assert observer.seen == ["wrote n"]


@pytest.mark.parametrize(
    ("left", "seen"),
    [
        pytest.param(None, ["removed n"], id="removed"),
        pytest.param(NotFound("gone"), ["removed n"], id="was-gone"),
        pytest.param(NODE, ["wrote n"], id="has-finalizers"),
    ],
)
async def test_a_cache_sees_a_deletion_or_the_object_that_still_has_finalizers(
    left: Node | Exception | None, seen: list[str]
) -> None:
    client, observer = observed(Recording(left))
    await client.delete(NODE)
    assert observer.seen == seen
    await Client(Recording(left)).delete(NODE)  # type: ignore[arg-type]


@pytest.mark.parametrize(("optimistic_lock", "version"), [(True, "7"), (False, "")])
async def test_a_deletion_has_the_uid_and_on_demand_the_version_as_preconditions(
    optimistic_lock: bool, version: str
) -> None:
    rest = Recording()
    obj = Node(ObjectMeta("n", uid="u", resource_version="7"))
    await Client(rest).delete(obj, optimistic_lock=optimistic_lock)  # type: ignore[arg-type]
    assert rest.options == [{"uid": "u", "resource_version": version, "propagation": None}]


async def test_a_patch_names_the_uid_if_the_object_has_one() -> None:
    class Bodies(Recording):
        async def patch(self, _: Any, __: Any, body: bytes, **options: Any) -> Node:
            self.options.append(msgspec.json.decode(body)["metadata"])
            return NODE

    rest = Bodies()
    for uid, version in (("u", "7"), ("", "")):
        old = Node(ObjectMeta("n", uid=uid, resource_version=version))
        new = Node(ObjectMeta("n", uid=uid, resource_version=version, labels={"a": "1"}))
        await Client(rest).patch(old, new)  # type: ignore[arg-type]
        await Client(rest).patch(old, new, optimistic_lock=True)  # type: ignore[arg-type]
    assert rest.options == [
        {"labels": {"a": "1"}, "uid": "u"},
        {"labels": {"a": "1"}, "uid": "u", "resourceVersion": "7"},
        {"labels": {"a": "1"}},
        {"labels": {"a": "1"}, "resourceVersion": ""},
    ]
