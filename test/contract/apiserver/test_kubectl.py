"""kubectl against the server, as people use it."""

import asyncio
import shutil

import pytest
import yaml
from contract.async_kubectl import AsyncKubectl
from contract.contract_api import Api, marker, pod
from support.kubectl import KubectlError
from support.patience import PATIENCE_SECONDS

FILE = ("-f", "-")


@pytest.fixture
def kubectl(api: Api) -> AsyncKubectl:
    """kubectl in the test's namespace."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    return AsyncKubectl(api.target.kubeconfig, api.namespace)


async def test_apply_creates_changes_and_leaves_alone(api: Api, kubectl: AsyncKubectl) -> None:
    path = api.path("pods", "p")
    body = pod(labels={"app": "a", "old": "x"})
    assert "created" in await kubectl("apply", *FILE, stdin=body)
    assert "unchanged" in await kubectl("apply", *FILE, stdin=body)
    await api.merge(path, {"metadata": {"labels": {"foreign": "y"}}})
    changed = pod(labels={"app": "b"})
    changed["spec"]["containers"][0]["image"] = "j"
    assert "configured" in await kubectl("apply", *FILE, stdin=changed)
    after = await api.get(path)
    assert after.meta["labels"] == {"app": "b", "foreign": "y"}
    assert after.body["spec"]["containers"][0]["image"] == "j"
    managers = {entry["manager"] for entry in after.meta["managedFields"]}
    assert "kubectl-client-side-apply" in managers


async def test_apply_and_edit_of_a_marker(
    api: Api, kubectl: AsyncKubectl, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = yaml.safe_dump(marker())
    assert "created" in await kubectl("create", *FILE, stdin=text)
    with pytest.raises(KubectlError, match="AlreadyExists"):
        await kubectl("create", *FILE, stdin=text)
    await kubectl("apply", *FILE, stdin=text)
    assert "unchanged" in await kubectl("apply", *FILE, stdin=text)
    monkeypatch.setenv("KUBE_EDITOR", "sed -i s/healthy/lively/")
    assert "edited" in await kubectl("edit", "ppm", "m")
    after = await api.get(api.path("podprobemarkers", "m"))
    assert after.body["spec"]["probes"][0]["name"] == "lively"
    assert "configured" in await kubectl("apply", *FILE, stdin=text)
    assert "deleted" in await kubectl("delete", *FILE, stdin=text)


async def test_get_prints_tables_by_short_names(kubectl: AsyncKubectl) -> None:
    await kubectl.apply(pod(), marker())
    shown = await kubectl("get", "po,ppm,npp")
    assert "NAME    READY   STATUS    RESTARTS   AGE" in shown
    assert "pod/p   0/1     Pending   0" in shown
    assert "podprobemarker.apps.kruise.io/m" in shown
    wide = await kubectl("get", "pods", "-o", "wide", "--show-labels")
    assert "READINESS GATES" in wide
    assert "nowhere" in wide


async def test_get_follows_changes(api: Api, kubectl: AsyncKubectl) -> None:
    await api.create("pods", pod())
    async with (
        kubectl.started("get", "pods", "--watch", "--output-watch-events") as output,
        asyncio.timeout(PATIENCE_SECONDS),
    ):

        async def cells() -> list[bytes]:
            return (await output.readline()).split()[:4]

        assert b"NAME" in await cells()
        assert await cells() == [b"ADDED", b"p", b"0/1", b"Pending"]
        await api.strategic(
            api.path("pods", "p/status"),
            {"status": {"phase": "Running"}},
        )
        assert await cells() == [b"MODIFIED", b"p", b"0/1", b"Running"]


async def test_describe_shows_the_object_and_its_events(api: Api, kubectl: AsyncKubectl) -> None:
    created = await api.create("pods", pod(labels={"app": "a"}))
    at = created.meta["creationTimestamp"]
    event = {
        "metadata": {"name": "e"},
        "involvedObject": {
            "kind": "Pod",
            "apiVersion": "v1",
            "name": "p",
            "namespace": api.namespace,
            "uid": created.meta["uid"],
        },
        "reason": "KruiseProbeFailed",
        "message": "it failed",
        "type": "Normal",
        "count": 2,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "source": {"component": "c"},
    }
    await api.create("events", event)
    shown = await kubectl("describe", "pod", "p")
    assert "app=a" in shown
    assert "KruiseProbeFailed" in shown
    assert "(x2 over" in shown
    await api.create("podprobemarkers", marker())
    assert "example.com/healthy" in await kubectl("describe", "ppm", "m")


async def test_wait_waits_for_a_condition_and_for_the_end(api: Api, kubectl: AsyncKubectl) -> None:
    await api.create("pods", pod())
    waiting = asyncio.create_task(
        kubectl("wait", "pod/p", "--for=condition=example.com/healthy", "--timeout=60s")
    )
    condition = {"type": "example.com/healthy", "status": "True"}
    await api.strategic(
        api.path("pods", "p/status"),
        {"status": {"conditions": [condition]}},
    )
    assert "condition met" in await waiting
    assert "deleted" in await kubectl("delete", "pod", "p", "--force", "--grace-period=0")
    await kubectl("wait", "pod/p", "--for=delete", "--timeout=60s")


async def test_delete_waits_for_finalizers_and_selectors(api: Api, kubectl: AsyncKubectl) -> None:
    path = api.path("podprobemarkers")
    body = marker("held")
    body["metadata"] |= {"finalizers": ["example.com/held"], "labels": {"app": "a"}}
    await api.create("podprobemarkers", body)
    deleting = asyncio.create_task(kubectl("delete", "ppm", "-l", "app=a"))
    listed = await api.get(path)
    async with api.watch(path, resourceVersion=listed.revision) as stream:
        if "deletionTimestamp" not in listed.body["items"][0]["metadata"]:
            event = await stream.next()
            assert "deletionTimestamp" in event["object"]["metadata"]
    assert not deleting.done()
    await api.merge(f"{path}/held", {"metadata": {"finalizers": None}})
    assert "deleted" in await deleting


async def test_explain_and_api_resources(kubectl: AsyncKubectl) -> None:
    assert "podConditionType" in await kubectl("explain", "ppm.spec.probes")
    assert "readinessGates" in await kubectl("explain", "pod.spec")
    shown = await kubectl("api-resources", "--api-group=apps.kruise.io")
    assert "ppm" in shown
    assert "npp" in shown
