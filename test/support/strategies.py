"""Hypothesis strategies with few names, so that names often collide."""

from itertools import product
from pathlib import Path

from hypothesis import strategies as st
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


@st.composite
def probes(draw: st.DrawFn, name: str) -> Json:
    return probe_wire(
        name,
        container=draw(st.sampled_from(["main", "side", "absent"])),
        condition=draw(st.sampled_from([None, *CONDITIONS])),
        policies=draw(st.sampled_from(POLICIES)),
        handler=draw(st.sampled_from(HANDLERS)),
    )


@st.composite
def markers(draw: st.DrawFn, namespaces: tuple[str, ...] = NAMESPACES) -> Json:
    probe_names = draw(st.sampled_from([("p",), ("pp", "p"), ("way",), ("p", "pp", "way")]))
    return marker_wire(
        draw(st.sampled_from(MARKER_NAMES)),
        namespace=draw(st.sampled_from(namespaces)),
        created=draw(st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"])),
        selector={"matchLabels": {"app": draw(st.sampled_from(["web", "db"]))}},
        probes=[draw(probes(name)) for name in probe_names],
    )


@st.composite
def marker_sets(
    draw: st.DrawFn, namespaces: tuple[str, ...] = NAMESPACES, min_size: int = 0
) -> list[Json]:
    """Markers with different keys."""
    lists = st.lists(
        markers(namespaces),
        unique_by=lambda marker: (marker["metadata"]["namespace"], marker["metadata"]["name"]),
        min_size=min_size,
        max_size=4,
    )
    return draw(lists)


FOREIGN_CONDITIONS: list[list[Json]] = [
    [],
    [condition_wire("c/one")],
    [condition_wire("c/two", "False"), condition_wire("c/three")],
]


@st.composite
def pods(draw: st.DrawFn, name: str = "web-0", namespace: str | None = None) -> Json:
    """Pods in all states, with labels and conditions of other clients."""
    labels = draw(st.sampled_from([{}, {"l1": "x"}, {"l1": "", "l2": "y", "l3": "x"}]))
    conditions = draw(st.sampled_from(FOREIGN_CONDITIONS))
    main = container_wire(ports={"http": 8080}, startup_probe=draw(st.booleans()))
    return pod_wire(
        name,
        namespace=namespace or draw(st.sampled_from(NAMESPACES)),
        labels={"app": draw(st.sampled_from(["web", "db"])), **labels},
        annotations=draw(st.sampled_from([{}, {"a1": "x"}, {"a1": "", "a2": "y"}])),
        ip=draw(st.sampled_from(["", "127.1.0.1"])),
        phase=draw(st.sampled_from(["Running", "Pending", "Succeeded"])),
        initialized=draw(st.booleans()),
        containers=[main],
        init_containers=[container_wire("side", sidecar=True)],
        started=["main"] if draw(st.booleans()) else [],
        conditions=conditions,
        readiness_gates=draw(st.sampled_from([[], ["c/one"], ["c/two", "c/three"]])),
    )


@st.composite
def results(draw: st.DrawFn) -> list[Json]:
    """States of probes that may or may not exist."""
    names = draw(st.lists(st.sampled_from(RESULT_NAMES), unique=True, max_size=6))
    stamp = draw(st.sampled_from(["", "2026-01-01T00:01:00Z", "no time"]))
    return [
        state_wire(
            name,
            draw(st.sampled_from(STATES)),
            draw(st.sampled_from(["", "fine", "wrong"])),
            probed=stamp,
            moved=stamp,
        )
        for name in names
    ]


@st.composite
def states(draw: st.DrawFn) -> list[Json]:
    """A definite state for every probe that there may be."""
    failed = draw(st.sets(st.sampled_from(RESULT_NAMES)))
    return [state_wire(name, "Failed" if name in failed else "Succeeded") for name in RESULT_NAMES]
