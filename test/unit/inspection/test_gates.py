"""A readiness gate says who writes the condition that it waits for, and is broken where only a slip separates them."""

from typing import Any

import pytest
from support.builders import condition_wire, pod_wire
from support.snapshots import marker, snapshot

from kruise_probe.inspection.gates import gates_of
from kruise_probe.inspection.link import Link

Json = dict[str, Any]


def gate(name: str, *conditions: Json) -> Link:
    """The gate `name` of a pod that marker `web` selects, whose probe writes example.com/healthy."""
    pod = pod_wire("web-0", conditions=list(conditions), readiness_gates=[name])
    there = snapshot(markers=[marker()], pods=[pod])
    (found,) = gates_of(there, there.pods[0])
    return found


@pytest.mark.parametrize(
    ("name", "conditions", "standing", "says"),
    [
        pytest.param(
            "example.com/healthy",
            [condition_wire("example.com/healthy", "True")],
            "ok",
            "example.com/healthy is True, written by web#healthy",
            id="written",
        ),
        pytest.param(
            "example.com/healthy", [], "ok", "is not on the pod, written by", id="to-be-written"
        ),
        pytest.param("example.com/helathy", [], "broken", "(but example.com/healthy)", id="a-slip"),
        pytest.param("example.org/healthy", [], "ok", "no probe that selects", id="another-domain"),
        pytest.param("balancer.example.com/in", [], "ok", "no probe that", id="somebody-elses"),
    ],
)
def test_a_gate_says_who_writes_its_condition(
    name: str, conditions: list[Json], standing: str, says: str
) -> None:
    found = gate(name, *conditions)
    assert found.standing == standing
    assert says in found.text
    assert bool(found.remedy) == (standing == "broken")


def test_a_pod_without_gates_has_none() -> None:
    there = snapshot(markers=[marker()], pods=[pod_wire("web-0")])
    assert gates_of(there, there.pods[0]) == []
