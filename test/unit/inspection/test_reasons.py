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
    "AllContainersRestarting", "ClusterRole", "ClusterRoleBinding", "ConfigMap", "ContainersReady", "CustomResourceDefinition",
    "DisruptionTarget", "DoesNotExist",
    "EnablePodProbeMarkerOnServerless", "FailedPrecondition", "InPlaceUpdateReady", "KruisePodReady",
    "NodePodProbe", "NotIn", "PodProbeMarker", "PodProbeMarkerGate", "PodReadyToStartContainers",
    "PodResizeInProgress", "PodResizePending", "PodScheduled", "SidecarSet",
}  # fmt: skip
"""Other names of several words in these modules."""
OF_TRIALS = {"PortForwardFailed", "StreamFailed", "StreamNotFound", "StreamNotServed"}
"""Only `try` prints them, with what to do."""


def test_every_reason_of_the_product_is_in_the_table() -> None:
    found = set(re.findall(r'"([A-Z][a-z]+(?:[A-Z][A-Za-z]*)+)(?:"|: )', SOURCE))
    assert found - OTHER_NAMES - OF_TRIALS - reason_table().keys() == set()


def test_the_table_has_no_other_reasons() -> None:
    assert [each for each in reason_table() if not re.search(f'"{each}(?:"|: )', SOURCE)] == []
    assert len(reason_table()) == sum(len(each.reasons) for each in reason_sections())


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.reason)
def test_remedies_of_limits_are_those_of_the_conditions(limit: LeftOut) -> None:
    assert remedy_of(limit.reason) == limit.remedy


def test_names_replace_placeholders_and_code_has_no_marks() -> None:
    remedy = remedy_of("ContainerNotRunning", pod="game-0 -n games", container="game")
    assert remedy.endswith("kubectl logs game-0 -n games -c game")
    assert "`" not in remedy


def test_every_placeholder_is_used_and_known() -> None:
    used = {
        name for each in reason_table().values() for name in re.findall(r"{(\w*)}", each.remedy)
    }
    assert used == PLACEHOLDERS.keys()


def test_lines_of_several_pods_name_their_pod() -> None:
    remedies = [each.remedy for each in reason_table().values()]
    commands = [
        part for each in remedies for part in re.findall(r"`(kubectl[^`]* logs [^`]*)`", each)
    ]
    assert [each for each in commands if " -l " in each and "--prefix" not in each] == []
    assert any(" -l " in each for each in commands)
