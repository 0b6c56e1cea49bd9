"""The view of `try`: for each probe of a pod the result of one attempt, and the marks that the manager would write. Pure.

`explain` gives the reason for the current condition of a pod. `try` shows what a probe would report now. If a probe
cannot run, its message is that of the broken link of `explain`.

The structs are the format of `-o json`; the same rule of compatibility as in `status` applies.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from kruise_probe.api.errors import first_line
from kruise_probe.api.names import FIELD_REASONS, REASON_NO_ROOM
from kruise_probe.api.node_pod_probe import ContainerProbeState
from kruise_probe.api.times import format_time
from kruise_probe.api.v1alpha1 import ProbeState
from kruise_probe.controllers.conditions import VALUE_INVALID
from kruise_probe.controllers.marking import CONDITION_STATUS, Value, values_of
from kruise_probe.controllers.readiness import CLAIMED_BY_ANOTHER
from kruise_probe.hints.commands import check_text, failure_hint
from kruise_probe.inspection.link import (
    Link,
    LinkState,
    ProbeContext,
    link_of,
    of_limit,
    paused,
    remedy_of,
)
from kruise_probe.inspection.result_links import hint_of, invalid_values
from kruise_probe.inspection.seen_pods import SeenPod
from kruise_probe.inspection.snapshot import Snapshot
from kruise_probe.inspection.spec_links import container_link, marker_link, pod_link, port_link
from kruise_probe.inspection.views import JsonView, SnapshotView

_RUN_BY_TRY: Final = (REASON_NO_ROOM, *FIELD_REASONS)
"""Reasons why the daemon does not run a probe, or not as it is written; `try` does."""
HOST_NETWORK: Final = (
    "the pod uses the host's network: try connects to the loopback address of the node, "
    "where a process of another pod may listen"
)


class AttemptView(JsonView, frozen=True):
    """One attempt of one probe.

    Attributes:
        state: Succeeded, Failed or Unknown.
        duration_seconds: rounded to milliseconds. None for tcpSocket and for a probe that did not run.
        condition_status: True, False or Unknown; empty without `pod_condition_type`.
        labels, annotations: what the manager would write; None removes a key that the pod has.
        remedy: what to do if the probe cannot run, or if the cause of its result is known.
        notes: keys that the probe may not write, or for which the message has no valid value.
    """

    marker: str
    probe: str
    container_name: str
    check: str
    state: str
    message: str
    duration_seconds: float | None
    pod_condition_type: str
    condition_status: str
    labels: dict[str, str | None]
    annotations: dict[str, str | None]
    remedy: str
    notes: list[str]


class AttemptsView(SnapshotView, frozen=True, kw_only=True):
    """`notes` also say where a result may differ from the daemon's."""

    namespace: str
    pod: str
    node: str
    attempts: list[AttemptView]


class TrialResult(NamedTuple):
    """The result of one attempt.

    Attributes:
        duration_seconds: None if it was not measured.
        ran: False if the probe could not run from here. The daemon may still have a result, so no marks are shown.
        remedy: what to do if it could not run.
        stderr: of a command that succeeded; it is no part of the message.
        found: the value of `extract` with its source, or the names that are like the wanted one.
    """

    state: ProbeState
    message: str
    duration_seconds: float | None = None
    ran: bool = True
    remedy: str = ""
    stderr: str = ""
    found: str = ""


def not_run(message: str, remedy: str = "") -> TrialResult:
    return TrialResult(
        ProbeState.UNKNOWN,
        message,
        ran=False,
        remedy=remedy,
    )


def blocking_link(context: ProbeContext) -> Link | None:
    """The first broken link that blocks the probe, or None.

    A startupProbe that has not succeeded blocks no attempt, because the container runs.
    """
    left_out = context.left_out
    if left_out is not None and left_out.reason not in _RUN_BY_TRY:
        return link_of("NodePodProbe", of_limit(left_out))
    names = context.names
    if context.claim is None:
        return link_of("marker", marker_link(context), **names)
    for find in (pod_link, container_link, port_link):
        link = link_of("", find(context), **names)
        if link.state is LinkState.BROKEN:
            return link
    return None


