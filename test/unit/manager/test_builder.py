"""Which keys the sources of a controller enqueue, and with which priority."""

import asyncio
from typing import Any

import pytest
from support import builders
from support.fake_source import FakeSource

from kruise_probe.manager.sources import controller_uids, keys_of_owner
from kruise_probe.runtime import (
    GENERATION_CHANGED,
    OWNER_INDEX,
    ApiObject,
    Builder,
    ClusterConfig,
    Manager,
    NamespacedName,
    Node,
    ObjectMeta,
    OwnerReference,
    Priority,
    Resource,
    WorkQueue,
    kind,
    resource_of,
    update_predicate,
)
from kruise_probe.workqueue.controller import Controller
from kruise_probe.workqueue.rate_limiters import ItemExponentialFailureRateLimiter

KEY = NamespacedName("default", "f")


@kind("example.com/v1")
class Fleet(ApiObject, frozen=True):
    pass


@kind("example.com/v1", namespaced=False)
class Region(ApiObject, frozen=True):
    pass


@kind("v1")
class Pod(ApiObject, frozen=True):
    pass


async def ignore(key: Any) -> None:
    pass


class Sources:
    """A manager over sources that never list, whose stores the test fills."""

    def __init__(self) -> None:
        self.manager = Manager(
            ClusterConfig.plain("http://127.0.0.1:1"), name="test", source=self._source
        )
        self.queue: WorkQueue[NamespacedName] = WorkQueue(name="test")

    def _source(self, resource: Resource[Any], namespace: str) -> FakeSource[Any]:
        return FakeSource()

    def add(self, obj: Any, *, initial: bool = False) -> None:
        self._handlers(obj).added(obj, initial)

    def update(self, old: Any, new: Any) -> None:
        self._handlers(new).updated(old, new)

    def delete(self, obj: Any) -> None:
        self._handlers(obj).deleted(obj)

    def _handlers(self, obj: Any) -> Any:
        return self.manager.informer(resource_of(obj))._handlers

    @property
    def enqueued(self) -> dict[NamespacedName, Priority]:
        return dict(self.queue.metrics.dirty)


def fleet(generation: int = 1) -> Fleet:
    return Fleet(ObjectMeta("f", namespace="default", uid="u1", generation=generation))


def pod(api_version: str = "example.com/v1", kind: str = "Fleet", controller: bool = True) -> Pod:
    owner = OwnerReference(api_version, kind, "f", "u1", controller=controller or None)
    return Pod(ObjectMeta("p", namespace="default", uid="u2", owner_references=(owner,)))


async def test_new_objects_are_enqueued_and_those_of_the_first_list_later() -> None:
    sources = Sources()
    Builder(sources.manager).for_(Fleet).complete(ignore, queue=sources.queue)
    sources.add(fleet(), initial=True)
    assert sources.enqueued == {KEY: Priority.LOW}
    sources.update(fleet(), fleet(2))
    assert sources.enqueued == {KEY: Priority.NORMAL}


async def test_predicates_of_one_source_do_not_filter_another() -> None:
    sources = Sources()
    builder = Builder(sources.manager).for_(Fleet, predicates=[GENERATION_CHANGED]).owns(Pod)
    builder.complete(ignore, queue=sources.queue)
    sources.update(fleet(), fleet())
    assert not sources.enqueued
    sources.update(pod(), pod())
    assert sources.enqueued == {KEY: Priority.NORMAL}


@pytest.mark.parametrize(
    ("owned", "enqueued"),
    [
        pytest.param(pod(), True, id="controller"),
        pytest.param(pod(api_version="example.com/v2"), True, id="other-version"),
        pytest.param(pod(api_version="apps/v1"), False, id="other-group"),
        pytest.param(pod(kind="ReplicaSet"), False, id="other-kind"),
        pytest.param(pod(controller=False), False, id="no-controller"),
    ],
)
async def test_owned_objects_enqueue_their_controller(owned: Pod, enqueued: bool) -> None:
    sources = Sources()
    Builder(sources.manager).for_(Fleet).owns(Pod).complete(ignore, queue=sources.queue)
    sources.delete(owned)
    assert bool(sources.enqueued) is enqueued
    assert keys_of_owner(resource_of(Fleet))(owned) == ((KEY,) if enqueued else ())


def test_owned_objects_are_indexed_by_the_uid_of_their_controller() -> None:
    assert controller_uids(pod()) == ("u1",)
    assert controller_uids(pod(controller=False)) == ()


async def test_a_resync_is_enqueued_with_low_priority() -> None:
    sources = Sources()
    builder = Builder(sources.manager).for_(Fleet, priority=Priority.HIGH)
    builder.complete(ignore, queue=sources.queue)
    same = fleet()
    sources.update(same, same)
    assert sources.enqueued == {KEY: Priority.LOW}


