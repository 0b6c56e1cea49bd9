"""The controllers of docs/library.md and the client of `kruise_probe.runtime`, on both servers."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.contract_api import DEFINITIONS, Api, ServerAddress
from support.library import MODULES, running
from support.programs import until

from kruise_probe.runtime import (
    ApiError,
    ApiObject,
    Client,
    Conflict,
    ObjectMeta,
    Propagation,
    RestClient,
    kind,
    load_config,
    replace,
)
from kruise_probe_playground.testing.definitions import read_definitions


@pytest.fixture
async def kinds(api: Api) -> AsyncIterator[None]:
    """Serves buckets and fleets."""
    crds = [
        crd
        for struct in (MODULES["buckets"].Bucket, MODULES["fleets"].Fleet)
        for crd in read_definitions(struct)
    ]
    for crd in crds:
        await api.post(DEFINITIONS, crd)
    for crd in crds:
        plural = crd["spec"]["names"]["plural"]

        async def served(plural: str = plural) -> bool:
            return (await api.get(path(api, plural))).code == 200

        await until(f"{plural} are served", served)
    yield
    for crd in crds:
        name = crd["metadata"]["name"]
        await api.delete(f"{DEFINITIONS}/{name}")
        await api.until_gone(f"{DEFINITIONS}/{name}")


def path(api: Api, plural: str, name: str = "") -> str:
    return f"/apis/example.com/v1/namespaces/{api.namespace}/{plural}/{name}".rstrip("/")


def custom(kind: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "example.com/v1",
        "kind": kind,
        "metadata": {"name": "a"},
        "spec": spec,
    }


async def test_buckets(api: Api, target: ServerAddress, kinds: None, tmp_path: Path) -> None:
    folders = tmp_path / "folders"
    async with running(target.kubeconfig, "buckets", folders, namespace=api.namespace):
        created = await api.post(path(api, "buckets"), custom("Bucket"))
        folder = folders / created.meta["uid"]

        async def ready() -> bool:
            status = (await api.get(path(api, "buckets", "a"))).body.get("status", {})
            return [each["status"] for each in status.get("conditions", [])] == ["True"]

        await until("the condition", ready)
        assert folder.is_dir()

        async def recorded() -> bool:
            found = (await api.get(api.path("events"))).body["items"]
            return [each["reason"] for each in found] == ["Created"]

        await until("the event", recorded)
        await api.delete(path(api, "buckets", "a"))
        await api.until_gone(path(api, "buckets", "a"))
        assert not folder.exists()


async def test_fleets(api: Api, target: ServerAddress, kinds: None) -> None:
    async def until_pods(count: int) -> None:
        async def counted() -> bool:
            found = (await api.get(api.path("pods"))).body["items"]
            live = [each for each in found if "deletionTimestamp" not in each["metadata"]]
            return len(live) == count

        await until(f"{count} pods", counted)

    async with running(target.kubeconfig, "fleets", namespace=api.namespace):
        await api.post(path(api, "fleets"), custom("Fleet", replicas=3, image="nginx"))
        await until_pods(3)
        await api.merge(path(api, "fleets", "a"), {"spec": {"replicas": 1}})
        await until_pods(1)


async def test_node_load(api: Api, target: ServerAddress) -> None:
    name = f"node-{api.unique}"
    await api.create("nodes", {"metadata": {"name": name}})
    try:
        async with running(target.kubeconfig, "node_load"):

            async def annotated() -> bool:
                found = (await api.get(api.path("nodes", name))).meta.get("annotations", {})
                return bool(found.get("example.com/pods") == "1")

            spec = {"nodeName": name, "containers": [{"name": "main", "image": "nginx"}]}
            await api.create("pods", {"metadata": {"name": "web-0"}, "spec": spec})
            await until("the annotation", annotated)
    finally:
        await api.delete(api.path("pods", "web-0"), gracePeriodSeconds=0)
        await api.delete(api.path("nodes", name))


@kind("v1")
class ConfigMap(ApiObject, frozen=True):
    data: dict[str, str] = msgspec.field(default_factory=dict)


@pytest.fixture
async def client(target: ServerAddress) -> AsyncIterator[Client]:
    config = load_config(str(target.kubeconfig))
    async with RestClient(config=config, field_manager="contract", user_agent="test") as rest:
        yield Client(rest)


async def test_the_verbs_of_the_client(api: Api, client: Client) -> None:
    created = await client.create(ConfigMap(ObjectMeta("a", namespace=api.namespace), {"x": "1"}))
    patched = await client.patch(created, replace(created, data={"y": "2"}))
    assert patched.data == {"y": "2"}
    with pytest.raises(Conflict):
        await client.update(created)
    with pytest.raises(Conflict):
        await client.patch(created, replace(created, data={}), optimistic_lock=True)
    assert (await client.update(replace(patched, data={"z": "3"}))).data == {"z": "3"}
    found = await client.list(ConfigMap, api.namespace, field_selector="metadata.name=a")
    assert [each.data for each in found] == [{"z": "3"}]
    with pytest.raises(Conflict):
        await client.delete(created, optimistic_lock=True)
    await client.delete(created, propagation=Propagation.FOREGROUND)
    await client.delete(created)


async def test_a_patch_spares_a_successor_of_the_same_name(api: Api, client: Client) -> None:
    old = await client.create(ConfigMap(ObjectMeta("a", namespace=api.namespace)))
    await client.delete(old)
    await client.create(ConfigMap(ObjectMeta("a", namespace=api.namespace)))
    with pytest.raises(ApiError) as refused:
        await client.patch(old, replace(old, data={"x": "1"}))
    assert refused.value.code in (409, 422)
    with pytest.raises(Conflict):
        await client.delete(old)


async def test_server_side_apply(api: Api, target: ServerAddress, client: Client) -> None:
    """The playground has none, and says so."""
    wanted = ConfigMap(ObjectMeta("a", namespace=api.namespace), {"x": "1"})
    if not target.real:
        with pytest.raises(ApiError):
            await client.apply(wanted)
        return
    assert (await client.apply(wanted)).data == {"x": "1"}
    other = {"data": {"x": "theirs", "y": "theirs"}}
    await api.merge(f"{api.path('configmaps', 'a')}?fieldManager=other", other)
    with pytest.raises(Conflict):
        await client.apply(wanted, force=False)
    assert (await client.apply(wanted)).data == {"x": "1", "y": "theirs"}
