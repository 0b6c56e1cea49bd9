"""Which keys the sources of a controller enqueue, and with which priority."""

from typing import Any

import pytest
from support.fake_source import FakeSource

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
)

KEY = NamespacedName("default", "f")


@kind("example.com/v1")
class Fleet(ApiObject, frozen=True):
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
