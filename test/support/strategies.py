"""Hypothesis strategies with few names, so that names often collide."""

from hypothesis import strategies as st
from support.builders import (
    condition_wire,
    container_wire,
    marker_wire,
    pod_wire,
    policy_wire,
    probe_wire,
    state_wire,
)
from support.wire import Json

MARKER_NAMES = ("way", "gateway", "way2", "a")
NAMESPACES = ("default", "def", "prod")
PROBE_NAMES = ("p", "pp", "way")
CONDITIONS = ("c/one", "c/two", "c/three")
STATES = ("Succeeded", "Failed", "Unknown")

HANDLERS: list[Json] = [
    {"exec": {"command": ["true"]}},
    {"tcpSocket": {"port": "http"}},
    {"httpGet": {"port": 80}},
    {"grpc": {"port": 80}},
]


POLICIES: list[list[Json]] = [
    [],
    [policy_wire("Succeeded", {"l1": "x"})],
    [policy_wire("Succeeded", {"l1": "y", "l2": ""}, {"a1": "x"})],
    [policy_wire("Failed", {"l2": "x"}, {"a1": "y"})],
    [policy_wire("Failed", None, {"a2": ""})],
    [policy_wire("Succeeded", {"l1": "x"}), policy_wire("Failed", {"l1": "y"})],
    [policy_wire("Failed", {"l3": "x"}), policy_wire("Succeeded", {"l2": "x"}, {"a2": "x"})],
    [policy_wire("Succeeded", {"l3": ""}, {"a1": "x"}), policy_wire("Failed", None, {"a1": "y"})],
    [policy_wire("Unknown", {"l1": "z"}), policy_wire("Failed", {"l2": "x"}, {"a2": "x"})],
    [
        policy_wire("Succeeded", {"l1": "y"}, from_message=[{"label": "l1", "regex": "f(.*)"}]),
        policy_wire("Failed", from_message=[{"label": "l2"}, {"annotation": "a2"}]),
        policy_wire("Unknown", None, {"a1": "y"}),
    ],
]
"""None to three policies; with equal keys, with keys of one state only, and with values from messages."""


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
def markers(
    draw: st.DrawFn, names: tuple[str, ...] = MARKER_NAMES, namespaces: tuple[str, ...] = NAMESPACES
) -> Json:
    probe_names = draw(st.sampled_from([("p",), ("pp", "p"), ("way",), ("p", "pp", "way")]))
    return marker_wire(
        draw(st.sampled_from(names)),
        namespace=draw(st.sampled_from(namespaces)),
        created=draw(st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"])),
        selector={"matchLabels": {"app": draw(st.sampled_from(["web", "db"]))}},
        probes=[draw(probes(each)) for each in probe_names],
    )


@st.composite
def marker_sets(
    draw: st.DrawFn, namespaces: tuple[str, ...] = NAMESPACES, min_size: int = 0
) -> list[Json]:
    """Markers with different keys."""
    return draw(
        st.lists(
            markers(namespaces=namespaces),
            unique_by=lambda each: (each["metadata"]["namespace"], each["metadata"]["name"]),
            min_size=min_size,
            max_size=4,
        )
    )


@st.composite
def pods(draw: st.DrawFn, name: str = "web-0", namespace: str | None = None) -> Json:
    """Pods in all states, with labels and conditions of other clients."""
    labels = draw(st.sampled_from([{}, {"l1": "x"}, {"l1": "", "l2": "y", "l3": "x"}]))
    conditions = draw(
        st.sampled_from(
            [
                [],
                [condition_wire("c/one")],
                [condition_wire("c/two", "False"), condition_wire("c/three")],
            ]
        )
    )
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
    names = draw(
        st.lists(
            st.tuples(st.sampled_from(MARKER_NAMES), st.sampled_from(PROBE_NAMES)),
            unique=True,
            max_size=6,
        )
    )
    stamp = draw(st.sampled_from(["", "2026-01-01T00:01:00Z", "no time"]))
    return [
        state_wire(
            f"{marker}#{probe}",
            draw(st.sampled_from(STATES)),
            draw(st.sampled_from(["", "fine", "wrong"])),
            probed=stamp,
            moved=stamp,
        )
        for marker, probe in names
    ]


@st.composite
def states(draw: st.DrawFn) -> list[Json]:
    """A definite state for every probe that there may be."""
    names = [f"{marker}#{probe}" for marker in MARKER_NAMES for probe in PROBE_NAMES]
    failed = draw(st.sets(st.sampled_from(names)))
    return [state_wire(each, "Failed" if each in failed else "Succeeded") for each in names]