def _attempt_view(context: ProbeContext, result: TrialResult) -> AttemptView:
    seconds = result.duration_seconds
    if seconds is not None:
        seconds = round(seconds, 3)
    claim = context.claim
    notes = [f"{conflict}; that probe writes it" for conflict in context.conflicts]
    reported = ContainerProbeState(context.name, result.state, message=result.message)
    wanted = context.wanted_in(result.state) or {}
    invalid: list[str] = []
    if result.ran:
        invalid = invalid_values(wanted, reported)
        notes += _notes_on(result, invalid)
    condition_type = ""
    values: list[Value] = []
    if claim is not None and result.ran:
        is_paused = claim.paused or context.pod.paused
        if not is_paused:
            condition_type = claim.condition_type
            values = values_of(wanted, reported)
    return AttemptView(
        marker=context.marker.key.name,
        probe=context.probe.name,
        container_name=context.probe.container_name,
        check=check_text(context.probe),
        state=result.state,
        message=result.message,
        duration_seconds=seconds,
        pod_condition_type=condition_type,
        condition_status=CONDITION_STATUS[result.state] if condition_type else "",
        labels=_marks(values, context.pod, "labels"),
        annotations=_marks(values, context.pod, "annotations"),
        remedy=_remedy(context, result, invalid),
        notes=notes,
    )


def _marks(values: Iterable[Value], pod: SeenPod, field: str) -> dict[str, str | None]:
    """What the manager would write: values first, then the keys that it removes."""
    written: dict[str, str | None] = {}
    removed: dict[str, str | None] = {}
    for mark, value, _ in values:
        if mark.field != field:
            continue
        if value is not None:
            written[mark.name] = value
        elif pod.has(mark):
            removed[mark.name] = None
    return written | removed


def _remedy(context: ProbeContext, result: TrialResult, invalid: Sequence[str]) -> str:
    """What to do about the result: of a probe that could not run, or of one whose cause is known."""
    if result.remedy or not result.ran:
        return result.remedy
    hint = hint_of(context.probe.probe, result.state, result.message)
    if not hint:
        hint = failure_hint(result.stderr)
    if hint:
        return hint
    if context.conflicts:
        return remedy_of(CLAIMED_BY_ANOTHER)
    if invalid:
        return remedy_of(VALUE_INVALID)
    return ""


def _notes_on(result: TrialResult, invalid: Sequence[str]) -> Iterator[str]:
    """Marks without a valid value in the message, and what a command printed to stderr although it succeeded."""
    if result.found:
        yield result.found
    yield from invalid
    if result.stderr:  # the exit code of a shell is that of its last program only
        words = result.stderr.split()
        text = first_line(" ".join(words))
        yield f"the command succeeded, but stderr is not empty: {text}"


def attempts_view(
    snapshot: Snapshot,
    pod: SeenPod,
    results: Sequence[tuple[ProbeContext, TrialResult]],
    notes: Sequence[str],
) -> AttemptsView:
    """The view of all attempts, in the order of `results`."""
    of_pod = [*notes]
    if pod.host_network:
        of_pod.append(HOST_NETWORK)
    markers = dict.fromkeys(context.marker for context, _ in results)
    stopped = [f"PodProbeMarker {marker.key}" for marker in markers if marker.paused]
    if pod.paused:
        stopped = ["the pod"]
    of_pod += [f"{paused(what).text}, and no marks are shown" for what in stopped]
    return AttemptsView(
        time=format_time(snapshot.now),
        notes=of_pod,
        namespace=pod.namespace,
        pod=pod.name,
        node=pod.node,
        attempts=[_attempt_view(context, result) for context, result in results],
    )
