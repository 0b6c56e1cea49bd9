import pytest
from support.builders import entry_of
from support.fake_runtime import ScriptedRuntime
from support.probing import result_of

from kruise_probe.api.core import ExecAction, GRPCAction, HTTPGetAction, Probe, TCPSocketAction
from kruise_probe.daemon.cri.runtime import ExecResult
from kruise_probe.daemon.probers.exec import Commands, RuntimeCommands
from kruise_probe.daemon.probers.prober import (
    CouldNotProbe,
    Prober,
    Target,
    success,
)
from kruise_probe.daemon.probers.selection import prober_for

COMMAND = ExecAction(command=("true",))
POD = Target("127.0.0.1", "container-0")


def selected(probe: Probe) -> Prober:
    return prober_for(entry_of(probe), commands=RuntimeCommands(ScriptedRuntime()), user_agent="x")


@pytest.mark.parametrize(
    ("probe", "timeout"),
    [
        pytest.param(Probe(exec=COMMAND, timeout_seconds=7), 7, id="given"),
        pytest.param(Probe(exec=COMMAND), 1, id="absent"),
        pytest.param(Probe(exec=COMMAND, timeout_seconds=0), 1, id="zero"),
    ],
)
async def test_command_runs_with_the_effective_timeout(probe: Probe, timeout: int) -> None:
    calls: list[tuple[str, tuple[str, ...], float]] = []

    class NotedCommands(Commands):
        async def execute(
            self, container_id: str, command: tuple[str, ...], *, timeout_seconds: float
        ) -> ExecResult:
            calls.append((container_id, command, timeout_seconds))
            return ExecResult(0, b"", b"")

    prober = prober_for(entry_of(probe), commands=NotedCommands(), user_agent="x")
    assert await result_of(prober, POD) == success()
    assert calls == [("container-0", ("true",), timeout)]


@pytest.mark.parametrize(
    ("probe", "field"),
    [
        (Probe(http_get=HTTPGetAction(port=80, host="127.0.0.2")), "httpGet.host"),
        (Probe(tcp_socket=TCPSocketAction(port=80, host="evil.example")), "tcpSocket.host"),
        (Probe(http_get=HTTPGetAction(port=80, host="127.0.0.1")), "httpGet.host"),
    ],
)
async def test_host_fails_with_the_reason(probe: Probe, field: str) -> None:
    result = await result_of(selected(probe), POD)

    assert not result.succeeded
    assert result.message.startswith(f"HostNotAllowed: {field} is set to ")


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
            Probe(tcp_socket=TCPSocketAction(port=80)),
            Target("", "c", refusal="10.0.0.2 is not an address of this node"),
            "AddressNotAllowed",
            id="refused-address",
        ),
        pytest.param(
            Probe(http_get=HTTPGetAction(port="web")), POD, "PortNameUnknown", id="port-name"
        ),
        pytest.param(Probe(tcp_socket=TCPSocketAction(port="0")), POD, "InvalidProbe", id="port-0"),
        pytest.param(
            Probe(tcp_socket=TCPSocketAction(port="9" * 5000)),
            POD,
            "PortNameUnknown",
            id="port-of-thousands-of-digits",
        ),
        pytest.param(
            Probe(tcp_socket=TCPSocketAction(port="9" * 15)),
            POD,
            "InvalidProbe",
            id="number-of-the-length-of-a-name",
        ),
        pytest.param(
            Probe(tcp_socket=TCPSocketAction(port="9" * 16)),
            POD,
            "PortNameUnknown",
            id="number-longer-than-a-name",
        ),
        pytest.param(Probe(grpc=GRPCAction(port=70000)), POD, "InvalidProbe", id="port-too-large"),
        pytest.param(
            Probe(exec=ExecAction(command=("true",))),
            Target("127.0.0.1", ""),
            "ContainerNotCreated",
            id="no-container",
        ),
    ],
)
async def test_without_a_target_there_is_no_result(
    probe: Probe, target: Target, reason: str
) -> None:
    with pytest.raises(CouldNotProbe) as caught:
        await result_of(selected(probe), target)

    assert caught.value.reason == reason
