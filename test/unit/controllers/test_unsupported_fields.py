"""Probes with fields that their prober or a CRD does not know: no result of them counts. The whole product over a fake API server."""

from copy import deepcopy

import pytest
from support.builders import policy_wire, probe_wire, state_wire
from support.cases import cases
from support.kruise_crds import kruise_crds
from support.scene import POLICIES, Scene
from support.wire import Json, decoded
from unit.controllers.common import (
    FALSE,
    TRUE,
    Condition,
    compiled,
    make_node_virtual,
    marker_reason,
)

from kruise_probe.api.resources import NODE_POD_PROBES
from kruise_probe.controllers.definitions import DEFINITIONS, of_markers, of_nodes
from kruise_probe.manifests.crds import all_crds

UNKNOWN = policy_wire("Unknown", {"unknown": "true"})
PLAIN = probe_wire(policies=POLICIES)
WITH_CRITERIA: Json = {
    **probe_wire(policies=[*POLICIES, UNKNOWN]),
    "successWhen": {"exitCodes": [0, 2]},
}


def hash_of(probe: Json) -> str:
    return compiled(probe).probes[0].hash


WHOLE = state_wire(probe_hash=hash_of(WITH_CRITERIA))
WHOLE_FAILED = WHOLE | {"state": "Failed"}
OF_PLAIN = state_wire(probe_hash=hash_of(PLAIN))
NOT_SUPPORTED = ("Unknown", "FieldNotSupported")
PRUNED = ("Unknown", "FieldPruned")


@pytest.fixture
def api(api: Scene) -> Scene:
    api.put_marker(WITH_CRITERIA)
    return api


@cases(
    "result condition labels",
    whole=(WHOLE, TRUE, {"healthy": "true"}),
    failed=(WHOLE_FAILED, FALSE, {"sick": "true"}),
    of_kruise=(state_wire(), NOT_SUPPORTED, {"unknown": "true"}),
    of_an_older_daemon=(OF_PLAIN | {"state": "Failed"}, NOT_SUPPORTED, {"unknown": "true"}),
    unknown_of_kruise=(state_wire(state="Unknown"), ("Unknown", ""), {"unknown": "true"}),
)
async def test_only_a_result_of_the_whole_probe_counts(
    api: Scene,
    result: Json,
    condition: Condition,
    labels: Json,
) -> None:
    async with api.running(result):
        assert api.condition() == condition
        assert api.labels() == labels
        assert (marker_reason(api) == "FieldNotSupported") == (condition == NOT_SUPPORTED)


async def test_an_edit_that_adds_the_field_keeps_the_marks_until_its_first_result(
    api: Scene,
) -> None:
    api.put_marker(PLAIN)
    async with api.running(OF_PLAIN):
        known = {"status": {"knownFields": ["extract", "successWhen"]}}
        await api.change(NODE_POD_PROBES, "node-1", known)
        await api.change_probes(WITH_CRITERIA)
        assert api.condition() == TRUE
        assert api.labels() == {"healthy": "true"}
        await api.report(WHOLE_FAILED)
        assert api.condition() == FALSE
        assert api.labels() == {"sick": "true"}


async def test_a_daemon_that_is_replaced_by_one_without_the_field_is_not_believed(
    api: Scene,
) -> None:
    async with api.running(WHOLE):
        assert api.condition() == TRUE
        await api.report(state_wire())
        assert api.condition() == NOT_SUPPORTED
        await api.report(WHOLE)
        assert api.condition() == TRUE


async def test_other_probes_of_the_marker_count_as_before(api: Scene) -> None:
    other = probe_wire("other", condition="c/other")
    api.put_marker(WITH_CRITERIA, other)
    async with api.running(state_wire(), state_wire("web#other")):
        assert api.condition() == NOT_SUPPORTED
        assert api.condition("c/other") == TRUE


def without_criteria(wire: Json) -> Json:
    """The CRD of NodePodProbes of a version that does not have the fields."""
    wire = deepcopy(wire)
    (version,) = wire["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    pod = spec["properties"]["podProbes"]["items"]["properties"]
    probe = pod["probes"]["items"]["properties"]
    for field in ("extract", "successWhen"):
        del probe[field]
    return wire


async def test_a_crd_that_drops_the_field_leaves_the_probe_out(api: Scene) -> None:
    markers, nodes = all_crds()
    api.put(DEFINITIONS, markers)
    api.put(DEFINITIONS, without_criteria(nodes))
    async with api.running():
        assert api.probes() == {}
        assert api.condition() == PRUNED
        assert marker_reason(api) == "FieldPruned"
        await api.report(OF_PLAIN)
        assert api.condition() == PRUNED


async def test_crds_of_this_version_drop_nothing(api: Scene) -> None:
    for crd in all_crds():
        api.put(DEFINITIONS, crd)
    async with api.running(WHOLE):
        assert "web-0" in api.probes()
        assert api.condition() == TRUE


async def test_a_virtual_node_gets_no_such_probe(api: Scene) -> None:
    make_node_virtual(api)
    async with api.running(serverless=True):
        await api.provider_reports("True")
        assert api.labels() == {"unknown": "true"}
        assert marker_reason(api) == "FieldNotSupported"
    assert all("status" not in write.body for write in api.writes if write.kind == "Pod")


def test_kruises_crds_drop_what_they_do_not_have() -> None:
    markers, nodes = (decoded(DEFINITIONS, crd) for crd in kruise_crds())
    assert of_markers(markers) == ("extract", "successWhen", "whenTerminating", "whenStale")
    assert of_nodes(nodes) == ("extract", "successWhen")


OPEN = {"x-kubernetes-preserve-unknown-fields": True}
OPEN_PROBES = {"properties": {"probes": {"items": OPEN}}}


@cases(
    "schema dropped",
    open_object=(OPEN, ()),
    nothing=({}, ("extract", "successWhen", "exclusive")),
    open_items=({"properties": {"podProbes": {"items": OPEN_PROBES}}}, ()),
)
def test_a_schema_that_preserves_unknown_fields_drops_none(
    schema: Json,
    dropped: tuple[str, ...],
) -> None:
    root = {"properties": {"spec": schema}}
    version = {"name": "v1alpha1", "schema": {"openAPIV3Schema": root}}
    wire = {"metadata": {"name": "x"}, "spec": {"versions": [version]}}

    assert of_nodes(decoded(DEFINITIONS, wire)) == dropped
