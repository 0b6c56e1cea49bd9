"""The wire format of Kruise's two kinds."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from support.builders import npp_wire, pod_status_wire, pod_wire, state_wire
from support.cases import cases
from support.marker_table import VALID, Row
from support.wire import Json

from kruise_probe.api.node_pod_probe import NodePodProbe, stored_bytes
from kruise_probe.api.probe import Probe
from kruise_probe.api.resources import NODE_POD_PROBES
from kruise_probe.api.v1alpha1 import ContainerProbe, PodProbeMarkerSpec


def node_pod_probe(*entries: Json) -> NodePodProbe:
    wire = {"metadata": {"name": "node-1"}, "spec": {"podProbes": entries}}
    return NODE_POD_PROBES.decode(msgspec.json.encode(wire))


def encoded(part: object) -> Any:
    return json.loads(msgspec.json.encode(part))


def entry(name: str, **more: object) -> Json:
    return {"name": name, "namespace": "default", "uid": name, "IP": "10.0.0.1", **more}


def probe(name: str) -> Json:
    return {"name": name, "containerName": "main", "probe": {"exec": {"command": ["true"]}}}


def probes_of_pods(*pods: Sequence[Json]) -> list[Sequence[ContainerProbe]]:
    """The decoded probes of each pod."""
    entries = [entry(f"web-{number}", probes=probes) for number, probes in enumerate(pods)]
    found = node_pod_probe(*entries).spec.pod_probes
    assert found
    return [pod.probes or () for pod in found]


@pytest.mark.parametrize("row", [pytest.param(row, id=row.id) for row in VALID])
def test_every_field_of_a_valid_marker_round_trips_but_empty_lists(row: Row) -> None:
    decoded = msgspec.convert(row.spec, PodProbeMarkerSpec)
    given = json.dumps(row.spec).replace(', "values": []', "")
    assert encoded(decoded) == json.loads(given)


def test_a_status_round_trips_with_the_fields_that_only_we_have() -> None:
    state = state_wire(message="idle", probe_hash="h")
    wire = npp_wire(statuses=[pod_status_wire(pod_wire(), state)])
    decoded = NODE_POD_PROBES.decode(msgspec.json.encode(wire))
    assert encoded(decoded.status) == wire["status"]


def test_an_empty_ip_is_kept_and_null_probes_are_absent() -> None:
    """As Kruise writes them."""
    found = node_pod_probe(entry("a", IP="", probes=None))
    assert encoded(found.spec) == {"podProbes": [entry("a", IP="")]}


NUMBERS = (
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
)


@cases(
    "numbers effective",
    absent_means_one_and_no_delay=({}, (0, 1, 1, 1, 1)),
    zero_means_absent=(dict.fromkeys(NUMBERS, 0), (0, 1, 1, 1, 1)),
    negative_is_harmless=(dict.fromkeys(NUMBERS, -5), (0, 1, 1, 1, 1)),
    given=(dict(zip(NUMBERS, (2, 3, 4, 5, 6), strict=True)), (2, 3, 4, 5, 6)),
)
def test_effective_numbers_have_kruise_defaults(
    numbers: dict[str, int], effective: tuple[int, ...]
) -> None:
    found = msgspec.convert(numbers, Probe)
    assert effective == (
        found.effective_initial_delay_seconds,
        found.effective_timeout_seconds,
        found.effective_period_seconds,
        found.effective_success_threshold,
        found.effective_failure_threshold,
    )


def test_equal_probes_are_shared() -> None:
    idle = probe("game#idle")
    healthy = probe("game#healthy")
    first, second, third = probes_of_pods([idle, healthy], [idle, healthy], [idle])
    assert first is second
    assert [probe.name for probe in first] == ["game#idle", "game#healthy"]
    assert [probe.name for probe in third] == ["game#idle"]


@cases(
    "malformed",
    handler={"exec": 5},
    command={"exec": {"command": "true"}},
    port={"grpc": {"port": "http"}},
    number={"exec": {"command": ["true"]}, "periodSeconds": "3"},
    null=None,
    text="exec",
)
def test_malformed_probe_has_no_handler_and_does_not_affect_others(malformed: object) -> None:
    ((good, bad),) = probes_of_pods([probe("a#b"), probe("a#c") | {"probe": malformed}])
    assert good.name == "a#b"
    assert good.probe.handler
    assert bad == ContainerProbe("a#c", "main", Probe())


@pytest.mark.parametrize("more", [{}, {"probes": "none"}, {"probes": [{"name": 1}]}])
def test_absent_or_malformed_probes_of_a_pod_are_empty(more: Json) -> None:
    found = node_pod_probe(
        entry("web-0", **more),
        entry("web-1", probes=[probe("a#b")]),
    )
    assert found.spec.pod_probes
    first, second = found.spec.pod_probes
    assert first.probes == ()
    assert second.probes


@pytest.mark.parametrize("statuses", ["none", [1], [{"name": "web-0", "probeStates": {}}]])
def test_a_malformed_status_counts_as_absent(statuses: object) -> None:
    wire = {"metadata": {"name": "node-1"}, "status": {"podProbeStatuses": statuses}}

    assert NODE_POD_PROBES.decode(msgspec.json.encode(wire)).status is None


@cases(
    "text size",
    plain=("text", 4),
    less=("<", 6),
    greater=(">", 6),
    ampersand=("&", 6),
    line_separator=("\u2028", 6),
    paragraph_separator=("\u2029", 6),
    beside_the_separators=("\u2027\u202a“…”", 15),
    quote=('"', 2),
    control=("\x01", 6),
    delete=("\x7f", 1),
    umlaut_and_face=("grün 🙂", 10),
)
def test_stored_size_counts_escapes_of_go(text: str, size: int) -> None:
    assert stored_bytes(text) == size + len('""')
