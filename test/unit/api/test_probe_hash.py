"""The hash that decides whether a recorded result is of the same probe, and the handler's name in metrics."""

import msgspec
import pytest
from support.builders import entry_of

from kruise_probe.api.probe import ExecAction, GRPCAction, HTTPGetAction, Probe, TCPSocketAction
from kruise_probe.api.v1alpha1 import ContainerProbe

EXEC = ExecAction(("check",))


def test_result_stays_valid_when_the_default_timeout_is_written() -> None:
    assert entry_of(Probe(exec=EXEC, timeout_seconds=1)).hash == entry_of(Probe(exec=EXEC)).hash


def test_every_handler_and_every_timeout_has_its_own_hash() -> None:
    probes = [
        Probe(exec=EXEC),
        Probe(exec=EXEC, timeout_seconds=2),
        Probe(exec=ExecAction(("check", ""))),
        Probe(http_get=HTTPGetAction(port=80)),
        Probe(http_get=HTTPGetAction(port=80, path="/ready")),
        Probe(tcp_socket=TCPSocketAction(80)),
        Probe(tcp_socket=TCPSocketAction(81)),
        Probe(grpc=GRPCAction(80)),
        Probe(grpc=GRPCAction(80, service="shop")),
        Probe(),
    ]
    assert len({entry_of(probe).hash for probe in probes}) == len(probes)
    assert (
        len({msgspec.json.encode(entry_of(probe).attempt) for probe in probes}) == len(probes) - 1
    )


def test_upgrade_of_the_daemon_keeps_the_hash() -> None:
    """The status has it. With another one, all results would be outdated after an upgrade."""
    assert entry_of(Probe(exec=EXEC, timeout_seconds=3)).hash == "7b5d0de50ef65c16"


def test_a_new_option_changes_the_hash_only_where_it_is_set() -> None:
    class Newer(ContainerProbe, frozen=True, rename="camel"):
        option: int | None = None

    def newer(option: int | None) -> Newer:
        return Newer("m#p", "main", Probe(exec=EXEC), option=option)

    assert newer(None).hash == entry_of(Probe(exec=EXEC)).hash
    assert newer(1).hash not in (newer(None).hash, newer(2).hash)


@pytest.mark.parametrize(
    ("probe", "name"),
    [
        (Probe(exec=EXEC), "exec"),
        (Probe(http_get=HTTPGetAction(port=80)), "httpGet"),
        (Probe(tcp_socket=TCPSocketAction(80)), "tcpSocket"),
        (Probe(grpc=GRPCAction(80)), "grpc"),
        (Probe(), "invalid"),
        (Probe(exec=EXEC, grpc=GRPCAction(80)), "invalid"),
    ],
)
def test_metrics_have_the_wire_name_of_the_handler(probe: Probe, name: str) -> None:
    assert probe.handler_type == name
