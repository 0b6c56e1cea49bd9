"""`status` and `explain` as another user: contexts and impersonation, on a real kube-apiserver with RBAC."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from contract.contract_api import named
from support import hollow
from support.hollow import marker_object
from support.kubectl import Kubectl
from support.pages import block
from support.shell import kruise_probe
from support.wire import Json, typed

MARKER = marker_object(
    hollow.probe("idle", containerName="server"),
    name="game",
    app="game",
)
POD = typed(
    "Pod",
    metadata={"name": "game-0", "labels": {"app": "game"}},
    spec={
        # No node: the scheduler leaves a pod with a gate alone.
        "schedulingGates": [{"name": "example.com/never"}],
        "containers": [{"name": "server", "image": "x"}],
    },
)


class Stage(NamedTuple):
    admin: Kubectl
    """kubectl in the namespace of the marker."""
    token: str
    """Of the service account `viewer`, which has the role of the documentation."""
    group: str
    """A group with the same role."""

    @property
    def namespace(self) -> str:
        return self.admin.namespace


@pytest.fixture(scope="module")
def stage(admin: Kubectl) -> Iterator[Stage]:
    admin.install_crds()
    with admin.new_namespace() as kubectl:
        group = f"viewers-of-{kubectl.namespace}"
        accounts = [named("ServiceAccount", name) for name in ("default", "viewer")]
        (role,) = block("status.md", "Permissions").documents
        role["metadata"]["name"] = group
        with admin.applied(role):
            kubectl.apply(*accounts, MARKER, POD)
            viewers = (f"--group={group}", f"--serviceaccount={kubectl.namespace}:viewer")
            admin.run("create", "clusterrolebinding", group, f"--clusterrole={group}", *viewers)
            token = kubectl.run("create", "token", "viewer").strip()
            yield Stage(kubectl, token, group)
            admin.run("delete", "clusterrolebinding", group)


@pytest.fixture
def kubeconfig(stage: Stage, tmp_path: Path) -> Path:
    """The context `admin` is current; `viewer` has the token, and the namespace of the marker."""
    shown = stage.admin.run("config", "view", "--raw", "--flatten", "--minify", "-o", "json")
    config = json.loads(shown)
    (context,) = config["contexts"]
    admin = context["context"]
    viewer = {
        "cluster": admin["cluster"],
        "user": "viewer",
        "namespace": stage.namespace,
    }
    config["users"].append({"name": "viewer", "user": {"token": stage.token}})
    config["contexts"] = [
        {
            "name": "admin",
            "context": {"cluster": admin["cluster"], "user": admin["user"]},
        },
        {"name": "viewer", "context": viewer},
    ]
    config["current-context"] = "admin"
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    path.chmod(0o600)
    return path


def run(kubeconfig: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return kruise_probe(*arguments, "--kubeconfig", str(kubeconfig))


def assert_both_read(kubeconfig: Path, *options: str) -> None:
    def shown(*arguments: str) -> Json:
        done = run(kubeconfig, *arguments, "-o", "json", *options)
        assert done.stdout, done.stderr
        found: Json = json.loads(done.stdout)
        return found

    status = shown("status", "game")
    (marker,) = status["markers"]
    assert marker["name"] == "game"
    assert status["notes"] == []
    (matching,) = shown("explain", "game-0")["matching"]
    assert matching["marker"] == "game"


def assert_both_fail(kubeconfig: Path, *options: str, text: str) -> None:
    for command in (("status", "game"), ("explain", "game-0")):
        done = run(kubeconfig, *command, *options)
        assert (done.returncode, done.stdout) == (1, ""), done
        assert text in done.stderr


def test_a_context_chooses_user_and_namespace(kubeconfig: Path) -> None:
    assert_both_read(kubeconfig, "--context", "viewer")


def test_a_user_replaces_that_of_the_context(stage: Stage, kubeconfig: Path) -> None:
    """The viewer may not impersonate: so its token was used, not the certificate of the context."""
    options = ("--user", "viewer", "-n", stage.namespace)
    refused = f'{stage.namespace}:viewer" cannot impersonate'

    assert_both_read(kubeconfig, *options)
    assert_both_fail(kubeconfig, *options, "--as", "jane", text=refused)


def test_an_impersonated_group_gives_its_permissions(stage: Stage, kubeconfig: Path) -> None:
    options = ("--as", "jane", "--as-group", stage.group)

    assert_both_read(kubeconfig, "-n", stage.namespace, *options)


def test_an_impersonated_user_without_permission_is_named(stage: Stage, kubeconfig: Path) -> None:
    refused = 'User "jane" cannot list resource'

    assert_both_fail(kubeconfig, "-n", stage.namespace, "--as", "jane", text=refused)
