"""From the spec of a NodePodProbe to what must change among the running workers: pure functions.

Source: Kruise pkg/daemon/podprobe/pod_probe_controller.go (sync), kubelet prober_manager.go (AddPod).
Differs: an edit is told field by field (KEP-6318), a changed pod IP is an edit and no new probe, and what
validation forbids is caught here again, because a NodePodProbe can be written by hand.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from kruise_probe.api.core import Probe
from kruise_probe.api.keys import NamespacedName, ProbeKey, ProbeName
from kruise_probe.api.v1alpha1 import NodePodProbeSpec
from kruise_probe.api.validation import ErrorKind, FieldError, listed, validate_probe
from kruise_probe.daemon.identity import handler_bytes

_REFUSED_KINDS: Final = frozenset(
    {ErrorKind.REQUIRED, ErrorKind.INVALID, ErrorKind.NOT_SUPPORTED, ErrorKind.FORBIDDEN}
)


class Entry(NamedTuple):
    """One probe that shall run: whose it is, the pod's address (may be empty), and what to ask."""

    key: ProbeKey
    pod: NamespacedName
    ip: str
    probe: Probe


class Diff(NamedTuple):
    added: list[Entry]
    changed: list[Entry]
    removed: list[ProbeKey]


class Edit(NamedTuple):
    """Which parts of a probe an edit touches; each takes effect in its own way.

    Attributes:
        handler: another question: verdicts on the old one do not count, the new one is asked at once.
        timeout: verdicts of attempts that are under way do not count.
        timing: period or initial delay: the timer starts anew.
        thresholds: apply to the verdicts counted so far.
    """

    handler: bool
    timeout: bool
    timing: bool
    thresholds: bool


def entries_of(spec: NodePodProbeSpec | None) -> dict[ProbeKey, Entry]:
    """Every probe that `spec` names, in its order; of two under one key the first counts."""
    entries: dict[ProbeKey, Entry] = {}
    for entry in _entries(spec):
        entries.setdefault(entry.key, entry)
    return entries


def _entries(spec: NodePodProbeSpec | None) -> Iterator[Entry]:
    for pod in (spec and spec.pod_probes) or ():
        name = NamespacedName(pod.namespace, pod.name)
        for each in pod.probes or ():
            key = ProbeKey(pod.uid, each.container_name, ProbeName.parse(each.name))
            yield Entry(key, name, pod.ip, each.probe)


def diff(current: Mapping[ProbeKey, Entry], desired: Mapping[ProbeKey, Entry]) -> Diff:
    """What turns the entries that run into those that shall run."""
    return Diff(
        added=[entry for key, entry in desired.items() if key not in current],
        changed=[
            entry for key, entry in desired.items() if key in current and current[key] != entry
        ],
        removed=[key for key in current if key not in desired],
    )


def edit_of(old: Probe, new: Probe) -> Edit:
    """Compares effective values: writing out a default is no edit."""
    return Edit(
        handler=handler_bytes(old) != handler_bytes(new),
        timeout=old.effective_timeout_seconds != new.effective_timeout_seconds,
        timing=(
            old.effective_period_seconds != new.effective_period_seconds
            or old.effective_initial_delay_seconds != new.effective_initial_delay_seconds
        ),
        thresholds=(
            old.effective_success_threshold != new.effective_success_threshold
            or old.effective_failure_threshold != new.effective_failure_threshold
        ),
    )


def refusal_of(probe: Probe) -> str:
    """Why `probe` cannot run as it is written, as the message of its state; empty when it can.

    Not refused: numbers out of range (they have effective values), sizes other than the command's (older markers may
    exceed our bounds), and what the prober itself answers: `host` by a failure, the text of a port by its number or its
    absence.
    """
    broken = listed(error for error in validate_probe(probe, "probe") if _refuses(error))
    return f"InvalidProbe: {'; '.join(map(str, broken))}" if broken else ""


def _refuses(error: FieldError) -> bool:
    field = error.path.rpartition(".")[2]
    if field == "port" and isinstance(error.value, str):
        return False
    return (
        error.kind in _REFUSED_KINDS
        and field != "host"
        and not field.endswith(("Seconds", "Threshold"))
    )
