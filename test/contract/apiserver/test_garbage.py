"""Dependents of owners that are gone, on both servers."""

import pytest
from contract.contract_api import Api, node_pod_probe, pod

NEVER = {"kind": "Pod", "name": "never", "uid": "3b7e1d0c-0000-0000-0000-000000000000"}


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


async def test_a_namespace_takes_everything_with_it(api: Api) -> None:
    name = f"{api.namespace}-b"
    await api.post(api.path("namespaces"), {"metadata": {"name": name}})
    await api.post(api.path("leases", namespace=name), {"metadata": {"name": "l"}})
    await api.delete(api.path("namespaces", name))
    await api.until_gone(api.path("namespaces", name))
    assert (await api.get(api.path("leases", "l", namespace=name))).code == 404
