"""Custom resources: unknown fields, defaults, the schema's rules and the markers' own."""

from copy import deepcopy
from typing import Any

import pytest
from support.contract_api import DEFINITIONS, Api, Json, marker, node_pod_probe

LONG = "x" * 40_000


async def test_unknown_fields_are_pruned_at_any_depth(api: Api) -> None:
    body = marker()
    body["spec"]["nonsense"] = {"a": 1}
    body["spec"]["probes"][0]["nonsense"] = [1]
    body["spec"]["probes"][0]["probe"]["nonsense"] = True
    body["nonsense"] = 1
    body["metadata"]["nonsense"] = 1
    created = await api.create("podprobemarkers", body)
    assert "nonsense" not in created.text


async def test_http_probes_get_their_defaults(api: Api) -> None:
    body = marker()
    body["spec"]["probes"][0]["probe"] = {"httpGet": {"port": 80}}
    created = await api.create("podprobemarkers", body)
    probe = created.body["spec"]["probes"][0]["probe"]
    assert probe == {"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}}


@pytest.mark.parametrize("port", [80, "http"])
async def test_a_port_is_a_number_or_a_name(api: Api, port: int | str) -> None:
    body = marker()
    body["spec"]["probes"][0]["probe"] = {"tcpSocket": {"port": port}}
    created = await api.create("podprobemarkers", body)
    assert created.body["spec"]["probes"][0]["probe"]["tcpSocket"]["port"] == port


async def test_absent_numbers_stay_absent(api: Api) -> None:
    created = await api.create("podprobemarkers", marker())
    assert created.body["spec"]["probes"][0]["probe"] == {"exec": {"command": ["true"]}}


def set_at(body: Json, path: str, value: Any) -> Json:
    """A copy with the value at a dotted path; None removes what is there."""
    changed = deepcopy(body)
    parent: Any = changed
    *parts, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    for part in parts:
        parent = parent[part]
    if value is None:
        del parent[last]
    else:
        parent[last] = value
    return changed


@pytest.mark.parametrize(
    ("path", "value", "field", "message"),
    [
        pytest.param("spec", None, "spec", "Required value", id="no-spec"),
        pytest.param(
            "spec.probes.0.name", None, "spec.probes[0].name", "Required value", id="no-name"
        ),
        pytest.param(
            "spec.probes.0.name",
            7,
            "spec.probes[0].name",
            'Invalid value: "integer": spec.probes[0].name in body must be of type string: "integer"',
            id="wrong-type",
        ),
        pytest.param(
            "spec.probes",
            "all",
            "spec.probes",
            'Invalid value: "string": spec.probes in body must be of type array: "string"',
            id="no-list",
        ),
        pytest.param(
            "spec.probes.0.probe",
            {"tcpSocket": {"port": [1]}},
            "spec.probes[0].probe.tcpSocket.port",
            'Invalid value: "array": spec.probes[0].probe.tcpSocket.port in body must be of type'
            ' integer: "array"',
            id="no-port",
        ),
        pytest.param(
            "spec.probes.0.probe",
            {"httpGet": {"port": 1, "scheme": "FTP"}},
            "spec.probes[0].probe.httpGet.scheme",
            None,
            id="unknown-scheme",
        ),
        pytest.param(
            "spec.probes.0.probe",
            {"exec": {"command": ["true"]}, "periodSeconds": -1},
            "spec.probes[0].probe.periodSeconds",
            "Invalid value: -1: spec.probes[0].probe.periodSeconds in body should be greater than or"
            " equal to 0",
            id="negative",
        ),
        pytest.param(
            "spec.probes.0.probe",
            {"exec": {"command": ["true"]}, "periodSeconds": 2**31},
            "spec.probes[0].probe.periodSeconds",
            None,
            id="too-large-for-32-bits",
        ),
        pytest.param(
            "spec.probes.0.probe",
            {"exec": {"command": [LONG]}},
            "spec.probes[0].probe.exec.command[0]",
            "Too long: may not be more than 8192 bytes",
            id="long-word",
        ),
        pytest.param(
            "spec.probes.0.name",
            "",
            "spec.probes[0].name",
            'Invalid value: "": spec.probes[0].name in body should be at least 1 chars long',
            id="empty-name",
        ),
        pytest.param(
            "spec.probes",
            [marker()["spec"]["probes"][0]] * 33,
            "spec.probes",
            "Too many: 33: must have at most 32 items",
            id="many-probes",
        ),
    ],
)
async def test_the_schema_is_held(
    api: Api, path: str, value: Any, field: str, message: str | None
) -> None:
    refused = await api.post(api.path("podprobemarkers"), set_at(marker(), path, value))
    assert (refused.code, refused.body["reason"]) == (422, "Invalid"), refused
    causes = {each["field"]: each["message"] for each in refused.body["details"]["causes"]}
    assert field in causes
    if message is not None:
        assert causes[field] == message
    assert refused.body["message"].startswith('PodProbeMarker.apps.kruise.io "m" is invalid: ')


async def test_a_null_is_no_text(api: Api) -> None:
    body = marker()
    body["spec"]["probes"][0]["containerName"] = None
    assert (await api.post(api.path("podprobemarkers"), body)).code == 422


async def test_a_null_is_as_good_as_absent(api: Api) -> None:
    body = marker()
    probe = body["spec"]["probes"][0]
    probe["probe"] = {"httpGet": {"port": 80, "scheme": None, "path": None}, "periodSeconds": None}
    probe["markerPolicy"] = None
    kept = (await api.create("podprobemarkers", body)).body["spec"]["probes"][0]
    assert kept["probe"] == {"httpGet": {"port": 80, "scheme": "HTTP", "path": "/"}}
    assert "markerPolicy" not in kept


async def test_a_patch_is_held_to_the_schema_too(api: Api) -> None:
    name = f"n-{api.unique}"
    body = node_pod_probe(name)
    body["metadata"]["labels"] = {"contract": api.unique}
    await api.create("nodepodprobes", body)
    path = api.path("nodepodprobes", name)
    refused = await api.merge(path, {"spec": {"podProbes": [{"name": "p"}]}})
    assert refused.code == 422
    fields = {each["field"] for each in refused.body["details"]["causes"]}
    assert fields >= {f"spec.podProbes[0].{each}" for each in ("IP", "namespace", "uid")}
    status = {"status": {"podProbeStatuses": "none"}}
    stored = await api.merge(f"{path}/status", status)
    assert (stored.code, stored.body["status"]) == (200, status["status"]), "its schema is open"
    assert (await api.merge(f"{path}/status", {"status": "none"})).code == 422


async def test_another_kind_or_version_is_refused(api: Api) -> None:
    refused = await api.post(
        api.path("podprobemarkers"), {**marker(), "apiVersion": "apps.kruise.io/v9"}
    )
    assert refused.code == 400
    refused = await api.post(api.path("podprobemarkers"), {**marker(), "kind": "Other"})
    assert refused.code in (400, 422)
    refused = await api.post(api.path("podprobemarkers"), {"metadata": {"name": "m"}})
    assert refused.code == 400
    without = {key: each for key, each in marker().items() if key != "apiVersion"}
    refused = await api.post(api.path("podprobemarkers"), without)
    assert refused.code == 400
    assert "the API version in the data () does not match" in refused.body["message"]


async def test_a_patch_does_not_change_the_version(api: Api) -> None:
    path = api.path("podprobemarkers", "m")
    await api.post(api.path("podprobemarkers"), marker())
    refused = await api.merge(path, {"apiVersion": "apps.kruise.io/v9"})
    assert refused.code == 422
    assert [each["field"] for each in refused.body["details"]["causes"]] == ["apiVersion"]
    assert (await api.get(path)).body["apiVersion"] == "apps.kruise.io/v1alpha1"


PROBE = "spec.probes.0"


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        pytest.param("spec.selector", {}, "spec.selector", id="empty-selector"),
        pytest.param("spec.probes", [], "spec.probes", id="no-probes"),
        pytest.param(f"{PROBE}.name", "a#b", "spec.probes[0].name", id="hash-in-a-name"),
        pytest.param(f"{PROBE}.probe", {}, "spec.probes[0].probe", id="no-handler"),
        pytest.param(
            f"{PROBE}.probe",
            {"exec": {"command": ["true"]}, "tcpSocket": {"port": 1}},
            "spec.probes[0].probe",
            id="two-handlers",
        ),
        pytest.param(
            f"{PROBE}.probe",
            {"httpGet": {"port": 80, "host": "127.0.0.1"}},
            "spec.probes[0].probe.httpGet",
            id="host",
        ),
        pytest.param(
            f"{PROBE}.podConditionType",
            "Ready",
            "spec.probes[0].podConditionType",
            id="native-type",
        ),
        pytest.param(f"{PROBE}.podConditionType", None, "spec.probes[0]", id="no-effect"),
        pytest.param(
            "spec.probes",
            [marker()["spec"]["probes"][0]] * 2,
            "spec.probes",
            id="names-twice",
        ),
        pytest.param(
            f"{PROBE}.markerPolicy",
            [{"state": "Succeeded", "labels": {"app": "b"}}],
            "spec",
            id="own-selector-key",
        ),
    ],
)
async def test_the_rules_of_markers_are_held(api: Api, path: str, value: Any, field: str) -> None:
    refused = await api.post(api.path("podprobemarkers"), set_at(marker(), path, value))
    assert (refused.code, refused.body["reason"]) == (422, "Invalid"), refused
    fields = [each["field"] for each in refused.body["details"]["causes"]]
    assert any(each.startswith(field) for each in fields), fields


async def test_a_marker_that_stays_as_it_is_is_not_judged_again(api: Api) -> None:
    created = await api.create("podprobemarkers", marker())
    patch = {"metadata": {"labels": {"a": "b"}}}
    patched = await api.merge(api.path("podprobemarkers", "m"), patch)
    assert patched.body["spec"] == created.body["spec"]


async def test_definitions_can_be_read(api: Api) -> None:
    listed = await api.get(DEFINITIONS)
    names = {each["metadata"]["name"] for each in listed.body["items"]}
    assert {"podprobemarkers.apps.kruise.io", "nodepodprobes.apps.kruise.io"} <= names
    one = await api.get(f"{DEFINITIONS}/podprobemarkers.apps.kruise.io")
    states = {each["type"]: each["status"] for each in one.body["status"]["conditions"]}
    assert states["Established"] == "True"
    assert one.body["status"]["acceptedNames"]["kind"] == "PodProbeMarker"
