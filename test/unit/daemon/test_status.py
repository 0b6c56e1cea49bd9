import itertools
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
    NodePodProbeStatus,
    PodProbeStatus,
    stored_bytes,
    stored_size,
)
from kruise_probe.api.shares import equal_share
from kruise_probe.daemon.desired import desired_probes
from kruise_probe.daemon.status import (
    METADATA_BYTES,
    SHORTENED_BYTES,
    EncodedStatus,
    differs,
    encode,
    patch_of,
    status_of,
)

PROBED = "2026-11-21T12:00:00Z"
MOVED = "2026-11-21T11:00:00Z"


def key(pod: str, probe: str, container: str = "main") -> ProbeKey:
    return ProbeKey(f"uid-{pod}", container, ProbeName.parse(probe))


def result(name: str, state: str = "Succeeded", message: str | None = None) -> ContainerProbeState:
    return ContainerProbeState(name, state, PROBED, MOVED, message, "h1")


def states(status: NodePodProbeStatus) -> list[tuple[str, str, str]]:
    """Pod, probe and state of each result."""
    found: list[tuple[str, str, str]] = []
    for pod in status.pod_probe_statuses or ():
        found += [(pod.name, state.name, state.state) for state in pod.probe_states or ()]
    return found


A = probe_of(exec_probe(), "m#a")
B = probe_of(exec_probe(), "m#b")
SPEC = spec_of(
    pod_of(B, A, name="web-1"),
    pod_of(B, name="web-0"),
)


def test_the_status_has_the_order_of_the_spec_and_only_probes_with_results() -> None:
    results = {
        key("web-0", "m#b"): result("m#b", "Failed"),
        key("web-1", "m#a"): result("m#a"),
        key("gone", "m#a"): result("m#a"),
        key("web-1", "m#b", "other-container"): result("m#b"),
    }
    status = status_of(desired_probes(SPEC), results)
    assert states(status) == [("web-1", "m#a", "Succeeded"), ("web-0", "m#b", "Failed")]
    assert status.pods == 2
    assert status.last_probe_time == PROBED


def of(**fields: Any) -> NodePodProbeStatus:
    """A status of one result, with these fields."""
    state = msgspec.structs.replace(result("m#p", message="fine"), **fields)
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

    def whole(pods: str, probes: str = "ab", **fields: Any) -> NodePodProbeStatus:
        found = tuple(ContainerProbeState(f"m#{probe}", "Failed", **fields) for probe in probes)
        statuses = (PodProbeStatus(pod, "default", f"uid-{pod}", found) for pod in pods)
        return NodePodProbeStatus(tuple(statuses))

    kept = whole("yx", "ba")
    assert not differs(whole("xy"), kept)
    assert not differs(whole("xy"), kept, probe_times=True)
    later = whole("xy", last_probe_time=PROBED)
    assert differs(later, kept, probe_times=True)
    assert not differs(later, kept)
    assert differs(whole("xy", message="bad"), kept)
    assert differs(whole("xz"), kept)
    assert differs(whole("xy", "ac"), kept)
    assert differs(whole("xy", "abc"), kept)
    assert differs(whole("xy"), whole("yy"))


def size_as_go_writes(value: object) -> int:
    text = msgspec.json.encode(value).decode()
    for character in "<>&\u2028\u2029":
        text = text.replace(
            character,
            f"\\u{ord(character):04x}",
        )
    return len(text.encode())


messages = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from('"\\\U0001f600é<>&\u2028'),
    max_size=300,
).map(normalise_message)


Messages = list[list[str]]
"""By pod and probe."""
Texts = dict[str, Messages]
"""Messages by namespace."""


def with_texts(texts: Texts) -> NodePodProbeStatus:
    pods: list[PodProbeStatus] = []
    for namespace, of_pods in texts.items():
        for number, of_pod in enumerate(of_pods):
            states = tuple(
                result(f"m#{index}", message=text or None) for index, text in enumerate(of_pod)
            )
            name = f"pod-{number}"
            uid = f"{namespace}-{number}"
            pods.append(PodProbeStatus(name, namespace, uid, states))
    return NodePodProbeStatus(tuple(pods))


