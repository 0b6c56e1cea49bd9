"""The controllers of docs/library.md on a real cluster: their pods run on its node, and end with their owner."""

from asyncio import to_thread
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.kubectl import Kubectl, annotations
from support.library import MODULES, running
from support.programs import until

from kruise_probe_playground.testing.definitions import read_definitions

OWNED = {"apiVersion": "example.com/v1", "metadata": {"name": "a"}}

pytestmark = pytest.mark.on_the_node


def wait(kubectl: Kubectl, *arguments: str) -> None:
    kubectl.run("wait", "--timeout=120s", *arguments, timeout=150)


@pytest.fixture(scope="module", autouse=True)
def kinds(admin: Kubectl) -> Iterator[None]:
    structs = (MODULES["buckets"].Bucket, MODULES["fleets"].Fleet)
    admin.apply(*(each for struct in structs for each in read_definitions(struct)))
    names = ("crd/buckets.example.com", "crd/fleets.example.com")
    wait(admin, "--for=condition=Established", *names)
    yield
    admin.run("delete", *names)


async def test_fleet_has_running_pods(namespace: Kubectl, node: str) -> None:
    fleet = {**OWNED, "kind": "Fleet", "spec": {"replicas": 2, "image": "kruise-probe-test:pause"}}
    async with running(Path(namespace.kubeconfig), "fleets", namespace=namespace.namespace):
        await to_thread(namespace.apply, fleet)
        await to_thread(wait, namespace, "--for=jsonpath={.status.replicas}=2", "fleet/a")
        await to_thread(wait, namespace, "--for=condition=Ready", "pods", "--all")
        pods = await to_thread(namespace.items, "pods")
        assert [each["spec"]["nodeName"] for each in pods] == [node] * 2
        # The garbage collector looks for new kinds every 30 s.
        await to_thread(namespace.run, "delete", "fleet", "a", "--cascade=foreground")
        assert await to_thread(namespace.items, "pods") == []


async def test_bucket_has_a_folder(namespace: Kubectl, tmp_path: Path) -> None:
    folders = tmp_path / "folders"
    where = namespace.namespace
    async with running(Path(namespace.kubeconfig), "buckets", folders, namespace=where):
        await to_thread(namespace.apply, {**OWNED, "kind": "Bucket"})
        await to_thread(wait, namespace, "--for=condition=Ready", "bucket/a")
        assert len(list(folders.iterdir())) == 1
        await to_thread(namespace.run, "delete", "bucket", "a")
        assert list(folders.iterdir()) == []


async def test_node_has_its_load(admin: Kubectl, node: str) -> None:
    async def annotated() -> bool:
        found = annotations(await to_thread(admin.get, "node", node))
        return found.get("example.com/leased") == "True"

    async with running(Path(admin.kubeconfig), "node_load"):
        await until("the annotations", annotated)
    admin.run("annotate", "node", node, "example.com/leased-", "example.com/pods-")
