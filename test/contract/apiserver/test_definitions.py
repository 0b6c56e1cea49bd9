"""CustomResourceDefinitions that clients create, change and delete, and the kinds that come and go with them."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.contract_api import DEFINITIONS, Api, Json
from support.programs import until


def definition(group: str, **spec: Any) -> Json:
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {"size": {"type": "integer", "default": 3, "minimum": 1}},
            },
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"fleets.{group}"},
        "spec": {
            "group": group,
            "names": {"plural": "fleets", "kind": "Fleet", "shortNames": ["fl"]},
            "scope": "Namespaced",
            "versions": [version],
            **spec,
        },
    }


class Fleets:
    def __init__(self, api: Api) -> None:
        self.api = api
        self.group = f"{api.unique}.example.com"
        self.definition = f"{DEFINITIONS}/fleets.{self.group}"
        self.path = f"/apis/{self.group}/v1/namespaces/{api.namespace}/fleets"

    def fleet(self, name: str = "a", **more: Any) -> Json:
        metadata = {"name": name, **more.pop("metadata", {})}
        return {
            "apiVersion": f"{self.group}/v1",
            "kind": "Fleet",
            "metadata": metadata,
            "spec": {},
            **more,
        }

    async def until_answers(self, code: int, path: str = "") -> None:
        async def answers() -> bool:
            return (await self.api.get(path or self.path)).code == code

        await until(f"{path or self.path} answers {code}", answers)


@pytest.fixture
async def fleets(api: Api) -> AsyncIterator[Fleets]:
    """A kind that a definition has just added."""
    fleets = Fleets(api)
    created = await api.post(DEFINITIONS, definition(fleets.group))
    assert created.code == 201, created
    await fleets.until_answers(200)
    yield fleets
    await api.delete(fleets.definition)


async def test_a_definition_adds_its_kind(fleets: Fleets, api: Api) -> None:
    created = await api.post(fleets.path, fleets.fleet())
    assert (created.code, created.body["spec"]) == (201, {"size": 3})
    refused = await api.post(fleets.path, fleets.fleet("b", spec={"size": 0}))
    assert (refused.code, refused.body["details"]["causes"][0]["field"]) == (422, "spec.size")
    assert (await api.get(fleets.path)).body["kind"] == "FleetList"


async def test_a_definition_gets_its_defaults_and_its_status(fleets: Fleets, api: Api) -> None:
    stored = (await api.get(fleets.definition)).body
    assert stored["spec"]["names"]["singular"] == "fleet"
    assert stored["spec"]["names"]["listKind"] == "FleetList"
    assert stored["spec"]["conversion"] == {"strategy": "None"}
    assert stored["status"]["acceptedNames"] == stored["spec"]["names"]
    assert stored["status"]["storedVersions"] == ["v1"]
    conditions = {each["type"]: each["status"] for each in stored["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}


async def test_discovery_has_the_new_kind(fleets: Fleets, api: Api) -> None:
    await fleets.until_answers(200, f"/apis/{fleets.group}/v1")
    found = (await api.get(f"/apis/{fleets.group}/v1")).body["resources"]
    assert {each["name"] for each in found} == {"fleets", "fleets/status"}
    assert found[0]["shortNames"] == ["fl"]


async def test_a_changed_schema_is_served(fleets: Fleets, api: Api) -> None:
    stored = (await api.get(fleets.definition)).body
    properties = stored["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    properties["spec"]["properties"]["size"]["default"] = 7
    replaced = await api.put(fleets.definition, stored)
    assert replaced.code == 200, replaced

    async def has_new_default() -> bool:
        answer = await api.post(fleets.path, fleets.fleet(), dryRun="All")
        return bool(answer.code == 201 and answer.body["spec"]["size"] == 7)

    await until("the new default is served", has_new_default)


async def test_a_deleted_definition_takes_its_objects_with_it(fleets: Fleets, api: Api) -> None:
    held = fleets.fleet("held", metadata={"finalizers": ["example.com/hold"]})
    assert (await api.post(fleets.path, held)).code == 201
    assert (await api.post(fleets.path, fleets.fleet("free"))).code == 201
    deleted = await api.delete(fleets.definition)
    assert deleted.code == 200
    assert deleted.meta["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    await fleets.until_answers(404, f"{fleets.path}/free")
    refused = await api.post(fleets.path, fleets.fleet("late"))
    assert refused.code == 403
    assert "custom resource definition is terminating" in refused.body["message"]
    assert (await api.get(f"{fleets.path}/held")).meta["deletionTimestamp"]
    await api.merge(f"{fleets.path}/held", {"metadata": {"finalizers": None}})
    await fleets.until_answers(404, fleets.definition)
    await fleets.until_answers(404)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "name": ({"metadata": {"name": "x.example.com"}}, "metadata.name"),
    "no-plural": ({"spec": {"names": {"kind": "Fleet"}}}, "spec.names.plural"),
    "scope": ({"spec": {"scope": "Everywhere"}}, "spec.scope"),
    "no-storage": ({"spec": {"versions": [{"storage": False}]}}, "spec.versions"),
    "no-schema": (
        {"spec": {"versions": [{"schema": {}}]}},
        "spec.versions[0].schema.openAPIV3Schema",
    ),
}


@pytest.mark.parametrize("case", BAD)
async def test_a_bad_definition_is_refused(api: Api, case: str) -> None:
    change, field = BAD[case]
    body = definition(f"{api.unique}.example.com")
    for key, value in change.get("spec", {}).items():
        if key == "versions":
            body["spec"]["versions"][0] |= value[0]
        else:
            body["spec"][key] = value
    body["metadata"] |= change.get("metadata", {})
    refused = await api.post(DEFINITIONS, body)
    assert refused.code == 422, refused
    assert field in {each["field"] for each in refused.body["details"]["causes"]}


async def test_data_of_config_maps_and_secrets_is_stored(api: Api) -> None:
    data = {"metadata": {"name": "a"}, "data": {"a": "b"}}
    assert (await api.create("configmaps", data)).body["data"] == {"a": "b"}
    secret = {"metadata": {"name": "a"}, "stringData": {"a": "b"}}
    stored = await api.create("secrets", secret)
    assert (stored.body["data"], stored.body["type"]) == ({"a": "Yg=="}, "Opaque")
    assert "stringData" not in stored.body


async def test_a_service_gets_its_defaults(api: Api) -> None:
    body = {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}}
    spec = (await api.create("services", body)).body["spec"]
    assert spec["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]
    assert (spec["type"], spec["sessionAffinity"]) == ("ClusterIP", "None")


async def test_the_embedded_server_says_which_kinds_it_has(api: Api) -> None:
    answer = await api.get("/apis/example.com/v9/deployments")
    assert (answer.code, api.real or "configmaps" in answer.body["message"]) == (404, True)
