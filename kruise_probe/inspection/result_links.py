"""The links from the daemon to the marks on the pod, one function for each. Pure."""

from datetime import timedelta
from typing import Final

from kruise_probe.api.core import MAX_SECONDS, Probe
from kruise_probe.api.extraction import FromMessage
from kruise_probe.api.messages import searched_part
from kruise_probe.api.names import REASON_DAEMON_STALE, REASON_NOT_HOLDER
from kruise_probe.api.problems import shorten
from kruise_probe.api.times import parse_time
from kruise_probe.api.v1alpha1 import ContainerProbeState, ProbeState
from kruise_probe.controllers.causes import EXEC_STUCK, verdict_of
from kruise_probe.controllers.compiled import Wanted
from kruise_probe.controllers.conditions import (
    CHANGED_BY_ADMISSION,
    CHANGED_BY_ANOTHER,
    VALUE_INVALID,
    listed,
)
from kruise_probe.controllers.marking import CONDITION_STATUS, values_of
from kruise_probe.controllers.readiness import CLAIMED_BY_ANOTHER
from kruise_probe.controllers.roles import WAITING_FOR_POD, role_text
from kruise_probe.hints.commands import (
    command_problem,
    failure_hint,
    hidden_exit_code,
    split_hint,
    value_text,
)
from kruise_probe.inspection.link import Link, ProbeContext, broken, ok, reason_table, waiting

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
    "nothing listens on this port at the pod's address; if something should, correct the port, or let it listen on 0.0.0.0 instead "
    "of 127.0.0.1"
)
NO_PERMISSION: Final = "unknown: no permission to list nodepodprobes"


def _message_text(context: ProbeContext, result: ContainerProbeState) -> str:
    """The message; a value with its source."""
    message = result.message or ""
    return value_text(context.probe, message) if result.state == ProbeState.SUCCEEDED else message


def daemon_link(context: ProbeContext) -> Link:
    node = context.pod.node
    snapshot = context.snapshot
    if stale := snapshot.stale_reasons.get(node):
        return broken("daemon", REASON_DAEMON_STALE, stale)
    if snapshot.has_no_daemon(node):
        text = f"no daemon runs on {node}: it has neither a Lease nor results"
        known = (snapshot.nodes or {}).get(node)
        if known is not None and known.is_windows:
            text += ". The node runs Windows, where our daemon does not run"
        return broken("daemon", "NoDaemon", text)
    if snapshot.leases is None:
        return ok("daemon", "unknown: no permission to list leases")
    return ok("daemon", f"the daemon on {node} is running")


def result_link(context: ProbeContext) -> Link:
    result = context.result
    if result is None:
        return _no_result(context)
    text = result.state
    if result.message:
        text += f": {_message_text(context, result)}"
    if result.message_shortened:
        text += f" ({SHORTENED_NOTE})"
    if context.is_outdated:
        text += "; this is the result of the probe before it was edited"
        return waiting("result", "ResultOutdated", text)
    if result.state == ProbeState.UNKNOWN:
        return _unknown_link(context, result.message or "")
    probe = context.probe.probe
    _, cause = verdict_of(result)
    if cause == EXEC_STUCK:
        seconds = probe.effective_timeout_seconds
        text = f"{result.state}: the command times out after {seconds} s each time, so it runs less often"
        return broken("result", EXEC_STUCK, text)
    return ok("result", text, hint_of(probe, result.state, result.message or ""))


def _unknown_link(context: ProbeContext, message: str) -> Link:
    """The link of a result without a verdict, whose message begins with the reason."""
    reason, _, rest = message.partition(":")
    if not rest or reason not in reason_table():
        text = f"Unknown: {message or 'the daemon gave no reason'}"
        return broken("result", "Unknown", text)
    text = f"Unknown:{rest}"
    if reason == "ContainerRestarted":
        return waiting("result", reason, text)
    hint = ""
    if reason == "ExecImpossible":
        hint = hint_of(context.probe.probe, ProbeState.UNKNOWN, rest)
    return broken("result", reason, text, hint, **context.names)


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


def _no_result(context: ProbeContext) -> Link:
    """Why there is no result yet: initial delay, first attempts, or overdue."""
    snapshot = context.snapshot
    if snapshot.node_pod_probes is None:
        return ok("result", NO_PERMISSION)
    probe = context.probe.probe
    now = snapshot.now
    due = parse_time(context.source.metadata.creation_timestamp)
    started_at = context.pod.running_since.get(context.probe.container_name)
    if started_at is not None:
        delay_ends = started_at + timedelta(seconds=probe.effective_initial_delay_seconds)
        if now < delay_ends:
            text = f"No result yet; initialDelaySeconds ends in {_seconds(delay_ends - now)} s"
            return waiting("result", "NoResultYet", text)
        due = max(delay_ends, due or delay_ends)
    if due is None:
        return waiting("result", "NoResultYet", "No result yet")
    attempts = max(probe.effective_failure_threshold, probe.effective_success_threshold)
    needed = min(probe.effective_period_seconds * attempts, MAX_SECONDS)
    overdue_at = due + timedelta(seconds=FIRST_PROBE_SECONDS + max(needed, MIN_GRACE_SECONDS))
    if now < overdue_at:
        text = f"No result yet; expect a result or an error within {_seconds(overdue_at - now)} s"
        hint = split_hint(probe.exec.command) if probe.exec is not None else ""
        return waiting("result", "NoResultYet", text, hint)
    text = f"No result {_seconds(now - due)} s after the first attempt was due"
    return broken("result", "ResultOverdue", text)


def _seconds(span: timedelta) -> int:
    return int(span.total_seconds()) + 1


