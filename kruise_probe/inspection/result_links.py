"""The links from the daemon to the marks on the pod, one function for each. Pure."""

import re
from datetime import timedelta
from typing import Final

from kruise_probe.api.core import MAX_SECONDS, Probe
from kruise_probe.api.extraction import FromMessage
from kruise_probe.api.messages import searched_part
from kruise_probe.api.names import REASON_DAEMON_STALE
from kruise_probe.api.problems import shorten
from kruise_probe.api.times import parse_time
from kruise_probe.api.v1alpha1 import ContainerProbeState, ProbeState
from kruise_probe.controllers.claims import Claim
from kruise_probe.controllers.compiled import Wanted
from kruise_probe.controllers.conditions import (
    CHANGED_BY_ADMISSION,
    CHANGED_BY_ANOTHER,
    VALUE_INVALID,
    listed,
)
from kruise_probe.controllers.limits import is_windows
from kruise_probe.controllers.marking import CONDITION_STATUS, values_of
from kruise_probe.controllers.readiness import CLAIMED_BY_ANOTHER
from kruise_probe.hints.commands import command_problem, failure_hint, split_hint
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
NOTHING_LISTENS: Final = (
    "nothing listens on this port at the pod's address: correct the port, or let the program listen on 0.0.0.0 instead "
    "of 127.0.0.1"
)
EXEC_STUCK: Final = "ExecStuck"
"""In the message of a command that times out every time, so that the daemon runs it less often."""


def daemon_link(context: ProbeContext) -> Link:
    node, snapshot = context.pod.node, context.snapshot
    if stale := snapshot.stale_reasons.get(node):
        return broken("daemon", REASON_DAEMON_STALE, stale)
    if snapshot.has_no_daemon(node):
        text = f"no daemon runs on {node}: it has neither a Lease nor results"
        known = (snapshot.nodes or {}).get(node)
        if known is not None and is_windows(known):
            text += ". The node runs Windows, where our daemon does not run"
        return broken("daemon", "NoDaemon", text)
    if snapshot.leases is None:
        return ok("daemon", "unknown: no permission to list leases")
    return ok("daemon", f"the daemon on {node} is running")


def result_link(context: ProbeContext) -> Link:
    result, probe = context.result, context.probe.probe
    if result is None:
        if context.snapshot.node_pod_probes is None:
            return ok("result", "unknown: no permission to list nodepodprobes")
        return _no_result(context)
    text = _result_text(result)
    if context.is_outdated:
        text = f"{text}; this is the result of the probe before it was edited"
        return waiting("result", "ResultOutdated", text)
    if result.state == ProbeState.UNKNOWN:
        first, colon, rest = (result.message or "").partition(":")
        reason = first if colon and first in reason_table() else "Unknown"
        if reason == first:
            text = f"{result.state}:{rest}"
        elif not result.message:
            text = "Unknown: the daemon gave no reason"
        if reason == "ContainerRestarted":
            return waiting("result", reason, text)
        hint = not_started_note(probe, result.state, rest) if reason == "ExecImpossible" else ""
        return broken("result", reason, text, hint, **context.names)
    if re.match(rf"command timed out after .* \({EXEC_STUCK}: ", result.message or ""):
        text = text.partition("; make it faster")[0].replace(f" ({EXEC_STUCK}: ", "; ")
        return broken("result", EXEC_STUCK, text)
    if note := not_started_note(probe, result.state, result.message or ""):
        text += f" ({note})"
    return ok("result", text)


def _result_text(result: ContainerProbeState) -> str:
    text = f"{result.state}: {result.message}" if result.message else result.state
    return f"{text} ({SHORTENED_NOTE})" if result.message_shortened else text


def not_started_note(probe: Probe, state: str, message: str) -> str:
    """Why a probe cannot work: nothing listens, too slow, no program, no interpreter, or no shell; empty if nothing says so."""
    if state == ProbeState.SUCCEEDED:
        return ""
    if probe.exec is None:
        return NOTHING_LISTENS if "connection refused" in message else ""
    problem = command_problem(probe.exec.command)
    return problem.message if problem else failure_hint(message)


def _no_result(context: ProbeContext) -> Link:
    """Why there is no result yet: initial delay, first attempts, or overdue."""
    probe, now = context.probe.probe, context.snapshot.now
    started_at = context.pod.running_since.get(context.probe.container_name)
    created_at = parse_time(context.source.metadata.creation_timestamp)
    delay = timedelta(seconds=probe.effective_initial_delay_seconds)
    if started_at is not None and now < started_at + delay:
        left = _seconds(started_at + delay - now)
        text = f"No result yet; initialDelaySeconds ends in {left} s"
        return waiting("result", "NoResultYet", text)
    due = max(filter(None, (started_at and started_at + delay, created_at)), default=None)
    if due is None:
        return waiting("result", "NoResultYet", "No result yet")
    needed = probe.effective_period_seconds * max(
        probe.effective_failure_threshold, probe.effective_success_threshold
    )
    wait = FIRST_PROBE_SECONDS + max(min(needed, MAX_SECONDS), MIN_GRACE_SECONDS)
    overdue_at = due + timedelta(seconds=wait)
    if now < overdue_at:
        text = f"No result yet; expect a result or an error within {_seconds(overdue_at - now)} s"
        hint = split_hint((probe.exec and probe.exec.command) or ())
        return waiting("result", "NoResultYet", text, hint)
    text = f"No result {_seconds(now - due)} s after the first attempt was due"
    return broken("result", "ResultOverdue", text)


