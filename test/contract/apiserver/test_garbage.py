"""Dependents of owners that are gone, on both servers."""

import pytest
from contract.contract_api import Api, named, node_pod_probe, pod
from support.wire import typed

GONE = typed("Pod", name="never", uid="3b7e1d0c-0000-0000-0000-000000000000")


async def test_what_a_node_owns_goes_with_it(api: Api) -> None:
    name = f"n-{api.unique}"
    labels = {"contract": api.unique}
    node = await api.create(
        "nodes",
        named("Node", name, labels=labels),
    )
    owner = typed("Node", name=name, uid=node.meta["uid"])
    body = node_pod_probe(name, ownerReferences=[owner], labels=labels)
    await api.create("nodepodprobes", body)
    await api.delete(api.path("nodes", name))
    await api.until_gone(api.path("nodepodprobes", name))


@pytest.mark.parametrize(
    ("version", "kind"), [("example.com/v1", "Unserved"), ("v1", "Unserved"), ("v7", "Pod")]
)
async def test_an_owner_of_an_unserved_kind_counts_as_there(
    api: Api, version: str, kind: str
) -> None:
    unknown = {
        **GONE,
        "apiVersion": version,
        "kind": kind,
        "uid": GONE["uid"][::-1],
    }
    owners = {
        "one": [unknown],
        "both": [GONE, unknown],
        "z": [GONE],
    }
    for name, references in owners.items():
        await api.create(
            "pods",
            pod(name, node="", ownerReferences=references),
        )
    await api.until_gone(api.path("pods", "z"))
    left = (await api.get(api.path("pods"))).body["items"]
    assert [pod["metadata"]["name"] for pod in left] == ["both", "one"]


async def test_a_namespace_takes_everything_with_it(api: Api) -> None:
    name = f"{api.namespace}-b"
    path = api.path("namespaces", name)
    await api.post(
        api.path("namespaces"),
        named("Namespace", name),
    )
    await api.post(
        api.path("leases", namespace=name),
        named("Lease", "l"),
    )
    await api.delete(path)
    await api.until_gone(path)
    assert (await api.get(api.path("leases", "l", namespace=name))).code == 404
