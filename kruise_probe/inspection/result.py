"""The second half of a trace: from the daemon or provider to the marks. Pure; one function for each link."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from kruise_probe.api.core import MAX_SECONDS
from kruise_probe.api.names import REASON_AGENT_STALE, SERVERLESS_PROBES_ANNOTATION
from kruise_probe.api.times import parse_time
from kruise_probe.api.v1alpha1 import ContainerProbeState, ProbeState
from kruise_probe.controllers.markers.census import listed
from kruise_probe.controllers.pods.marking import CONDITION_STATUS
from kruise_probe.inspection.link import Finding, Link, Standing, broken, waiting
from kruise_probe.inspection.remedies import manager_remedy, unknown_remedy

LEAST_GRACE_SECONDS: Final = 30
"""The daemon reports Unknown after a blocking reason has lasted this long; later for long periods."""
FIRST_PROBE_SECONDS: Final = 10
"""Maximum delay of the first probe of a running container; the daemon spreads first probes over it."""


def daemon_link(finding: Finding) -> Link:
    node, snapshot = finding.seen.pod.node, finding.snapshot
    stale = snapshot.silence_of(node)
    if stale:
        return broken("daemon", REASON_AGENT_STALE, stale)
    if snapshot.never_heard_of(node):
        text = f"no daemon was ever heard of on {node}: it has no Lease and reported nothing"
        return broken("daemon", "NoDaemon", text)
    if snapshot.leases is None:
        return Link("daemon", Standing.OK, "not known: you may not list leases")
    return Link("daemon", Standing.OK, f"of {node} is alive")


def result_link(finding: Finding) -> Link:
    state = finding.state
    if state is None:
        if finding.snapshot.reports is None and not finding.virtual:
            return Link("result", Standing.OK, "not known: you may not list nodepodprobes")
        return _no_result(finding)
    if state.state == ProbeState.UNKNOWN:
        reason, colon, _ = (state.message or "").partition(":")
        known = reason if colon and reason.isalnum() else "Unknown"
        text = f"Unknown: {state.message or 'the daemon gave no reason'}"
        if known == "ContainerRestarted":
            return waiting("result", known, text)
        return broken("result", known, text, unknown_remedy(known))
    return Link("result", Standing.OK, f"{state.state}{_message_suffix(state.message)}")


def _message_suffix(message: str | None) -> str:
    return f": {message}" if message else ""


def _no_result(finding: Finding) -> Link:
    """Why there is no result yet: initial delay, first attempts, or overdue."""
    probe, now = finding.probe.probe, finding.snapshot.now
    started_at = finding.seen.running_since.get(finding.probe.container_name)
    created_at = parse_time(finding.source.metadata.creation_timestamp)
    delay = timedelta(seconds=probe.effective_initial_delay_seconds)
    if started_at is not None and now < started_at + delay:
        left = _seconds(started_at + delay - now)
        return waiting(
            "result", "NoVerdictYet", f"none yet; its initialDelaySeconds end in {left}s"
        )
    due = max(filter(None, (started_at and started_at + delay, created_at)), default=None)
    if due is None or finding.virtual:
        return waiting("result", "NoVerdictYet", "none yet")
    needed = probe.effective_period_seconds * max(
        probe.effective_failure_threshold, probe.effective_success_threshold
    )
    wait = FIRST_PROBE_SECONDS + max(min(needed, MAX_SECONDS), LEAST_GRACE_SECONDS)
    overdue_at = due + timedelta(seconds=wait)
    if now < overdue_at:
        left = _seconds(overdue_at - now)
        text = f"none yet; it comes, or what keeps it away is said, within {left}s"
        return waiting("result", "NoVerdictYet", text)
    text = f"none, {_seconds(now - due)}s after the probe was first due"
    return broken("result", "VerdictOverdue", text)


def _seconds(span: timedelta) -> int:
    return int(span.total_seconds()) + 1


def provider_link(finding: Finding) -> Link:
    if SERVERLESS_PROBES_ANNOTATION not in finding.seen.pod.annotations:
        text = f"virtual node {finding.seen.pod.node}, and the pod has no annotation {SERVERLESS_PROBES_ANNOTATION}"
        return broken("provider", "NotInjected", text)
    if not finding.probe.pod_condition_type:
        text = "has nowhere to write: the probe names no podConditionType"
        return broken("provider", "ProviderNowhere", text)
    if finding.state is None:
        text = f"has not written condition {finding.probe.pod_condition_type} on the pod"
        return broken("provider", "ProviderSilent", text)
    return Link("provider", Standing.OK, "has written the condition")


def condition_link(finding: Finding) -> Link:
    wanted, claim = finding.probe.pod_condition_type, finding.claim
    if not wanted:
        return Link("condition", Standing.OK, "")
    conflict = _conflict_text(finding, "condition type")
    if conflict:
        return broken("condition", "Conflict", conflict)
    if claim is None or not claim.condition_type:
        return broken("condition", "InvalidSpec", f"{wanted} is no name that may be written")
    state = finding.state
    current = finding.seen.pod.condition(wanted)
    if state is None or finding.virtual:
        return Link(
            "condition", Standing.OK, _condition_text(current.status if current else None, wanted)
        )
    status = CONDITION_STATUS.get(state.state)
    if current is None or current.status != status:
        actual = f"is {current.status}" if current else "is not on the pod"
        text = f"{wanted} {actual}, the result is {state.state}"
        return _behind_link(finding, state, "condition", "ConditionBehind", text)
    return Link("condition", Standing.OK, f"{wanted} is {current.status}")


def _condition_text(status: str | None, condition_type: str) -> str:
    return f"{condition_type} is {status}" if status else ""


def marks_link(finding: Finding) -> Link:
    if not finding.probe.marker_policy:
        return Link("marks", Standing.OK, "")
    conflict = _conflict_text(finding, "label") or _conflict_text(finding, "annotation")
    if conflict:
        return broken("marks", "Conflict", conflict)
    state, claim, pod = finding.state, finding.claim, finding.seen.pod
    targets = claim.targets.get(state.state) if claim and state else None
    if targets is None or state is None:
        return Link("marks", Standing.OK, "stay as they are")
    wrong = [
        *_differences("label", targets.labels, pod.labels),
        *_differences("annotation", targets.annotations, pod.annotations),
    ]
    if wrong:
        return _behind_link(finding, state, "marks", "MarksBehind", "; ".join(wrong))
    shown = [
        f"{key}={value}"
        for key, value in (*targets.labels, *targets.annotations)
        if value is not None
    ]
    return Link("marks", Standing.OK, ", ".join(shown) or f"none in state {state.state}")


def _differences(
    kind: str, wanted: tuple[tuple[str, str | None], ...], actual: Mapping[str, str]
) -> list[str]:
    return [
        f"{kind} {key} should be {'absent' if value is None else value}, is {actual.get(key, 'absent')}"
        for key, value in wanted
        if actual.get(key) != value
    ]


def _conflict_text(finding: Finding, kind: str) -> str:
    return listed([str(each) for each in finding.conflicts if each.kind == kind])


def _behind_link(
    finding: Finding, state: ContainerProbeState, name: str, reason: str, text: str
) -> Link:
    source = finding.source
    if finding.snapshot.settling(state.last_transition_time, source.metadata.creation_timestamp):
        return waiting(name, "ResultNew", f"{text}; the result is seconds old")
    refusal = _refusal(finding)
    if refusal:
        return broken(name, "PodNotMarked", f"{text}; {refusal}")
    remedy = manager_remedy(finding.snapshot.manager_trouble, virtual=finding.virtual)
    return broken(name, reason, text, remedy)


def _refusal(finding: Finding) -> str:
    """The marker's condition about a write to this pod that the API server refused, or empty."""
    for condition in (finding.source.status and finding.source.status.conditions) or ():
        if condition.reason == "PodNotMarked" and f"{finding.seen.key}: " in (
            condition.message or ""
        ):
            return f"the manager says: {condition.message}"
    return ""
