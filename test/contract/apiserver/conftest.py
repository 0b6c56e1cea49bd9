"""One suite, two servers: the playground's, and a real kube-apiserver where there is one."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path

import aiohttp
import pytest
from contract.async_kubectl import AsyncKubectl
from contract.contract_api import Api, ServerAddress, named
from support.api_server import ApiServer
from support.kubectl import Kubectl
from support.playground import ControlledPlayground

from kruise_probe.api.names import LEADER_ELECTION_ID, SYSTEM_NAMESPACE
from kruise_probe.api.times import parse_time, utc_now

NOT_STREAMED = "lists are not streamed by default (kubernetes/kubernetes#135583)"
NO_GENERATION = "pods have no generation (KEP-5067)"
OLDER = (
    (34, "selects[real-streaming-list", NOT_STREAMED),
    (34, "same[status-the-status-of-a-custom", "managedFields list what the write did not change"),
    (33, "a-created-object-has-identity", NO_GENERATION),
    (33, "of-a-pod-only-the-image-may-change", NO_GENERATION),
    (33, "a-generation-counts-the-spec-only", NO_GENERATION),
    (33, "a-pod-on-a-node-waits-for-its-kubelet", NO_GENERATION),
    (33, "the-last-finalizer-ends-pods", NO_GENERATION),
)
"""A minor version of Kubernetes, a part of a test's id, and what real API servers before it do: the test must fail there."""

_prepared: set[str] = set()


@pytest.fixture(params=["embedded", "real"])
async def target(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ServerAddress]:
    """The server under test."""
    if request.param == "real":
        server = request.getfixturevalue("real_server")
        for minor, part, why in OLDER:
            if part in request.node.name and request.getfixturevalue("real_minor_version") < minor:
                request.applymarker(pytest.mark.xfail(reason=why, strict=True))
        yield server
        return
    async with ApiServer() as server:
        kubeconfig = tmp_path / "kubeconfig"
        server.write_kubeconfig(kubeconfig)
        yield ServerAddress(server.url, kubeconfig)


@pytest.fixture
async def api(target: ServerAddress) -> AsyncIterator[Api]:
    """Requests to the server under test, in a namespace that ends with the test."""
    async with aiohttp.ClientSession() as session:
        api = Api(session, target)
        if target.real and target.url not in _prepared:
            await _check_that_no_manager_runs(api)
            await api.install_crds()
            _prepared.add(target.url)
        await api.begin_namespace()
        yield api
        if target.real:
            await api.delete(api.path("pods"), gracePeriodSeconds=0)
            await api.end_namespace()
            for resource in ("nodepodprobes", "nodes"):
                await api.delete(
                    api.path(resource),
                    labelSelector=f"contract={api.unique}",
                )


@pytest.fixture
async def both(api: Api) -> AsyncIterator[tuple[Api, Api]]:
    """The real server and the playground's, each with a namespace of its own."""
    async with ApiServer() as server:
        other = Api(api.session, ServerAddress(server.url, Path()))
        await other.begin_namespace()
        yield api, other


async def _check_that_no_manager_runs(api: Api) -> None:
    """A manager would put finalizers on the markers of the tests, and end their NodePodProbes.

    One that was killed also leaves a Lease that was renewed a moment ago, but does not renew it again.
    """
    found = await _renewed_at(api)
    while found is not None and utc_now() - found < timedelta(seconds=15):
        await asyncio.sleep(1)
        if await _renewed_at(api) != found:
            pytest.fail(
                "a kruise-probe manager runs on this cluster and acts on what these tests create: stop it"
            )


async def _renewed_at(api: Api) -> datetime | None:
    lease = await api.get(api.path("leases", LEADER_ELECTION_ID, namespace=SYSTEM_NAMESPACE))
    return parse_time(lease.body.get("spec", {}).get("renewTime"))


@pytest.fixture(params=["embedded", "real"])
async def node_kubectl(request: pytest.FixtureRequest) -> AsyncIterator[AsyncKubectl]:
    """kubectl in a namespace of its own, on a server with a node and the controller of ReplicaSets."""
    if request.param == "embedded":
        versions = json.loads(Kubectl("").run("version", "--client", "-o", "json"))
        minor = int(versions["clientVersion"]["minor"].rstrip("+"))
        if "port_forward" in request.node.name and minor < 31:
            pytest.xfail("kubectl forwards ports by plain SPDY (KEP-4006)")
        async with ControlledPlayground() as playground:
            yield await _in_namespace(playground.kubeconfig)
        return
    kubectl = await _in_namespace(request.getfixturevalue("real_kubeconfig"))
    # Pods of a real cluster need it, and a controller creates it later.
    await kubectl.apply(named("ServiceAccount", "default"))
    if not await kubectl("get", "nodes", "-o", "name"):
        pytest.skip("the real cluster has no node")
    yield kubectl
    now = ("--grace-period=0", "--force", "--wait=false")
    await kubectl("delete", "replicasets,pods", "--all", *now)


async def _in_namespace(kubeconfig: Path | str) -> AsyncKubectl:
    namespace = f"contract-{secrets.token_hex(4)}"
    kubectl = AsyncKubectl(kubeconfig, namespace)
    await kubectl.apply(named("Namespace", namespace))
    return kubectl