def condition_link(context: ProbeContext) -> Link:
    wanted = context.probe.pod_condition_type
    if not wanted:
        return ok("condition")
    if conflict := context.conflict("condition type"):
        return broken("condition", CLAIMED_BY_ANOTHER, conflict)
    if context.claim is None or not context.claim.condition_type:
        return broken("condition", "InvalidSpec", f"probes may not set the condition {wanted}")
    result = context.result
    current = context.pod.condition(wanted)
    if current is None and (result is None or context.virtual):
        return ok("condition")
    status = current.status if current is not None else "missing"
    text = f"{wanted} is {status}"
    if result is None or context.virtual or status == CONDITION_STATUS.get(result.state):
        return ok("condition", text)
    text += f", but the result is {result.state}"
    return _behind_link(context, result, "condition", "ConditionBehind", text)


def marks_link(context: ProbeContext) -> Link:
    if not context.probe.marker_policy:
        return ok("marks")
    if conflict := context.conflict("label", "annotation"):
        return broken("marks", CLAIMED_BY_ANOTHER, conflict)
    result = context.result
    wanted = context.wanted_in(result.state) if result is not None else None
    if result is None or wanted is None:
        return ok("marks", "unchanged")
    link = _role_link(context) if result.state == ProbeState.SUCCEEDED else None
    return link or _behind_marks(context, wanted, result) or _marks_link(wanted, result)


def _role_link(context: ProbeContext) -> Link | None:
    """Which other pod holds the role, or keeps it from this one; None if no other pod carries its marks."""
    pod = context.pod
    claim = context.claim
    if claim is None or claim.exclusive is None:
        return None
    holders = context.snapshot.carriers(pod, claim)
    if not holders or pod.name in holders:
        return None
    condition = pod.condition(claim.condition_type)
    message = "" if condition is None else condition.message or ""
    if message.startswith(WAITING_FOR_POD):
        return broken("marks", REASON_NOT_HOLDER, message)
    return ok("marks", f"pod {listed(holders)} holds the role {role_text(claim)}")


def _behind_marks(
    context: ProbeContext, wanted: Wanted, result: ContainerProbeState
) -> Link | None:
    """The link of a pod that does not have the marks of the result; None if it has them."""
    pod = context.pod
    texts = []
    only_values = True
    for mark, value, _ in values_of(wanted, result):
        current = pod.value_of(mark)
        if current == value:
            continue
        should_be = _or_absent(value)
        texts.append(f"{mark.kind} {mark.name} should be {should_be}, but is {_or_absent(current)}")
        only_values &= context.is_from_message(mark)
    if not texts:
        return None
    text = "; ".join(texts)
    is_new = context.snapshot.is_recent(result.last_probe_time, within=MAX_VALUE_DELAY)
    if only_values and is_new:
        return waiting("marks", "ValueNew", f"{text}; the manager has not written it yet")
    return _behind_link(context, result, "marks", "MarksBehind", text)


def _or_absent(value: str | None) -> str:
    return "absent" if value is None else value


def _marks_link(wanted: Wanted, result: ContainerProbeState) -> Link:
    """The link of a pod that has the marks of the result: values from the message may be missing."""
    if result.message_shortened:
        kept = []
        for mark, source in wanted.items():
            if isinstance(source, FromMessage):
                kept.append(f"{mark.kind} {mark.name}")
        if kept:
            text = f"{SHORTENED_NOTE}; kept as it is: {listed(kept)}"
            return broken("marks", MESSAGE_SHORTENED, text)
    current = [value for value in values_of(wanted, result) if value.value is not None]
    text = ", ".join(f"{value.mark.name}={value.value}" for value in current)
    invalid = invalid_values(wanted, result)
    if not invalid:
        return ok("marks", text or f"no marks in state {result.state}")
    remedy = PRINT_LESS if _searched_part(result) else ""
    if text:
        text += "; "
    return broken("marks", VALUE_INVALID, text + listed(invalid), remedy)


def invalid_values(wanted: Wanted, result: ContainerProbeState) -> list[str]:
    """For each key without a valid value in the message: what the pod has instead, the pattern and the message."""
    message = f'"{shorten(result.message or "", SHOWN_MESSAGE)}"'
    if part := _searched_part(result):
        message += f" ({part})"
    found = []
    for mark, static, source in values_of(wanted, result):
        if source is None:
            continue
        instead = "is not set"
        if static is not None:
            instead = f"has the static value {static}"
        found.append(f"{mark.kind} {mark.name} {instead}: {_why_invalid(source)} {message}")
    return found


def _searched_part(result: ContainerProbeState) -> str:
    return searched_part(result.message or "", failed=result.state == ProbeState.FAILED)


def _why_invalid(source: FromMessage) -> str:
    if source.over_limit:
        return (
            f"all patterns of this pod together are too large to search regex '{source.pattern}' in"
        )
    if not source.pattern:
        return "no valid value in the first line of the message"
    return f"regex '{source.pattern}' finds no valid value in the message"


def _behind_link(
    context: ProbeContext, result: ContainerProbeState, name: str, reason: str, text: str
) -> Link:
    source = context.source
    snapshot = context.snapshot
    if snapshot.is_recent(result.last_transition_time, source.metadata.creation_timestamp):
        since = parse_time(result.last_transition_time) or snapshot.now
        age = max(int((snapshot.now - since).total_seconds()), 0)
        text += f". The manager has not written this result yet ({age} s)"
        return waiting(name, "ResultNew", text)
    pod = context.pod.key
    for known, about in (
        ("PodNotMarked", f"{pod}: "),
        (CHANGED_BY_ADMISSION, f"of pod {pod}"),
        (CHANGED_BY_ANOTHER, f"of pod {pod}"),
    ):
        report = context.reported(known, about)
        if report:
            return broken(name, known, f"{text}; the marker's status says: {report}")
    return broken(name, reason, text, **context.names)
