import pytest
from support.builders import entry_of
from support.scripted_node import exec_probe, pod_of, probe_of, spec_of

from kruise_probe.api.core import ExecAction, GRPCAction, HTTPGetAction, Probe, TCPSocketAction
from kruise_probe.api.keys import ProbeKey, ProbeName
from kruise_probe.daemon.diff import (
    Edit,
    desired_probes,
    edit_of,
    invalid_reason,
)

NOTHING = Edit(handler=False, timeout=False, timing=False, thresholds=False)


def test_every_probe_of_the_spec_is_desired_in_its_order() -> None:
    spec = spec_of(
        pod_of(probe_of(exec_probe(), "m#b"), probe_of(exec_probe(), "m#a", "side"), name="web-1"),
        pod_of(probe_of(exec_probe(), "m#b"), name="web-0", ip=""),
    )
    assert [
        ProbeKey("uid-web-1", "main", ProbeName("m", "b")),
        ProbeKey("uid-web-1", "side", ProbeName("m", "a")),
        ProbeKey("uid-web-0", "main", ProbeName("m", "b")),
    ] == list(desired_probes(spec))
    assert desired_probes(None) == {}


def test_of_two_probes_with_one_key_the_first_is_used() -> None:
    spec = spec_of(pod_of(probe_of(exec_probe("one")), probe_of(exec_probe("two"))))
    assert [exec_probe("one")] == [each.probe for each in desired_probes(spec).values()]


@pytest.mark.parametrize(
    ("new", "edit"),
    [
        pytest.param(exec_probe(), NOTHING, id="same"),
        pytest.param(
            exec_probe(period_seconds=1, timeout_seconds=1, success_threshold=0), NOTHING,
            id="defaults-written-out",
        ),
        pytest.param(exec_probe("other"), NOTHING._replace(handler=True), id="command"),
        pytest.param(Probe(grpc=GRPCAction(80)), NOTHING._replace(handler=True), id="handler"),
        pytest.param(exec_probe(timeout_seconds=2), NOTHING._replace(timeout=True), id="timeout"),
        pytest.param(exec_probe(period_seconds=2), NOTHING._replace(timing=True), id="period"),
        pytest.param(exec_probe(initial_delay_seconds=2), NOTHING._replace(timing=True), id="delay"),
        pytest.param(exec_probe(success_threshold=2), NOTHING._replace(thresholds=True), id="success"),
        pytest.param(exec_probe(failure_threshold=2), NOTHING._replace(thresholds=True), id="failure"),
    ],
)  # fmt: skip
def test_a23_edit_lists_the_changed_fields(new: Probe, edit: Edit) -> None:
    assert edit == edit_of(entry_of(exec_probe()), entry_of(new))


@pytest.mark.parametrize(
    ("probe", "part"),
    [
        pytest.param(Probe(), "must specify a handler", id="no-handler"),
        pytest.param(
            Probe(exec=ExecAction(("a",)), grpc=GRPCAction(80)), "more than 1 handler", id="several"
        ),
        pytest.param(Probe(exec=ExecAction(())), "probe.exec.command", id="empty-command"),
        pytest.param(Probe(tcp_socket=TCPSocketAction(0)), "between 1 and 65535", id="port-0"),
        pytest.param(
            Probe(http_get=HTTPGetAction(80, scheme="FTP")), '"HTTP", "HTTPS"', id="scheme"
        ),
    ],
)
def test_invalid_probe_has_a_reason(probe: Probe, part: str) -> None:
    assert invalid_reason(entry_of(probe)).startswith("InvalidProbe: ")
    assert part in invalid_reason(entry_of(probe))


@pytest.mark.parametrize(
    "probe",
    [
        pytest.param(exec_probe(), id="sound"),
        pytest.param(exec_probe(period_seconds=-5, timeout_seconds=-1), id="numbers-out-of-range"),
        pytest.param(Probe(exec=ExecAction(("true",) * 500)), id="longer-than-our-bounds"),
        pytest.param(
            Probe(tcp_socket=TCPSocketAction(80, host="127.0.0.1")), id="host-fails-later"
        ),
        pytest.param(Probe(tcp_socket=TCPSocketAction("8080")), id="number-as-text"),
        pytest.param(Probe(tcp_socket=TCPSocketAction("No_Name")), id="name-of-no-port"),
    ],
)
def test_probe_that_can_run_is_valid(probe: Probe) -> None:
    assert not invalid_reason(entry_of(probe))
