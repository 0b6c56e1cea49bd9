"""Puts hollow nodes and pods on an API server, and takes away again what was put there."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import hollow
from benchmarks.api import Api, Refused, Request
from kruise_probe.manifests.crds import all_crds

CRDS_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Hollow(NamedTuple):
    """What stands there: by node, the names and uids of its pods."""

    pods_of: dict[str, list[tuple[str, str]]]

    @property
    def pods(self) -> list[tuple[str, str]]:
        return [pod for pods in self.pods_of.values() for pod in pods]


@asynccontextmanager
async def progress(text: str, total: int) -> AsyncIterator[Callable[[], object]]:
    """A bar on a terminal; elsewhere nothing."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not Console(stderr=True).is_terminal,
    )
    with bar:
        task = bar.add_task(text, total=total)
        yield lambda: bar.advance(task)


@asynccontextmanager
async def hollow_cluster(
    api: Api, *, nodes: int, pods: int, crds: tuple[Path, ...] = ()
) -> AsyncIterator[Hollow]:
    """Nodes and running pods, evenly spread; all of it is gone after the block, CRDs that were new too."""
    new_crds = await _install(api, crds)
    try:
        await _namespace(api)
        async with progress("nodes", nodes) as done:
            await api.each(map(hollow.node, range(nodes)), fine=(409,), on_done=done)
        numbers = range(pods)
        async with progress("pods", 2 * pods) as done:
            await api.each((hollow.pod(n, nodes) for n in numbers), fine=(409,), on_done=done)
            await api.each((hollow.pod_status(n, nodes) for n in numbers), on_done=done)
        yield await _uids(api)
    finally:
        await _clean(api, nodes, new_crds)


@asynccontextmanager
async def installed(api: Api) -> AsyncIterator[None]:
    """Our CRDs and the system namespace; CRDs that were new are gone after the block."""
    new = await _install(api, ())
    try:
        await _create_namespace(api, "kruise-system")
        yield
    finally:
        await _uninstall(api, new)


async def _uids(api: Api) -> Hollow:
    pods_of: dict[str, list[tuple[str, str]]] = {}
    token = ""
    while True:
        page = await api.json("GET", f"{hollow.PODS_PATH}?limit=500&continue={token}")
        for each in page["items"]:
            meta = each["metadata"]
            pods_of.setdefault(each["spec"]["nodeName"], []).append((meta["name"], meta["uid"]))
        token = page["metadata"].get("continue", "")
        if not token:
            return Hollow(pods_of)


async def _install(api: Api, files: tuple[Path, ...]) -> list[str]:
    """The names of the CRDs that were not there before."""
    new: list[str] = []
    for crd in _documents(files) if files else all_crds():
        name = crd["metadata"]["name"]
        try:
            await api.json("POST", CRDS_PATH, crd)
            new.append(name)
        except Refused as refusal:
            if refusal.status != 409:
                raise
        await _established(api, name)
    return new


async def _uninstall(api: Api, names: list[str]) -> None:
    """Returns when they are gone, so that another run may follow at once."""
    for name in names:
        await api.call(Request("DELETE", f"{CRDS_PATH}/{name}"), fine=(404,))
    for name in names:
        await gone(api, f"{CRDS_PATH}/{name}")


async def gone(api: Api, path: str) -> None:
    """Waits, within reason, until nothing is there any more: deletions take their time."""
    for _ in range(600):
        if b'"reason":"NotFound"' in await api.call(Request("GET", path), fine=(404,)):
            return
        await asyncio.sleep(0.1)


async def _established(api: Api, name: str) -> None:
    while True:
        found = await api.json("GET", f"{CRDS_PATH}/{name}")
        conditions = found.get("status", {}).get("conditions") or ()
        if any(each["type"] == "Established" and each["status"] == "True" for each in conditions):
            return
        await asyncio.sleep(0.1)  # it takes a fraction of a second, and only once


def _documents(paths: Iterable[Path]) -> list[dict[str, Any]]:
    files = [
        file
        for path in paths
        for file in (sorted(path.glob("*.yaml")) if path.is_dir() else [path])
    ]
    return [
        each
        for file in files
        for each in yaml.safe_load_all(file.read_text())
        if each and each["kind"] == "CustomResourceDefinition"
    ]


async def _namespace(api: Api) -> None:
    """Created, and with the service account without which no pod is admitted."""
    await _create_namespace(api, hollow.NAMESPACE)
    await _create_namespace(api, "kruise-system")
    account = f"/api/v1/namespaces/{hollow.NAMESPACE}/serviceaccounts/default"
    for _ in range(100):
        if b'"uid"' in await api.call(Request("GET", account), fine=(404,)):
            return
        await asyncio.sleep(0.1)
    raise TimeoutError(f"{account} does not come up; does a controller manager run?")


async def _create_namespace(api: Api, name: str) -> None:
    await api.json("POST", "/api/v1/namespaces", {"metadata": {"name": name}}, fine=(409,))


async def _clean(api: Api, nodes: int, crds: list[str]) -> None:
    marker = f"{hollow.MARKERS_PATH}/{hollow.MARKER}"
    await api.call(Request("DELETE", marker), fine=(404,))
    no_finalizers = b'{"metadata":{"finalizers":null}}'
    await api.call(
        Request("PATCH", marker, no_finalizers, "application/merge-patch+json"), fine=(404,)
    )
    await api.call(Request("DELETE", f"{hollow.PODS_PATH}?gracePeriodSeconds=0"))
    names = [hollow.node_name(number) for number in range(nodes)]
    await api.each((Request("DELETE", f"/api/v1/nodes/{name}") for name in names), fine=(404,))
    paths = (f"{hollow.NODE_POD_PROBES_PATH}/{name}" for name in names)
    await api.each((Request("DELETE", path) for path in paths), fine=(404,))
    namespace = f"/api/v1/namespaces/{hollow.NAMESPACE}"
    await api.call(Request("DELETE", namespace), fine=(404, 409))
    await gone(api, namespace)
    await _uninstall(api, crds)