async def test_events_that_no_predicate_accepts_enqueue_nothing() -> None:
    sources = Sources()
    never = ~update_predicate(lambda old, new: True)
    builder = Builder(sources.manager).for_(Fleet, predicates=[never])
    builder.complete(ignore, queue=sources.queue)
    sources.add(fleet())
    sources.update(fleet(), fleet(2))
    sources.delete(fleet())
    assert not sources.enqueued


async def test_a_cluster_scoped_owner_has_no_namespace() -> None:
    sources = Sources()
    builder = Builder(sources.manager).for_(Region).owns(Pod)
    builder.complete(ignore, queue=sources.queue)
    sources.add(pod(kind="Region"))
    assert sources.enqueued == {NamespacedName("", "f"): Priority.NORMAL}


def test_a_kind_without_metadata_cannot_be_owned() -> None:
    with pytest.raises(TypeError, match="Pod has no metadata"):
        controller_uids(builders.pod())


async def test_a_mapped_source_enqueues_the_keys_before_and_after_a_change() -> None:
    sources = Sources()

    def keys(node: Node) -> list[NamespacedName]:
        return [NamespacedName("", (node.metadata.labels or {})["zone"])]

    builder = Builder[NamespacedName](sources.manager).named("zones")
    builder.watches(Node, keys, priority=Priority.HIGH).complete(ignore, queue=sources.queue)
    old, new = (Node(ObjectMeta("n", labels={"zone": zone})) for zone in ("a", "b"))
    sources.update(old, new)
    assert sources.enqueued == {
        NamespacedName("", "a"): Priority.HIGH,
        NamespacedName("", "b"): Priority.HIGH,
    }


async def test_owned_objects_are_indexed_once_for_several_controllers() -> None:
    sources = Sources()
    for name in ("one", "two"):
        Builder(sources.manager).for_(Fleet).owns(Pod).named(name).complete(ignore)
    assert sources.manager.cache(Pod).by_index(OWNER_INDEX, "u1") == ()


def test_what_is_incomplete_is_refused() -> None:
    manager = Sources().manager
    with pytest.raises(ValueError, match="needs named"):
        Builder[str](manager).watches(Node, lambda node: ["x"]).complete(ignore)
    with pytest.raises(ValueError, match="before owns"):
        Builder[NamespacedName](manager).owns(Pod)


def controller_of(reconcile: Any, **options: Any) -> tuple[Controller[str], WorkQueue[str]]:
    """A controller of its own queue, and that queue."""
    builder = Builder[str](Sources().manager).named("test")
    for name, value in options.items():
        builder = getattr(builder, name)(value)
    controller = builder.complete(reconcile)
    return controller, controller._queue


async def run(controller: Controller[str], *, for_seconds: float) -> None:
    running = asyncio.create_task(controller.run())
    await asyncio.sleep(for_seconds)
    running.cancel()
    await asyncio.wait({running})


@pytest.mark.parametrize(
    ("options", "at_once"),
    [pytest.param({}, 1, id="one-by-default"), pytest.param({"workers": 3}, 3, id="several")],
)
async def test_a_controller_reconciles_as_many_keys_at_once_as_it_has_workers(
    options: dict[str, int], at_once: int
) -> None:
    begun: list[str] = []

    async def reconcile(key: str) -> None:
        begun.append(key)
        await asyncio.sleep(10)

    controller, queue = controller_of(reconcile, **options)
    for key in "abcde":
        queue.add(key)
    await run(controller, for_seconds=5)
    assert len(begun) == at_once


@pytest.mark.parametrize(
    ("options", "seconds"),
    [pytest.param({}, 30, id="default"), pytest.param({"timeout": 7.0}, 7, id="set")],
)
async def test_a_reconcile_is_cancelled_after_its_timeout(
    options: dict[str, float], seconds: float
) -> None:
    cancelled_at: list[float] = []

    async def reconcile(_key: str) -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            cancelled_at.append(asyncio.get_running_loop().time())

    controller, queue = controller_of(reconcile, **options)
    queue.add("a")
    await run(controller, for_seconds=seconds + 0.001)
    assert cancelled_at == [seconds]


async def test_the_rate_limiter_of_a_controller_delays_its_retries() -> None:
    times: list[float] = []

    class Failing:
        async def reconcile(self, _key: str) -> None:
            times.append(asyncio.get_running_loop().time())
            raise OSError

    limiter = ItemExponentialFailureRateLimiter[str](base_seconds=10, max_seconds=100)
    controller, queue = controller_of(Failing(), rate_limiter=limiter)
    queue.add("a")
    await run(controller, for_seconds=35)
    assert times == [0, 10, 30]


async def test_a_controller_has_the_name_of_its_kind_unless_it_is_named() -> None:
    manager = Sources().manager
    controllers = [
        Builder(manager).for_(Fleet).complete(ignore),
        Builder(manager).for_(Fleet).named("other").complete(ignore),
    ]
    assert [each.name for each in controllers] == ["fleets", "other"]
    assert list(manager.controllers) == controllers
