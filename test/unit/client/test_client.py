"""The client of operators, and the caches that see its writes, on the embedded API server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from support.api_server import ApiServer

from kruise_probe.runtime import (
    AlreadyExists,
    ApiError,
    ApiObject,
    Client,
    ClusterConfig,
    Conflict,
    Manager,
    NamespacedName,
    Node,
    NotFound,
    ObjectMeta,
    Propagation,
    RestClient,
    kind,
    merge_diff,
    replace,
    retry_on_conflict,
    untyped,
)

pytestmark = pytest.mark.sockets

NODES = untyped("v1", "Node", namespaced=False)


class PodStatus(msgspec.Struct, frozen=True):
    phase: str = ""


@kind("v1")
class Pod(ApiObject, frozen=True):
    spec: dict[str, object] = msgspec.field(default_factory=dict)
    status: PodStatus | None = None


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer() as running:
        yield running


@asynccontextmanager
async def client_of(server: ApiServer) -> AsyncIterator[Client]:
    config = ClusterConfig.plain(server.url)
    async with RestClient(config=config, field_manager="test", user_agent="test") as rest:
        yield Client(rest)


def node(name: str = "n", **labels: str) -> Node:
    return Node(ObjectMeta(name, labels=labels or None))


def pod(name: str = "p") -> Pod:
    spec: dict[str, object] = {"containers": [{"name": "main", "image": "nginx"}]}
    return Pod(ObjectMeta(name, namespace="default"), spec)


async def test_structs_go_in_and_come_out(server: ApiServer) -> None:
    async with client_of(server) as client:
        created = await client.create(node(a="1"))
        assert created.uid
        with pytest.raises(AlreadyExists):
            await client.create(node())
        relabeled = replace(created, metadata=replace(created.metadata, labels={"b": "2"}))
        patched = await client.patch(created, relabeled)
        assert (await client.get(Node, "n")).metadata.labels == {"b": "2"}
        assert await client.patch(patched, patched) is patched, "an empty patch is not sent"
        with pytest.raises(Conflict):
            await client.update(created)
        updated = replace(patched, metadata=replace(patched.metadata, labels={"c": "3"}))
        assert (await client.update(updated)).metadata.labels == {"c": "3"}
        with pytest.raises(Conflict):
            await client.delete(created, optimistic_lock=True)
        with pytest.raises(Conflict):
            await client.patch(created, relabeled, optimistic_lock=True)
        with pytest.raises(ValueError, match="a patch of n cannot rename it to other"):
            await client.patch(created, replace(created, metadata=ObjectMeta("other")))
        await client.delete(patched, propagation=Propagation.BACKGROUND)
        await client.delete(patched)
        with pytest.raises(NotFound):
            await client.get(Node, "n")


async def test_a_patch_spares_a_successor_of_the_same_name(server: ApiServer) -> None:
    async with client_of(server) as client:
        old = await client.create(node())
        await client.delete(old)
        await client.create(node())
        with pytest.raises(ApiError):
            await client.patch(old, replace(old, metadata=replace(old.metadata, labels={"a": "1"})))
        assert not (await client.get(Node, "n")).metadata.labels


async def test_a_list_names_an_object_that_does_not_decode(server: ApiServer) -> None:
    @kind("v1", name="Node", namespaced=False)
    class Strange(ApiObject, frozen=True):
        spec: int = 0

    async with client_of(server) as client:
        await client.create(node())
        with pytest.raises(ValueError, match="nodes n does not decode: Expected `int`"):
            await client.list(Strange)


async def test_a_delete_spares_a_successor_of_the_same_name(server: ApiServer) -> None:
    async with client_of(server) as client:
        old = await client.create(node())
        await client.delete(old)
        await client.create(node())
        with pytest.raises(Conflict):
            await client.delete(old)


async def test_a_list_has_all_pages_and_selects(server: ApiServer) -> None:
    async with client_of(server) as client:
        for number in range(3):
            await client.create(node(f"n{number}", parity=str(number % 2)))
        client.rest.list_page = _in_pages_of_one(client.rest.list_page)  # type: ignore[method-assign]
        assert [each.metadata.name for each in await client.list(Node)] == ["n0", "n1", "n2"]
        odd = await client.list(Node, label_selector="parity=1")
        assert [each.metadata.name for each in odd] == ["n1"]


def _in_pages_of_one(list_page: Any) -> Any:
    async def one(*args: Any, **options: Any) -> Any:
        return await list_page(*args, **{**options, "limit": 1})

    return one


async def test_untyped_objects_keep_every_field(server: ApiServer) -> None:
    async with client_of(server) as client:
        await client.create(node(a="1"))
        found = await client.get(NODES, "n")
        assert found.content["metadata"]["managedFields"]
        changed = type(found)({**found.content, "spec": {"unschedulable": True}})
        assert (await client.patch(found, changed)).content["spec"] == {"unschedulable": True}


async def test_a_subresource_is_written_alone(server: ApiServer) -> None:
    async with client_of(server) as client:
        created = await client.create(pod())
        running = replace(created, status=PodStatus("Running"))
        await client.patch(created, running, subresource="status")
        found = await client.get(Pod, "p", "default")
        assert found.status == PodStatus("Running")


async def test_create_or_patch_does_either(server: ApiServer) -> None:
    def labeled(obj: Node) -> Node:
        labels = {**(obj.metadata.labels or {}), "x": "y"}
        return replace(obj, metadata=replace(obj.metadata, labels=labels))

    async with client_of(server) as client:
        assert (await client.create_or_patch(node(), labeled)).metadata.labels == {"x": "y"}
        await client.delete(await client.get(Node, "n"))
        await client.create(node(a="1"))
        patched = await client.create_or_patch(node(), labeled)
        assert patched.metadata.labels == {"a": "1", "x": "y"}


async def test_conflicts_are_retried_with_a_new_read(server: ApiServer) -> None:
    async with client_of(server) as client:
        await client.create(node())
        stale = await client.get(Node, "n")
        other = replace(stale, metadata=replace(stale.metadata, labels={"other": "1"}))
        reads = [stale]
        await client.patch(stale, other)

        async def attempt() -> Node:
            found = reads.pop() if reads else await client.get(Node, "n")
            labels = {**(found.metadata.labels or {}), "ours": "1"}
            wanted = replace(found, metadata=replace(found.metadata, labels=labels))
            return await client.patch(found, wanted, optimistic_lock=True)

        assert (await retry_on_conflict(attempt)).metadata.labels == {"other": "1", "ours": "1"}


async def test_a_cache_returns_writes_before_their_events(server: ApiServer) -> None:
    """The informer never runs, so no event ever arrives."""
    manager = Manager(ClusterConfig.plain(server.url), name="test")
    manager.index(Pod, "image", lambda each: [str(each.spec["containers"][0]["image"])])  # type: ignore[index]
    cache = manager.cache(Pod)
    async with manager.rest:
        created = await manager.client.create(pod())
        assert cache.get(NamespacedName("default", "p")) == created
        assert cache.list("default") == [created]
        assert cache.by_index("image", "nginx") == (created,)
        assert cache.by_index("image", "other") == ()
        await manager.client.delete(created)
        left = cache.get(NamespacedName("default", "p"))
        assert left is None or left.deleting


@pytest.mark.parametrize(
    ("old", "new", "diff"),
    [
        pytest.param({"a": 1}, {"a": 1}, {}, id="equal"),
        pytest.param({"a": 1}, {}, {"a": None}, id="removed"),
        pytest.param({}, {"a": {"b": 1}}, {"a": {"b": 1}}, id="added"),
        pytest.param({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}, {"a": {"c": 3}}, id="inner"),
        pytest.param({"a": [1, 2]}, {"a": [1]}, {"a": [1]}, id="list"),
        pytest.param({"a": None}, {"a": 1}, {"a": 1}, id="null"),
    ],
)
def test_a_diff_is_a_merge_patch(
    old: dict[str, Any], new: dict[str, Any], diff: dict[str, Any]
) -> None:
    assert merge_diff(old, new) == diff
