"""The view of `try`: for each probe of a pod the result of one attempt, and the marks that the manager would write. Pure.

`explain` gives the reason for the current condition of a pod. `try` shows what a probe would report now. If a probe
cannot run, its message is that of the broken link of `explain`.

The structs are the format of `-o json`; the same rule of compatibility as in `status` applies.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from kruise_probe.api.errors import first_line
from kruise_probe.api.names import REASON_NO_ROOM
from kruise_probe.api.times import format_time
from kruise_probe.api.v1alpha1 import ContainerProbeState, ProbeState
from kruise_probe.controllers.marking import CONDITION_STATUS, values_of
from kruise_probe.hints.commands import failure_hint, handler_text
from kruise_probe.inspection.link import Link, LinkState, ProbeContext, broken, paused_text
from kruise_probe.inspection.result_links import NOTHING_LISTENS, invalid_values, not_started_note
from kruise_probe.inspection.snapshot import SeenPod, Snapshot
from kruise_probe.inspection.spec_links import container_link, marker_link, pod_link, port_link
from kruise_probe.inspection.views import JsonView, SnapshotView

HOST_NETWORK: Final = (
    "the pod uses the host's network: try connects to the loopback address of the node, "
    "where a process of another pod may listen"
)


class AttemptView(JsonView, frozen=True):
    """One attempt of one probe.

    Attributes:
        state: Succeeded, Failed or Unknown.
        duration_seconds: None for tcpSocket and for a probe that did not run.
        condition_status: True, False or Unknown; empty without `pod_condition_type`.
        labels, annotations: what the manager would write; None removes a key that the pod has.
        remedy: what to do if the probe cannot run.
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
    remedy: str = ""


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
    """

    state: ProbeState
    message: str
    duration_seconds: float | None = None
    ran: bool = True
    remedy: str = ""
    stderr: str = ""


def not_run(message: str, remedy: str = "") -> TrialResult:
    return TrialResult(ProbeState.UNKNOWN, message, ran=False, remedy=remedy)


def blocking_link(context: ProbeContext) -> Link | None:
    """The first broken link that blocks the probe, or None.

    A startupProbe that has not succeeded blocks no attempt, because the container runs.
    """
    if context.left_out is not None and context.left_out.reason != REASON_NO_ROOM:
        return broken("NodePodProbe", context.left_out.reason, context.left_out.why)
    if context.claim is None:
        return marker_link(context)
    links = (each(context) for each in (pod_link, container_link, port_link))
    return next((each for each in links if each.state is LinkState.BROKEN), None)


def _attempt_view(context: ProbeContext, result: TrialResult) -> AttemptView:
    claim, pod = context.claim, context.pod
    if claim is None or not result.ran or claim.paused or pod.paused:
        condition_type, values = "", []
    else:
        wanted, condition_type = claim.wanted.get(result.state), claim.condition_type
        values = values_of(wanted, _state_of(context, result)) if wanted else []
    labels, annotations = (
        {
            each.mark.name: each.value
            for each in sorted(values, key=lambda each: each.value is None)
            if each.mark.field == field
            and (each.value is not None or each.mark.name in getattr(pod, field))
        }
        for field in ("labels", "annotations")
    )
    return AttemptView(
        marker=context.marker.key.name,
        probe=context.probe.name,
        container_name=context.probe.container_name,
        check=handler_text(context.probe),
        state=result.state,
        message=result.message,
        duration_seconds=result.duration_seconds,
        pod_condition_type=condition_type,
        condition_status=CONDITION_STATUS[result.state] if condition_type else "",
        labels=labels,
        annotations=annotations,
        remedy=result.remedy,
    )


def _state_of(context: ProbeContext, result: TrialResult) -> ContainerProbeState:
    """The result as the daemon would report it."""
    return ContainerProbeState(context.name, result.state, message=result.message)


def _notes_on(context: ProbeContext, result: TrialResult) -> list[str]:
    """Marks without a valid value in the message, why a command did not start, and what it printed although it succeeded."""
    wanted = context.claim.wanted.get(result.state) if context.claim else None
    invalid = invalid_values(wanted, _state_of(context, result)) if wanted else []
    not_started = not_started_note(context.probe.probe, result.state, result.message)
    notes = [*invalid, not_started, _stderr_note(result.stderr)]
    # A port-forward connects to the loopback address, so the advice for a refused connection is false.
    return [note for note in notes if note not in ("", NOTHING_LISTENS)]


def _stderr_note(stderr: str) -> str:
    """What a command that succeeded printed to stderr: the exit code of a shell is that of its last program only."""
    if not stderr:
        return ""
    text = first_line(" ".join(stderr.split()))
    hint = failure_hint(stderr)
    note = f"the command succeeded, but stderr is not empty: {text}"
    return f"{note} ({hint})" if hint else note


def attempts_view(
    snapshot: Snapshot,
    pod: SeenPod,
    results: Sequence[tuple[ProbeContext, TrialResult]],
    notes: Sequence[str],
) -> AttemptsView:
    """The view of all attempts, in the order of `results`."""
    conflicts = [
        f"{each}; that probe writes it" for context, _ in results for each in context.conflicts
    ]
    network = [HOST_NETWORK] if pod.host_network else []
    about_results = [
        f"{context.name}: {note}"
        for context, result in results
        if result.ran
        for note in _notes_on(context, result)
    ]
    markers = dict.fromkeys(context.marker for context, _ in results)
    of_markers = [f"PodProbeMarker {marker.key}" for marker in markers if marker.paused]
    paused = ["the pod"] if pod.paused else of_markers
    no_marks = [f"{paused_text(each)}, and no marks are shown" for each in paused]
    return AttemptsView(
        time=format_time(snapshot.now),
        notes=[*notes, *network, *no_marks, *conflicts, *about_results],
        namespace=pod.namespace,
        pod=pod.name,
        node=pod.node,
        attempts=[_attempt_view(context, result) for context, result in results],
    )
