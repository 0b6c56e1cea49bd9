"""Environments and command lines of containers."""

from typing import Any

import pytest
from support.node_records import node_pod

from kruise_probe_playground.node.environment import (
    Unsupported,
    container_environment,
    expand,
)


def environment(*env: Any, **more: Any) -> dict[str, str]:
    pod = node_pod(
        {"name": "a", "command": ["run"], "env": list(env), **more},
        metadata={"labels": {"app": "game"}, "annotations": {"note/x": "hi"}},
    )
    return container_environment(
        pod, pod.spec.containers[0], ip="127.10.1.1", node="node-0", node_ip="127.10.0.1"
    )


def field(path: str) -> dict[str, Any]:
    return {"name": "X", "valueFrom": {"fieldRef": {"fieldPath": path}}}


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        pytest.param({"name": "X", "value": "1"}, "1", id="value"),
        pytest.param({"name": "X"}, "", id="no-value"),
        pytest.param({"name": "X", "value": "at $(POD_IP)"}, "at 127.10.1.1", id="refers-to-earlier"),
        pytest.param(field("metadata.uid"), "uid-1", id="uid"),
        pytest.param(field("status.hostIP"), "127.10.0.1", id="host-ip"),
        pytest.param(field("metadata.labels['app']"), "game", id="label"),
        pytest.param(field("metadata.annotations['note/x']"), "hi", id="annotation"),
        pytest.param(field("metadata.labels['none']"), "", id="absent-label"),
    ],
)  # fmt: skip
def test_env_follows_the_kubelet_and_identifies_the_pod(variable: Any, value: str) -> None:
    pod = {"POD_NAME": "web", "POD_NAMESPACE": "default", "POD_IP": "127.10.1.1"}
    assert environment(variable) == {"HOSTNAME": "web", "X": value} | pod


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"env": [field("spec.priority")]}, id="unknown-field"),
        pytest.param({"env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}, id="secret"),
    ],
)  # fmt: skip
def test_unsupported_sources_name_the_container(more: Any) -> None:
    with pytest.raises(Unsupported, match="container 'a'"):
        environment(*more.pop("env", ()), **more)


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(A)", "1"),
        ("$(B)", "$(B)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$A ${A} $", "$A ${A} $"),
        ("$(A", "$(A"),
        ("A: no reference", "A: no reference"),
    ],
)
def test_known_references_are_expanded_and_others_stay(text: str, expanded: str) -> None:
    assert expand(text, {"A": "1"}) == expanded
