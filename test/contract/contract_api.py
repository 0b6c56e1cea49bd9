"""Plain HTTP to an API server, without a Kubernetes client, for the contract tests."""

import asyncio
import io
import json
import os
import ssl
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import aiohttp
from support.patience import PATIENCE_SECONDS
from support.programs import until
from support.real_node import busybox_pod
from support.wire import Json, typed

from kruise_probe.client.config import load_config
from kruise_probe.manifests.crds import all_crds

DATA = Path(__file__).parents[1] / "data"
JSON = "application/json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
GROUP = "/apis/apps.kruise.io/v1alpha1"
NODE_POD_PROBES = f"{GROUP}/nodepodprobes"
ROOTS = {
    "podprobemarkers": GROUP,
    "nodepodprobes": GROUP,
    "leases": "/apis/coordination.k8s.io/v1",
}
"""API paths of the resources outside core/v1."""
CLUSTER_SCOPED = ("nodes", "namespaces", "nodepodprobes")
DISPOSABLE_VARIABLE = "KRUISE_PROBE_CONTRACT_DISPOSABLE"
"""Set if the real cluster ends with the tests, so that nothing has to be deleted from it."""
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@dataclass(frozen=True)
class ServerAddress:
    """Address and credentials of an API server."""

    url: str
    kubeconfig: Path
    tls: ssl.SSLContext | None = None
    real: bool = False


def target_of(kubeconfig: Path) -> ServerAddress:
    """The real server of a kubeconfig, whose user has a client certificate."""
    config = load_config(str(kubeconfig))
    return ServerAddress(config.server, kubeconfig, config.tls, real=True)


class ApiResponse:
    """A response: HTTP status, headers, decoded body."""

    def __init__(self, code: int, headers: Any, text: str) -> None:
        self.code = code
        self.headers = headers
        self.text = text

    @property
    def body(self) -> Json:
        decoded: Json = json.loads(self.text)
        return decoded

    @property
    def meta(self) -> Json:
        metadata: Json = self.body["metadata"]
        return metadata

    @property
    def revision(self) -> str:
        revision: str = self.meta["resourceVersion"]
        return revision

    @property
    def causes(self) -> set[tuple[str, str]]:
        """(reason, field) of each cause of a failure."""
        causes = self.body["details"]["causes"]
        return {(cause["reason"], cause["field"]) for cause in causes}

    def __repr__(self) -> str:
        return f"{self.code} {self.text[:2000]}"


class WatchStream:
    """The events of a watch, one by one, each with a deadline."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def next(self) -> Json:
        """The next event, without bookmarks other than the one after the initial events."""
        while True:
            async with asyncio.timeout(PATIENCE_SECONDS):
                line = await self._response.content.readline()
            assert line, "the watch ended"
            event: Json = json.loads(line)
            if event["type"] != "BOOKMARK" or "annotations" in event["object"]["metadata"]:
                return event

    async def rest(self) -> list[Json]:
        """All events until the server ends the watch."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            text = await self._response.text()
        return [json.loads(line) for line in text.splitlines()]


