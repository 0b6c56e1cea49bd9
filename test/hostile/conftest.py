"""Black-box attacks: through the API, the wire and the command line.

Most run on an embedded API server or a playground. A test marked `real_node` needs a kernel and containerd of its own:
it runs on the node of the cluster that KUBECONFIG and KRUISE_PROBE_CRI_ENDPOINT name (`hack/cluster env`), and is
skipped without one.
"""

import os
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from support.embedded_cluster import EmbeddedCluster, embedded_cluster
from support.kubectl import Kubectl
from support.playground import ControlledPlayground, PlaygroundNamespace, new_namespace
from support.real_node import install, running_product


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "real_node: needs a real kernel and containerd")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("real_node") is None:
        return
    missing = [
        each for each in ("KUBECONFIG", "KRUISE_PROBE_CRI_ENDPOINT") if each not in os.environ
    ]
    if missing:
        pytest.skip(f"no real node: {' and '.join(missing)} not set; see hack/cluster")


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[EmbeddedCluster]:
    """An embedded API server behind a faulty proxy; `cluster.manager()` starts a manager as a process."""
    async with embedded_cluster(tmp_path) as cluster:
        yield cluster


@pytest.fixture
async def playground() -> AsyncIterator[ControlledPlayground]:
    """API server and node in this process; manager and daemon are processes."""
    async with ControlledPlayground() as running:
        yield running


@pytest.fixture
async def ns(playground: ControlledPlayground) -> AsyncIterator[PlaygroundNamespace]:
    """A namespace on the playground, with helpers that create pods and markers."""
    async with new_namespace(playground) as ns:
        yield ns


@pytest.fixture(scope="session")
def admin() -> Kubectl:
    """kubectl on the real cluster; for tests marked `real_node`."""
    return Kubectl(os.environ["KUBECONFIG"])


@pytest.fixture(scope="session")
def node(admin: Kubectl) -> str:
    name: str = admin.items("nodes")[0]["metadata"]["name"]
    return name


@pytest.fixture(scope="session")
def product(
    admin: Kubectl, node: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Path]]:
    """The manager and the daemon of the real node, as processes."""
    install(admin)
    endpoint = os.environ["KRUISE_PROBE_CRI_ENDPOINT"]
    with running_product(admin, node, endpoint, tmp_path_factory.mktemp("product")) as running:
        yield running


@pytest.fixture
def namespace(admin: Kubectl, product: dict[str, Path]) -> Iterator[Kubectl]:
    """A namespace on the real cluster."""
    name = f"hostile-{uuid.uuid4().hex[:8]}"
    admin.run("create", "namespace", name)
    yield Kubectl(admin.kubeconfig, namespace=name)
    admin.run("delete", "namespace", name, "--wait=false")
