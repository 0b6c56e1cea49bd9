"""The table of reasons has every reason of the product and no other, and its remedies are those that conditions name."""

import re

import pytest
from support.pages import ROOT

from kruise_probe.controllers.limits import LIMITS, LeftOut
from kruise_probe.inspection.link import PLACEHOLDERS, reason_sections, reason_table, remedy_of

PRODUCT = ROOT / "kruise_probe"
MODULES = (
    *(PRODUCT / "inspection").rglob("*.py"),
    *(PRODUCT / "controllers").rglob("*.py"),
    PRODUCT / "api/names.py",
    PRODUCT / "daemon/probers/prober.py",
    PRODUCT / "daemon/transitions.py",
    PRODUCT / "daemon/worker.py",
    PRODUCT / "lint/findings.py",
    ROOT / "playground/kruise_probe_playground/node/shared_ports.py",
)
"""The modules that have reasons: alone in a text, or before a colon."""
SOURCE = "\n".join(module.read_text() for module in MODULES)
OTHER_NAMES = {
    "AllContainersRestarting",
    "ClusterRole",
    "ClusterRoleBinding",
    "ConfigMap",
    "ContainersReady",
    "CustomResourceDefinition",
    "DisruptionTarget",
    "DoesNotExist",
    "EnablePodProbeMarkerOnServerless",
    "FailedPrecondition",
    "InPlaceUpdateReady",
    "KruisePodReady",
    "NodePodProbe",
    "NotIn",
    "PodProbeMarker",
    "PodProbeMarkerGate",
    "PodReadyToStartContainers",
    "PodResizeInProgress",
    "PodResizePending",
    "PodScheduled",
    "SidecarSet",
}
"""Other names of several words in these modules."""
OF_TRIALS = {"PortForwardFailed", "StreamFailed", "StreamNotFound", "StreamNotServed"}
"""Only `try` prints them, with what to do."""


REMEDIES = "\n".join(reason.remedy for reason in reason_table().values())


def test_every_reason_of_the_product_is_in_the_table() -> None:
    found = set(re.findall(r'"([A-Z][a-z]+(?:[A-Z][A-Za-z]*)+)(?:"|: )', SOURCE))
    assert found - OTHER_NAMES - OF_TRIALS - reason_table().keys() == set()


def test_the_table_has_no_other_reasons() -> None:
    for reason in reason_table():
        assert re.search(f'"{reason}(?:"|: )', SOURCE), reason
    assert len(reason_table()) == sum(len(section.reasons) for section in reason_sections())


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.reason)
def test_remedies_of_limits_are_those_of_the_conditions(limit: LeftOut) -> None:
    assert remedy_of(limit.reason) == limit.remedy


def test_names_replace_placeholders_and_code_has_no_marks() -> None:
    remedy = remedy_of("ContainerNotRunning", pod="game-0 -n games", container="game")
    assert remedy.endswith("kubectl logs game-0 -n games -c game")
    assert "`" not in remedy


def test_every_placeholder_is_used_and_known() -> None:
    used = re.findall(r"{(\w*)}", REMEDIES)
    assert set(used) == PLACEHOLDERS.keys()


def test_lines_of_several_pods_name_their_pod() -> None:
    commands = re.findall(r"`(kubectl[^`]* logs [^`]*)`", REMEDIES)
    of_several = [command for command in commands if " -l " in command]
    assert of_several
    assert all("--prefix" in command for command in of_several)
