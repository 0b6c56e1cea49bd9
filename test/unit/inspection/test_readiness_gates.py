"""A readiness gate names the probe that writes its condition, and is broken if a typo or a selector separates them."""

from support.builders import condition_wire, pod_wire, probe_wire
from support.cases import cases
from support.snapshots import marker, snapshot, table

from kruise_probe.inspection.link import Link
from kruise_probe.inspection.traces import readiness_gates_of


def gate(name: str, status: str | None) -> Link:
    """The gate `name` of a pod that marker `web` selects, whose probe writes example.com/healthy."""
    conditions = [condition_wire(name, status)] if status else []
    pod = pod_wire("web-0", conditions=conditions, readiness_gates=[name])
    other = marker(
        name="warm",
        selector={"matchLabels": {"app": "webb"}},
        probes=[probe_wire(condition="example.com/warm")],
    )
    there = snapshot(markers=[marker(), other], pods=[pod])
    (found,) = readiness_gates_of(there, there.pods[0])
    return found


@cases("name status state text", **table("links")["gates"])
def test_readiness_gate_names_the_writer_of_its_condition(
    name: str, status: str | None, state: str, text: str
) -> None:
    found = gate(name, status)
    assert found.state == state
    assert text in found.text
    assert bool(found.remedy) == (state != "ok")


def test_a_marker_that_is_being_deleted_writes_no_gate() -> None:
    pod = pod_wire("web-0", readiness_gates=["example.com/healthy"])
    there = snapshot(markers=[marker(deleting=True)], pods=[pod])
    (found,) = readiness_gates_of(there, there.pods[0])
    assert (found.state, found.reason) == ("waiting", "GateOfOthers")


def test_pod_without_readiness_gates_has_no_gate_links() -> None:
    there = snapshot(pods=[pod_wire("web-0")])
    assert readiness_gates_of(there, there.pods[0]) == []
