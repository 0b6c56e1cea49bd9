"""The authorizer of docs/security.md keeps the reads of a daemon's token to its own node, on a real kube-apiserver."""

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from contract.account import TokenClient, bound_to, wait_until
from contract.contract_api import NODE_POD_PROBES, named, node_pod_probe
from support.control_plane import ControlPlane
from support.kubectl import Kubectl, KubectlError
from support.pages import block
from support.real_node import token_of
from support.wire import Json, typed

from kruise_probe.api.names import SYSTEM_NAMESPACE
from kruise_probe.manifests import objects_in
from kruise_probe.manifests.install import DAEMON

pytestmark = pytest.mark.timeout(600)  # the first brings the control plane up
PORT = int(os.environ.get("KRUISE_PROBE_READS_PORT", "25343"))
START_SECONDS = 300
NOWHERE = typed(
    "Config",
    clusters=[{"name": "nowhere", "cluster": {"server": "https://127.0.0.1:1"}}],
    users=[{"name": "nowhere", "user": {}}],
    contexts=[
        {
            "name": "nowhere",
            "context": {"cluster": "nowhere", "user": "nowhere"},
        }
    ],
    **{"current-context": "nowhere"},
)


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
    authorization = folder / "authorization.yaml"
    authorization.write_text(yaml.safe_dump(config))
    port = str(PORT + 20)
    replaced = {
        "--authorization-mode": ("--authorization-config", str(authorization)),
        "--secure-port": ("--secure-port", port),
    }
    kubeconfig = yaml.safe_load(plane.kubeconfig.read_text())
    kubeconfig["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(kubeconfig))
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(
            command_of(plane, replaced),
            stdout=log,
            stderr=log,
        ) as server,
    ):
        try:
            admin = Kubectl(str(path))
            wait_until(
                "the second API server is ready", lambda: is_ready(admin), seconds=START_SECONDS
            )
            yield admin
        finally:
            server.kill()


def command_of(plane: ControlPlane, replaced: Mapping[str, tuple[str, str]]) -> list[str]:
    """The command of the first API server, with these flags replaced by other flags and values."""
    process = plane.pid("kube-apiserver")
    given = Path(f"/proc/{process}/cmdline").read_text()
    words = iter(given.split("\0")[:-1])
    command: list[str] = []
    for word in words:
        if word in replaced:
            next(words)
            command += replaced[word]
        else:
            command.append(word)
    return command


def is_ready(admin: Kubectl) -> bool:
    try:
        admin.run("get", "--raw", "/readyz", timeout=10)
    except (KubectlError, subprocess.TimeoutExpired):  # it listens before it answers
        return False
    return True


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
        first.apply(
            named("Namespace", SYSTEM_NAMESPACE),
            *objects_in("daemon_rbac", SYSTEM_NAMESPACE),
            *(named("Node", name) for name in NODES),
            *(node_pod_probe(name) for name in NODES),
        )
        token = token_of(first, DAEMON, SYSTEM_NAMESPACE, *bound_to("Node", "own"))
        with guarded_api_server(plane, tmp_path_factory.mktemp("second")) as second:
            yield Cluster(TokenClient(first, token), TokenClient(second, token))


NODES = ("own", "other")
WATCH = f"{NODE_POD_PROBES}?watch=1&timeoutSeconds=1"
OWN = (
    f"{NODE_POD_PROBES}/own",
    f"{NODE_POD_PROBES}?fieldSelector=metadata.name%3Down",
    f"{WATCH}&fieldSelector=metadata.name%3Down",
)
OTHERS = (
    NODE_POD_PROBES,
    f"{NODE_POD_PROBES}/other",
    f"{NODE_POD_PROBES}?fieldSelector=metadata.name%3Dother",
    WATCH,
    f"{WATCH}&fieldSelector=metadata.name%21%3Down",
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
