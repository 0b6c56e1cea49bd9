"""Manager and daemon as the command line starts them, on a real cluster whose node is this machine."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from support.kubectl import Kubectl, Object
from support.programs import LISTEN_FLAGS
from support.wire import typed

from kruise_probe.manifests import objects_in
from kruise_probe.manifests.crds import all_crds
from kruise_probe.manifests.install import DAEMON, MANAGER

SYSTEM = "kruise-system"
IMAGE = "kruise-probe-test:busybox"


def busybox_pod(name: str, *command: str, labels: Object | None = None, **spec: object) -> Object:
    """A pod of one container, `main`, with the image that hack/cluster puts on the node."""
    if labels is None:
        labels = {"app": "web"}
    container = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": list(command),
    }
    return typed(
        "Pod",
        metadata={"name": name, "labels": labels},
        spec={"terminationGracePeriodSeconds": 0, "containers": [container], **spec},
    )


def install(admin: Kubectl) -> None:
    """Applies the CRDs, the system namespace, and the identities of manager and daemon."""
    admin.apply(
        typed("Namespace", metadata={"name": SYSTEM}),
        *all_crds(),
        *objects_in("manager_rbac", SYSTEM),
        *objects_in("daemon_rbac", SYSTEM),
    )
    admin.apply(*objects_in("own_node_policy", SYSTEM))
    admin.until_established()


def apart(documents: list[Object], unique: str) -> list[Object]:
    """The same objects with other names for cluster-scoped ones, so that a real installation keeps its own."""
    for document in documents:
        if document["kind"].startswith(("ClusterRole", "ValidatingAdmissionPolicy")):
            document["metadata"]["name"] += f"-{unique}"
        if document["kind"] == "ClusterRoleBinding":
            document["roleRef"]["name"] += f"-{unique}"
        if document["kind"] == "ValidatingAdmissionPolicyBinding":
            document["spec"]["policyName"] += f"-{unique}"
    return documents


def kubeconfig_of(
    admin: Kubectl,
    account: str,
    folder: Path,
    *bound_to_node: str,
    namespace: str = SYSTEM,
) -> str:
    """A kubeconfig with a token of the service account only."""
    token = token_of(admin, account, namespace, *bound_to_node)
    config = json.loads(admin.run("config", "view", "--raw", "--flatten", "--minify", "-o", "json"))
    config["users"][0]["user"] = {"token": token}
    path = folder / f"{account}.kubeconfig"
    path.write_text(json.dumps(config))
    return str(path)


def token_of(admin: Kubectl, account: str, namespace: str, *bound: str) -> str:
    return admin.run("create", "token", account, "--namespace", namespace, *bound).strip()


@contextmanager
def running_product(
    admin: Kubectl,
    node: str,
    endpoint: str,
    folder: Path,
) -> Iterator[dict[str, Path]]:
    """The manager and the node's daemon, each under its own service account; yields their logs."""
    bound = ("--bound-object-kind=Node", f"--bound-object-name={node}")
    flags = {
        "manager": [f"--kubeconfig={kubeconfig_of(admin, MANAGER, folder)}"],
        "daemon": [
            f"--node-name={node}",
            f"--cri-endpoint={endpoint}",
            f"--kubeconfig={kubeconfig_of(admin, DAEMON, folder, *bound)}",
        ],
    }
    logs = {mode: folder / f"{mode}.log" for mode in flags}
    environ = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with ExitStack() as stack:
        for mode, log in logs.items():
            output = stack.enter_context(log.open("ab"))
            command = [sys.executable, "-m", "kruise_probe", mode, *LISTEN_FLAGS[mode]]
            command += flags[mode]
            process = subprocess.Popen(command, stdout=output, stderr=output, env=environ)
            stack.callback(_end, process)
        yield logs


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
