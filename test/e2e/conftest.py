"""The whole product on a real cluster, black-box.

Takes any kubeconfig (KUBECONFIG). With KRUISE_PROBE_CRI_ENDPOINT the manager and the daemon are started here, as the
command line starts them, each under its own service account; without it they are expected to be installed already.
"""

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.kubectl import Kubectl
from support.processes import Running, start

from kruise_probe.manifests.crds import all_crds
from kruise_probe.manifests.own_node import own_node_policy
from kruise_probe.manifests.rbac import DAEMON, MANAGER, daemon_rbac, manager_rbac

SYSTEM = "kruise-system"


INSTALLED = os.environ.get("KRUISE_PROBE_E2E_INSTALLED", "")
"""By what: `kustomize` with the webhook, `helm` without it, or not at all."""

collect_ignore = [] if INSTALLED else ["test_install.py"]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "with_webhook: of an installation that has the webhook")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(pytest.mark.timeout(180))
    if INSTALLED != "kustomize":
        others = [each for each in items if each.get_closest_marker("with_webhook")]
        items[:] = [each for each in items if each not in others]
        config.hook.pytest_deselected(items=others)


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
    """CRDs, the system namespace, identities."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}}
    admin.apply(namespace, *all_crds(), *manager_rbac(SYSTEM), *daemon_rbac(SYSTEM))
    admin.apply(*own_node_policy(SYSTEM))
    admin.until_established()


def kubeconfig_of(admin: Kubectl, account: str, folder: Path, *bound_to_node: str) -> str:
    """A kubeconfig that holds nothing but a token of the service account."""
    token = admin.run("create", "token", account, "--namespace", SYSTEM, *bound_to_node).strip()
    config = json.loads(admin.run("config", "view", "--raw", "--flatten", "--minify", "-o", "json"))
    config["users"][0]["user"] = {"token": token}
    path = folder / f"{account}.kubeconfig"
    path.write_text(json.dumps(config))
    return str(path)


@pytest.fixture(scope="session")
def product(
    admin: Kubectl, node: str, installed: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Running]]:
    """The manager and this node's daemon, running."""
    endpoint = os.environ.get("KRUISE_PROBE_CRI_ENDPOINT")
    if not endpoint:
        yield {}
        return
    folder = tmp_path_factory.mktemp("product")
    command = [sys.executable, "-m", "kruise_probe"]
    bound = ("--bound-object-kind=Node", f"--bound-object-name={node}")
    with ExitStack() as stack:
        manager = stack.enter_context(
            start(
                "manager",
                [
                    *command,
                    "manager",
                    "--metrics-addr=127.0.0.1:0",
                    "--health-probe-addr=127.0.0.1:0",
                    f"--kubeconfig={kubeconfig_of(admin, MANAGER, folder)}",
                ],
                folder,
            )
        )
        daemon = stack.enter_context(
            start(
                "daemon",
                [
                    *command,
                    "daemon",
                    "--addr=127.0.0.1:0",
                    f"--node-name={node}",
                    f"--cri-endpoint={endpoint}",
                    f"--kubeconfig={kubeconfig_of(admin, DAEMON, folder, *bound)}",
                ],
                folder,
            )
        )
        yield {"manager": manager, "daemon": daemon}


@pytest.fixture(scope="module")
def namespace(admin: Kubectl, product: dict[str, Running]) -> Iterator[Kubectl]:
    """A namespace of its own per module; whoever fails finds the product's logs in the report."""
    name = f"e2e-{uuid.uuid4().hex[:8]}"
    admin.run("create", "namespace", name)
    yield Kubectl(admin.kubeconfig, namespace=name)
    admin.run("delete", "namespace", name, "--wait=false")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    running = getattr(item, "funcargs", {}).get("product") or {}
    if report.when == "call" and report.failed:
        for name, process in running.items():
            report.sections.append((f"log of {name}", process.log_tail()))
    return report


def pytest_sessionstart() -> None:
    subprocess.run(["kubectl", "version", "--client"], check=True, capture_output=True)
