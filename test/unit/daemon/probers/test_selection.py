import pytest
from support.fake_runtime import ScriptedRuntime

from kruise_probe.api.core import ExecAction, GRPCAction, HTTPGetAction, Probe, TCPSocketAction
from kruise_probe.daemon.probers.exec import ExecProber
from kruise_probe.daemon.probers.exec_gate import ExecGate
from kruise_probe.daemon.probers.grpc import GrpcProber
from kruise_probe.daemon.probers.http import HttpProber
from kruise_probe.daemon.probers.prober import CouldNotProbe, Prober, Target, Verdict
from kruise_probe.daemon.probers.selection import prober_for
from kruise_probe.daemon.probers.tcp import TcpProber

POD = Target("127.0.0.1", "container-0")


def selected(probe: Probe) -> Prober:
    return prober_for(probe, gate=ExecGate(ScriptedRuntime(), max_concurrent=1), user_agent="x")


@pytest.mark.parametrize(
    ("probe", "kind"),
    [
        (Probe(exec=ExecAction(command=("true",))), ExecProber),
        (Probe(http_get=HTTPGetAction(port=80)), HttpProber),
        (Probe(http_get=HTTPGetAction(port=80, host="")), HttpProber),
        (Probe(tcp_socket=TCPSocketAction(port=80)), TcpProber),
        (Probe(grpc=GRPCAction(port=80)), GrpcProber),
    ],
)
def test_every_action_has_its_prober(probe: Probe, kind: type) -> None:
    assert isinstance(selected(probe), kind)


@pytest.mark.parametrize(
    ("probe", "field"),
    [
        (Probe(http_get=HTTPGetAction(port=80, host="127.0.0.2")), "httpGet.host"),
        (Probe(tcp_socket=TCPSocketAction(port=80, host="evil.example")), "tcpSocket.host"),
        (Probe(http_get=HTTPGetAction(port=80, host="127.0.0.1")), "httpGet.host"),
    ],
)
async def test_a_host_fails_and_says_why(probe: Probe, field: str) -> None:
    outcome = await selected(probe).run(POD)

    assert outcome.verdict is Verdict.FAILURE
    assert outcome.message.startswith(f"HostNotAllowed: {field} is set to ")


async def test_a_probe_without_action_fails_and_says_why() -> None:
    outcome = await selected(Probe()).run(POD)

    assert outcome.verdict is Verdict.FAILURE
    assert outcome.message.startswith("InvalidProbe: ")


@pytest.mark.parametrize(
    ("probe", "target", "reason"),
    [
        pytest.param(
            Probe(tcp_socket=TCPSocketAction(port=80)),
            Target("", "c"),
            "PodIPUnknown",
            id="tcp-no-ip",
        ),
        pytest.param(
            Probe(http_get=HTTPGetAction(port=80)), Target("", "c"), "PodIPUnknown", id="http-no-ip"
        ),
        pytest.param(
            Probe(grpc=GRPCAction(port=80)), Target("", "c"), "PodIPUnknown", id="grpc-no-ip"
        ),
        pytest.param(
            Probe(tcp_socket=TCPSocketAction(port=80)),
            Target("evil.example", "c"),
            "PodIPUnknown",
            id="a-name-is-no-ip",
        ),
        pytest.param(
            Probe(http_get=HTTPGetAction(port="web")), POD, "PortNameUnknown", id="port-name"
        ),
        pytest.param(Probe(tcp_socket=TCPSocketAction(port="0")), POD, "InvalidProbe", id="port-0"),
        pytest.param(Probe(grpc=GRPCAction(port=70000)), POD, "InvalidProbe", id="port-too-large"),
        pytest.param(
            Probe(exec=ExecAction(command=("true",))),
            Target("127.0.0.1", ""),
            "ContainerNotCreated",
            id="no-container",
        ),
    ],
)
async def test_without_a_target_there_is_no_verdict(
    probe: Probe, target: Target, reason: str
) -> None:
    with pytest.raises(CouldNotProbe) as caught:
        await selected(probe).run(target)

    assert caught.value.reason == reason
