"""How often one pod may be written. The final state is always written."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import condition_wire, marker, pod, policy_wire, probe_wire

from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.names import REASON_DAEMON_STALE
from kruise_probe.api.pods import PodCondition
from kruise_probe.controllers.compiled import compile_marker
from kruise_probe.controllers.node_index import PodResultChange
from kruise_probe.controllers.pods.claims import claims_of
from kruise_probe.controllers.pods.marking import Changes
from kruise_probe.controllers.pods.write_limits import (
    LABELS_PER_MINUTE,
    MARKS_BURST,
    MARKS_INTERVAL_SECONDS,
    MESSAGE_BURST,
    PendingChange,
    WriteCause,
    WriteLimits,
    cause_of,
)

STATE, LABEL, FIRST, MESSAGE, MARKS = WriteCause
KEY = NamespacedName("default", "web-0")
TYPE = "example.com/healthy"
PROBES = 2
VALUES = policy_wire(from_message=[{"label": "v"}, {"annotation": "w", "regex": "[0-9]+"}])
CLAIMS = claims_of((compile_marker(marker(probes=[probe_wire(policies=[VALUES])])),))


def limits() -> WriteLimits:
    return WriteLimits(message_interval_seconds=10.0)


def condition(status: str = "True", reason: str = "", message: str = "") -> PodCondition:
    return PodCondition(type=TYPE, status=status, reason=reason, message=message)


def changes(*conditions: PodCondition, **more: Any) -> Changes:
    empty: dict[str, Any] = {"labels": {}, "annotations": {}, "deleted": []}
    return Changes(**(empty | more), conditions=list(conditions))


@pytest.mark.parametrize(
    ("current", "wanted", "reported", "expected"),
    [
        pytest.param(
            "True", changes(condition("False")), PodResultChange.STATE, STATE, id="new-state"
        ),
        pytest.param(
            "True",
            changes(condition(), labels={"a": "b"}),
            PodResultChange.FIRST_RESULT,
            FIRST,
            id="first-result",
        ),
        pytest.param(
            "True", changes(condition(message="x")), PodResultChange.MESSAGE, MESSAGE, id="message"
        ),
        pytest.param("True", changes(condition(message="x")), None, MESSAGE, id="message-later"),
        pytest.param("True", changes(condition("False")), None, MARKS, id="status-without-report"),
        pytest.param("True", changes(condition("True", "Another")), None, MARKS, id="reason"),
        pytest.param(
            "True", changes(condition(message="x"), labels={"a": None}), None, MARKS, id="label"
        ),
        pytest.param("True", changes(annotations={"a": "b"}), None, MARKS, id="annotation"),
        pytest.param("True", changes(labels={"v": "1"}), None, MESSAGE, id="value-of-label"),
        pytest.param("True", changes(labels={"v": None}), None, MESSAGE, id="no-value"),
        pytest.param("True", changes(annotations={"w": "1"}), None, MESSAGE, id="value"),
        pytest.param(
            "True",
            changes(labels={"v": "1"}),
            PodResultChange.MESSAGE,
            LABEL,
            id="label-of-a-result",
        ),
        pytest.param(
            "True", changes(condition(message="x"), labels={"v": "1"}), None, MESSAGE, id="both"
        ),
        pytest.param(
            "True", changes(labels={"v": "1", "a": "b"}), None, MARKS, id="value-and-label"
        ),
        pytest.param("True", changes(labels={"w": "1"}), None, MARKS, id="label-of-another-kind"),
        pytest.param(
            "True",
            changes(labels={"v": "1"}),
            PodResultChange.STATE,
            STATE,
            id="value-of-a-new-state",
        ),
        pytest.param("True", changes(deleted=[TYPE]), None, MARKS, id="condition-removed"),
        pytest.param(None, changes(condition()), None, MARKS, id="condition-that-is-new"),
        pytest.param(
            "True",
            changes(condition("Unknown", REASON_DAEMON_STALE)),
            None,
            STATE,
            id="agent-stale",
        ),
    ],
)
def test_cause_of_a_write(
    current: str | None, wanted: Changes, reported: PodResultChange | None, expected: WriteCause
) -> None:
    there = [condition_wire(TYPE, current)] if current else []
    assert cause_of(pod(conditions=there), wanted, CLAIMS, reported) is expected


def test_a_recovered_daemon_is_a_new_state() -> None:
    stale = pod(conditions=[condition_wire(TYPE, "Unknown", reason=REASON_DAEMON_STALE)])
    assert cause_of(stale, changes(condition()), CLAIMS, None) is STATE


def test_a_removed_reason_is_no_message() -> None:
    there = pod(conditions=[condition_wire(TYPE, "Unknown", reason="NoRoom")])
    assert cause_of(there, changes(condition("Unknown")), CLAIMS, None) is MARKS


@pytest.mark.parametrize(
    ("one", "other", "merged"),
    [
        pytest.param(
            PendingChange(PodResultChange.STATE, 5.0),
            PendingChange(PodResultChange.MESSAGE, 3.0),
            PendingChange(PodResultChange.STATE, 3.0),
            id="earlier-message",
        ),
        pytest.param(
            PendingChange(PodResultChange.FIRST_RESULT, 2.0),
            PendingChange(PodResultChange.STATE, None),
            PendingChange(PodResultChange.STATE, 2.0),
            id="change-by-a-provider",
        ),
        pytest.param(
            PendingChange(PodResultChange.STATE, None),
            PendingChange(PodResultChange.STATE, None),
            PendingChange(PodResultChange.STATE, None),
            id="only-by-a-provider",
        ),
    ],
)
def test_a_pending_change_is_the_most_important_one_since_the_first(
    one: PendingChange, other: PendingChange, merged: PendingChange
) -> None:
    for order in ((one, other), (other, one)):
        bounded = limits()
        for each in order:
            bounded.put_back(KEY, each)
        assert (bounded.take_pending(KEY), bounded.take_pending(KEY)) == (merged, None)


def test_new_states_are_never_delayed() -> None:
    bounded = limits()
    for cause in (MARKS, MESSAGE, FIRST) * 100:
        bounded.record_write(KEY, cause, probes=PROBES, now=0.0)
    assert bounded.wait_seconds(KEY, STATE, probes=PROBES, now=0.0) == 0


@pytest.mark.parametrize(
    ("cause", "burst"),
    [
        pytest.param(MESSAGE, MESSAGE_BURST, id="messages"),
        pytest.param(MARKS, PROBES + MARKS_BURST, id="marks"),
        pytest.param(FIRST, PROBES + MARKS_BURST, id="first-results"),
    ],
)
def test_writes_have_a_burst_and_then_one_per_interval(cause: WriteCause, burst: int) -> None:
    bounded = limits()
    for _ in range(burst):
        assert bounded.wait_seconds(KEY, cause, probes=PROBES, now=0.0) == 0
        bounded.record_write(KEY, cause, probes=PROBES, now=0.0)
    assert bounded.wait_seconds(KEY, cause, probes=PROBES, now=0.0) == pytest.approx(10)
    assert bounded.wait_seconds(KEY, cause, probes=PROBES, now=10.0) == 0


def test_messages_do_not_delay_marks_or_other_pods() -> None:
    bounded = limits()
    for _ in range(MESSAGE_BURST):
        bounded.record_write(KEY, MESSAGE, probes=PROBES, now=0.0)
    other = NamespacedName("default", "web-1")
    assert bounded.wait_seconds(KEY, MARKS, probes=PROBES, now=0.0) == 0
    assert bounded.wait_seconds(other, MESSAGE, probes=PROBES, now=0.0) == 0


def test_each_probe_of_a_pod_has_a_write_for_its_first_result() -> None:
    bounded = limits()
    for _ in range(100):
        assert bounded.wait_seconds(KEY, FIRST, probes=100, now=0.0) == 0
        bounded.record_write(KEY, FIRST, probes=100, now=0.0)
    assert bounded.wait_seconds(KEY, MARKS, probes=100, now=0.0) == 0


def test_six_changes_of_labels_a_minute_are_never_delayed_then_the_bucket_limits_them() -> None:
    bounded, written = limits(), 0
    for second in range(60):
        if not bounded.wait_seconds(KEY, LABEL, probes=PROBES, now=second):
            bounded.record_write(KEY, LABEL, probes=PROBES, now=second)
            written += 1
        assert second != 5 or written == LABELS_PER_MINUTE
    assert written == LABELS_PER_MINUTE + MESSAGE_BURST + 5
    assert bounded.wait_seconds(KEY, LABEL, probes=PROBES, now=61) == 0


def test_an_interval_of_zero_does_not_limit_messages() -> None:
    bounded = WriteLimits(message_interval_seconds=0.0)
    for _ in range(100):
        bounded.record_write(KEY, MESSAGE, probes=PROBES, now=0.0)
    assert bounded.wait_seconds(KEY, MESSAGE, probes=PROBES, now=0.0) == 0


attempts = st.lists(
    st.tuples(
        st.sampled_from([FIRST, MESSAGE, MARKS, LABEL]),
        st.floats(0, 5),
        st.integers(1, 40),
    ),
    max_size=80,
)


@given(attempts)
def test_no_write_waits_longer_than_an_interval(
    attempts: list[tuple[WriteCause, float, int]],
) -> None:
    """After any writes, with any number of probes."""
    bounded, now, written = limits(), 0.0, Counter[WriteCause]()
    for cause, pause, probes in attempts:
        now += pause
        wait = bounded.wait_seconds(KEY, cause, probes=probes, now=now)
        assert wait <= MARKS_INTERVAL_SECONDS + 0.01
        if wait == 0:
            bounded.record_write(KEY, cause, probes=probes, now=now)
            written[cause] += 1
    refilled = now / MARKS_INTERVAL_SECONDS + 0.01
    assert written[MESSAGE] <= MESSAGE_BURST + refilled
    assert written[MARKS] + written[FIRST] <= MARKS_BURST + 40 + refilled


def test_full_buckets_are_removed() -> None:
    bounded = limits()
    for number in range(1000):
        bounded.record_write(NamespacedName("default", f"old-{number}"), MARKS, probes=1, now=0.0)
    assert len(bounded) == 1000
    for number in range(1000):
        bounded.record_write(NamespacedName("default", f"new-{number}"), MARKS, probes=1, now=20.0)
    assert len(bounded) == 1000


def test_a_deleted_pod_has_no_buckets() -> None:
    bounded = limits()
    bounded.record_write(KEY, MARKS, probes=1, now=0.0)
    bounded.forget(KEY)
    assert len(bounded) == 0
