"""The links from the daemon or provider to the marks on the pod, one function for each. Pure."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from kruise_probe.api.core import MAX_SECONDS
from kruise_probe.api.names import REASON_AGENT_STALE, SERVERLESS_PROBES_ANNOTATION
from kruise_probe.api.times import parse_time
from kruise_probe.api.v1alpha1 import ContainerProbeState, ProbeState
from kruise_probe.controllers.markers.census import listed
from kruise_probe.controllers.pods.marking import CONDITION_STATUS
from kruise_probe.inspection.link import (
    Link,
    PodCheck,
    broken,
    manager_remedy,
    ok,
    unknown_remedy,
    waiting,
)

MIN_GRACE_SECONDS: Final = 30
"""The daemon reports Unknown after a blocking reason has lasted this long; later for long periods."""
FIRST_PROBE_SECONDS: Final = 10
"""Maximum delay of the first probe of a running container; the daemon spreads first probes over it."""


def daemon_link(check: PodCheck) -> Link:
    node, snapshot = check.seen.pod.node, check.snapshot
    stale = snapshot.stale_reason(node)
    if stale:
        return broken("daemon", REASON_AGENT_STALE, stale)
    if snapshot.has_no_daemon(node):
        text = f"no daemon runs on {node}: it has neither a Lease nor results"
        return broken("daemon", "NoDaemon", text)
    if snapshot.leases is None:
        return ok("daemon", "unknown: no permission to list leases")
    return ok("daemon", f"the daemon on {node} is running")


def result_link(check: PodCheck) -> Link:
    result = check.result
    if result is None:
        if check.snapshot.node_pod_probes is None and not check.virtual:
            return ok("result", "unknown: no permission to list nodepodprobes")
        return _no_result(check)
    if result.state == ProbeState.UNKNOWN:
        first, colon, _ = (result.message or "").partition(":")
        reason = first if colon and first.isalnum() else "Unknown"
        text = f"Unknown: {result.message or 'the daemon gave no reason'}"
        if reason == "ContainerRestarted":
            return waiting("result", reason, text)
        return broken("result", reason, text, unknown_remedy(reason))
    return ok("result", f"{result.state}: {result.message}" if result.message else result.state)


def _no_result(check: PodCheck) -> Link:
    """Why there is no result yet: initial delay, first attempts, or overdue."""
    probe, now = check.probe.probe, check.snapshot.now
    started_at = check.seen.running_since.get(check.probe.container_name)
    created_at = parse_time(check.source.metadata.creation_timestamp)
    delay = timedelta(seconds=probe.effective_initial_delay_seconds)
    if started_at is not None and now < started_at + delay:
        left = _seconds(started_at + delay - now)
        text = f"No result yet; initialDelaySeconds ends in {left} s"
        return waiting("result", "NoResultYet", text)
    due = max(filter(None, (started_at and started_at + delay, created_at)), default=None)
    if due is None or check.virtual:
        return waiting("result", "NoResultYet", "No result yet")
    needed = probe.effective_period_seconds * max(
        probe.effective_failure_threshold, probe.effective_success_threshold
    )
    wait = FIRST_PROBE_SECONDS + max(min(needed, MAX_SECONDS), MIN_GRACE_SECONDS)
    overdue_at = due + timedelta(seconds=wait)
    if now < overdue_at:
        text = f"No result yet; expect a result or an error within {_seconds(overdue_at - now)} s"
        return waiting("result", "NoResultYet", text)
    text = f"No result {_seconds(now - due)} s after the first attempt was due"
    return broken("result", "ResultOverdue", text)


def _seconds(span: timedelta) -> int:
    return int(span.total_seconds()) + 1


def provider_link(check: PodCheck) -> Link:
    pod, condition_type = check.seen.pod, check.probe.pod_condition_type
    if SERVERLESS_PROBES_ANNOTATION not in pod.annotations:
        text = (
            f"the pod on virtual node {pod.node} has no annotation {SERVERLESS_PROBES_ANNOTATION}"
        )
        return broken("provider", "NotInjected", text)
    if not condition_type:
        text = "the probe has no podConditionType, so the provider cannot report its result"
        return broken("provider", "ConditionTypeMissing", text)
    if check.result is None:
        text = f"the provider has not set condition {condition_type} on the pod"
        return broken("provider", "ProviderSilent", text)
    return ok("provider", "the provider has set the condition")


def condition_link(check: PodCheck) -> Link:
    wanted, claim, result = check.probe.pod_condition_type, check.claim, check.result
    if not wanted:
        return ok("condition")
    conflict = _conflict_text(check, "condition type")
    if conflict:
        return broken("condition", "Conflict", conflict)
    if claim is None or not claim.condition_type:
        return broken("condition", "InvalidSpec", f"probes may not set the condition {wanted}")
    current = check.seen.pod.condition(wanted)
    text = f"{wanted} is {current.status if current else 'missing'}"
    if result is None or check.virtual:
        return ok("condition", text if current else "")
    if current is None or current.status != CONDITION_STATUS.get(result.state):
        text += f", but the result is {result.state}"
        return _behind_link(check, result, "condition", "ConditionBehind", text)
    return ok("condition", text)


def marks_link(check: PodCheck) -> Link:
    if not check.probe.marker_policy:
        return ok("marks")
    conflict = _conflict_text(check, "label") or _conflict_text(check, "annotation")
    if conflict:
        return broken("marks", "Conflict", conflict)
    result, claim, pod = check.result, check.claim, check.seen.pod
    targets = claim.targets.get(result.state) if claim and result else None
    if targets is None or result is None:
        return ok("marks", "unchanged")
    wrong = [
        *_differences("label", targets.labels, pod.labels),
        *_differences("annotation", targets.annotations, pod.annotations),
    ]
    if wrong:
        return _behind_link(check, result, "marks", "MarksBehind", "; ".join(wrong))
    shown = [
        f"{key}={value}"
        for key, value in (*targets.labels, *targets.annotations)
        if value is not None
    ]
    return ok("marks", ", ".join(shown) or f"none in state {result.state}")


def _differences(
    kind: str, wanted: tuple[tuple[str, str | None], ...], actual: Mapping[str, str]
) -> list[str]:
    return [
        f"{kind} {key} should be {'absent' if value is None else value}, but is {actual.get(key, 'absent')}"
        for key, value in wanted
        if actual.get(key) != value
    ]


def _conflict_text(check: PodCheck, kind: str) -> str:
    return listed([str(each) for each in check.conflicts if each.kind == kind])


def _behind_link(
    check: PodCheck, result: ContainerProbeState, name: str, reason: str, text: str
) -> Link:
    source = check.source
    if check.snapshot.is_recent(result.last_transition_time, source.metadata.creation_timestamp):
        return waiting(name, "ResultNew", f"{text}; the result is a few seconds old")
    refusal = _refusal(check)
    if refusal:
        return broken(name, "PodNotMarked", f"{text}; the marker's status says: {refusal}")
    remedy = manager_remedy(check.snapshot.manager_problem, virtual=check.virtual)
    return broken(name, reason, text, remedy)


def _refusal(check: PodCheck) -> str:
    """The marker's condition about a write to this pod that the API server refused, or empty."""
    for condition in (check.source.status and check.source.status.conditions) or ():
        message = condition.message or ""
        if condition.reason == "PodNotMarked" and f"{check.seen.key}: " in message:
            return message
    return ""
