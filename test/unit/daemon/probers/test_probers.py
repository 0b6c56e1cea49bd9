import pytest
from support.builders import entry_of
from support.cases import cases
from support.fake_runtime import ScriptedRuntime

from kruise_probe.api.meta import HostPort
from kruise_probe.api.probe import ExecAction, GRPCAction, HTTPGetAction, Probe, TCPSocketAction
from kruise_probe.daemon.probers import prober_for
from kruise_probe.daemon.probers.prober import CouldNotProbe, Prober, Target, address_of

POD = Target("127.0.0.1", "container-0")


def selected(probe: Probe) -> Prober:
    return prober_for(entry_of(probe), commands=ScriptedRuntime(), user_agent="x")


def grpc(port: int) -> Probe:
    return Probe(grpc=GRPCAction(port=port))


def http(port: int | str = 80, host: str | None = None) -> Probe:
    return Probe(http_get=HTTPGetAction(port=port, host=host))


def tcp(port: int | str = 80, host: str | None = None) -> Probe:
    return Probe(tcp_socket=TCPSocketAction(port=port, host=host))


@cases(
    "probe reason",
    another_host=(http(host="127.0.0.2"), "HostNotAllowed: httpGet.host is "),
    its_own_address=(http(host="127.0.0.1"), "HostNotAllowed: httpGet.host is "),
    tcp=(tcp(host="evil.example"), "HostNotAllowed: tcpSocket.host is "),
    no_handler=(Probe(), "InvalidProbe: "),
)
async def test_probe_that_must_not_run_fails_with_the_reason(probe: Probe, reason: str) -> None:
    result = await selected(probe).run(POD)

    assert not result.succeeded
    assert result.message.startswith(reason)


NO_IP = Target("", "c")
REFUSED = Target("", "c", refusal="10.0.0.2 is not an address of this node")
NO_RESULT: dict[str, tuple[Probe, Target, str]] = {
    "tcp-no-ip": (
        tcp(),
        NO_IP,
        "PodIPUnknown: the pod has no IP yet; its events show why",
    ),
    "http-no-ip": (http(), NO_IP, "PodIPUnknown"),
    "grpc-no-ip": (grpc(80), NO_IP, "PodIPUnknown"),
    "a-name-is-no-ip": (tcp(), Target("evil.example", "c"), "PodIPUnknown"),
    "refused-address": (tcp(), REFUSED, "AddressNotAllowed"),
    "port-name": (http(port="web"), POD, "PortNameUnknown"),
    "port-0": (tcp("0"), POD, "InvalidProbe"),
    "port-of-thousands-of-digits": (tcp("9" * 5000), POD, "PortNameUnknown"),
    "number-of-the-length-of-a-name": (tcp("9" * 15), POD, "InvalidProbe"),
    "number-longer-than-a-name": (tcp("9" * 16), POD, "PortNameUnknown"),
    "port-too-large": (grpc(65_536), POD, "InvalidProbe"),
    "no-container": (
        Probe(exec=ExecAction(command=("true",))),
        Target("127.0.0.1", ""),
        "ContainerNotCreated",
    ),
}


@cases("probe target why", **NO_RESULT)
async def test_without_a_target_there_is_no_result(probe: Probe, target: Target, why: str) -> None:
    with pytest.raises(CouldNotProbe) as caught:
        await selected(probe).run(target)

    assert str(caught.value).startswith(why)


def test_every_port_up_to_65535_is_dialled() -> None:
    for port in (1, 65_535, "65535"):
        assert address_of(POD, port) == HostPort("127.0.0.1", int(port))
