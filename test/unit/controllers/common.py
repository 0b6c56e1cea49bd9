"""Helpers of the controller tests."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from support.builders import CREATED, entry_of, lease_wire, marker, node_wire, pod_wire, probe_wire
from support.fake_api import FakeApi
from support.scene import Scene
from support.wire import Json

from kruise_probe.api.names import PAUSED_ANNOTATION
from kruise_probe.api.pods import Mark
from kruise_probe.api.probe import ExecAction, Probe
from kruise_probe.api.resources import LEASES, MARKERS, NODES, PODS
from kruise_probe.controllers.compiled import CompiledMarker, compile_marker

Action = Callable[[Scene], None]
Condition = tuple[str, str]
"""Status and reason of a condition."""
TRUE: Condition = ("True", "")
FALSE: Condition = ("False", "")

HASH = entry_of(Probe(exec=ExecAction(("true",)))).hash
"""The hash in results of `probe_wire()`."""
VIRTUAL = {"type": "virtual-kubelet"}
"""Labels of a virtual node."""
PAUSED: Json = {"annotations": {PAUSED_ANNOTATION: "true"}}
TERMINATING: Json = {"deletionTimestamp": CREATED, "finalizers": ["example.com/theirs"]}
"""Metadata of a pod."""
WITHOUT_FINALIZERS: Json = {"metadata": {"finalizers": None}}
"""A patch."""


def compiled(*probes: Json, **more: Any) -> CompiledMarker:
    """A marker `web` with these probes."""
    return compile_marker(marker(probes=probes, **more))


def by_field(values: Mapping[Mark, Any]) -> tuple[Json, Json]:
    """Split values into labels and annotations."""
    fields: dict[str, Json] = {"labels": {}, "annotations": {}}
    for mark, value in values.items():
        fields[mark.field][mark.name] = value
    return fields["labels"], fields["annotations"]


def numbered_probes(count: int, prefix: str = "c/") -> list[Json]:
    """Probes `p0`, `p1` … The condition type is prefix and number."""
    return [probe_wire(f"p{n}", condition=f"{prefix}{n}") for n in range(count)]


def labels_patch(**labels: str | None) -> Json:
    return {"metadata": {"labels": labels}}


def stamp(seconds: int) -> str:
    """The timestamp at `seconds` of virtual time (below 3600)."""
    return f"2026-01-01T00:{seconds // 60:02}:{seconds % 60:02}Z"


def held_lease(holder: str, seconds: int) -> Json:
    """The daemon's Lease of node-1, renewed by `holder` at `seconds`."""
    lease = lease_wire(renewed=stamp(seconds))
    lease["spec"]["holderIdentity"] = holder
    return lease


def put_lease(api: FakeApi, node: str = "node-1", **more: Any) -> None:
    api.put(
        LEASES,
        lease_wire(node, **more),
    )


def put_pod(api: FakeApi, name: str = "web-0", **more: Any) -> None:
    """Creates or replaces a pod."""
    api.put(
        PODS,
        pod_wire(name, **more),
    )


def make_node_virtual(api: FakeApi) -> None:
    api.put(NODES, node_wire(labels=VIRTUAL))


async def change_pod(
    api: Scene,
    name: str = "web-0",
    *,
    manager: str = "kubectl",
    seconds: float = 4.0,
    **parts: Json,
) -> None:
    """Patches parts of the pod: its metadata, spec or status."""
    await api.change(
        PODS,
        name,
        parts,
        manager=manager,
        seconds=seconds,
    )


async def delete_marker(api: Scene, *, seconds: float = 4.0) -> None:
    await api.drop(MARKERS, "web", seconds=seconds)


def marker_condition(api: Scene, type: str = "Degraded", marker: str = "web") -> Condition:
    return api.says(type, marker)[:2]


def marker_reason(api: Scene, type: str = "Degraded", marker: str = "web") -> str:
    return api.says(type, marker)[1]


def marker_message(api: Scene, type: str = "Degraded", marker: str = "web") -> str:
    return api.says(type, marker)[2]


def event_reasons(api: FakeApi) -> list[str]:
    return [event.reason for event in api.events]


def assert_marker_is_gone(api: FakeApi) -> None:
    assert api.find(MARKERS, "web") is None


def assert_pod_writes(api: FakeApi, count: int) -> None:
    """Assert that the manager wrote pods `count` times, and only their status."""
    assert api.count("Pod") == {"Pod/status": count}


def writes_since_now(api: FakeApi, kind: str = "") -> Callable[[], Counter[str]]:
    """Counts the writes of objects of this kind from now on; "" is any kind."""
    before = len(api.writes)
    return lambda: api.count(kind, before)


@contextmanager
def no_writes(api: FakeApi, kind: str = "") -> Iterator[None]:
    """Fails if the manager writes an object of this kind in the block; "" is any kind."""
    written = writes_since_now(api, kind)
    yield
    assert written() == {}
