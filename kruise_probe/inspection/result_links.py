"""The links from the daemon to the marks on the pod, one function for each. Pure."""

from datetime import timedelta
from typing import Final

from kruise_probe.api.extraction import FromMessage
from kruise_probe.api.messages import code_of, searched_part
from kruise_probe.api.names import (
    CODE_EXEC_STUCK,
    CODE_WAITING_FOR_POD,
    REASON_DAEMON_STALE,
    REASON_NOT_HOLDER,
)
from kruise_probe.api.node_pod_probe import ContainerProbeState
from kruise_probe.api.probe import MAX_SECONDS, Probe
from kruise_probe.api.problems import shorten
from kruise_probe.api.times import parse_time
from kruise_probe.api.v1alpha1 import ProbeState
from kruise_probe.controllers.causes import NO_DAEMON, verdict_of
from kruise_probe.controllers.compiled import Wanted
from kruise_probe.controllers.conditions import (
    CHANGED_BY_ADMISSION,
    CHANGED_BY_ANOTHER,
    VALUE_INVALID,
    listed,
)
from kruise_probe.controllers.marking import CONDITION_STATUS, values_of
from kruise_probe.controllers.readiness import CLAIMED_BY_ANOTHER, INVALID_SPEC
from kruise_probe.controllers.roles import role_text
from kruise_probe.hints.commands import (
    command_problem,
    failure_hint,
    hidden_exit_code,
    split_hint,
    value_text,
)
from kruise_probe.inspection.link import Found, ProbeContext, reason_table
from kruise_probe.inspection.spec_links import NO_PERMISSION

MIN_GRACE_SECONDS: Final = 30
"""The daemon reports Unknown after a blocking reason has lasted this long; later for long periods."""
FIRST_PROBE_SECONDS: Final = 10
"""Maximum delay of the first probe of a running container; the daemon spreads first probes over it."""
MAX_VALUE_DELAY: Final = timedelta(seconds=15)
"""How much later than its message a value may be written: 1.5 times the default of --message-update-interval."""
SHOWN_MESSAGE: Final = 80
"""Maximum characters of a message without a valid value."""
PRINT_LESS: Final = "print less, with the value at the beginning"
MESSAGE_SHORTENED: Final = "MessageShortened"
SHORTENED_NOTE: Final = "the daemon shortened this message to keep the NodePodProbe below 1 MiB"
REFUSED: Final = "connection refused"
"""In the message of an attempt, as the kubelet writes it."""
NOTHING_LISTENS: Final = (
    "nothing listens on this port; if something should, correct the port, start the program, or let it listen on 0.0.0.0 instead "
    "of 127.0.0.1"
)


def _message_text(context: ProbeContext, result: ContainerProbeState) -> str:
    """The message; a value with its source."""
    message = result.message or ""
    if result.state == ProbeState.SUCCEEDED:
        return value_text(context.probe, message)
    return message


def daemon_link(context: ProbeContext) -> Found:
    node = context.pod.node
    snapshot = context.snapshot
    if stale := snapshot.stale_reason(node):
        return Found(stale, REASON_DAEMON_STALE)
    if snapshot.has_no_daemon(node):
        text = f"no daemon runs on {node}: it has neither a Lease nor results"
        known = snapshot.node(node)
        if known is not None and known.is_windows:
            text += ". The node runs Windows, where our daemon does not run"
        return Found(text, NO_DAEMON)
    if snapshot.leases is None:
        return Found("unknown: no permission to list leases")
    return Found(f"the daemon on {node} is running")


def result_link(context: ProbeContext) -> Found:
    result = context.result
    if result is None:
        return _no_result(context)
    message = result.message or ""
    text = result.state
    if message:
        text += f": {_message_text(context, result)}"
    if result.message_shortened:
        text += f" ({SHORTENED_NOTE})"
    if context.is_outdated:
        text += "; this is the result of the probe before it was edited"
        return Found(text, "ResultOutdated")
    probe = context.probe.probe
    if result.state == ProbeState.UNKNOWN:
        return _unknown(probe, message)
    _, cause = verdict_of(result)
    if cause == CODE_EXEC_STUCK:
        seconds = probe.effective_timeout_seconds
        text = f"{result.state}: the command times out after {seconds} s each time, so it runs less often"
        return Found(text, CODE_EXEC_STUCK)
    return Found(text, remedy=hint_of(probe, result.state, message))


