from collections.abc import Iterable
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from support.cases import cases
from support.scripted_node import exec_probe, pod_of, probe_of, spec_of

from kruise_probe.api.messages import normalise_message
from kruise_probe.api.names import ProbeKey, ProbeName
from kruise_probe.api.node_pod_probe import (
    MAX_OBJECT_BYTES,
    ContainerProbeState,
    NodePodProbeSpec,
    NodePodProbeStatus,
    PodProbeStatus,
    stored_bytes,
    stored_size,
)
from kruise_probe.api.shares import equal_share
from kruise_probe.api.v1alpha1 import ProbeState
from kruise_probe.daemon.desired import desired_probes
from kruise_probe.daemon.status import (
    METADATA_BYTES,
    SHORTENED_BYTES,
    EncodedStatus,
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
        name, state, "2026-11-21T12:00:00Z", "2026-11-21T11:00:00Z", message or None, "h1"
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
    "shortened-before": (of(message_shortened=True), True),
    "probed-again": (of(last_probe_time="2026-11-21T11:59:00Z"), False),
    "another-transition": (of(last_transition_time="2026-11-21T10:00:00Z"), True),
    "same-instant": (of(last_transition_time="2026-11-21T11:00:00+00:00"), False),
    "kruises-crd-prunes": (of(probe_hash=None), False),
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


Texts = dict[str, list[list[str]]]
"""Messages by namespace, pod and probe."""


def with_texts(texts: Texts) -> NodePodProbeStatus:
    pods: list[PodProbeStatus] = []
    for namespace, of_pods in texts.items():
        for number, of_pod in enumerate(of_pods):
            probes = [result(message=text, name=f"m#{n}") for n, text in enumerate(of_pod)]
            uid = f"{namespace}-{number}"
            pods.append(PodProbeStatus(f"pod-{number}", namespace, uid, tuple(probes)))
    return NodePodProbeStatus(tuple(pods))


def all_of(status: NodePodProbeStatus) -> list[ContainerProbeState]:
    return [state for pod in status.pod_probe_statuses or () for state in pod.probe_states or ()]


def message_bytes(texts: Iterable[str]) -> int:
    return sum(size_as_go_writes(text) - len('""') for text in texts)


def encoded_in(texts: Texts, room: int) -> EncodedStatus:
    """The status with these messages, if all of them together have `room` bytes."""
    status = with_texts(texts)
    rest = stored_bytes(status) - message_bytes(state.message or "" for state in all_of(status))
    return encode(status, MAX_OBJECT_BYTES - METADATA_BYTES - rest - room)


some_texts = st.dictionaries(
    st.sampled_from("abc"),
    st.lists(st.lists(messages, min_size=1, max_size=4), min_size=1, max_size=3),
    min_size=1,
)


@given(some_texts, st.integers(0, 4000))
def test_a39_a_status_over_the_limit_has_shorter_messages_and_every_state(
    texts: Texts, room: int
) -> None:
    whole = with_texts(texts)
    before = all_of(whole)
    fitted = encoded_in(texts, room)
    after = all_of(fitted.status)

    wanted = message_bytes(state.message or "" for state in before)
    if wanted <= room:
        assert fitted == (whole, msgspec.json.encode(whole), 0)
    saved = size_as_go_writes(whole) - size_as_go_writes(fitted.status)
    assert wanted - saved <= max(room, SHORTENED_BYTES * len(before))
    assert states(fitted.status) == states(whole)
    for old, new in zip(before, after, strict=True):
        assert (old.message or "").startswith(new.message or "")
        assert bool(new.message_shortened) is (old.message != new.message)
    assert fitted.shortened == sum(bool(state.message_shortened) for state in after)


@given(some_texts, st.integers(0, 4000))
def test_messages_of_a_namespace_and_of_a_pod_within_their_share_stay_whole(
    texts: Texts, room: int
) -> None:
    fitted = {
        (pod.namespace, pod.name): [state.message or "" for state in pod.probe_states or ()]
        for pod in encoded_in(texts, room).status.pod_probe_statuses or ()
    }
    probes = sum(len(pod) for pods in texts.values() for pod in pods)
    share = (room - SHORTENED_BYTES * probes) // len(texts)
    for namespace, pods in texts.items():
        within = message_bytes(text for pod in pods for text in pod) <= share
        for number, pod in enumerate(pods):
            if within or message_bytes(pod) <= share // len(pods):
                assert fitted[namespace, f"pod-{number}"] == pod


def test_a_namespace_that_prints_much_shortens_no_message_of_another() -> None:
    flood = [["<" * 1024] * 10] * 120
    players = '{"players":1234}'.rjust(200)
    fitted = encode(with_texts({"flood": flood, "quiet": [[players]] * 5}), 300_000)
    of_quiet = [pod for pod in fitted.status.pod_probe_statuses or () if pod.namespace == "quiet"]
    assert {state.message for pod in of_quiet for state in pod.probe_states or ()} == {players}
    assert fitted.shortened == 1200
    assert stored_size(fitted.body) <= MAX_OBJECT_BYTES - METADATA_BYTES - 300_000


@cases(
    "room length", whole=(640, 640), half=(639, 512), less=(325, 256), last=(25, 1), none=(24, 0)
)
def test_a_shortened_message_has_a_power_of_two_as_length(room: int, length: int) -> None:
    """So that a result whose size changes by a few bytes does not change the messages of all others."""
    (state,) = all_of(encoded_in({"a": [["x" * 640]]}, room).status)
    assert len(state.message or "") == length


def test_no_results_are_an_empty_list() -> None:
    assert (
        patch_of(encode(status_of(SPEC, {}), 0).body)
        == b'{"status":{"podProbeStatuses":[],"pods":2}}'
    )


@cases(
    "wanted total share",
    everything_fits=([1, 2, 3], 10, 3),
    two_equals=([10, 10], 10, 5),
    the_rest_is_divided_equally=([2, 10, 10], 12, 5),
    one_gets_what_others_leave=([2, 3, 100], 12, 7),
    one_wants_exactly_its_part_and_a_byte_is_left=([2, 10], 5, 3),
    no_tenant=([], 10, 10),
)
def test_equal_shares_are_max_min_fair(wanted: list[int], total: int, share: int) -> None:
    assert equal_share(wanted, total) == share
