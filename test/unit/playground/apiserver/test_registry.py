"""Writing, deleting, sweeping and watching on the registry itself, on virtual time."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from kruise_probe.api.keys import NamespacedName
from kruise_probe.manifests.crds import all_crds
from kruise_probe_playground.apiserver import garbage
from kruise_probe_playground.apiserver.builtin import builtin_kinds
from kruise_probe_playground.apiserver.custom import custom_kind
from kruise_probe_playground.apiserver.deleting import DeleteOptions, Remover
from kruise_probe_playground.apiserver.garbage import GarbageCollector
from kruise_probe_playground.apiserver.kinds import Kind
from kruise_probe_playground.apiserver.listing import scope_of
from kruise_probe_playground.apiserver.presenting import Presenter
from kruise_probe_playground.apiserver.registry import Registry
from kruise_probe_playground.apiserver.requests import parse_list_query
from kruise_probe_playground.apiserver.schema import Json
from kruise_probe_playground.apiserver.store import Stored
from kruise_probe_playground.apiserver.watching import BOOKMARK_INTERVAL_SECONDS, Watch
from kruise_probe_playground.apiserver.writing import Editor, WriteOptions

EPOCH = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
NODE_POD_PROBES = "nodepodprobes.apps.kruise.io"


class World:
    """A registry with everything around it, and a clock to turn."""

    def __init__(self) -> None:
        self.now = EPOCH
        kinds = [*builtin_kinds(), *map(custom_kind, all_crds())]
        self.registry = Registry(kinds, now=lambda: self.now)
        self.editor = Editor(self.registry)
        self.remover = Remover(self.registry)
        self.collector = GarbageCollector(self.registry)
        self.create("namespaces", {"metadata": {"name": "ns"}})

    def kind(self, resource: str) -> Kind:
        return self.registry.kinds[resource]

    def create(self, resource: str, body: Json, manager: str = "m") -> Stored:
        kind = self.kind(resource)
        namespace = "ns" if kind.namespaced else ""
        body = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
        return self.editor.create(kind, namespace, body, WriteOptions(manager)).stored

    def change(self, resource: str, stored: Stored, subresource: str = "", **parts: Any) -> Stored:
        kind = self.kind(resource)
        sent = kind.decode(self.registry.get(kind, stored.key))
        sent["metadata"].pop("resourceVersion")
        return self.editor.update(
            kind,
            self.registry.get(kind, stored.key),
            subresource,
            {**sent, **parts},
            WriteOptions("m"),
        ).stored

    def delete(self, resource: str, stored: Stored, **options: Any) -> bool:
        kind = self.kind(resource)
        current = self.registry.get(kind, stored.key)
        return self.remover.delete(kind, current, DeleteOptions(**options)).gone

    def get(self, resource: str, name: str) -> Json | None:
        kind = self.kind(resource)
        namespace = "ns" if kind.namespaced else ""
        found = self.registry.collection(kind).objects.get(NamespacedName(namespace, name))
        return None if found is None else kind.decode(found)


@pytest.fixture
def world() -> World:
    return World()


def pod(name: str = "p", **metadata: Any) -> Json:
    spec = {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}
    return {"metadata": {"name": name, **metadata}, "spec": spec}


def owned_by(kind: str, stored: Stored) -> Json:
    return {"apiVersion": "v1", "kind": kind, "name": stored.key.name, "uid": stored.uid}


async def test_time_of_managed_fields_changes_only_with_a_field(world: World) -> None:
    stored = world.create("pods", pod(labels={"a": "b"}))
    world.now += timedelta(hours=1)
    again = world.change("pods", stored)
    assert again is stored or again.revision == stored.revision
    patched = world.change("pods", stored, "status", status={"phase": "Running"})
    times = [
        each["time"] for each in world.kind("pods").decode(patched)["metadata"]["managedFields"]
    ]
    assert times == ["2026-01-02T03:04:05Z", "2026-01-02T04:04:05Z"]


async def test_expired_grace_period_is_shortened_to_one_second(world: World) -> None:
    stored = world.create("pods", pod())
    world.delete("pods", stored)
    world.now += timedelta(seconds=60)
    assert not world.delete("pods", stored, grace_seconds=10)
    metadata = (world.get("pods", "p") or {})["metadata"]
    assert metadata["deletionGracePeriodSeconds"] == 1
    assert metadata["deletionTimestamp"] == "2026-01-02T03:05:05Z"


async def test_negative_grace_period_is_one_second(world: World) -> None:
    stored = world.create("pods", pod())
    world.delete("pods", stored, grace_seconds=-5)
    assert (world.get("pods", "p") or {})["metadata"]["deletionGracePeriodSeconds"] == 1


async def test_recreated_node_does_not_own_old_dependents(world: World) -> None:
    node = world.create("nodes", {"metadata": {"name": "n"}})
    world.create(
        NODE_POD_PROBES,
        {"metadata": {"name": "n", "ownerReferences": [owned_by("Node", node)]}},
    )
    world.delete("nodes", node)
    world.create("nodes", {"metadata": {"name": "n"}})
    world.collector.sweep()
    assert world.get(NODE_POD_PROBES, "n") is None


async def test_reference_to_a_deleted_owner_is_removed(world: World) -> None:
    node = world.create("nodes", {"metadata": {"name": "n"}})
    other = world.create("nodes", {"metadata": {"name": "o"}})
    owners = [owned_by("Node", node), owned_by("Node", other)]
    world.create(NODE_POD_PROBES, {"metadata": {"name": "n", "ownerReferences": owners}})
    world.delete("nodes", node)
    world.collector.sweep()
    kept = (world.get(NODE_POD_PROBES, "n") or {})["metadata"]["ownerReferences"]
    assert [each["uid"] for each in kept] == [other.uid]


async def test_events_are_deleted_after_an_hour(world: World) -> None:
    event = {
        "metadata": {"name": "e"},
        "involvedObject": {"namespace": "ns"},
        "lastTimestamp": "2026-01-02T03:04:05Z",
    }
    world.create("events", event)
    world.now += timedelta(minutes=30)
    world.create("events", {"metadata": {"name": "f"}, "involvedObject": {"namespace": "ns"}})
    world.now += timedelta(minutes=31)
    world.collector.sweep()
    assert world.get("events", "e") is None
    assert world.get("events", "f")


async def test_events_are_bounded_in_number(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "MAX_EVENTS", 3)
    for number in range(5):
        world.create(
            "events", {"metadata": {"name": f"e{number}"}, "involvedObject": {"namespace": "ns"}}
        )
    world.collector.sweep()
    left = [each for each in range(5) if world.get("events", f"e{each}")]
    assert left == [2, 3, 4]


async def test_collector_sweeps_after_a_deletion(world: World) -> None:
    node = world.create("nodes", {"metadata": {"name": "n"}})
    metadata = {"name": "n", "ownerReferences": [owned_by("Node", node)]}
    world.create(NODE_POD_PROBES, {"metadata": metadata})
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(world.collector.run())
        await asyncio.sleep(0.5)
        assert world.get(NODE_POD_PROBES, "n")
        world.delete("nodes", node)
        await asyncio.sleep(0.5)
        assert world.get(NODE_POD_PROBES, "n") is None
        running.cancel()


def watch(world: World, **query: str) -> Watch:
    kind = world.kind("pods")
    parsed = parse_list_query(query)
    scope = scope_of(kind, "ns", parsed)
    return Watch(world.registry, kind, scope, parsed, Presenter(kind))


async def events(frames: AsyncIterator[bytes]) -> list[tuple[str, str, int]]:
    found = []
    async for frame in frames:
        for line in frame.splitlines():
            event = msgspec.json.decode(line)
            metadata = event["object"]["metadata"]
            found.append(
                (event["type"], metadata.get("name", ""), int(metadata["resourceVersion"]))
            )
    return found


async def test_bookmarks_come_at_an_interval_and_at_the_end(world: World) -> None:
    following = watch(world, resourceVersion="1", timeoutSeconds="100", allowWatchBookmarks="true")
    loop = asyncio.get_running_loop()
    began = loop.time()
    seen = await events(following.frames())
    assert loop.time() - began == pytest.approx(100)
    assert [kind for kind, _, _ in seen] == ["BOOKMARK"] * (
        100 // int(BOOKMARK_INTERVAL_SECONDS) + 1
    )
    following.close()


async def test_bookmark_never_precedes_a_change_of_its_revision(world: World) -> None:
    following = watch(world, resourceVersion="1", timeoutSeconds="40", allowWatchBookmarks="true")
    loop = asyncio.get_running_loop()
    loop.call_later(BOOKMARK_INTERVAL_SECONDS, lambda: world.create("pods", pod()))
    seen = await events(following.frames())
    changes = [place for place, each in enumerate(seen) if each[0] == "ADDED"]
    assert len(changes) == 1
    assert all(each[2] < seen[changes[0]][2] for each in seen[: changes[0]])
    following.close()


async def test_watch_without_a_timeout_lasts_at_least_30_minutes(world: World) -> None:
    following = watch(world, resourceVersion="1")
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert await events(following.frames()) == []
    assert 1800 <= loop.time() - began <= 3600
    following.close()


async def test_no_change_is_lost_after_the_initial_list(world: World) -> None:
    world.create("pods", pod("a"))
    following = watch(world, timeoutSeconds="5")
    created = world.create("pods", pod("b"))
    seen = await events(following.frames())
    assert [(kind, name) for kind, name, _ in seen] == [("ADDED", "a"), ("ADDED", "b")]
    assert seen[1][2] == created.revision
    following.close()