def _unknown(probe: Probe, message: str) -> Found:
    """Of a result without a verdict, whose message begins with the reason."""
    reason, _, rest = message.partition(":")
    if not rest or reason not in reason_table():
        why = message or "the daemon gave no reason"
        return Found(f"Unknown: {why}", "Unknown")
    hint = ""
    if reason == "ExecImpossible":
        hint = hint_of(probe, ProbeState.UNKNOWN, rest)
    return Found(f"Unknown:{rest}", reason, hint)


def hint_of(probe: Probe, state: str, message: str) -> str:
    """What to do about a result whose cause is known: nothing listens, too slow, no program, no interpreter, no shell."""
    if probe.exec is None:
        if state == ProbeState.FAILED and REFUSED in message:
            return NOTHING_LISTENS
        return ""
    command = probe.exec.command
    problem = command_problem(command)
    if state == ProbeState.SUCCEEDED:
        problem = hidden_exit_code(command)
    if problem is not None:
        return problem.message
    if state == ProbeState.SUCCEEDED:
        return ""
    return failure_hint(message)


def _no_result(context: ProbeContext) -> Found:
    """Why there is no result yet: initial delay, first attempts, or overdue."""
    snapshot = context.snapshot
    if snapshot.node_pod_probes is None:
        return Found(NO_PERMISSION)
    probe = context.probe.probe
    now = snapshot.now
    due = parse_time(context.source.metadata.creation_timestamp)
    started_at = context.pod.running_since.get(context.probe.container_name)
    if started_at is not None:
        delay = timedelta(seconds=probe.effective_initial_delay_seconds)
        delay_ends = started_at + delay
        if now < delay_ends:
            seconds = _seconds(delay_ends - now)
            text = f"No result yet; initialDelaySeconds ends in {seconds} s"
            return Found(text, "NoResultYet")
        due = max(delay_ends, due or delay_ends)
    if due is None:
        return Found("No result yet", "NoResultYet")
    attempts = max(probe.effective_failure_threshold, probe.effective_success_threshold)
    needed = min(probe.effective_period_seconds * attempts, MAX_SECONDS)
    patience = FIRST_PROBE_SECONDS + max(needed, MIN_GRACE_SECONDS)
    overdue_at = due + timedelta(seconds=patience)
    if now < overdue_at:
        seconds = _seconds(overdue_at - now)
        text = f"No result yet; expect a result or an error within {seconds} s"
        hint = ""
        if probe.exec is not None:
            hint = split_hint(probe.exec.command)
        return Found(text, "NoResultYet", hint)
    text = f"No result {_seconds(now - due)} s after the first attempt was due"
    return Found(text, "ResultOverdue")


def _seconds(span: timedelta) -> int:
    return int(span.total_seconds()) + 1


def condition_link(context: ProbeContext) -> Found:
    wanted = context.probe.pod_condition_type
    if not wanted:
        return Found()
    if conflict := context.conflict(of_condition=True):
        return Found(conflict, CLAIMED_BY_ANOTHER)
    if context.claim is None or not context.claim.condition_type:
        return Found(f"probes may not set the condition {wanted}", INVALID_SPEC)
    result = context.result
    if context.virtual:
        result = None  # it is read from this condition
    current = context.pod.condition(wanted)
    if current is None and result is None:
        return Found()
    status = "missing"
    if current is not None:
        status = current.status
    text = f"{wanted} is {status}"
    if result is None:
        return Found(text)
    expected = CONDITION_STATUS.get(result.state)
    if status == expected:
        return Found(text)
    text += f", but the result is {result.state}"
    return _behind(context, result, "ConditionBehind", text)


def marks_link(context: ProbeContext) -> Found:
    if not context.probe.marker_policy:
        return Found()
    if conflict := context.conflict(of_condition=False):
        return Found(conflict, CLAIMED_BY_ANOTHER)
    result = context.result
    wanted = context.wanted_in(context.state)
    if result is None or wanted is None:
        return Found("unchanged")
    found = _role(context)
    if found is None:
        found = _behind_marks(context, wanted, result)
    if found is None:
        found = _marks(wanted, result)
    return found


