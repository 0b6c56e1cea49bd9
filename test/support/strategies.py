"""Hypothesis strategies with few names, so that names often collide."""

from itertools import product
from pathlib import Path

from hypothesis.strategies import DrawFn, booleans, composite, lists, sampled_from, sets
from support.builders import (
    condition_wire,
    container_wire,
    marker_wire,
    pod_wire,
    probe_wire,
    state_wire,
)
from support.tables import load_table
from support.wire import Json

MARKER_NAMES = ("way", "gateway", "way2", "a")
NAMESPACES = ("default", "def", "prod")
PROBE_NAMES = ("p", "pp", "way")
CONDITIONS = ("c/one", "c/two", "c/three")
STATES = ("Succeeded", "Failed", "Unknown")
RESULT_NAMES = tuple(map("#".join, product(MARKER_NAMES, PROBE_NAMES)))

HANDLERS: list[Json] = [
    {"exec": {"command": ["true"]}},
    {"tcpSocket": {"port": "http"}},
    {"httpGet": {"port": 80}},
    {"grpc": {"port": 80}},
]


POLICIES: list[list[Json]] = load_table(Path(__file__).parents[1] / "data" / "policies.yaml", {})


@composite
def probes(draw: DrawFn, name: str) -> Json:
    return probe_wire(
        name,
        container=draw(sampled_from(["main", "side", "absent"])),
        condition=draw(sampled_from([None, *CONDITIONS])),
        policies=draw(sampled_from(POLICIES)),
        handler=draw(sampled_from(HANDLERS)),
    )


@composite
def markers(draw: DrawFn, namespaces: tuple[str, ...] = NAMESPACES) -> Json:
    probe_names = draw(sampled_from([("p",), ("pp", "p"), ("way",), ("p", "pp", "way")]))
    return marker_wire(
        draw(sampled_from(MARKER_NAMES)),
        namespace=draw(sampled_from(namespaces)),
        created=draw(sampled_from(["2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"])),
        selector={"matchLabels": {"app": draw(sampled_from(["web", "db"]))}},
        probes=[draw(probes(name)) for name in probe_names],
    )


@composite
def marker_sets(
    draw: DrawFn, namespaces: tuple[str, ...] = NAMESPACES, min_size: int = 0
) -> list[Json]:
    """Markers with different keys."""

    def key_of(marker: Json) -> tuple[str, str]:
        return marker["metadata"]["namespace"], marker["metadata"]["name"]

    found = lists(
        markers(namespaces),
        unique_by=key_of,
        min_size=min_size,
        max_size=4,
    )
    return draw(found)


FOREIGN_CONDITIONS: list[list[Json]] = [
    [],
    [condition_wire("c/one")],
    [condition_wire("c/two", "False"), condition_wire("c/three")],
]


@composite
def pods(draw: DrawFn, name: str = "web-0", namespace: str | None = None) -> Json:
    """Pods in all states, with labels and conditions of other clients."""
    labels = draw(sampled_from([{}, {"l1": "x"}, {"l1": "", "l2": "y", "l3": "x"}]))
    conditions = draw(sampled_from(FOREIGN_CONDITIONS))
    main = container_wire(ports={"http": 8080}, startup_probe=draw(booleans()))
    return pod_wire(
        name,
        namespace=namespace or draw(sampled_from(NAMESPACES)),
        labels={"app": draw(sampled_from(["web", "db"])), **labels},
        annotations=draw(sampled_from([{}, {"a1": "x"}, {"a1": "", "a2": "y"}])),
        ip=draw(sampled_from(["", "127.1.0.1"])),
        phase=draw(sampled_from(["Running", "Pending", "Succeeded"])),
        initialized=draw(booleans()),
        containers=[main],
        init_containers=[container_wire("side", sidecar=True)],
        started=["main"] if draw(booleans()) else [],
        conditions=conditions,
        readiness_gates=draw(sampled_from([[], ["c/one"], ["c/two", "c/three"]])),
    )


@composite
def results(draw: DrawFn) -> list[Json]:
    """States of probes that may or may not exist."""
    names = draw(lists(sampled_from(RESULT_NAMES), unique=True, max_size=6))
    stamp = draw(sampled_from(["", "2026-01-01T00:01:00Z", "no time"]))
    return [
        state_wire(
            name,
            draw(sampled_from(STATES)),
            draw(sampled_from(["", "fine", "wrong"])),
            probed=stamp,
            moved=stamp,
        )
        for name in names
    ]


@composite
def states(draw: DrawFn) -> list[Json]:
    """A definite state for every probe that there may be."""
    failed = draw(sets(sampled_from(RESULT_NAMES)))
    return [state_wire(name, "Failed" if name in failed else "Succeeded") for name in RESULT_NAMES]
