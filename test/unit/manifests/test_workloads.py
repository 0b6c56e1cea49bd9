"""What runs, and in what order it is applied."""

from typing import Any

import pytest

from kruise_probe.cli.daemon import daemon as daemon_command
from kruise_probe.cli.manager import manager as manager_command
from kruise_probe.manifests.install import default_install
from kruise_probe.manifests.workloads import Install, daemon, manager

INSTALL = Install(cri_socket="/run/x.sock", feature_gates="AllAlpha=true")
WORKLOADS = [
    pytest.param(manager(INSTALL), id="manager"),
    pytest.param(daemon(INSTALL), id="daemon"),
]


def container(workload: dict[str, Any]) -> dict[str, Any]:
    (only,) = workload["spec"]["template"]["spec"]["containers"]
    found: dict[str, Any] = only
    return found


@pytest.mark.parametrize(
    ("workload", "command"),
    [
        pytest.param(manager(INSTALL), manager_command, id="manager"),
        pytest.param(daemon(INSTALL), daemon_command, id="daemon"),
    ],
)
def test_the_command_knows_every_flag(workload: dict[str, Any], command: Any) -> None:
    name, *flags = container(workload)["args"]

    with command.make_context(name, list(flags)) as context:
        assert context.params["log_format"] == "json"
        assert not context.args


@pytest.mark.parametrize("workload", WORKLOADS)
def test_the_environment_holds_no_switches(workload: dict[str, Any]) -> None:
    """Row A46: a debug variable that was left in Kruise's manifests leaked memory."""
    assert {each["name"] for each in container(workload)["env"]} <= {"NODE_NAME", "POD_NAMESPACE"}


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_container_has_no_capability_and_a_root_that_it_cannot_write(
    workload: dict[str, Any],
) -> None:
    context = container(workload)["securityContext"]

    assert context == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    pod = workload["spec"]["template"]["spec"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False


def test_the_daemon_mounts_the_folder_of_a_named_socket_only() -> None:
    spec = daemon(Install(cri_socket="/var/lib/x/cri.sock"))["spec"]["template"]["spec"]

    (volume,) = [each for each in spec["volumes"] if "hostPath" in each]
    assert volume["hostPath"]["path"] == "/var/lib/x"
    assert "--cri-endpoint=unix:///host/var/lib/x/cri.sock" in spec["containers"][0]["args"]


def test_what_others_need_comes_first() -> None:
    kinds = [each["kind"] for each in default_install(Install())]

    assert kinds[:3] == ["CustomResourceDefinition", "CustomResourceDefinition", "Namespace"]
    assert kinds[-2:] == ["Deployment", "DaemonSet"]


def test_everything_lands_in_the_chosen_namespace() -> None:
    text = str(default_install(Install(namespace="elsewhere")))

    assert "kruise-system" not in text
