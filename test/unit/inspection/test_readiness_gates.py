"""A readiness gate names the probe that writes its condition, and is broken if a typo or a selector separates them."""

from typing import Any

from support.builders import condition_wire, pod_wire, probe_wire
from support.cases import cases
from support.snapshots import marker, snapshot, table
from support.wire import Json

from kruise_probe.inspection.link import Link
from kruise_probe.inspection.traces import readiness_gates_of


def gates(markers: list[Json], **pod: Any) -> list[Link]:
    there = snapshot(markers=markers, pods=[pod_wire(**pod)])
    return readiness_gates_of(there, there.pods[0])


@cases("name status state text", **table("links")["gates"])
def test_readiness_gate_names_the_writer_of_its_condition(
    name: str, status: str | None, state: str, text: str
) -> None:
    """Marker `web`, whose probe writes example.com/healthy, selects the pod."""
    conditions = [condition_wire(name, status)] if status else []
    other = marker(
        name="warm",
        selector={"matchLabels": {"app": "webb"}},
        probes=[probe_wire(condition="example.com/warm")],
    )

    (found,) = gates([marker(), other], conditions=conditions, readiness_gates=[name])

    assert found.state == state
    assert text in found.text
    assert bool(found.remedy) == (state != "ok")


def test_a_marker_that_is_being_deleted_writes_no_gate() -> None:
    (found,) = gates([marker(deleting=True)], readiness_gates=["example.com/healthy"])
    assert found.state == "waiting"
    assert found.reason == "GateOfOthers"


def test_pod_without_readiness_gates_has_no_gate_links() -> None:
    assert gates([marker()]) == []
