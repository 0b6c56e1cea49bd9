"""Dependents of owners that are gone, on both servers."""

import pytest
from support.contract_api import Api, Json, node_pod_probe, pod

NEVER = {"kind": "Pod", "name": "never", "uid": "3b7e1d0c-0000-0000-0000-000000000000"}


def lease(name: str, *owners: Json) -> Json:
    return {"metadata": {"name": name, "ownerReferences": list(owners)}}


async def owner(api: Api, name: str, *, namespace: str | None = None) -> Json:
    made = await api.post(api.path("leases", namespace=namespace), {"metadata": {"name": name}})
    assert made.code == 201, made
    version = "coordination.k8s.io/v1"
    return {"apiVersion": version, "kind": "Lease", "name": name, "uid": made.meta["uid"]}


async def test_what_a_node_owns_goes_with_it(api: Api) -> None:
    name, labels = f"n-{api.unique}", {"contract": api.unique}
    node = await api.create("nodes", {"metadata": {"name": name, "labels": labels}})
    owns = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node.meta["uid"]}
    body = node_pod_probe(name)
    body["metadata"] |= {"ownerReferences": [owns], "labels": labels}
    await api.create("nodepodprobes", body)
    await api.delete(api.path("nodes", name))
    await api.until_gone(api.path("nodepodprobes", name))


@pytest.mark.parametrize(
    ("version", "kind"), [("example.com/v1", "Unserved"), ("v1", "Unserved"), ("v7", "Pod")]
)
async def test_an_owner_of_an_unserved_kind_counts_as_there(
    api: Api, version: str, kind: str
) -> None:
    gone = {**NEVER, "apiVersion": "v1"}
    unknown = {**NEVER, "apiVersion": version, "kind": kind, "uid": NEVER["uid"][::-1]}
    owners = {"one": [unknown], "both": [gone, unknown], "z": [gone]}
    for name, references in owners.items():
        await api.create("pods", pod(name, node="", ownerReferences=references))
    await api.until_gone(api.path("pods", "z"))
    left = (await api.get(api.path("pods"))).body["items"]
    assert [each["metadata"]["name"] for each in left] == ["both", "one"]


async def test_an_owner_in_another_namespace_does_not_keep_its_dependent(api: Api) -> None:
    name = f"owner-{api.unique}"
    await api.create("leases", lease("d", await owner(api, name, namespace="default")))
    await api.until_gone(api.path("leases", "d"))
    await api.delete(api.path("leases", name, namespace="default"))


async def test_a_namespace_takes_everything_with_it(api: Api) -> None:
    name = f"{api.namespace}-b"
    await api.post(api.path("namespaces"), {"metadata": {"name": name}})
    await api.post(api.path("leases", namespace=name), lease("l"))
    await api.delete(api.path("namespaces", name))
    await api.until_gone(api.path("namespaces", name))
    assert (await api.get(api.path("leases", "l", namespace=name))).code == 404
