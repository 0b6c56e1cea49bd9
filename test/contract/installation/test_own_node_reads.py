"""The authorizer of docs/security.md keeps the reads of a daemon's token to its own node, on a real kube-apiserver."""

import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from contract.account import TokenClient
from contract.contract_api import node_pod_probe
from support.control_plane import ControlPlane
from support.kubectl import Kubectl, KubectlError
from support.pages import block
from support.wire import Json, typed

from kruise_probe.api.names import SYSTEM_NAMESPACE
from kruise_probe.manifests import objects_in
from kruise_probe.manifests.install import DAEMON

pytestmark = pytest.mark.timeout(600)  # the first brings the control plane up
PORT = int(os.environ.get("KRUISE_PROBE_READS_PORT", "25343"))
SECOND_PORT = PORT + 20
START_SECONDS = 300
NODE_POD_PROBES = "/apis/apps.kruise.io/v1alpha1/nodepodprobes"
NOWHERE = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "nowhere", "cluster": {"server": "https://127.0.0.1:1"}}],
    "users": [{"name": "nowhere", "user": {}}],
    "contexts": [{"name": "nowhere", "context": {"cluster": "nowhere", "user": "nowhere"}}],
    "current-context": "nowhere",
}


class Cluster(NamedTuple):
    """One daemon's token at two API servers of one etcd: as they come, and with the authorizer."""

    plain: TokenClient
    guarded: TokenClient


@contextmanager
def guarded_api_server(plane: ControlPlane, folder: Path) -> Iterator[Kubectl]:
    """Another API server on the same etcd, with the configuration that the page shows."""
    nowhere = folder / "nowhere.kubeconfig"
    nowhere.write_text(yaml.safe_dump(NOWHERE))
    config = yaml.safe_load(block("security.md", "The daemon").text)
    config["authorizers"][0]["webhook"]["connectionInfo"]["kubeConfigFile"] = str(nowhere)
    (folder / "authorization.yaml").write_text(yaml.safe_dump(config))
    by_file = ("--authorization-config", str(folder / "authorization.yaml"))
    replaced = {"--authorization-mode": by_file}
    with second_api_server(plane, folder, SECOND_PORT, replaced) as kubeconfig:
        admin = Kubectl(str(kubeconfig))
        until_ready(admin)
        yield admin


@contextmanager
def second_api_server(
    plane: ControlPlane, folder: Path, port: int, replaced: Mapping[str, tuple[str, str]]
) -> Iterator[Path]:
    """Another API server on the same etcd; yields its kubeconfig, before it is ready.

    `replaced` has the flags that differ from those of the first one, each with its new name and value.
    """
    given = Path(f"/proc/{plane.pid('kube-apiserver')}/cmdline").read_text().split("\0")[:-1]
    replaced = {**replaced, "--secure-port": ("--secure-port", str(port))}
    command, values = list[str](), iter(given)
    for each in values:
        if each in replaced:
            next(values)
            command += replaced[each]
        else:
            command.append(each)
    kubeconfig = yaml.safe_load(plane.kubeconfig.read_text())
    kubeconfig["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
    (folder / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as server,
    ):
        try:
            yield folder / "kubeconfig"
        finally:
            server.kill()


def until_ready(admin: Kubectl) -> None:
    give_up = time.monotonic() + START_SECONDS
    while True:
        try:
            admin.run("get", "--raw", "/readyz", timeout=10)
        except (KubectlError, subprocess.TimeoutExpired):  # it listens before it answers
            assert time.monotonic() < give_up, "the second API server does not become ready"
        else:
            return


@pytest.fixture(scope="module")
def cluster(real_minor_version: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Runs the binaries of the real API server."""
    if real_minor_version < 32:
        pytest.xfail("an authorizer gets no selectors (KEP-4601)")
    folder = Path(os.environ.get("TMPDIR", "/tmp")) / "kp-reads"
    plane = ControlPlane(folder, port=str(PORT))
    with plane.running():
        first = Kubectl(str(plane.kubeconfig))
        first.install_crds()
        nodes = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": n}} for n in NODES]
        reports = [node_pod_probe(name) for name in NODES]
        namespace = typed("Namespace", metadata={"name": SYSTEM_NAMESPACE})
        first.apply(namespace, *objects_in("daemon_rbac", SYSTEM_NAMESPACE), *nodes, *reports)
        bound = ("--bound-object-kind=Node", "--bound-object-name=own")
        token = first.run("-n", SYSTEM_NAMESPACE, "create", "token", DAEMON, *bound)
        with guarded_api_server(plane, tmp_path_factory.mktemp("second")) as second:
            yield Cluster(TokenClient(first, token), TokenClient(second, token))


NODES = ("own", "other")
OWN = (
    NODE_POD_PROBES + "/own",
    NODE_POD_PROBES + "?fieldSelector=metadata.name%3Down",
    NODE_POD_PROBES + "?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Down",
)
OTHERS = (
    NODE_POD_PROBES,
    NODE_POD_PROBES + "/other",
    NODE_POD_PROBES + "?fieldSelector=metadata.name%3Dother",
    NODE_POD_PROBES + "?watch=1&timeoutSeconds=1",
    NODE_POD_PROBES + "?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%21%3Down",
)


@pytest.mark.parametrize("path", OWN)
def test_a_daemon_reads_its_own_node_with_the_authorizer(cluster: Cluster, path: str) -> None:
    assert cluster.guarded.send("GET", path).code == 200


@pytest.mark.parametrize("path", OTHERS)
def test_a_daemon_reads_no_other_node_with_the_authorizer(cluster: Cluster, path: str) -> None:
    assert cluster.plain.send("GET", path).code == 200, "this is what roles alone allow"
    assert cluster.guarded.send("GET", path).code in (403, 500)


def test_a_daemon_still_writes_its_status(cluster: Cluster) -> None:
    body: Json = {"status": {"podProbeStatuses": []}}
    answer = cluster.guarded.send("PATCH", f"{NODE_POD_PROBES}/own/status", body)
    assert answer.code == 200, answer.text
