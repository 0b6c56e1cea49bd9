"""What clients learn of a server before they talk of objects."""

import pytest
from support.contract_api import Api, ApiResponse, Json

AGGREGATED = (
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
)
DOCUMENTS = {
    "/api/v1": ("pods", "nodes", "namespaces", "events", "serviceaccounts"),
    "/apis/coordination.k8s.io/v1": ("leases",),
    "/apis/apps.kruise.io/v1alpha1": ("podprobemarkers", "nodepodprobes"),
}


def resources(answer: ApiResponse) -> dict[str, Json]:
    return {each["name"]: each for each in answer.body["resources"]}


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/livez"])
async def test_health_is_ok(api: Api, path: str) -> None:
    answer = await api.get(path)
    assert (answer.code, answer.text) == (200, "ok")


async def test_the_version_is_one_that_clients_can_read(api: Api) -> None:
    body = (await api.get("/version")).body
    assert body["major"] == "1"
    assert int(body["minor"].rstrip("+")) >= 30
    assert body["gitVersion"].startswith(f"v{body['major']}.")


async def test_groups_are_listed(api: Api) -> None:
    core = (await api.get("/api")).body
    assert core["versions"] == ["v1"]
    assert isinstance(core["serverAddressByClientCIDRs"], list)  # the official client requires it
    groups = {each["name"]: each for each in (await api.get("/apis")).body["groups"]}
    assert groups["apps.kruise.io"]["preferredVersion"] == {
        "groupVersion": "apps.kruise.io/v1alpha1",
        "version": "v1alpha1",
    }
    assert (await api.get("/apis/apps.kruise.io")).body["name"] == "apps.kruise.io"


@pytest.mark.parametrize("path", DOCUMENTS)
async def test_resources_say_what_they_can(api: Api, path: str) -> None:
    found = resources(await api.get(path))
    for name in DOCUMENTS[path]:
        entry = found[name]
        verbs = {"create", "delete", "get", "list", "patch", "update", "watch"}
        collection = set() if name == "namespaces" else {"deletecollection"}
        assert set(entry["verbs"]) == verbs | collection
        assert entry["singularName"]


async def test_our_kinds_have_short_names_and_status(api: Api) -> None:
    found = resources(await api.get("/apis/apps.kruise.io/v1alpha1"))
    assert found["podprobemarkers"]["shortNames"] == ["ppm"]
    assert found["podprobemarkers"]["namespaced"] is True
    assert found["nodepodprobes"]["shortNames"] == ["npp"]
    assert found["nodepodprobes"]["namespaced"] is False
    for name in ("podprobemarkers/status", "nodepodprobes/status"):
        assert set(found[name]["verbs"]) == {"get", "patch", "update"}


@pytest.mark.parametrize("path", ["/api", "/apis"])
async def test_everything_can_be_had_at_once(api: Api, path: str) -> None:
    answer = await api.get(path, accept=AGGREGATED)
    assert "as=APIGroupDiscoveryList" in answer.headers["Content-Type"]
    found = {
        (group["metadata"].get("name", ""), each["resource"]): each
        for group in answer.body["items"]
        for version in group["versions"]
        for each in version["resources"]
    }
    if path == "/api":
        entry = found["", "pods"]
        assert entry["scope"] == "Namespaced"
        assert entry["responseKind"]["kind"] == "Pod"
    else:
        entry = found["apps.kruise.io", "nodepodprobes"]
        assert entry["scope"] == "Cluster"
        assert entry["shortNames"] == ["npp"]
        assert {each["subresource"] for each in entry["subresources"]} == {"status"}


async def test_schemas_are_served(api: Api) -> None:
    index = (await api.get("/openapi/v3")).body["paths"]
    for path in ("api/v1", "apis/apps.kruise.io/v1alpha1", "apis/coordination.k8s.io/v1"):
        document = (await api.get(f"/openapi/v3/{path}")).body
        assert document["openapi"].startswith("3.")
        assert index[path]["serverRelativeURL"].startswith(f"/openapi/v3/{path}")
    document = (await api.get("/openapi/v3/apis/apps.kruise.io/v1alpha1")).body
    schema = document["components"]["schemas"]["io.kruise.apps.v1alpha1.PodProbeMarker"]
    assert schema["x-kubernetes-group-version-kind"] == [
        {"group": "apps.kruise.io", "kind": "PodProbeMarker", "version": "v1alpha1"}
    ]


@pytest.mark.parametrize("path", ["/nothing", "/apis/none.example.com", "/openapi/v3/apis/none/v1"])
async def test_what_is_not_served_is_not_found(api: Api, path: str) -> None:
    assert (await api.get(path)).code == 404
