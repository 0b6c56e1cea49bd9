"""What changes in a cluster if kruise-probe replaces the PodProbeMarker of Kruise.

A pure function of the objects of both: markers, NodePodProbes, CRDs, Kruise's manager, daemon and webhook.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from kruise_probe.api.core import MAX_TIMEOUT_SECONDS
from kruise_probe.api.field_errors import first_errors
from kruise_probe.api.keys import NamespacedName, ProbeName
from kruise_probe.api.probe_validation import MAX_COMMAND_BYTES
from kruise_probe.api.reserved import (
    reserved_annotation_error,
    reserved_condition_error,
    reserved_label_error,
)
from kruise_probe.api.v1alpha1 import (
    NodePodProbe,
    PodContainerProbe,
    PodProbeMarker,
    ProbeState,
)
from kruise_probe.api.validation import marker_errors
from kruise_probe.controllers.compiled import CompiledMarker, compile_marker
from kruise_probe.controllers.selector_cycles import Cycles, cycle_text, find_cycles
from kruise_probe.inspection.kruise_objects import (
    GATE,
    WEBHOOK,
    WEBHOOK_CONFIGURATION,
    WEBHOOK_TEMPLATE,
    KruiseCluster,
    installed,
)

_NAMED_PODS: Final = 3


class Difference(msgspec.Struct, frozen=True):
    """A row of docs/differences.md: its subject, and what it means here."""

    subject: str
    message: str


class MarkerMigration(msgspec.Struct, frozen=True):
    """One marker: why kruise-probe refuses it, and what differs for it."""

    namespace: str
    name: str
    refused: list[str]
    differences: list[Difference]


class MigrationView(msgspec.Struct, frozen=True):
    """The output of `migrate --check`; a documented and stable format."""

    found: list[str]
    every_marker: list[Difference]
    markers: list[MarkerMigration]
    steps: list[str]
    notes: list[str]


EVERY_MARKER: Final = tuple(
    Difference(subject, message)
    for subject, message in (
        ("Result Unknown", "the condition is Unknown instead of False, and labels and annotations stay"),
        ("Deleted marker, removed probe or key", "its labels, annotations and conditions are removed from the pods"),
        ("Marker way deleted", "probes of a marker whose name ends alike stay"),
        ("Pod's labels change", "probing starts and stops with the labels"),
        ("Edited period", "takes effect at once"),
        ("A message changes, the state stays", "a pod is written at most three times, then once per 10 s"),
        ("Daemon stops", "the condition is Unknown, ProbeDaemonStale, after 60 s"),
        ("Daemon restarts", "states do not change"),
        ("Container with a startupProbe", "it is probed after its startupProbe has succeeded"),
        ("Events", "one for each change of state, with the name of the probe; a Warning for Unknown"),
    )
)  # fmt: skip


def migration_view(
    cluster: KruiseCluster, *, allowed_labels: Collection[str], notes: list[str]
) -> MigrationView:
    markers = sorted(cluster.markers, key=lambda each: each.key)
    shared = _shared_keys(markers)
    cycles = _cycles(markers, allowed_labels)
    unknown = _unknown_results(cluster.node_pod_probes or ())
    views = []
    for marker in markers:
        errors = first_errors(marker_errors(marker.spec, allowed_labels=allowed_labels))
        differences = [
            *_unknown_of(marker, unknown),
            *_shared_of(marker, shared),
            *_cycle_of(marker, cycles),
            *(
                Difference(subject, f"probe {each.name}: {message}")
                for each in marker.spec.probes or ()
                for subject, message in _probe_differences(each, allowed_labels)
            ),
        ]
        refused = [str(each) for each in errors]
        views.append(MarkerMigration(marker.key.namespace, marker.key.name, refused, differences))
    return MigrationView(
        found=list(installed(cluster)),
        every_marker=list(EVERY_MARKER),
        markers=views,
        steps=list(_steps(cluster, [each for each in views if each.refused])),
        notes=notes,
    )


def _probe_differences(
    each: PodContainerProbe, allowed_labels: Collection[str]
) -> Iterator[tuple[str, str]]:
    probe = each.probe
    command = (probe.exec.command if probe.exec else None) or ()
    if probe.exec:
        yield (
            "Message of a failing command that printed to standard output only",
            "the message is its standard output if standard error is empty",
        )
    if sum(len(word.encode()) for word in command) > MAX_COMMAND_BYTES:
        yield "A command above 8 KiB (all words, UTF-8)", "it does not run"
    if not probe.initial_delay_seconds:
        yield "initialDelaySeconds 0", "it starts one second earlier"
    if (probe.timeout_seconds or 0) > MAX_TIMEOUT_SECONDS:
        yield "timeoutSeconds above 3,600", f"it runs with {MAX_TIMEOUT_SECONDS} s"
    target = probe.http_get or probe.tcp_socket
    if target is not None and target.host:
        yield (
            "host, in a NodePodProbe as well",
            f"{target.host} is never connected to; the probe does not run",
        )
    if probe.grpc:
        yield (
            "httpGet without scheme; grpc",
            "delete it before you go back: Kruise's webhook refuses each update",
        )
    condition = each.pod_condition_type
    if condition and reserved_condition_error(condition):
        native = condition == "Ready"
        yield (
            "podConditionType: Ready" if native else RESERVED,
            f"the condition {condition} is not written",
        )
    for policy in each.marker_policy or ():
        reserved = [
            *(key for key in policy.labels or () if reserved_label_error(key, allowed_labels)),
            *(key for key in policy.annotations or () if reserved_annotation_error(key)),
        ]
        if reserved:
            yield RESERVED, f"{policy.state} does not write {', '.join(reserved)}"


RESERVED: Final = (
    "Labels and annotations of controllers, service meshes and networks, such as pod-template-hash; "
    "Kruise's conditions, such as InPlaceUpdateReady"
)

_UnknownPods = Mapping[tuple[NamespacedName, str], list[str]]
_Keys = Mapping[tuple[str, str], list[tuple[NamespacedName, str]]]


def _unknown_results(node_pod_probes: Sequence[NodePodProbe]) -> _UnknownPods:
    """The pods whose stored result is Unknown, by marker and probe."""
    pods: dict[tuple[NamespacedName, str], list[str]] = defaultdict(list)
    for each in node_pod_probes:
        for pod in (each.status.pod_probe_statuses if each.status else None) or ():
            for state in pod.probe_states or ():
                if state.state == ProbeState.UNKNOWN:
                    name = ProbeName.parse(state.name)
                    pods[NamespacedName(pod.namespace, name.marker), name.probe].append(pod.name)
    return pods


def _unknown_of(marker: PodProbeMarker, unknown: _UnknownPods) -> Iterator[Difference]:
    for each in marker.spec.probes or ():
        pods = sorted(unknown.get((marker.key, each.name), ()))
        if pods:
            more = f" and {len(pods) - _NAMED_PODS} more" if len(pods) > _NAMED_PODS else ""
            yield Difference(
                "Result Unknown",
                f"probe {each.name} is Unknown now on {', '.join(pods[:_NAMED_PODS])}{more}: "
                "the condition changes from False to Unknown",
            )


def _shared_keys(markers: Sequence[PodProbeMarker]) -> _Keys:
    """The probes that write each key, by namespace."""
    writers: dict[tuple[str, str], list[tuple[NamespacedName, str]]] = defaultdict(list)
    for marker in markers:
        for each in marker.spec.probes or ():
            keys = {f"condition {each.pod_condition_type}"} if each.pod_condition_type else set()
            for policy in each.marker_policy or ():
                keys |= {f"label {key}" for key in policy.labels or ()}
                keys |= {f"annotation {key}" for key in policy.annotations or ()}
            for key in keys:
                writers[marker.key.namespace, key].append((marker.key, each.name))
    return {key: probes for key, probes in writers.items() if len(probes) > 1}


def _shared_of(marker: PodProbeMarker, shared: _Keys) -> Iterator[Difference]:
    for (_, key), probes in sorted(shared.items()):
        own = [probe for owner, probe in probes if owner == marker.key]
        if own:
            others = [
                f"{owner.name}#{probe}"
                for owner, probe in probes
                if (owner, probe) != (marker.key, own[0])
            ]
            yield Difference(
                "Two probes name one key",
                f"{key} is also written by {', '.join(others)}; on a pod that both probe, the older marker and "
                "earlier probe owns it, instead of the last result",
            )


def _cycles(
    markers: Sequence[PodProbeMarker], allowed_labels: Collection[str]
) -> Mapping[str, Cycles]:
    """The cycles of each namespace."""
    compiled: dict[str, list[CompiledMarker]] = defaultdict(list)
    for each in markers:
        compiled[each.key.namespace].append(compile_marker(each, allowed_labels=allowed_labels))
    return {namespace: find_cycles(each) for namespace, each in compiled.items()}


def _cycle_of(marker: PodProbeMarker, cycles: Mapping[str, Cycles]) -> Iterator[Difference]:
    if cycle := cycles[marker.key.namespace].through(marker.key):
        yield Difference(
            "Markers that select pods by each other's labels",
            f"{cycle_text(cycle)}; their pods are written ten times, then once per 10 s",
        )


def _steps(cluster: KruiseCluster, refused: Sequence[MarkerMigration]) -> Iterator[str]:
    """What to do, in this order."""
    managers, daemons = cluster.managers or (), cluster.daemons or ()
    if refused:
        yield (
            f"Correct the {len(refused)} refused markers. They can stay: their valid parts work, and Degraded lists the errors"
            if len(refused) > 1
            else "Correct the refused marker. It can stay: its valid parts work, and Degraded lists the errors"
        )
    if any(each.gate_is_on for each in (*managers, *daemons)):
        yield (
            "Switch Kruise's gate off in manager and daemon: "
            f"--feature-gates={GATE}=false (Helm: featureGates={GATE}=false). Results stay on the pods"
        )
    if cluster.has_webhook:
        yield (
            f"kubectl edit validatingwebhookconfiguration {WEBHOOK_CONFIGURATION}; "
            f"remove the entry {WEBHOOK} and the annotation {WEBHOOK_TEMPLATE} in one edit. "
            "With the gate off, it refuses every marker"
        )
    if daemons:
        yield (
            "Give our daemon another port than 10221, which Kruise's uses, "
            "in --addr and in its liveness and readiness probes"
        )
    if not cluster.kruise_probe_leads:
        yield "Install kruise-probe: kruise-probe manifests | kubectl apply --server-side --force-conflicts -f -"
        if cluster.definitions and not cluster.crds_are_ours:
            yield (
                "To keep Kruise's CRDs, install with Helm and crds.install=false, and with the webhook: "
                "they have no validation rules, and a marker's status has two fields only"
            )
    elif cluster.definitions and not cluster.crds_are_ours:
        yield (
            "Replace the CRDs, for validation and conditions: "
            "kruise-probe manifests --crds-only | kubectl apply --server-side --force-conflicts -f -"
        )
    yield "Check the results: kruise-probe status -A"
    if managers or daemons:
        yield (
            "If you uninstall Kruise later, keep the CRDs podprobemarkers and nodepodprobes: "
            "a deleted CRD deletes all of its markers"
        )
