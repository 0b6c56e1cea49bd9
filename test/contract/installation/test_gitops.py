"""Markers in Git, with a manager and a real API server: what docs/install.md says about drift."""

import os
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import yaml
from support import programs
from support.cases import cases
from support.control_plane import ControlPlane
from support.hollow import marker_object, probe
from support.kubectl import Kubectl, KubectlError
from support.pages import ROOT
from support.patience import PATIENCE_SECONDS
from support.wire import Json

from kruise_probe.api.names import MARKER_FINALIZER

EDITED = '[{"op": "replace", "path": "/spec/probes/0/probe/periodSeconds", "value": 77}]'
KUBECTL_SERVER = ("apply", "--server-side")
KUBECTL_CLIENT = ("apply",)


pytestmark = pytest.mark.timeout(600)  # the first brings the control plane up


@pytest.fixture(scope="module")
def plane(admin: Kubectl) -> Iterator[Kubectl]:
    """A control plane of its own: a manager removes NodePodProbes without a Node, which other tests create.

    `admin` says whether there are binaries to run.
    """
    folder = Path(os.environ.get("TMPDIR", "/tmp")) / "kp-gitops"
    control_plane = ControlPlane(folder, port=os.environ.get("KRUISE_PROBE_GITOPS_PORT", "25443"))
    with control_plane.running():
        plane = Kubectl(str(control_plane.kubeconfig))
        plane.install_crds()
        yield plane


@pytest.fixture
async def kubectl(plane: Kubectl, tmp_path: Path) -> AsyncIterator[Kubectl]:
    """In a namespace with a manager."""
    with plane.new_namespace() as kubectl:
        flags = (programs.ALONE, f"--namespace={kubectl.namespace}")
        async with programs.running(
            "manager",
            Path(plane.kubeconfig),
            tmp_path,
            *flags,
        ):
            yield kubectl


def written(**numbers: int) -> str:
    """The file in Git."""
    command = {"exec": {"command": ["true"]}}
    return yaml.safe_dump(marker_object(probe(probe={**command, **numbers}), name="m"))


def observed(kubectl: Kubectl) -> Json:
    """The marker, once the manager has written its finalizer and the status of this generation."""
    generation = kubectl.get("ppm", "m")["metadata"]["generation"]
    wanted = f"--for=jsonpath={{.status.observedGeneration}}={generation}"
    kubectl.run("wait", wanted, "ppm/m", f"--timeout={PATIENCE_SECONDS:g}s")
    marker = kubectl.get("ppm", "m")
    assert marker["metadata"]["finalizers"] == [MARKER_FINALIZER]
    return marker


def assert_no_drift(kubectl: Kubectl, apply: Callable[[str], str], text: str) -> None:
    """A diff is empty, and an apply without a change writes nothing."""
    before = observed(kubectl)
    apply(text)
    assert observed(kubectl)["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


def probe_of(kubectl: Kubectl) -> Json:
    found: Json = observed(kubectl)["spec"]["probes"][0]["probe"]
    return found


@cases("command", server_side=KUBECTL_SERVER, client_side=KUBECTL_CLIENT)
async def test_kubectl_sees_no_drift_and_mends_an_edit(
    kubectl: Kubectl, command: tuple[str, ...]
) -> None:
    text = written(periodSeconds=5, timeoutSeconds=3)

    def apply(file: str, *flags: str) -> str:
        return kubectl.run(*command, "-f", "-", *flags, stdin=file)

    apply(text)
    observed(kubectl)
    assert kubectl.run("diff", *command[1:], "-f", "-", stdin=text) == ""
    assert_no_drift(kubectl, apply, text)

    kubectl.run("patch", "ppm", "m", "--type=json", "-p", EDITED)
    if command == KUBECTL_SERVER:
        with pytest.raises(KubectlError, match=r'conflict with "kubectl-patch".*\n?.*spec.probes'):
            apply(text)
        apply(text, "--force-conflicts")
    else:
        apply(text)
    assert probe_of(kubectl)["periodSeconds"] == 5

    apply(written(periodSeconds=5))
    assert "timeoutSeconds" not in probe_of(kubectl)
    if command == KUBECTL_CLIENT:
        kubectl.run("replace", "-f", "-", stdin=written(periodSeconds=6))
        assert probe_of(kubectl)["periodSeconds"] == 6


async def test_helm_sees_no_drift_keeps_an_edit_and_removes_a_field(
    kubectl: Kubectl, tmp_path: Path
) -> None:
    chart = tmp_path / "chart"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("{apiVersion: v2, name: shop, version: 0.1.0}")

    def apply(file: str) -> str:
        (chart / "templates/marker.yaml").write_text(file)
        options = ("--namespace", kubectl.namespace, "--kubeconfig", kubectl.kubeconfig)
        command = (ROOT / "hack/helm", "upgrade", "--install", "shop", chart, *options)
        return subprocess.run(
            command,
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    text = written(periodSeconds=5, timeoutSeconds=3)
    apply(text)
    assert_no_drift(kubectl, apply, text)

    kubectl.run("patch", "ppm", "m", "--type=json", "-p", EDITED)
    apply(text)
    assert probe_of(kubectl)["periodSeconds"] == 77

    apply(written(periodSeconds=5))
    assert "timeoutSeconds" not in probe_of(kubectl)