def messages_in(status: NodePodProbeStatus, namespace: str = "") -> Messages:
    """The messages of each pod, of one namespace if it is given."""
    return [
        [state.message or "" for state in pod.probe_states or ()]
        for pod in status.pod_probe_statuses or ()
        if namespace in ("", pod.namespace)
    ]


def all_of(status: NodePodProbeStatus) -> list[ContainerProbeState]:
    found: list[ContainerProbeState] = []
    for pod in status.pod_probe_statuses or ():
        found += pod.probe_states or ()
    return found


def message_bytes(pods: Messages) -> int:
    texts = itertools.chain.from_iterable(pods)
    return sum(size_as_go_writes(text) - len('""') for text in texts)


def encoded_in(texts: Texts, room: int) -> EncodedStatus:
    """The status with these messages, if all of them together have `room` bytes."""
    status = with_texts(texts)
    rest = stored_bytes(status) - message_bytes(messages_in(status))
    return encode(status, MAX_OBJECT_BYTES - METADATA_BYTES - rest - room)


some_texts = st.dictionaries(
    st.sampled_from("abc"),
    st.lists(
        st.lists(messages, min_size=1, max_size=4),
        min_size=1,
        max_size=3,
    ),
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

    wanted = message_bytes(messages_in(whole))
    if wanted <= room:
        assert fitted.status == whole
        assert fitted.body == msgspec.json.encode(whole)
        assert not fitted.shortened
    saved = size_as_go_writes(whole) - size_as_go_writes(fitted.status)
    assert wanted - saved <= max(room, SHORTENED_BYTES * len(before))
    assert states(fitted.status) == states(whole)
    for old, new in zip(before, after, strict=True):
        assert (old.message or "").startswith(new.message or "")
        assert bool(new.message_shortened) is (old.message != new.message)
    shortened = [state for state in after if state.message_shortened]
    assert fitted.shortened == len(shortened)


@given(some_texts, st.integers(0, 4000))
def test_messages_of_a_namespace_and_of_a_pod_within_their_share_stay_whole(
    texts: Texts, room: int
) -> None:
    status = encoded_in(texts, room).status
    probes = len(all_of(with_texts(texts)))
    share = (room - SHORTENED_BYTES * probes) // len(texts)
    for namespace, pods in texts.items():
        is_within = message_bytes(pods) <= share
        fitted = messages_in(status, namespace)
        for before, after in zip(pods, fitted, strict=True):
            if is_within or message_bytes([before]) <= share // len(pods):
                assert after == before


def test_a_namespace_that_prints_much_shortens_no_message_of_another() -> None:
    flood = [["<" * 1024] * 10] * 120
    players = [['{"players":1234}'.rjust(200)]] * 5
    spec_bytes = 300_000
    whole = with_texts({"flood": flood, "quiet": players})
    fitted = encode(whole, spec_bytes)
    assert messages_in(fitted.status, "quiet") == players
    assert fitted.shortened == 1200
    room = MAX_OBJECT_BYTES - METADATA_BYTES - spec_bytes
    assert stored_size(fitted.body) <= room


@cases(
    "room length", whole=(640, 640), half=(639, 512), less=(325, 256), last=(25, 1), none=(24, 0)
)
def test_a_shortened_message_has_a_power_of_two_as_length(room: int, length: int) -> None:
    """So that a result whose size changes by a few bytes does not change the messages of all others."""
    status = encoded_in({"a": [["x" * 640]]}, room).status
    ((message,),) = messages_in(status)
    assert len(message) == length


def test_no_results_are_an_empty_list() -> None:
    status = status_of(desired_probes(SPEC), {})
    patch = patch_of(encode(status, 0).body)
    assert patch == b'{"status":{"podProbeStatuses":[],"pods":2}}'


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
