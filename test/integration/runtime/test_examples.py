"""The controllers of docs/library.md, on the API server of the test kit."""

import asyncio
import os
import signal
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import Any

import pytest
from support.library import EXAMPLES, MAIN, MODULES, running
from support.pages import ROOT
from support.patience import PATIENCE_SECONDS
from support.programs import until

from kruise_probe.runtime import PatchType, RestClient, load_config
from kruise_probe_playground.testing.kube_api import KubeApi

MOST_LINES = 45

BUCKETS, FLEETS = "buckets.example.com", "fleets.example.com"
LEASES = "leases.coordination.k8s.io"


@pytest.fixture
def kube_crds() -> list[Any]:
    return [MODULES["buckets"].Bucket, MODULES["fleets"].Fleet]


def custom(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "example.com/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


async def send(kubeconfig: Path, method: str, path: str, body: bytes | None = None) -> None:
    config = load_config(str(kubeconfig))
    async with RestClient(config=config, field_manager="kubectl", user_agent="test") as client:
        await client.request_raw(method, path, body, PatchType.MERGE)


async def delete(kubeconfig: Path, path: str) -> None:
    await send(kubeconfig, "DELETE", path)


def has_status(obj: Any) -> bool:
    return bool(obj and obj.get("status"))


async def test_a_bucket_has_a_folder_a_condition_and_an_event(
    kube_api: KubeApi, kubeconfig: Path, tmp_path: Path
) -> None:
    async with running(kubeconfig, "buckets", tmp_path):
        kube_api.create(custom("Bucket", "b"))
        bucket = await kube_api.until(BUCKETS, "b", has_status, seconds=PATIENCE_SECONDS)
        assert bucket
        folder = tmp_path / bucket["metadata"]["uid"]
        assert folder.is_dir()
        (condition,) = bucket["status"]["conditions"]
        assert (condition["type"], condition["status"]) == ("Ready", "True")
        assert condition["lastTransitionTime"]

        async def recorded() -> bool:
            return bool(kube_api.objects("events"))

        await until("an event", recorded)
        (event,) = kube_api.objects("events")
        assert (event["reason"], event["involvedObject"]["kind"]) == ("Created", "Bucket")

        await delete(kubeconfig, "/apis/example.com/v1/namespaces/default/buckets/b")
        await kube_api.until(BUCKETS, "b", lambda obj: obj is None, seconds=PATIENCE_SECONDS)
        assert not folder.exists()


async def test_a_fleet_has_as_many_pods_as_it_wants_and_never_more(
    kube_api: KubeApi, kubeconfig: Path
) -> None:
    def pods() -> list[Any]:
        found = kube_api.objects("pods")
        return [each for each in found if "deletionTimestamp" not in each["metadata"]]

    async def until_pods(count: int) -> None:
        async def counted() -> bool:
            return len(pods()) == count

        await until(f"{count} pods", counted)

    async with running(kubeconfig, "fleets"):
        kube_api.create(custom("Fleet", "f", replicas=3, image="nginx"))
        await until_pods(3)
        lost = pods()[0]["metadata"]["name"]
        await delete(kubeconfig, f"/api/v1/namespaces/default/pods/{lost}")
        await until_pods(3)
        await kube_api.until(
            FLEETS,
            "f",
            lambda obj: (obj or {}).get("status") == {"replicas": 3},
            seconds=PATIENCE_SECONDS,
        )
        (owner,) = pods()[0]["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["controller"]) == ("Fleet", True)
        path = "/apis/example.com/v1/namespaces/default/fleets/f"
        await send(kubeconfig, "PATCH", path, b'{"spec":{"replicas":1}}')
        await until_pods(1)
        assert kube_api.requests["create", "pods", 201] == 4, "three, and one for the deleted one"


async def test_a_node_is_annotated_by_its_pods_and_its_lease(
    kube_api: KubeApi, kubeconfig: Path
) -> None:
    async def until_shown(pods: str, leased: str) -> None:
        expected = {"example.com/pods": pods, "example.com/leased": leased}
        await kube_api.until(
            "nodes",
            "node-1",
            lambda obj: obj["metadata"].get("annotations") == expected,  # type: ignore[index]
            seconds=PATIENCE_SECONDS,
        )

    async with running(kubeconfig, "node_load"):
        kube_api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}})
        await until_shown("0", "False")
        spec = {"nodeName": "node-1", "containers": [{"name": "main", "image": "nginx"}]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-0"}, "spec": spec}
        kube_api.create(pod)
        await until_shown("1", "False")
        kube_api.create(
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": "node-1", "namespace": "kube-node-lease"},
                "spec": {"holderIdentity": "node-1"},
            }
        )
        await until_shown("1", "True")


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_short(name: str) -> None:
    assert len(EXAMPLES[name].splitlines()) <= MOST_LINES


async def test_two_signals_do_not_keep_the_lease(
    kube_api: KubeApi, kubeconfig: Path, tmp_path: Path
) -> None:
    """The program of the page, as a process."""
    (tmp_path / "buckets.py").write_text(EXAMPLES["buckets"])
    (tmp_path / "main.py").write_text(MAIN.replace(":8081", "0").replace(":8080", "0"))
    kube_api.create(custom("Bucket", "b"))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "main.py", tmp_path / "folders",
        cwd=tmp_path,
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        await kube_api.until(BUCKETS, "b", has_status, seconds=PATIENCE_SECONDS)
        lease = kube_api.object(LEASES, "buckets")
        assert lease
        assert lease["spec"]["holderIdentity"]
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
        lease = kube_api.object(LEASES, "buckets")
        assert lease
        assert not lease["spec"].get("holderIdentity")
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
