from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from support.cases import cases
from support.scripted_node import exec_probe, pod_of, probe_of, spec_of

from kruise_probe.api.messages import normalise_message
from kruise_probe.api.names import ProbeKey, ProbeName
from kruise_probe.api.v1alpha1 import (
    MAX_OBJECT_BYTES,
    ContainerProbeState,
    NodePodProbeSpec,
    NodePodProbeStatus,
    PodProbeStatus,
    ProbeState,
    stored_bytes,
)
from kruise_probe.daemon.desired import desired_probes
from kruise_probe.daemon.status import (
    differs,
    encode,
    patch_of,
)
from kruise_probe.daemon.status import status_of as status_of_desired


def key(pod: str, probe: str, container: str = "main") -> ProbeKey:
    return ProbeKey(f"uid-{pod}", container, ProbeName.parse(probe))


Results = dict[ProbeKey, ContainerProbeState]


def result(
    state: ProbeState = ProbeState.SUCCEEDED, message: str = "", name: str = "m#b"
) -> ContainerProbeState:
    return ContainerProbeState(
        name, state, "2026-11-21T12:00:00Z", "2026-11-21T11:00:00Z", message or None, "c1", "h1"
    )


def status_of(spec: NodePodProbeSpec, results: Results) -> NodePodProbeStatus:
    named = {k: msgspec.structs.replace(each, name=str(k.probe)) for k, each in results.items()}
    return status_of_desired(desired_probes(spec), named)


def states(status: NodePodProbeStatus) -> list[tuple[str, str, str]]:
    return [
        (pod.name, state.name, str(state.state))
        for pod in status.pod_probe_statuses or ()
        for state in pod.probe_states or ()
    ]


SPEC = spec_of(
    pod_of(probe_of(exec_probe(), "m#b"), probe_of(exec_probe(), "m#a"), name="web-1"),
    pod_of(probe_of(exec_probe(), "m#b"), name="web-0"),
)


def test_the_status_has_the_order_of_the_spec_and_only_probes_with_results() -> None:
    results = {
        key("web-0", "m#b"): result(ProbeState.FAILED),
        key("web-1", "m#a"): result(),
        key("gone", "m#a"): result(),
        key("web-1", "m#b", "other-container"): result(),
    }
    status = status_of(SPEC, results)
    assert states(status) == [("web-1", "m#a", "Succeeded"), ("web-0", "m#b", "Failed")]
    assert (status.pods, status.last_probe_time) == (2, "2026-11-21T12:00:00Z")


def of(**fields: str | int | None) -> NodePodProbeStatus:
    whole: dict[str, str | int | None] = {
        "name": "m#p",
        "state": "Succeeded",
        "message": "fine",
        "last_probe_time": "2026-11-21T12:00:00Z",
        "last_transition_time": "2026-11-21T11:00:00Z",
        "container_id": "c1",
        "probe_hash": "h1",
        **fields,
    }
    state = ContainerProbeState(**whole)  # type: ignore[arg-type]  # a table of fields
    return NodePodProbeStatus((PodProbeStatus("pod", "default", "uid", (state,)),))


KEPT = {
    "equal": (of(), False),
    "state": (of(state="Failed"), True),
    "message": (of(message="bad"), True),
    "message-lost": (of(message=None), True),
    "probed-again": (of(last_probe_time="2026-11-21T11:59:00Z"), False),
    "another-transition": (of(last_transition_time="2026-11-21T10:00:00Z"), True),
    "same-instant": (of(last_transition_time="2026-11-21T11:00:00+00:00"), False),
    "kruises-crd-prunes": (of(container_id=None, probe_hash=None), False),
    "another-container": (of(container_id="c0"), True),
    "another-probe": (of(probe_hash="h0"), True),
    "name": (of(name="m#q"), True),
    "nothing-kept": (None, True),
    "emptied-by-hand": (NodePodProbeStatus(), True),
}


@cases("kept different", **KEPT)
def test_a3_only_new_content_differs(kept: NodePodProbeStatus | None, different: bool) -> None:
    assert differs(of(), kept) is different


def test_order_of_the_stored_status_is_ignored() -> None:
    """Kruise's daemon writes its results in none."""

    def whole(*pods: str, probes: str = "ab", **fields: Any) -> NodePodProbeStatus:
        return NodePodProbeStatus(
            tuple(
                PodProbeStatus(
                    pod,
                    "default",
                    f"uid-{pod}",
                    tuple(ContainerProbeState(f"m#{each}", "Failed", **fields) for each in probes),
                )
                for pod in pods
            )
        )

    kept = whole("y", "x", probes="ba")
    assert not differs(whole("x", "y"), kept)
    assert not differs(whole("x", "y"), kept, probe_times=True)
    later = whole("x", "y", last_probe_time="2026-11-21T12:00:00Z")
    assert differs(later, kept, probe_times=True)
    assert not differs(later, kept)
    assert differs(whole("x", "y", message="bad"), kept)
    assert differs(whole("x", "z"), kept)
    assert differs(whole("x", "y", probes="ac"), kept)
    assert differs(whole("x", "y", probes="abc"), kept)
    assert differs(whole("x", "y"), whole("y", "y"))


def size_as_go_writes(value: object) -> int:
    text = msgspec.json.encode(value).decode()
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return len(text.encode())


messages = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from('"\\\U0001f600é<>&\u2028'),
    max_size=300,
).map(normalise_message)


@given(st.lists(messages, min_size=1, max_size=12), st.integers(0, 4000))
def test_a39_a_status_over_the_limit_has_shorter_messages_and_every_state(
    texts: list[str], room: int
) -> None:
    probes = (probe_of(exec_probe(), f"m#{n}") for n in range(len(texts)))
    spec = spec_of(pod_of(*probes, name="web-0"))
    results = {key("web-0", f"m#{n}"): result(message=text) for n, text in enumerate(texts)}
    status = status_of(spec, results)
    bare = stored_bytes(status_of(spec, {k: result() for k in results}))
    spec_bytes = MAX_OBJECT_BYTES - (8 << 10) - bare - room

    fitted = encode(status, spec_bytes)

    assert size_as_go_writes(fitted.status) <= bare + room
    if stored_bytes(status) <= bare + room:
        assert fitted == (status, msgspec.json.encode(status), 0)
    assert states(fitted.status) == states(status)
    shortened = 0
    for pod in fitted.status.pod_probe_statuses or ():
        for state, text in zip(pod.probe_states or (), texts, strict=True):
            assert text.startswith(state.message or "")
            shortened += (state.message or "") != text
    assert fitted.shortened == shortened


def test_longest_message_is_halved_until_the_object_fits() -> None:
    """So that a result whose size changes by a few bytes does not change the messages of all others."""
    whole = of(message="x" * 640)
    size = stored_bytes(whole)
    for room, length in ((640, 640), (639, 512), (325, 256), (9, 8), (0, 0)):
        fitted = encode(whole, MAX_OBJECT_BYTES - (8 << 10) - (size - 640) - room)
        ((state,),) = (pod.probe_states or () for pod in fitted.status.pod_probe_statuses or ())
        assert len(state.message or "") == length


def test_no_results_are_an_empty_list() -> None:
    assert (
        patch_of(encode(status_of(SPEC, {}), 0).body)
        == b'{"status":{"podProbeStatuses":[],"pods":2}}'
    )
