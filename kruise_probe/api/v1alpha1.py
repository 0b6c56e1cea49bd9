"""PodProbeMarker, wire-compatible with Kruise's Go type, and the probe as a NodePodProbe has it (`ContainerProbe`).

Source: openkruise/kruise apis/apps/v1alpha1/pod_probe_marker_types.go.
Differs: our CRD adds status fields, which Kruise's CRD prunes.
"""

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from hashlib import blake2b
from typing import Annotated, ClassVar, Final, NamedTuple

import msgspec

from kruise_probe.api.criteria import ONLY_OUTPUT, Epoch, Extract, SuccessWhen
from kruise_probe.api.fields import Field, Rule, Use, errors_in, rule, shape_of, unique
from kruise_probe.api.labels import (
    KEY,
    MAX_KEY,
    LabelSelector,
    LabelValue,
    is_key_cel,
    label_key_error,
)
from kruise_probe.api.meta import ApiObject, Condition
from kruise_probe.api.names import PAUSED_ANNOTATION, REASON_WAITING_FOR_MANAGER, ProbeName
from kruise_probe.api.probe import Probe
from kruise_probe.api.problems import ErrorKind, Problem
from kruise_probe.api.reserved import (
    ANNOTATION_KEY_RULES,
    ANNOTATION_RULES,
    CONDITION_TYPE_RULES,
    LABEL_KEY_RULES,
    LABEL_RULES,
    MAX_PATTERN,
    PATTERN,
)
from kruise_probe.api.structs import Wire

_encode = msgspec.json.Encoder().encode

MARKERS_PER_POD: Final = 64
"""Maximum number of markers that probe one pod; the oldest ones win."""
PROBES_PER_POD: Final = 128
KEYS_PER_POD: Final = 1000
"""Maximum probes and mentioned keys of the markers that probe one pod. More marks make the pod's managedFields too large to read."""
MAX_MARKER_KEYS: Final = 100
"""Maximum keys that one marker mentions, see `mentioned_keys`."""
MAX_PROBES: Final = 32
MAX_MARKS: Final = 32
"""Maximum labels, and maximum annotations, of one policy."""
MAX_FROM_MESSAGE: Final = 8
"""Maximum values from the message in one policy."""
UNIQUE: Final = "must be unique in this marker"
OWN_SELECTOR_KEY: Final = "is used by this marker's selector, and writing it would change which pods match; use another key"


