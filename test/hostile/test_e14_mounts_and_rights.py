"""E14: what is installed mounts one folder of the node, and grants a daemon exactly what its work needs."""

from pathlib import PurePosixPath

import pytest
import yaml
from support.cases import cases
from support.pages import ROOT
from support.shell import kruise_probe
from support.wire import Json

from kruise_probe.daemon.cri.endpoints import KNOWN_ENDPOINTS

CONTAINERD = "/run/containerd"
RUNTIMES = {
    "cri-o": "/run/crio",
    "k3s": "/run/k3s/containerd",
    "k0s": "/run/k0s",
    "microk8s": "/var/snap/microk8s/common/run",
    "any": "/run",
}


def manifests(*flags: str) -> list[Json]:
    """What `kruise-probe manifests` prints."""
    return list(yaml.safe_load_all(kruise_probe("manifests", *flags, check=True).stdout))


def by_kind(documents: list[Json], kind: str, name: str) -> Json:
    of_kind = [document for document in documents if document["kind"] == kind]
    (found,) = [document for document in of_kind if document["metadata"]["name"] == name]
    return found


def spec_of(workload: Json) -> Json:
    spec: Json = workload["spec"]["template"]["spec"]
    return spec


@pytest.fixture(scope="module")
def installed() -> list[Json]:
    return manifests()


@cases(
    "flags folder",
    containerd=((), CONTAINERD),
    another_socket=(("--cri-socket=/run/crio/crio.sock",), "/run/crio"),
)
def test_the_daemon_mounts_the_folder_of_the_runtimes_socket_alone(
    flags: tuple[str, ...], folder: str
) -> None:
    spec = spec_of(
        by_kind(
            manifests(*flags),
            "DaemonSet",
            "kruise-probe-daemon",
        )
    )
    of_host = [volume for volume in spec["volumes"] if "hostPath" in volume]
    runtime = {
        "name": "runtime",
        "hostPath": {"path": folder, "type": "Directory"},
    }
    assert of_host == [runtime]
    (container,) = spec["containers"]
    (mount,) = [mount for mount in container["volumeMounts"] if mount["name"] == "runtime"]
    assert mount == {
        "name": "runtime",
        "mountPath": f"/host{folder}",
        "readOnly": True,
    }


@pytest.mark.parametrize(("runtime", "folder"), RUNTIMES.items())
def test_every_other_runtime_has_a_component_for_its_own_folder(runtime: str, folder: str) -> None:
    file = ROOT / "config" / "runtime" / runtime / "kustomization.yaml"
    kustomization = yaml.safe_load(file.read_text())
    (patch,) = kustomization["patches"]
    operations = yaml.safe_load(patch["patch"])
    values = {operation["value"] for operation in operations}
    assert values == {folder, f"/host{folder}"}


@pytest.mark.parametrize("folder", [CONTAINERD, *RUNTIMES.values()])
def test_a_socket_in_a_mounted_folder_is_found_without_a_flag(folder: str) -> None:
    folders: set[str] = set()
    for endpoint in KNOWN_ENDPOINTS:
        socket = PurePosixPath(endpoint.removeprefix("unix://"))
        folders.add(str(socket.parent))
    assert f"/host{folder}" in folders


def test_a_daemon_has_four_rules(installed: list[Json]) -> None:
    role = by_kind(installed, "ClusterRole", "kruise-probe-daemon")
    assert role["rules"] == [
        {
            "apiGroups": ["apps.kruise.io"],
            "resources": ["nodepodprobes"],
            "verbs": ["get", "list", "watch"],
        },
        {
            "apiGroups": ["apps.kruise.io"],
            "resources": ["nodepodprobes/status"],
            "verbs": ["patch", "update"],
        },
        {
            "apiGroups": [""],
            "resources": ["events"],
            "verbs": ["create", "patch"],
        },
    ]
    own = by_kind(installed, "Role", "kruise-probe-daemon")
    assert own["rules"] == [
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "verbs": ["create", "patch"],
        }
    ]


@pytest.mark.parametrize(
    ("kind", "name"), [("DaemonSet", "kruise-probe-daemon"), ("Deployment", "kruise-probe-manager")]
)
def test_containers_give_up_what_they_do_not_need(
    installed: list[Json], kind: str, name: str
) -> None:
    spec = spec_of(by_kind(installed, kind, name))
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["automountServiceAccountToken"] is False
    assert not {"hostPID", "hostIPC"} & spec.keys()
    for container in spec["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
    if kind == "Deployment":
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert "hostNetwork" not in spec