class Api:
    """Requests to one server, in one namespace of its own. `headers` may repeat a name."""

    def __init__(self, session: aiohttp.ClientSession, target: ServerAddress) -> None:
        self.session = session
        self.target = target
        self.real = target.real
        self.headers: list[tuple[str, str]] = []
        self.unique = uuid.uuid4().hex[:8]
        self.namespace = f"contract-{self.unique}"

    def path(self, resource: str, name: str = "", *, namespace: str | None = None) -> str:
        """`pods`, `nodepodprobes`, ... as a path; `namespace` empty for all namespaces."""
        path = ROOTS.get(resource, "/api/v1")
        if namespace is None:
            namespace = self.namespace
        if namespace and resource not in CLUSTER_SCOPED:
            path += f"/namespaces/{namespace}"
        path += f"/{resource}"
        if name:
            path += f"/{name}"
        return path

    async def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = JSON,
        accept: str = JSON,
        **query: Any,
    ) -> ApiResponse:
        data = None
        headers = [("Accept", accept), ("User-Agent", "contract/1.0"), *self.headers]
        if body is not None:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            data = io.BytesIO(content)
            headers.append(("Content-Type", content_type))
        request = self.session.request(
            method,
            self.target.url + path,
            data=data,
            headers=headers,
            params=_texts(query),
            ssl=self.target.tls or True,
        )
        async with asyncio.timeout(PATIENCE_SECONDS), request as response:
            return ApiResponse(response.status, response.headers, await response.text())

    async def get(self, path: str, **query: Any) -> ApiResponse:
        return await self.send("GET", path, **query)

    async def post(self, path: str, body: Any, **query: Any) -> ApiResponse:
        return await self.send("POST", path, body, **query)

    async def put(self, path: str, body: Any) -> ApiResponse:
        return await self.send("PUT", path, body)

    async def delete(self, path: str, **query: Any) -> ApiResponse:
        return await self.send("DELETE", path, **query)

    async def merge(self, path: str, patch: Any) -> ApiResponse:
        return await self.send("PATCH", path, patch, content_type=MERGE)

    async def strategic(self, path: str, patch: Any) -> ApiResponse:
        return await self.send("PATCH", path, patch, content_type=STRATEGIC)

    @asynccontextmanager
    async def watch(self, path: str, **query: Any) -> AsyncIterator[WatchStream]:
        request = self.session.get(
            self.target.url + path,
            params={"watch": "true", "timeoutSeconds": "300", **_texts(query)},
            headers={"Accept": JSON},
            ssl=self.target.tls or True,
        )
        async with request as response:
            yield WatchStream(response)

    async def create(self, resource: str, body: Json, **query: Any) -> ApiResponse:
        """Creates an object in the test's namespace; it must succeed."""
        answer = await self.post(self.path(resource), body, **query)
        assert answer.code == 201, answer
        return answer

    async def begin_namespace(self) -> str:
        """Creates the test's namespace; returns its version. Pods of a real server need an account, which a controller creates later."""
        made = await self.post(
            self.path("namespaces"),
            {"metadata": {"name": self.namespace}},
        )
        assert made.code == 201, made
        if self.real:
            account = await self.post(
                self.path("serviceaccounts"), {"metadata": {"name": "default"}}
            )
            assert account.code in (201, 409), account
        return made.revision

    async def end_namespace(self) -> None:
        """Deletes the test's namespace, unless the cluster ends with the tests.

        Kubernetes sends about a hundred requests for each deletion, to find what the namespace has.
        """
        if not (self.real and os.environ.get(DISPOSABLE_VARIABLE)):
            await self.delete(self.path("namespaces", self.namespace))

    async def install_crds(self) -> None:
        """Makes the CRDs of the server ours, and returns when it judges by them.

        Workers of one run do so at the same time, so the spec is replaced by a patch without a resourceVersion, which
        the server repeats after a conflict.
        """
        for crd in all_crds():
            created = await self.post(DEFINITIONS, crd)
            if created.code == 409:
                path = f"{DEFINITIONS}/{crd['metadata']['name']}"
                created = await self.merge(path, {"spec": crd["spec"]})
            assert created.code in (200, 201), created
        probe: Json = {
            "name": "#",
            "containerName": "c",
            "probe": {},
        }
        wrong = marker("x", probes=[probe])
        path = self.path("podprobemarkers", namespace="default")

        async def judges() -> bool:
            served = await self.get(self.path("nodepodprobes"))
            refused = await self.post(path, wrong, dryRun="All")
            return served.code == 200 and "separates marker" in refused.text

        # A changed definition is served some moments later.
        await until("the API server judges by our CRDs", judges)

    async def until_gone(self, path: str) -> None:
        async def is_gone() -> bool:
            return (await self.get(path)).code == 404

        await until(f"{path} is gone", is_gone)


Session = Callable[[Callable[[Api], Awaitable[None]]], None]
"""Runs a coroutine function with a server."""


def _texts(query: Json) -> dict[str, str]:
    return {key: str(value) for key, value in query.items()}


def absent_node() -> str:
    """The name of a Node that does not exist, another one for each test.

    Kubernetes deletes all pods of a Node that it has missed for 40 s (podgc), so tests that share a name lose pods.
    """
    test, _, _ = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")
    return f"nowhere-{crc32(test.encode()):08x}"


def named(kind: str, name: str, **metadata: Any) -> Json:
    """An object without a spec."""
    return typed(kind, metadata={"name": name, **metadata})


def pod(name: str = "p", *, node: str | None = None, **metadata: Any) -> Json:
    """A pod of one container, by default on a node that does not exist; with an empty `node` it is never scheduled."""
    spec: Json = {
        "schedulerName": "nobody",
        "automountServiceAccountToken": False,
        "containers": [{"name": "c", "image": "i"}],
    }
    if node is None:
        node = absent_node()
    if node:
        spec["nodeName"] = node
    return {
        **named("Pod", name, **metadata),
        "spec": spec,
    }


def node_pod_probe(name: str, **metadata: Any) -> Json:
    return {
        **named("NodePodProbe", name, **metadata),
        "spec": {},
    }


def marker(name: str = "m", **spec: Any) -> Json:
    probe = {
        "name": "healthy",
        "containerName": "c",
        "probe": {"exec": {"command": ["true"]}},
        "podConditionType": "example.com/healthy",
    }
    selector = {"matchLabels": {"app": "a"}}
    return {
        **named("PodProbeMarker", name),
        "spec": {"selector": selector, "probes": [probe], **spec},
    }


def replica_set(**spec: Any) -> Json:
    app = {"app": "game"}
    pod_spec = busybox_pod("", "sleep", "1000000")["spec"]
    return {
        **named("ReplicaSet", "game"),
        "apiVersion": "apps/v1",
        "spec": {
            "selector": {"matchLabels": app},
            "template": {"metadata": {"labels": app}, "spec": pod_spec},
            "replicas": 0,
            **spec,
        },
    }