class ProbeState(StrEnum):
    """State of a probe; Unknown means that there is no result."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


class WhenTerminating(StrEnum):
    """Whether a probe runs in a terminating pod."""

    KEEP = "Keep"
    PROBE = "Probe"


class WhenStale(StrEnum):
    """What happens to the marks of a probe while the daemon of its node is silent."""

    UNKNOWN = "Unknown"
    KEEP = "Keep"


class MessageValue(Wire, frozen=True):
    """A label or annotation whose value is extracted from the message of the result. Kruise's CRD prunes it.

    Attributes:
        label: Key of the label to set; either this or annotation.
        annotation: Key of the annotation to set; its value has at most 1024 bytes.
        regex: RE2 pattern. The value is group 1 of its first match, or the whole match if it has no group. Without
            a pattern the value is the first line of the message that is not blank, trimmed.
    """

    label: Annotated[str | None, Field(most=MAX_KEY, rules=LABEL_KEY_RULES)] = None
    annotation: Annotated[str | None, Field(most=MAX_KEY, rules=ANNOTATION_KEY_RULES)] = None
    regex: Annotated[str | None, Field(most=MAX_PATTERN, rules=(PATTERN,))] = None

    RULES: ClassVar = (
        rule(
            "must set either label or annotation",
            "(has(self.label) && self.label != '') != (has(self.annotation) && self.annotation != '')",
            lambda value: bool(value.label) != bool(value.annotation),
            kind=ErrorKind.REQUIRED,
        ),
    )


class MarkerPolicy(Wire, frozen=True):
    """What to write to the pod in `state`; keys that only the policies of other states name are removed.

    Attributes:
        state: State in which the policy applies. Without a policy for Unknown, that state changes no labels or
            annotations. Kruise allows Succeeded and Failed only.
        labels: Labels to set on the pod.
        annotations: Annotations to set on the pod.
        from_message: Labels and annotations whose values are extracted from the message of the result. If the
            message has no valid value, the static value of the same key is used; without one the key is removed.
            Kruise's CRD prunes this field.
    """

    state: Annotated[str, Field(values=tuple(ProbeState))]
    labels: Annotated[Mapping[str, LabelValue], Field(most=MAX_MARKS, rules=LABEL_RULES)] = {}
    annotations: Annotated[
        Mapping[str, Annotated[str, Field(most=8192)]],
        Field(most=MAX_MARKS, rules=ANNOTATION_RULES),
    ] = {}
    from_message: Annotated[
        tuple[MessageValue, ...],
        Field(
            most=MAX_FROM_MESSAGE,
            rules=(
                unique("label", "must be unique in this fromMessage"),
                unique("annotation", "must be unique in this fromMessage"),
            ),
        ),
    ] = ()

    RULES: ClassVar = (
        rule(
            "must set labels, annotations or fromMessage",
            "(has(self.labels) && self.labels.size() > 0) || (has(self.annotations) && self.annotations.size() > 0)"
            " || (has(self.fromMessage) && self.fromMessage.size() > 0)",
            lambda policy: policy.labels or policy.annotations or policy.from_message,
            kind=ErrorKind.REQUIRED,
        ),
    )


class Exclusive(Wire, frozen=True):
    """Whose role this is: of the pods of the marker, one carries the labels and annotations of Succeeded.

    Attributes:
        group_by_label: Key of a pod label: one of the pods with the same value of it carries them. Pods without the label are
            a group, too. If absent, all pods of the marker are one group. The role of a group of more than 500 pods
            does not move.
        epoch: The term of a leader in the output, such as the timeline of PostgreSQL. Of the pods that are Succeeded, the
            one with the highest epoch holds the role. A pod without an epoch never takes it from another one.
    """

    group_by_label: Annotated[
        str | None,
        Field(
            most=MAX_KEY,
            rules=(
                rule(
                    KEY,
                    f"self == '' || ({is_key_cel('self')})",
                    lambda key: not key or not label_key_error(key),
                ),
            ),
        ),
    ] = None
    epoch: Epoch | None = None


CRITERIA: Final = {
    "extract": "extract",
    "successWhen": "success_when",
    "exclusive": "exclusive",
}
"""Fields of a probe that change the meaning of its results, by wire name. No prober may ignore one."""


class _Fit(NamedTuple):
    """A rule of `extract` and `successWhen` about the other fields of their probe; see `rule` for its parts."""

    message: str
    cel: str
    holds: Callable[["ContainerProbe"], object]
    field: str


_HAS_OUTPUT_CEL: Final = "has(self.probe.exec) || has(self.probe.httpGet)"
_FITS: Final = (
    _Fit(
        ONLY_OUTPUT,
        f"!has(self.extract) || {_HAS_OUTPUT_CEL}",
        lambda probe: not probe.extract or probe.has_output,
        "extract",
    ),
    _Fit(
        ONLY_OUTPUT,
        f"!has(self.successWhen) || {_HAS_OUTPUT_CEL}",
        lambda probe: not probe.success_when or probe.has_output,
        "successWhen",
    ),
    _Fit(
        f"epoch {ONLY_OUTPUT}",
        f"!has(self.exclusive) || !has(self.exclusive.epoch) || {_HAS_OUTPUT_CEL}",
        lambda probe: not probe.epoch or probe.has_output,
        "exclusive",
    ),
    _Fit(
        "statusCodes is for httpGet only",
        "!has(self.successWhen) || !has(self.successWhen.statusCodes) || !has(self.probe.exec)",
        lambda probe: (
            not (probe.success_when and probe.success_when.status_codes and probe.probe.exec)
        ),
        "successWhen",
    ),
    _Fit(
        "exitCodes is for exec only",
        "!has(self.successWhen) || !has(self.successWhen.exitCodes) || !has(self.probe.httpGet)",
        lambda probe: (
            not (probe.success_when and probe.success_when.exit_codes and probe.probe.http_get)
        ),
        "successWhen",
    ),
    _Fit(
        "min and max need extract, which names their number",
        "!has(self.successWhen) || (!has(self.successWhen.min) && !has(self.successWhen.max)) || has(self.extract)",
        lambda probe: (
            not (probe.success_when and probe.success_when.compares) or probe.extract is not None
        ),
        "successWhen",
    ),
)


class ContainerProbe(Wire, frozen=True):
    """What to run in a container: in a NodePodProbe, where `name` is `<marker>#<probe>` (`names.ProbeName`), and in a marker.

    A new option of an attempt is a field here, beside `probe`. Whatever decides about attempts takes the whole entry.

    Attributes:
        name: <marker>#<probe>
        container_name: Name of the container to probe.
        probe: A core/v1 Probe, with the fields of a marker's probe.
        extract: As in the marker.
        success_when: As in the marker.
        exclusive: As in the marker, if it has an epoch.
    """

    name: str
    container_name: str
    probe: Annotated[Probe, Field(open=True)]
    extract: Annotated[Extract | None, Field(open=True)] = None
    success_when: Annotated[SuccessWhen | None, Field(open=True)] = None
    exclusive: Annotated[Exclusive | None, Field(open=True)] = None

    RULES: ClassVar[tuple[Rule, ...]] = tuple(
        # CEL has no rule about an open field.
        rule(fit.message, "", fit.holds, kind=ErrorKind.FORBIDDEN, field=fit.field)
        for fit in _FITS
    )

    @property
    def has_output(self) -> bool:
        """Whether an attempt has an output or a body."""
        return self.probe.exec is not None or self.probe.http_get is not None

    @property
    def criteria(self) -> tuple[str, ...]:
        """The fields that it has and that change what an attempt means: its results without them would be wrong."""
        return tuple([name for name in CRITERIA if getattr(self, CRITERIA[name]) is not None])

    @property
    def epoch(self) -> Epoch | None:
        return self.exclusive.epoch if self.exclusive is not None else None

    @property
    def attempt(self) -> list[tuple[str, object]]:
        """All that decides the result of one attempt, but the timeout, by wire name: every field except names and timing."""
        fields = msgspec.to_builtins(self)
        fields = {**fields.pop("probe"), **fields}
        return [(name, value) for name, value in fields.items() if name not in _NO_ATTEMPT]

    def errors(self, use: Use = Use.STORED) -> Iterator[Problem]:
        """Why it may not run, lazily. The daemon asks too, as a NodePodProbe may be edited by hand."""
        return errors_in(self, shape_of(ContainerProbe), "", use)

    @property
    def hash(self) -> str:
        """16 hexadecimal digits over the attempt and its timeout.

        Periods and thresholds are not included: the state stays valid when they change. Manager and daemon of different
        versions compare hashes, so a new field that is absent must not change them.
        """
        text = _encode(self.attempt) + b"\0%d" % self.probe.effective_timeout_seconds
        return blake2b(text, digest_size=8).hexdigest()


_NO_ATTEMPT: Final = frozenset(
    {
        *(
            "name",
            "containerName",
            "markerPolicy",
            "podConditionType",
            "whenTerminating",
            "whenStale",
        ),
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
        "terminationGracePeriodSeconds",
    }
)
"""Names and timing, which do not change what one attempt does."""


def values_written(policy: MarkerPolicy) -> dict[tuple[str, str], str | None]:
    """The value of each label and annotation, by field and key; None for one from the message."""
    values: dict[tuple[str, str], str | None] = {}
    for key, text in policy.labels.items():
        values["labels", key] = text
    for key, text in policy.annotations.items():
        values["annotations", key] = text
    for value in policy.from_message:
        if value.label:
            values["labels", value.label] = None
        elif value.annotation:
            values["annotations", value.annotation] = None
    return values


def _differs_from_succeeded(probe: "PodContainerProbe") -> bool:
    """Whether the marks of Succeeded can be told from those of the other policies."""
    succeeded: dict[tuple[str, str], str | None] = {}
    for policy in probe.marker_policy:
        if policy.state == ProbeState.SUCCEEDED:
            succeeded = values_written(policy)
    for policy in probe.marker_policy:
        if policy.state == ProbeState.SUCCEEDED:
            continue
        for mark, value in values_written(policy).items():
            if mark in succeeded and (value is None or succeeded[mark] in (None, value)):
                return False
    return True


_OTHER_LABELS: Final = "!has(s.labels) || !has(o.labels) || s.labels.all(k, !(k in o.labels) || o.labels[k] != s.labels[k])"
"""CEL: the labels of Succeeded have another value in each other policy. To compare annotations exceeds its budget."""


def _no_value_in_messages(field: str, name: str) -> str:
    """CEL: no other policy takes the value of a key of Succeeded from the message."""
    return f"!has(s.{field}) || !has(o.fromMessage) || o.fromMessage.all(v, !has(v.{name}) || !(v.{name} in s.{field}))"


def _no_value_from_messages(field: str, name: str) -> str:
    """CEL: no other policy writes a key of which Succeeded takes the value from the message."""
    return (
        f"!has(s.fromMessage) || s.fromMessage.all(w, !has(w.{name}) || ((!has(o.{field}) || !(w.{name} in o.{field})) && "
        f"(!has(o.fromMessage) || !o.fromMessage.exists(v, has(v.{name}) && v.{name} == w.{name}))))"
    )


_EXCLUSIVE_VALUES: Final = (
    "an exclusive probe may not write a value of Succeeded in another state too, nor take a value of such a key from the "
    "message; use other values or keys"
)


def _exclusive_values(cel: str) -> Rule:
    return rule(
        _EXCLUSIVE_VALUES,
        "!has(self.exclusive) || !has(self.markerPolicy) || self.markerPolicy.all(s, s.state != 'Succeeded' || "
        f"self.markerPolicy.all(o, o.state == 'Succeeded' || ({cel})))",
        lambda probe: probe.exclusive is None or _differs_from_succeeded(probe),
        kind=ErrorKind.FORBIDDEN,
        field="markerPolicy",
    )


class PodContainerProbe(ContainerProbe, frozen=True):
    """A probe of a marker, with what its results change on the pod.

    Attributes:
        name: Name of the probe; unique in the marker, must not contain '#'.
        container_name: Name of the container to probe: a regular container or a sidecar.
        probe: A container probe as in core/v1. Absent numbers default to 1 (initialDelaySeconds: 0).
        marker_policy: Labels and annotations to write to the pod per state. Keys that only policies of other states
            name are removed; with a policy for Succeeded only, the result Failed removes its keys, and the reverse.
        extract: One value to take from the output or body at its source: the message of a success is this value alone.
            For exec and httpGet. Kruise's CRD prunes this field.
        success_when: When an attempt succeeds, instead of or in addition to exit code 0 or a status from 200 to 399. For
            exec and httpGet. Kruise's CRD prunes this field.
        pod_condition_type: Pod condition type for the newest result, such as example.com/healthy: Succeeded is
            True, Failed is False.
        when_terminating: What happens when the pod is being deleted. Keep (the default) stops the probe, and its marks
            stay. Probe runs the probe until its container ends, and its marks follow the results. Kruise's CRD
            prunes this field.
        when_stale: What happens while the daemon of the node is silent. Unknown (the default) sets the condition to
            Unknown, and applies the policy for Unknown. Keep leaves condition, labels and annotations as they are:
            for a readiness gate, so that an outage of the daemons takes no pod out of traffic. Kruise's CRD prunes
            this field.
        exclusive: One pod holds the role that the policy for Succeeded gives: of the pods that are Succeeded, the one with
            the highest epoch, then the one that became so last. The manager removes the marks from the old holder before it writes them to the new one. The
            others have the marks of the policy for Failed, if there is one. Kruise's CRD prunes this field.
    """

    name: Annotated[
        str,
        Field(
            least=1,
            most=253,
            rules=(
                rule(
                    "must not contain '#', which separates marker and probe in NodePodProbe",
                    "!self.contains('#')",
                    lambda name: "#" not in name,
                ),
            ),
        ),
    ]
    container_name: Annotated[str, Field(least=1, most=63)]
    probe: Probe
    extract: Extract | None = None
    success_when: SuccessWhen | None = None
    marker_policy: Annotated[
        tuple[MarkerPolicy, ...],
        Field(
            most=len(ProbeState),
            rules=(
                unique(
                    "state",
                    "must be unique in this markerPolicy",
                    item="(self[0].state == self[1].state ? '[1]: ' : '[2]: ')",
                ),
            ),
        ),
    ] = ()
    pod_condition_type: Annotated[str | None, Field(most=MAX_KEY, rules=CONDITION_TYPE_RULES)] = (
        None
    )
    when_terminating: Annotated[str | None, Field(values=("", *WhenTerminating))] = None
    when_stale: Annotated[str | None, Field(values=("", *WhenStale))] = None
    exclusive: Exclusive | None = None

    RULES: ClassVar = (
        rule(
            "exclusive needs a policy for Succeeded, whose labels and annotations one pod carries",
            "!has(self.exclusive) || (has(self.markerPolicy) && self.markerPolicy.exists(m, m.state == 'Succeeded'))",
            lambda probe: (
                probe.exclusive is None
                or ProbeState.SUCCEEDED in [policy.state for policy in probe.marker_policy]
            ),
            kind=ErrorKind.REQUIRED,
            field="markerPolicy",
        ),
        _exclusive_values(_OTHER_LABELS),
        _exclusive_values(
            f"({_no_value_in_messages('labels', 'label')}) && "
            f"({_no_value_in_messages('annotations', 'annotation')})"
        )._replace(check=None),
        _exclusive_values(
            f"({_no_value_from_messages('labels', 'label')}) && "
            f"({_no_value_from_messages('annotations', 'annotation')})"
        )._replace(check=None),
        rule(
            "must set podConditionType or markerPolicy, or the result is not written to the pod",
            "(has(self.podConditionType) && self.podConditionType != '') || "
            "(has(self.markerPolicy) && self.markerPolicy.size() > 0)",
            lambda probe: probe.pod_condition_type or probe.marker_policy,
            kind=ErrorKind.REQUIRED,
        ),
        *(Rule(fit.message, fit.cel, None, ErrorKind.FORBIDDEN, fit.field) for fit in _FITS),
    )

    def entry(self, marker: str) -> ContainerProbe:
        """The entry for a NodePodProbe; equal decimals are equal in it."""
        return ContainerProbe(
            str(ProbeName(marker, self.name)),
            self.container_name,
            self.probe,
            self.extract and self.extract.canonical,
            self.success_when and self.success_when.canonical,
            Exclusive(epoch=self.epoch) if self.epoch is not None else None,
        )


def _not_in_selector(labels: str, what: str) -> Rule:
    """CEL: the keys `labels` of each policy `m` are not in the selector."""
    return Rule(
        f"{what} {OWN_SELECTOR_KEY}",
        f"self.probes.all(p, !has(p.markerPolicy) || p.markerPolicy.all(m, {labels}))".replace(
            "IN_SELECTOR",
            "((has(self.selector.matchLabels) && k in self.selector.matchLabels) || "
            "(has(self.selector.matchExpressions) && self.selector.matchExpressions.exists(e, e.key == k)))",
        ),
        kind=ErrorKind.FORBIDDEN,
        field="probes",
    )


def mentioned_keys(probes: tuple[PodContainerProbe, ...]) -> int:
    """The labels, annotations and values from messages of all policies. A key of several policies counts for each."""
    count = 0
    for probe in probes:
        for policy in probe.marker_policy:
            count += len(policy.labels) + len(policy.annotations) + len(policy.from_message)
    return count


def _size_cel(field: str) -> str:
    return f"(has({field}) ? {field}.size() : 0)"


_MENTIONED_CEL: Final = " + ".join(
    _size_cel(f"m.{field}") for field in ("labels", "annotations", "fromMessage")
)
_MARKER_KEYS: Final = rule(
    f"the policies of a marker may mention at most {MAX_MARKER_KEYS} labels, annotations and values from messages, "
    "each policy counted; move some to another marker",
    f"self.map(p, has(p.markerPolicy) ? p.markerPolicy.map(m, {_MENTIONED_CEL}).sum() : 0).sum() <= {MAX_MARKER_KEYS}",
    lambda probes: mentioned_keys(probes) <= MAX_MARKER_KEYS,
    kind=ErrorKind.TOO_MANY,
)


def _groups_are_not_written(spec: "PodProbeMarkerSpec") -> bool:
    groups: set[tuple[str, str]] = set()
    for probe in spec.probes:
        if probe.exclusive is not None and probe.exclusive.group_by_label:
            groups.add(("labels", probe.exclusive.group_by_label))
    for probe in spec.probes:
        for policy in probe.marker_policy:
            if not groups.isdisjoint(values_written(policy)):
                return False
    return True


_GROUPS: Final = rule(
    "groupByLabel of an exclusive probe may not be a label that this marker writes, because that would change the groups; "
    "use another label",
    "self.probes.all(p, !has(p.exclusive) || !has(p.exclusive.groupByLabel) || self.probes.all(q, !has(q.markerPolicy) || "
    "q.markerPolicy.all(m, !(has(m.labels) && p.exclusive.groupByLabel in m.labels) && !(has(m.fromMessage) && "
    "m.fromMessage.exists(v, has(v.label) && v.label == p.exclusive.groupByLabel)))))",
    _groups_are_not_written,
    kind=ErrorKind.FORBIDDEN,
    field="probes",
)


class PodProbeMarkerSpec(Wire, frozen=True):
    """Which pods are probed, and how.

    Attributes:
        selector: Label selector of the pods; must not be empty; immutable.
        probes: Probes to run on every matching pod; names must be unique.
    """

    selector: Annotated[
        LabelSelector | None, Field(required=True, schema={"x-kubernetes-map-type": "atomic"})
    ] = None
    probes: Annotated[
        tuple[PodContainerProbe, ...],
        Field(
            least=1,
            most=MAX_PROBES,
            required=True,
            rules=(
                unique("name", UNIQUE),
                unique("podConditionType", UNIQUE, attribute="pod_condition_type"),
                _MARKER_KEYS,
            ),
        ),
    ] = ()

    RULES: ClassVar = (
        _not_in_selector(
            "!has(m.labels) || m.labels.all(k, !IN_SELECTOR)", "a key of markerPolicy.labels"
        ),
        _not_in_selector(
            "!has(m.fromMessage) || m.fromMessage.all(v, !has(v.label) || [v.label].all(k, !IN_SELECTOR))",
            "a label of markerPolicy.fromMessage",
        ),
        _GROUPS,
    )


class PodProbeMarkerStatus(Wire, frozen=True):
    """The first two fields are Kruise's; the others are ours and pruned by Kruise's CRD.

    Attributes:
        observed_generation: Latest generation of the marker that the manager has observed.
        matched_pods: Number of selected pods that can be probed.
        succeeded: Number of matched pods whose probes all succeed.
        failed: Number of matched pods with a failed probe.
        unknown: Number of matched pods that are neither succeeded nor failed.
        nodes_behind: Number of nodes whose NodePodProbe does not reflect the current spec.
        conditions: Whether the marker is fully in effect, and if not, why: Ready, Synced, Conflict and Degraded.
    """

    observed_generation: int = 0
    matched_pods: int = 0
    succeeded: int | None = None
    failed: int | None = None
    unknown: int | None = None
    nodes_behind: int | None = None
    conditions: Annotated[
        tuple[Condition, ...],
        Field(schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}),
    ] = ()


_NEW_STATUS: Final = {
    "conditions": [
        {
            "type": "Ready",
            "status": "Unknown",
            "reason": REASON_WAITING_FOR_MANAGER,
            "message": "No manager of kruise-probe has seen this marker yet.",
        }
    ]
}
"""The API server sets it, because kstatus takes an object without conditions for ready."""


class PodProbeMarker(ApiObject, frozen=True):
    """A marker.

    Attributes:
        spec: The pods to select and the probes to run.
        status: What the manager observed; written by it.
    """

    spec: Annotated[PodProbeMarkerSpec, Field(required=True)] = PodProbeMarkerSpec()
    status: Annotated[PodProbeMarkerStatus | None, Field(schema={"default": _NEW_STATUS})] = None

    @property
    def paused(self) -> bool:
        """Whether the marker's annotation pauses its probes on all pods."""
        return self.metadata.annotations.get(PAUSED_ANNOTATION) == "true"

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The conditions of its status."""
        return self.status.conditions if self.status is not None else ()
