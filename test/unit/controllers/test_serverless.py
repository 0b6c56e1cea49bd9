"""Conditions of a provider as probe states."""

import pytest
from support.builders import condition_wire, marker, node, pod, probe_wire

from kruise_probe.controllers.compiled import compile_marker
from kruise_probe.controllers.pods.claims import claims_of
from kruise_probe.controllers.serverless import is_virtual, states_of_conditions


@pytest.mark.parametrize(
    ("status", "state"),
    [("True", "Succeeded"), ("False", "Failed"), ("Unknown", "Unknown"), ("odd", "Unknown")],
)
def test_a_condition_reads_as_a_state(status: str, state: str) -> None:
    claims = claims_of((compile_marker(marker()),))
    there = pod(conditions=[condition_wire("example.com/healthy", status, message="m")])
    found = states_of_conditions(there, claims)
    assert found["web#healthy"].state == state
    assert found["web#healthy"].message == "m"


def test_only_conditions_that_a_probe_owns_are_read() -> None:
    probes = [probe_wire("a"), probe_wire("b"), probe_wire("c", condition=None)]
    claims = claims_of((compile_marker(marker(probes=probes)),))
    there = pod(conditions=[condition_wire("example.com/healthy"), condition_wire("other")])
    assert set(states_of_conditions(there, claims)) == {"web#a"}


def test_a_missing_condition_is_no_result() -> None:
    assert states_of_conditions(pod(), claims_of((compile_marker(marker()),))) == {}


def test_a_label_makes_a_node_virtual() -> None:
    assert is_virtual(node(labels={"type": "virtual-kubelet"}))
    assert not is_virtual(node(labels={"type": "other"}))
    assert not is_virtual(None)
