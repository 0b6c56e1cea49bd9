"""The whole product on a real cluster, black-box; `test_main_job.py` runs on the playground if there is none.

Takes any kubeconfig (KUBECONFIG). hack/e2e-installed installs the product and sets KRUISE_PROBE_E2E_INSTALLED. Without
that, and with KRUISE_PROBE_CRI_ENDPOINT, the manager and the daemon are started here, as the command line starts them, each
under its own service account.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from support.kubectl import Kubectl
from support.playground import ControlledPlayground, new_namespace
from support.real_node import install, running_product
from support.target import JobNamespace, cluster_of

INSTALLED = os.environ.get("KRUISE_PROBE_E2E_INSTALLED", "")
"""By what: `kustomize` with the webhook, `helm` without it, or not at all."""

CRI_ENDPOINT = os.environ.get("KRUISE_PROBE_CRI_ENDPOINT", "")

collect_ignore = [] if INSTALLED else ["test_install.py"]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "with_webhook: of an installation that has the webhook")
    config.addinivalue_line("markers", "on_the_node: the node is the machine of the tests")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    absent: set[str] = set()
    if INSTALLED != "kustomize":
        absent.add("with_webhook")
    if not CRI_ENDPOINT:
        absent.add("on_the_node")
    kept: list[pytest.Item] = []
    deselected: list[pytest.Item] = []
    for item in items:
        item.add_marker(pytest.mark.timeout(600))
        if any(marker.name in absent for marker in item.iter_markers()):
            deselected.append(item)
        else:
            kept.append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=deselected)


@pytest.fixture(scope="session")
def admin() -> Kubectl:
    kubeconfig = os.environ.get("KUBECONFIG")
    if not kubeconfig:
        pytest.fail("test/e2e needs a cluster: set KUBECONFIG, or run hack/test e2e")
    return Kubectl(kubeconfig)


@pytest.fixture(scope="session")
def node(admin: Kubectl) -> str:
    name: str = admin.items("nodes")[0]["metadata"]["name"]
    return name


@pytest.fixture(scope="session")
def installed(admin: Kubectl) -> None:
    install(admin)


@pytest.fixture(scope="session")
def product(
    admin: Kubectl, node: str, installed: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Path]]:
    """The logs of the manager and of this node's daemon, which run here. Empty if they run elsewhere."""
    if INSTALLED or not CRI_ENDPOINT:
        yield {}
        return
    folder = tmp_path_factory.mktemp("product")
    with running_product(admin, node, CRI_ENDPOINT, folder) as logs:
        yield logs


@pytest.fixture(scope="module")
def namespace(admin: Kubectl, product: dict[str, Path]) -> Iterator[Kubectl]:
    """A namespace of its own for each module."""
    with admin.new_namespace("e2e") as kubectl:
        yield kubectl


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def job(request: pytest.FixtureRequest) -> AsyncIterator[JobNamespace]:
    """A namespace on the cluster of KUBECONFIG, or on a playground."""
    if not os.environ.get("KUBECONFIG"):
        async with ControlledPlayground() as playground, new_namespace(playground) as ns:
            yield JobNamespace(playground.api, ns.namespace, ns.exec)
        return
    namespace: Kubectl = request.getfixturevalue("namespace")

    async def run_in_pod(pod: str, script: str) -> str:
        return await asyncio.to_thread(namespace.exec, pod, script)

    async with cluster_of(Path(namespace.kubeconfig)) as api:
        yield JobNamespace(api, namespace.namespace, run_in_pod)