def _seconds(span: timedelta) -> int:
    return int(span.total_seconds()) + 1


def condition_link(context: ProbeContext) -> Link:
    wanted, claim, result = context.probe.pod_condition_type, context.claim, context.result
    if not wanted:
        return ok("condition")
    if conflict := context.conflict("condition type"):
        return broken("condition", CLAIMED_BY_ANOTHER, conflict)
    if claim is None or not claim.condition_type:
        return broken("condition", "InvalidSpec", f"probes may not set the condition {wanted}")
    current = context.pod.condition(wanted)
    text = f"{wanted} is {current.status if current else 'missing'}"
    if result is None or context.virtual:
        return ok("condition", text if current else "")
    if current is None or current.status != CONDITION_STATUS.get(result.state):
        text += f", but the result is {result.state}"
        return _behind_link(context, result, "condition", "ConditionBehind", text)
    return ok("condition", text)


def marks_link(context: ProbeContext) -> Link:
    if not context.probe.marker_policy:
        return ok("marks")
    if conflict := context.conflict("label", "annotation"):
        return broken("marks", CLAIMED_BY_ANOTHER, conflict)
    result, claim = context.result, context.claim
    wanted = claim.wanted.get(result.state) if claim and result else None
    if claim is None or wanted is None or result is None:
        return ok("marks", "unchanged")
    return _values_link(context, claim, result, wanted)


def _values_link(
    context: ProbeContext, claim: Claim, result: ContainerProbeState, wanted: Wanted
) -> Link:
    pod, values = context.pod, values_of(wanted, result)
    wrong = [value for value in values if pod.value_of(value.mark) != value.value]
    if wrong:
        text = "; ".join(
            f"{mark.kind} {mark.name} should be {_or_absent(value)}, "
            f"but is {_or_absent(pod.value_of(mark))}"
            for mark, value, _ in wrong
        )
        only_values = all(claim.is_from_message(each.mark) for each in wrong)
        if only_values and context.snapshot.is_recent(
            result.last_probe_time, within=MAX_VALUE_DELAY
        ):
            return waiting("marks", "ValueNew", f"{text}; the manager has not written it yet")
        return _behind_link(context, result, "marks", "MarksBehind", text)
    text = ", ".join(
        [f"{each.mark.name}={each.value}" for each in values if each.value is not None]
    )
    if result.message_shortened:
        kept = [mark for mark, source in wanted.items() if isinstance(source, FromMessage)]
        if kept:
            names = listed([f"{mark.kind} {mark.name}" for mark in kept])
            return broken("marks", MESSAGE_SHORTENED, f"{SHORTENED_NOTE}; kept as it is: {names}")
    if invalid := invalid_values(wanted, result):
        remedy = PRINT_LESS if _searched_part(result) else ""
        text = "; ".join(filter(None, (text, listed(invalid))))
        return broken("marks", VALUE_INVALID, text, remedy)
    return ok("marks", text or f"no marks in state {result.state}")


def _or_absent(value: str | None) -> str:
    return "absent" if value is None else value


def invalid_values(wanted: Wanted, result: ContainerProbeState) -> list[str]:
    """For each key without a valid value in the message: what the pod has instead, the pattern and the message."""
    message = shorten(result.message or "", SHOWN_MESSAGE)
    searched = f" ({part})" if (part := _searched_part(result)) else ""
    return [
        f'{mark.kind} {mark.name} {_instead(source)}: {_why_invalid(source)} "{message}"{searched}'
        for mark, _, source in values_of(wanted, result)
        if source
    ]


def _searched_part(result: ContainerProbeState) -> str:
    return searched_part(result.message or "", failed=result.state == ProbeState.FAILED)


def _instead(source: FromMessage) -> str:
    return "is removed" if source.static is None else f"has the static value {source.static}"


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
    source, snapshot = context.source, context.snapshot
    if snapshot.is_recent(result.last_transition_time, source.metadata.creation_timestamp):
        since = parse_time(result.last_transition_time) or snapshot.now
        age = max(int((snapshot.now - since).total_seconds()), 0)
        text += f". The manager has not written this result yet ({age} s)"
        return waiting(name, "ResultNew", text)
    for known, about in (
        ("PodNotMarked", f"{context.pod.key}: "),
        (CHANGED_BY_ADMISSION, f"of pod {context.pod.key}"),
        (CHANGED_BY_ANOTHER, f"of pod {context.pod.key}"),
    ):
        report = context.reported(known, about)
        if report:
            return broken(name, known, f"{text}; the marker's status says: {report}")
    return broken(name, reason, text, **context.names)
