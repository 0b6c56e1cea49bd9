"""The wire format of Kruise's two kinds."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kruise_probe.api.core import Probe
from kruise_probe.api.resources import MARKERS, NODE_POD_PROBES
from kruise_probe.api.v1alpha1 import ContainerProbe, stored_bytes

MARKER = {
    "metadata": {
        "name": "game",
        "namespace": "ns",
        "uid": "u",
        "resourceVersion": "1",
        "generation": 2,
    },
    "spec": {
        "selector": {
            "matchLabels": {"app": "game"},
            "matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}],
        },
        "probes": [
            {
                "name": "Idle",
                "containerName": "main",
                "probe": {
                    "exec": {"command": ["/idle.sh"]},
                    "initialDelaySeconds": 10,
                    "timeoutSeconds": 3,
                    "periodSeconds": 10,
                    "successThreshold": 1,
                    "failureThreshold": 3,
                    "terminationGracePeriodSeconds": 5,
                },
                "markerPolicy": [
                    {
                        "state": "Succeeded",
                        "labels": {"idle": "true"},
                        "annotations": {"cost": "-10"},
                    }
                ],
                "podConditionType": "game.io/idle",
            },
            {
                "name": "web",
                "containerName": "main",
                "probe": {
                    "httpGet": {
                        "path": "/x",
                        "port": "http",
                        "host": "h",
                        "scheme": "HTTPS",
                        "httpHeaders": [{"name": "A", "value": "b"}],
                    }
                },
                "podConditionType": "game.io/web",
            },
            {
                "name": "door",
                "containerName": "main",
                "probe": {"tcpSocket": {"port": 80}},
                "podConditionType": "game.io/door",
            },
            {
                "name": "health",
                "containerName": "main",
                "probe": {"grpc": {"port": 81, "service": "s", "mode": "TLS"}},
                "podConditionType": "game.io/health",
            },
        ],
    },
    "status": {"observedGeneration": 2, "matchedPods": 3},
}
NODE = {
    "metadata": {"name": "node-1", "uid": "u", "resourceVersion": "1"},
    "spec": {
        "podProbes": [
            {
                "name": "game-0",
                "namespace": "ns",
                "uid": "p",
                "IP": "10.0.0.1",
                "probes": [
                    {
                        "name": "game#Idle",
                        "containerName": "main",
                        "probe": {"exec": {"command": ["/idle.sh"]}},
                    }
                ],
            }
        ]
    },
    "status": {
        "podProbeStatuses": [
            {
                "name": "game-0",
                "namespace": "ns",
                "uid": "p",
                "probeStates": [
                    {
                        "name": "game#Idle",
                        "state": "Succeeded",
                        "lastProbeTime": "2026-01-01T00:00:00Z",
                        "lastTransitionTime": "2026-01-01T00:00:00Z",
                        "message": "idle",
                        "containerID": "containerd://c",
                        "probeHash": "h",
                    }
                ],
            }
        ]
    },
}


@pytest.mark.parametrize(
    ("resource", "document"),
    [
        pytest.param(MARKERS, MARKER, id="podprobemarker"),
        pytest.param(NODE_POD_PROBES, NODE, id="nodepodprobe"),
    ],
)
def test_every_field_round_trips(resource: Any, document: dict[str, Any]) -> None:
    decoded = resource.decode(json.dumps(document).encode())

    assert json.loads(msgspec.json.encode(decoded)) == document


def test_kruise_nulls_and_empty_ip_decode() -> None:
    document = {
        "metadata": {"name": "node-1", "creationTimestamp": None},
        "spec": {
            "podProbes": [{"name": "a", "namespace": "b", "uid": "c", "IP": "", "probes": None}]
        },
        "status": {"podProbeStatuses": None},
    }

    decoded = NODE_POD_PROBES.decode(json.dumps(document).encode())

    assert decoded.spec.pod_probes is not None
    assert decoded.spec.pod_probes[0].ip == ""
    assert decoded.status is not None
    assert decoded.status.pod_probe_statuses is None


def test_empty_ip_is_encoded() -> None:
    document = {
        "metadata": {"name": "n"},
        "spec": {"podProbes": [{"name": "a", "namespace": "b", "uid": "c", "IP": ""}]},
    }

    decoded = NODE_POD_PROBES.decode(json.dumps(document).encode())

    assert json.loads(msgspec.json.encode(decoded.spec)) == document["spec"]


@pytest.mark.parametrize(
    ("numbers", "effective"),
    [
        pytest.param({}, (0, 1, 1, 1, 1), id="absent-means-one-and-no-delay"),
        pytest.param(
            dict.fromkeys(
                (
                    "initialDelaySeconds",
                    "timeoutSeconds",
                    "periodSeconds",
                    "successThreshold",
                    "failureThreshold",
                ),
                0,
            ),
            (0, 1, 1, 1, 1),
            id="zero-means-absent",
        ),
        pytest.param(
            {"initialDelaySeconds": -5, "periodSeconds": -1},
            (0, 1, 1, 1, 1),
            id="negative-is-harmless",
        ),
        pytest.param(
            {"initialDelaySeconds": 3, "timeoutSeconds": 4, "periodSeconds": 5},
            (3, 4, 5, 1, 1),
            id="given",
        ),
    ],
)
def test_effective_numbers_have_kruise_defaults(
    numbers: dict[str, int], effective: tuple[int, ...]
) -> None:
    document = {
        "metadata": {"name": "m"},
        "spec": {"probes": [{"name": "p", "containerName": "c", "probe": numbers}]},
    }

    (each,) = MARKERS.decode(json.dumps(document).encode()).spec.probes or ()

    assert effective == (
        each.probe.effective_initial_delay_seconds,
        each.probe.effective_timeout_seconds,
        each.probe.effective_period_seconds,
        each.probe.effective_success_threshold,
        each.probe.effective_failure_threshold,
    )


def node_pod_probe(*entries: dict[str, object]) -> bytes:
    return msgspec.json.encode({"metadata": {"name": "node-1"}, "spec": {"podProbes": entries}})


def entry(name: str, **more: object) -> dict[str, object]:
    return {"name": name, "namespace": "default", "uid": name, "IP": "10.0.0.1", **more}


def probe(name: str) -> dict[str, object]:
    return {"name": name, "containerName": "main", "probe": {"exec": {"command": ["true"]}}}


def test_equal_probes_are_shared() -> None:
    probes = [probe("game#idle"), probe("game#healthy")]

    found = NODE_POD_PROBES.decode(
        node_pod_probe(
            entry("web-0", probes=probes),
            entry("web-1", probes=probes),
            entry("web-2", probes=probes[:1]),
        )
    )

    first, second, third = found.spec.pod_probes or ()
    assert first.probes is second.probes
    assert [each.name for each in first.probes or ()] == ["game#idle", "game#healthy"]
    assert [each.name for each in third.probes or ()] == ["game#idle"]


@pytest.mark.parametrize("more", [{}, {"probes": None}])
def test_absent_probes_decode_as_none(more: dict[str, object]) -> None:
    found = NODE_POD_PROBES.decode(node_pod_probe(entry("web-0", **more)))

    assert [each.probes for each in found.spec.pod_probes or ()] == [None]


@pytest.mark.parametrize(
    "malformed",
    [
        pytest.param({"exec": 5}, id="handler"),
        pytest.param({"exec": {"command": "true"}}, id="command"),
        pytest.param({"grpc": {"port": "http"}}, id="port"),
        pytest.param({"exec": {"command": ["true"]}, "periodSeconds": "3"}, id="number"),
        pytest.param(None, id="null"),
        pytest.param("exec", id="text"),
    ],
)
def test_malformed_probe_has_no_handler_and_does_not_affect_others(malformed: object) -> None:
    probes = [probe("a#b"), {**probe("a#c"), "probe": malformed}]
    found = NODE_POD_PROBES.decode(node_pod_probe(entry("web-0", probes=probes)))

    (pod,) = found.spec.pod_probes or ()
    good, bad = pod.probes or ()
    assert (good.name, good.probe.handler is None) == ("a#b", False)
    assert bad == ContainerProbe("a#c", "main", Probe())


@pytest.mark.parametrize("probes", ["none", [{"name": 1}]])
def test_malformed_probes_of_a_pod_count_as_absent(probes: object) -> None:
    found = NODE_POD_PROBES.decode(
        node_pod_probe(entry("web-0", probes=probes), entry("web-1", probes=[probe("a#b")]))
    )

    first, second = found.spec.pod_probes or ()
    assert first.probes is None
    assert second.probes


@pytest.mark.parametrize("statuses", ["none", [1], [{"name": "web-0", "probeStates": {}}]])
def test_a_malformed_status_counts_as_absent(statuses: object) -> None:
    wire = {"metadata": {"name": "node-1"}, "status": {"podProbeStatuses": statuses}}

    assert NODE_POD_PROBES.decode(msgspec.json.encode(wire)).status is None


def test_a_malformed_spec_makes_only_its_object_undecodable() -> None:
    bad = {"metadata": {"name": "bad"}, "spec": {"podProbes": [entry("web-0", IP=1)]}}
    good = {"metadata": {"name": "good"}}

    meta = {"resourceVersion": "7"}
    page = NODE_POD_PROBES.decode_list(
        msgspec.json.encode({"kind": "NodePodProbeList", "metadata": meta, "items": [bad, good]})
    )

    assert [each.key.name for each in page.items] == ["good"]
    assert [each.key.name for each in page.undecodable] == ["bad"]


@pytest.mark.parametrize(
    ("text", "size"),
    [
        pytest.param("text", 4, id="plain"),
        pytest.param("<", 6, id="less"),
        pytest.param(">", 6, id="greater"),
        pytest.param("&", 6, id="ampersand"),
        pytest.param("\u2028", 6, id="line-separator"),
        pytest.param("\u2029", 6, id="paragraph-separator"),
        pytest.param("\u2027\u202a“…”", 15, id="beside-the-separators"),
        pytest.param('"', 2, id="quote"),
        pytest.param("\x01", 6, id="control"),
        pytest.param("\x7f", 1, id="delete"),
        pytest.param("grün 🙂", 10, id="umlaut-and-face"),
    ],
)
def test_stored_size_counts_escapes_of_go(text: str, size: int) -> None:
    assert stored_bytes(text) == size + len('""')


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("<>&\u2028"))))
def test_stored_size_is_additive(texts: list[str]) -> None:
    commas = max(len(texts) - 1, 0)

    assert stored_bytes(texts) == sum(map(stored_bytes, texts)) + commas + len("[]")
