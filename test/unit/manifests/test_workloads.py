"""The workloads, and the order in which the manifests are applied."""

from typing import Any

from support.cases import cases
from support.wire import Json

from kruise_probe import __version__
from kruise_probe.cli.daemon import daemon as daemon_command
from kruise_probe.cli.manager import manager as manager_command
from kruise_probe.manifests.install import Install, daemon, default_install, manager

INSTALL = Install(cri_socket="/run/x.sock", feature_gates={"AllAlpha": True})
WORKLOADS = {"manager": manager(INSTALL), "daemon": daemon(INSTALL)}


def container(workload: Json) -> Json:
    only: Json
    (only,) = workload["spec"]["template"]["spec"]["containers"]
    return only


@cases("command", manager=manager_command, daemon=daemon_command)
def test_the_command_accepts_every_flag(command: Any) -> None:
    name, *flags = container(WORKLOADS[command.name])["args"]

    with command.make_context(name, list(flags)) as context:
        assert context.params["log_format"] == "json"
        assert not context.args


@cases("workload", **WORKLOADS)
def test_the_environment_has_no_debug_variables(workload: Json) -> None:
    """Row A46: a debug variable in Kruise's manifests leaked memory."""
    names = {variable["name"] for variable in container(workload)["env"]}
    assert names <= {"NODE_NAME", "POD_NAMESPACE"}


@cases("workload", **WORKLOADS)
def test_new_version_replaces_the_pods_and_selects_the_same_ones(workload: Json) -> None:
    spec = workload["spec"]
    labels = dict(spec["template"]["metadata"]["labels"])

    assert labels.pop("app.kubernetes.io/version") == __version__
    assert spec["selector"]["matchLabels"].items() <= labels.items()


def test_objects_come_after_those_they_depend_on() -> None:
    kinds = [wire["kind"] for wire in default_install(Install())]

    assert kinds[:3] == ["CustomResourceDefinition", "CustomResourceDefinition", "Namespace"]
    assert kinds[-2:] == ["Deployment", "DaemonSet"]


def test_all_objects_are_in_the_chosen_namespace() -> None:
    text = str(default_install(Install(namespace="elsewhere")))

    assert "kruise-system" not in text