def _role(context: ProbeContext) -> Found | None:
    """Which other pod holds the role, or keeps it from this one; None if no other pod carries its marks."""
    claim = context.exclusive
    if claim is None or context.state != ProbeState.SUCCEEDED:
        return None
    pod = context.pod
    holders = context.snapshot.carriers(context.marker, pod, claim)
    if not holders or pod.name in holders:
        return None
    condition = pod.condition(claim.condition_type)
    if condition is not None and condition.reason == REASON_NOT_HOLDER:
        message = condition.message or ""
        if code_of(message) == CODE_WAITING_FOR_POD:
            return Found(message, CODE_WAITING_FOR_POD)
    names = listed(holders)
    role = role_text(claim)
    return Found(f"pod {names} holds the role {role}")


def _behind_marks(
    context: ProbeContext, wanted: Wanted, result: ContainerProbeState
) -> Found | None:
    """The link of a pod that does not have the marks of the result; None if it has them."""
    pod = context.pod
    texts = []
    only_values = True
    for mark, value, _ in values_of(wanted, result):
        current = pod.value_of(mark)
        if current == value:
            continue
        should_be = _or_absent(value)
        shown = _or_absent(current)
        what = f"{mark.kind} {mark.name}"
        texts.append(f"{what} should be {should_be}, but is {shown}")
        only_values &= context.is_from_message(mark)
    if not texts:
        return None
    text = "; ".join(texts)
    is_new = context.snapshot.is_recent(result.last_probe_time, within=MAX_VALUE_DELAY)
    if only_values and is_new:
        return Found(f"{text}; the manager has not written it yet", "ValueNew")
    return _behind(context, result, "MarksBehind", text)


def _or_absent(value: str | None) -> str:
    if value is None:
        return "absent"
    return value


def _marks(wanted: Wanted, result: ContainerProbeState) -> Found:
    """Of a pod that has the marks of the result: values from the message may be missing."""
    if result.message_shortened:
        kept = []
        for mark, source in wanted.items():
            if isinstance(source, FromMessage):
                kept.append(f"{mark.kind} {mark.name}")
        if kept:
            keys = listed(kept)
            return Found(f"{SHORTENED_NOTE}; kept as it is: {keys}", MESSAGE_SHORTENED)
    texts = []
    for mark, value, _ in values_of(wanted, result):
        if value is not None:
            texts.append(f"{mark.name}={value}")
    text = ", ".join(texts)
    invalid = invalid_values(wanted, result)
    if not invalid:
        return Found(text or f"no marks in state {result.state}")
    remedy = ""
    if _searched_part(result):
        remedy = PRINT_LESS
    if text:
        text += "; "
    text += listed(invalid)
    return Found(text, VALUE_INVALID, remedy)


def invalid_values(wanted: Wanted, result: ContainerProbeState) -> list[str]:
    """For each key without a valid value in the message: what the pod has instead, the pattern and the message."""
    start = shorten(result.message or "", SHOWN_MESSAGE)
    message = f'"{start}"'
    if part := _searched_part(result):
        message += f" ({part})"
    found = []
    for mark, static, source in values_of(wanted, result):
        if source is None:
            continue
        instead = "is not set"
        if static is not None:
            instead = f"has the static value {static}"
        what = f"{mark.kind} {mark.name} {instead}"
        why = _why_invalid(source)
        found.append(f"{what}: {why} {message}")
    return found


def _searched_part(result: ContainerProbeState) -> str:
    failed = result.state == ProbeState.FAILED
    return searched_part(result.message or "", failed=failed)


def _why_invalid(source: FromMessage) -> str:
    if source.over_limit:
        return (
            f"all patterns of this pod together are too large to search regex '{source.pattern}' in"
        )
    if not source.pattern:
        return "no valid value in the first line of the message"
    return f"regex '{source.pattern}' finds no valid value in the message"


def _behind(
    context: ProbeContext,
    result: ContainerProbeState,
    reason: str,
    text: str,
) -> Found:
    """Why the pod does not show the result yet: the manager needs a moment, or what the marker's status reports, or `reason`."""
    snapshot = context.snapshot
    created = context.source.metadata.creation_timestamp
    if snapshot.is_recent(result.last_transition_time, created):
        now = snapshot.now
        since = parse_time(result.last_transition_time) or now
        passed = now - since
        age = max(int(passed.total_seconds()), 0)
        text += f". The manager has not written this result yet ({age} s)"
        return Found(text, "ResultNew")
    report = context.reported(
        "PodNotMarked",
        CHANGED_BY_ADMISSION,
        CHANGED_BY_ANOTHER,
    )
    if report is None:
        return Found(text, reason)
    return Found(f"{text}; the marker's status says: {report.message}", report.reason)
