"""The hash that decides whether a recorded result is of the same probe, and the handler's name in metrics."""

from typing import Any

import msgspec
import pytest
from support.builders import entry_of

from kruise_probe.api.probe import ExecAction, GRPCAction, HTTPGetAction, Probe, TCPSocketAction
from kruise_probe.api.v1alpha1 import ContainerProbe

EXEC = ExecAction(("check",))


def hash_of(**probe: Any) -> str:
    return entry_of(Probe(**probe)).hash


def test_result_stays_valid_when_the_default_timeout_is_written() -> None:
    assert hash_of(exec=EXEC, timeout_seconds=1) == hash_of(exec=EXEC)


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
    entries = [entry_of(probe) for probe in probes]
    attempts = {msgspec.json.encode(entry.attempt) for entry in entries}
    assert len({entry.hash for entry in entries}) == len(probes)
    assert len(attempts) == len(probes) - 1


def test_upgrade_of_the_daemon_keeps_the_hash() -> None:
    """The status has it. With another one, all results would be outdated after an upgrade."""
    assert hash_of(exec=EXEC, timeout_seconds=3) == "7b5d0de50ef65c16"


def test_a_new_option_changes_the_hash_only_where_it_is_set() -> None:
    class Newer(ContainerProbe, frozen=True, rename="camel"):
        option: int | None = None

    def newer(option: int | None) -> str:
        return Newer(
            "m#p",
            "main",
            Probe(exec=EXEC),
            option=option,
        ).hash

    assert newer(None) == hash_of(exec=EXEC)
    assert newer(1) not in (newer(None), newer(2))


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
