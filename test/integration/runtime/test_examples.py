"""The controllers of docs/library.md, on the embedded API server."""

import asyncio
import os
import signal
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.api_server import ApiServer
from support.pages import ROOT, block, blocks
from support.programs import until
from support.raw_api import RawApi

from kruise_probe.api.errors import NotFound
from kruise_probe.client.rest import RestClient
from kruise_probe.runtime import ClusterConfig, Manager

EXAMPLES = {
    "buckets": block("library.md", "Finalizer, status and events", "python").text,
    "fleets": block("library.md", "Owned pods", "python").text,
    "node_load": block("library.md", "Three kinds joined", "python").text,
}
MAIN = next(each.text for each in blocks("python") if "manager.run()" in each.text)
MOST_LINES = 45


def definition(kind: str) -> dict[str, Any]:
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "scope": "Namespaced",
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def example(name: str) -> ModuleType:
    module = ModuleType(name)
    sys.modules[name] = module  # msgspec resolves annotations there
    exec(compile(EXAMPLES[name], f"{name}.py", "exec"), module.__dict__)
    return module


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer(
        crds=[definition("Bucket"), definition("Fleet")], validators={}
    ) as running:
        yield running


@pytest.fixture
async def api(server: ApiServer) -> AsyncIterator[RawApi]:
    config = ClusterConfig.plain(server.url)
    async with RestClient(config=config, field_manager="kubectl", user_agent="test") as client:
        yield RawApi(client)


@asynccontextmanager
async def running(server: ApiServer, name: str, *arguments: Any) -> AsyncIterator[Manager]:
    manager = Manager(ClusterConfig.plain(server.url), name=name)
    example(name).setup(manager, *arguments)
    task = asyncio.create_task(manager.start())
    try:
        yield manager
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()


BUCKETS = "/apis/example.com/v1/namespaces/default/buckets"
FLEETS = "/apis/example.com/v1/namespaces/default/fleets"
PODS = "/api/v1/namespaces/default/pods"
BUCKET = {"apiVersion": "example.com/v1", "kind": "Bucket", "metadata": {"name": "b"}}


async def test_a_bucket_has_a_folder_a_condition_and_an_event(server, api, tmp_path):
    async with running(server, "buckets", tmp_path):
        await api.create(BUCKETS, BUCKET)

        async def ready() -> bool:
            bucket = await api.get(f"{BUCKETS}/b")
            return bool(bucket.get("status", {}).get("conditions"))

        await until("the condition", ready)
        bucket = await api.get(f"{BUCKETS}/b")
        folder = tmp_path / bucket["metadata"]["uid"]
        assert folder.is_dir()
        (condition,) = bucket["status"]["conditions"]
        assert (condition["type"], condition["status"]) == ("Ready", "True")
        assert condition["lastTransitionTime"]

        async def recorded() -> bool:
            return any(each["reason"] == "Created" for each in server.objects("events"))

        await until("the event", recorded)

        await api.delete(f"{BUCKETS}/b")

        async def gone() -> bool:
            try:
                await api.get(f"{BUCKETS}/b")
            except NotFound:
                return True
            return False

        await until("the end of the bucket", gone)
        assert not folder.exists()


async def test_a_fleet_has_as_many_pods_as_it_wants_and_never_more(server, api):
    fleet = {**BUCKET, "kind": "Fleet", "metadata": {"name": "f"}}
    async with running(server, "fleets"):
        await api.create(FLEETS, {**fleet, "spec": {"replicas": 3, "image": "nginx"}})

        def pods() -> list[Any]:
            return [
                each
                for each in server.objects("pods")
                if "deletionTimestamp" not in each["metadata"]
            ]

        async def three() -> bool:
            return len(pods()) == 3

        await until("three pods", three)
        await api.delete(f"{PODS}/{pods()[0]['metadata']['name']}")
        await until("three pods", three)

        async def counted() -> bool:
            found = await api.get(f"{FLEETS}/f")
            return found.get("status") == {"replicas": 3}

        await until("the status", counted)
        (owner,) = pods()[0]["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["controller"]) == ("Fleet", True)

        await api.merge(f"{FLEETS}/f", {"spec": {"replicas": 1}})

        async def one() -> bool:
            return len(pods()) == 1

        await until("one pod", one)
        assert server.faults.requests["create", "pods", 201] == 4, (
            "three, and one for the deleted one"
        )


async def test_a_node_is_annotated_by_its_pods_and_its_lease(server, api):
    async with running(server, "node_load"):
        await api.create("/api/v1/nodes", {"metadata": {"name": "node-1"}})

        async def annotated(pods: str, leased: str) -> None:
            async def shown() -> bool:
                node = await api.get("/api/v1/nodes/node-1")
                found = node["metadata"].get("annotations", {})
                return (found.get("example.com/pods"), found.get("example.com/leased")) == (
                    pods,
                    leased,
                )

            await until("the annotations", shown)

        await annotated("0", "False")
        spec = {"nodeName": "node-1", "containers": [{"name": "main", "image": "nginx"}]}
        await api.create(PODS, {"metadata": {"name": "web-0"}, "spec": spec})
        await annotated("1", "False")
        leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        await api.create(
            leases, {"metadata": {"name": "node-1"}, "spec": {"holderIdentity": "node-1"}}
        )
        await annotated("1", "True")


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_short(name: str) -> None:
    assert len(EXAMPLES[name].splitlines()) <= MOST_LINES


async def test_two_signals_do_not_keep_the_lease(server, api, tmp_path):
    """The program of the page, as a process."""
    (tmp_path / "buckets.py").write_text(EXAMPLES["buckets"])
    (tmp_path / "main.py").write_text(MAIN.replace(":8081", "0").replace(":8080", "0"))
    server.write_kubeconfig(tmp_path / "kubeconfig")
    lease = "/apis/coordination.k8s.io/v1/namespaces/default/leases/buckets"
    await api.create(BUCKETS, BUCKET)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "main.py", tmp_path / "folders",
        cwd=tmp_path,
        env={**os.environ, "KUBECONFIG": str(tmp_path / "kubeconfig")},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:

        async def works() -> bool:
            return bool((await api.get(f"{BUCKETS}/b")).get("status"))

        await until("the bucket's status", works)
        assert (await api.get(lease))["spec"]["holderIdentity"]
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
        assert not (await api.get(lease))["spec"].get("holderIdentity")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def test_the_examples_are_typed_against_the_installed_wheel(tmp_path: Path) -> None:
    """mypy --strict, with nothing of this checkout on its path but the installed packages."""
    site = tmp_path / "site"
    options = "--quiet --no-deps --no-build-isolation --no-index --disable-pip-version-check"
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options.split(), "--wheel-dir", tmp_path, ROOT],
        check=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", site], check=True)
    (packages,) = site.glob("lib/python*/site-packages")
    zipfile.ZipFile(wheel).extractall(packages)
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    examples = tmp_path / "examples"
    examples.mkdir()
    for name, text in {**EXAMPLES, "main": MAIN}.items():
        (examples / f"{name}.py").write_text(text)
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--python-executable", site / "bin/python", "."],
        cwd=examples,
        env={**os.environ, "MYPY_CACHE_DIR": str(ROOT / ".mypy_cache/examples")},
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
