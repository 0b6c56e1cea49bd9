"""The second half of the way: from the daemon, or a provider, to the marks. Pure; one function for each link."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from kruise_probe.api.core import MAX_SECONDS
from kruise_probe.api.names import REASON_AGENT_STALE, SERVERLESS_PROBES_ANNOTATION
from kruise_probe.api.times import parse_time
from kruise_probe.api.v1alpha1 import ContainerProbeState, ProbeState
from kruise_probe.controllers.markers.census import listed
from kruise_probe.controllers.pods.marking import CONDITION_STATUS
from kruise_probe.inspection.link import Case, Link, Standing, broken, waiting
from kruise_probe.inspection.remedies import manager_remedy, unknown_remedy

LEAST_GRACE_SECONDS: Final = 30
"""How long an obstacle lasts before the daemon says Unknown, at least; longer for long periods."""
FIRST_PROBE_SECONDS: Final = 10
"""How long the first probe of a container that runs already may wait, for the load to be even."""


def daemon_link(case: Case) -> Link:
    node, snapshot = case.seen.pod.node, case.snapshot
    silence = snapshot.silence_of(node)
    if silence:
        return broken("daemon", REASON_AGENT_STALE, silence)
    if snapshot.never_heard_of(node):
        text = f"no daemon was ever heard of on {node}: it has no Lease and reported nothing"
        return broken("daemon", "NoDaemon", text)
    if snapshot.leases is None:
        return Link("daemon", Standing.OK, "not known: you may not list leases")
    return Link("daemon", Standing.OK, f"of {node} is alive")


def result_link(case: Case) -> Link:
    state = case.state
    if state is None:
        if case.snapshot.reports is None and not case.virtual:
            return Link("result", Standing.OK, "not known: you may not list nodepodprobes")
        return _no_verdict(case)
    if state.state == ProbeState.UNKNOWN:
        reason, colon, _ = (state.message or "").partition(":")
        known = reason if colon and reason.isalnum() else "Unknown"
        text = f"Unknown: {state.message or 'the daemon gave no reason'}"
        if known == "ContainerRestarted":
            return waiting("result", known, text)
        return broken("result", known, text, unknown_remedy(known))
    return Link("result", Standing.OK, f"{state.state}{_told(state.message)}")


def _told(message: str | None) -> str:
    return f": {message}" if message else ""


def _no_verdict(case: Case) -> Link:
    """Why there is no result, as far as the clock tells: the delay, the first probes, or too long."""
    probe, now = case.probe.probe, case.snapshot.now
    started_at = case.seen.running_since.get(case.probe.container_name)
    asked_at = parse_time(case.source.metadata.creation_timestamp)
    delay = timedelta(seconds=probe.effective_initial_delay_seconds)
    if started_at is not None and now < started_at + delay:
        left = _seconds(started_at + delay - now)
        return waiting(
            "result", "NoVerdictYet", f"none yet; its initialDelaySeconds end in {left}s"
        )
    due = max(filter(None, (started_at and started_at + delay, asked_at)), default=None)
    if due is None or case.virtual:
        return waiting("result", "NoVerdictYet", "none yet")
    needed = probe.effective_period_seconds * max(
        probe.effective_failure_threshold, probe.effective_success_threshold
    )
    wait = FIRST_PROBE_SECONDS + max(min(needed, MAX_SECONDS), LEAST_GRACE_SECONDS)
    said_at = due + timedelta(seconds=wait)
    if now < said_at:
        left = _seconds(said_at - now)
        text = f"none yet; it comes, or what keeps it away is said, within {left}s"
        return waiting("result", "NoVerdictYet", text)
    text = f"none, {_seconds(now - due)}s after the probe was first due"
    return broken("result", "VerdictOverdue", text)


def _seconds(span: timedelta) -> int:
    return int(span.total_seconds()) + 1


def provider_link(case: Case) -> Link:
    if SERVERLESS_PROBES_ANNOTATION not in case.seen.pod.annotations:
        text = f"virtual node {case.seen.pod.node}, and the pod has no annotation {SERVERLESS_PROBES_ANNOTATION}"
        return broken("provider", "NotInjected", text)
    if not case.probe.pod_condition_type:
        text = "has nowhere to write: the probe names no podConditionType"
        return broken("provider", "ProviderNowhere", text)
    if case.state is None:
        text = f"has not written condition {case.probe.pod_condition_type} on the pod"
        return broken("provider", "ProviderSilent", text)
    return Link("provider", Standing.OK, "has written the condition")


def condition_link(case: Case) -> Link:
    wanted, claim = case.probe.pod_condition_type, case.claim
    if not wanted:
        return Link("condition", Standing.OK, "")
    lost = _lost(case, "condition type")
    if lost:
        return broken("condition", "Conflict", lost)
    if claim is None or not claim.condition_type:
        return broken("condition", "InvalidSpec", f"{wanted} is no name that may be written")
    state = case.state
    current = case.seen.pod.condition(wanted)
    if state is None or case.virtual:
        return Link("condition", Standing.OK, _shown(current.status if current else None, wanted))
    status = CONDITION_STATUS.get(state.state)
    if current is None or current.status != status:
        there = f"is {current.status}" if current else "is not on the pod"
        text = f"{wanted} {there}, the result is {state.state}"
        return _mark_link(case, state, "condition", "ConditionBehind", text)
    return Link("condition", Standing.OK, f"{wanted} is {current.status}")


def _shown(status: str | None, condition_type: str) -> str:
    return f"{condition_type} is {status}" if status else ""


def marks_link(case: Case) -> Link:
    if not case.probe.marker_policy:
        return Link("marks", Standing.OK, "")
    lost = _lost(case, "label") or _lost(case, "annotation")
    if lost:
        return broken("marks", "Conflict", lost)
    state, claim, pod = case.state, case.claim, case.seen.pod
    targets = claim.targets.get(state.state) if claim and state else None
    if targets is None or state is None:
        return Link("marks", Standing.OK, "stay as they are")
    wrong = [
        *_wrong("label", targets.labels, pod.labels),
        *_wrong("annotation", targets.annotations, pod.annotations),
    ]
    if wrong:
        return _mark_link(case, state, "marks", "MarksBehind", "; ".join(wrong))
    shown = [
        f"{key}={value}"
        for key, value in (*targets.labels, *targets.annotations)
        if value is not None
    ]
    return Link("marks", Standing.OK, ", ".join(shown) or f"none in state {state.state}")


def _wrong(
    kind: str, wanted: tuple[tuple[str, str | None], ...], there: Mapping[str, str]
) -> list[str]:
    return [
        f"{kind} {key} should be {'absent' if value is None else value}, is {there.get(key, 'absent')}"
        for key, value in wanted
        if there.get(key) != value
    ]


def _lost(case: Case, kind: str) -> str:
    return listed([str(each) for each in case.conflicts if each.kind == kind])


def _mark_link(case: Case, state: ContainerProbeState, name: str, reason: str, text: str) -> Link:
    source = case.source
    if case.snapshot.settling(state.last_transition_time, source.metadata.creation_timestamp):
        return waiting(name, "ResultNew", f"{text}; the result is seconds old")
    refused = _refused(case)
    if refused:
        return broken(name, "PodNotMarked", f"{text}; {refused}")
    remedy = manager_remedy(case.snapshot.manager_trouble, virtual=case.virtual)
    return broken(name, reason, text, remedy)


def _refused(case: Case) -> str:
    """What the marker's status says of this pod, where the API server refuses what should stand on it."""
    for condition in (case.source.status and case.source.status.conditions) or ():
        if condition.reason == "PodNotMarked" and f"{case.seen.key}: " in (condition.message or ""):
            return f"the manager says: {condition.message}"
    return ""
