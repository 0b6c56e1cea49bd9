"""Probes with fields that their prober or a CRD does not know: no result of them counts. The whole product over a fake API server."""

from typing import Any

import msgspec
import pytest
from support.builders import marker, node_wire, policy_wire, probe_wire, state_wire
from support.cases import cases
from support.kruise_crds import kruise_crds
from support.scene import POLICIES, Scene
from support.wire import Json

from kruise_probe.api.resources import NODE_POD_PROBES, NODES, PODS
from kruise_probe.controllers.compiled import compile_marker
from kruise_probe.controllers.definitions import DEFINITIONS, of_markers, of_nodes
from kruise_probe.manifests.crds import all_crds

WHEN: Json = {"exitCodes": [0, 2]}
UNKNOWN = policy_wire("Unknown", {"unknown": "true"})


def judged(**more: Any) -> Json:
    """A probe with `successWhen`, and policies for all states."""
    return {**probe_wire(policies=[*POLICIES, UNKNOWN], **more), "successWhen": WHEN}


def hash_of(probe: Json) -> str:
    return compile_marker(marker(probes=[probe])).probes[0].hash


WHOLE = hash_of(judged())
BEFORE = hash_of(probe_wire(policies=POLICIES))
"""Of the same probe without the field."""


@pytest.fixture
def api(api: Scene) -> Scene:
    api.put_marker(judged())
    return api


async def know(api: Scene, *fields: str) -> None:
    """The daemon that wrote the newest results knows these fields."""
    await api.change(NODE_POD_PROBES, "node-1", {"status": {"knownFields": list(fields)}})


@cases(
    "result condition labels",
    whole=(state_wire(probe_hash=WHOLE), ("True", ""), {"healthy": "true"}),
    failed=(state_wire(state="Failed", probe_hash=WHOLE), ("False", ""), {"sick": "true"}),
    of_kruise=(state_wire(), ("Unknown", "FieldNotSupported"), {"unknown": "true"}),
    of_an_older_daemon=(
        state_wire(state="Failed", probe_hash=BEFORE),
        ("Unknown", "FieldNotSupported"),
        {"unknown": "true"},
    ),
    unknown_of_kruise=(state_wire(state="Unknown"), ("Unknown", ""), {"unknown": "true"}),
)
async def test_only_a_result_of_the_whole_probe_counts(
    api: Scene, result: Json, condition: tuple[str, str], labels: dict[str, str]
) -> None:
    async with api.running(result):
        assert api.condition() == condition
        assert api.labels() == labels
        unsupported = condition[1] == "FieldNotSupported"
        assert (api.says()[1] == "FieldNotSupported") == unsupported


async def test_an_edit_that_adds_the_field_keeps_the_marks_until_its_first_result(
    api: Scene,
) -> None:
    api.put_marker(probe_wire(policies=POLICIES))
    async with api.running(state_wire(probe_hash=BEFORE)):
        await know(api, "extract", "successWhen")
        await api.change_probes(judged())
        assert (api.condition(), api.labels()) == (("True", ""), {"healthy": "true"})
        await api.report(state_wire(state="Failed", probe_hash=WHOLE))
        assert (api.condition(), api.labels()) == (("False", ""), {"sick": "true"})


async def test_a_daemon_that_is_replaced_by_one_without_the_field_is_not_believed(
    api: Scene,
) -> None:
    async with api.running(state_wire(probe_hash=WHOLE)):
        assert api.condition() == ("True", "")
        await api.report(state_wire(probe_hash=""))
        assert api.condition() == ("Unknown", "FieldNotSupported")
        await api.report(state_wire(probe_hash=WHOLE))
        assert api.condition() == ("True", "")


async def test_other_probes_of_the_marker_count_as_before(api: Scene) -> None:
    plain = probe_wire("plain", condition="example.com/plain")
    api.put_marker(judged(), plain)
    async with api.running(state_wire(), state_wire("web#plain")):
        assert api.condition() == ("Unknown", "FieldNotSupported")
        assert api.condition("example.com/plain") == ("True", "")


def without_criteria(wire: Json) -> Json:
    """The CRD of NodePodProbes of a version that does not have the fields."""
    wire = msgspec.json.decode(msgspec.json.encode(wire))
    (version,) = wire["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    pods = spec["properties"]["podProbes"]["items"]["properties"]
    for field in ("extract", "successWhen"):
        del pods["probes"]["items"]["properties"][field]
    return wire


async def test_a_crd_that_drops_the_field_leaves_the_probe_out(api: Scene) -> None:
    markers, nodes = all_crds()
    api.put(DEFINITIONS, markers)
    api.put(DEFINITIONS, without_criteria(nodes))
    async with api.running():
        assert api.probes() == {}
        assert api.condition() == ("Unknown", "FieldPruned")
        assert api.says()[1] == "FieldPruned"
        await api.report(state_wire(probe_hash=BEFORE))
        assert api.condition() == ("Unknown", "FieldPruned")


async def test_crds_of_this_version_drop_nothing(api: Scene) -> None:
    for crd in all_crds():
        api.put(DEFINITIONS, crd)
    async with api.running(state_wire(probe_hash=WHOLE)):
        assert "web-0" in api.probes()
        assert api.condition() == ("True", "")


async def test_a_virtual_node_gets_no_such_probe(api: Scene) -> None:
    api.put(NODES, node_wire(labels={"type": "virtual-kubelet"}))
    async with api.running(serverless=True):
        await api.provider_reports("True")
        assert api.labels() == {"unknown": "true"}
        assert api.says()[1] == "FieldNotSupported"
    assert all("status" not in write.body for write in api.writes if write.kind == "Pod")
    assert api.find(PODS, "web-0") is not None


def test_kruises_crds_drop_what_they_do_not_have() -> None:
    markers, nodes = (DEFINITIONS.decode(msgspec.json.encode(crd)) for crd in kruise_crds())
    assert of_markers(markers) == ("extract", "successWhen", "whenTerminating", "whenStale")
    assert of_nodes(nodes) == ("extract", "successWhen")


@cases(
    "schema dropped",
    open_object=({"x-kubernetes-preserve-unknown-fields": True}, ()),
    nothing=({}, ("extract", "successWhen", "exclusive")),
    open_items=(
        {"properties": {"podProbes": {"items": {"properties": {"probes": {"items": {"x-kubernetes-preserve-unknown-fields": True}}}}}}},
        (),
    ),
)  # fmt: skip
def test_a_schema_that_preserves_unknown_fields_drops_none(
    schema: Json, dropped: tuple[str, ...]
) -> None:
    root = {"properties": {"spec": schema}}
    version = {"name": "v1alpha1", "schema": {"openAPIV3Schema": root}}
    wire = {"metadata": {"name": "x"}, "spec": {"versions": [version]}}

    assert of_nodes(DEFINITIONS.decode(msgspec.json.encode(wire))) == dropped
