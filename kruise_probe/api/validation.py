"""Validation rules of markers, shared by the CRDs' CEL rules, the webhook and the manager.

Pure functions from decoded structs to field errors. The messages below are also those of the CEL rules. The CRDs'
schemas check types and unknown fields.

Source: Kruise pkg/webhook/podprobemarker/validating;
apimachinery pkg/util/validation (label keys and values, qualified names).
Differs: condition types of Kubernetes are rejected (Kruise checks the probe name instead). grpc is allowed. A policy may
not write its own marker's selector keys. Lists are bounded for CEL's cost budget.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

from kruise_probe.api import field_errors as field
from kruise_probe.api.extraction import PatternBudget, PatternError
from kruise_probe.api.field_errors import ErrorKind, FieldError
from kruise_probe.api.labels import (
    annotation_key_error,
    annotation_value_error,
    label_key_error,
    label_value_error,
)
from kruise_probe.api.meta import LabelSelector
from kruise_probe.api.probe_validation import (
    MAX_NAME,
    validate_entry,
    validate_request,
)
from kruise_probe.api.reserved import (
    reserved_annotation_error,
    reserved_condition_error,
    reserved_label_error,
)
from kruise_probe.api.v1alpha1 import (
    ContainerProbe,
    MarkerPolicy,
    MessageValue,
    PodContainerProbe,
    PodProbeMarkerSpec,
    ProbeState,
)

MAX_PROBES: Final = 32
MAX_POLICIES: Final = len(ProbeState)
MAX_MARKS: Final = 32
"""Maximum labels, and maximum annotations, of one policy."""
MAX_FROM_MESSAGE: Final = 8
"""Maximum values from the message in one policy."""
MAX_SELECTOR_ITEMS: Final = 32
"""Maximum labels, expressions, and values of one expression in a selector."""
MAX_CONTAINER_NAME: Final = 63
MAX_LABEL_VALUE: Final = 63
MAX_ANNOTATION_VALUE: Final = 8192
CEL_BOUNDS: Final = frozenset({ErrorKind.TOO_MANY, ErrorKind.TOO_LONG})
"""These limits exist for CEL's cost budget only; a larger marker that was stored earlier still works."""

SELECTOR_EMPTY: Final = "must not be empty; set matchLabels or matchExpressions"
SELECTOR_IMMUTABLE: Final = "field is immutable; create another PodProbeMarker for other pods"
VALUES_NEEDED: Final = "must be specified when `operator` is 'In' or 'NotIn'"
VALUES_EXCESS: Final = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
UNIQUE: Final = "must be unique in this marker"
UNIQUE_STATE: Final = "must be unique in this markerPolicy"
NAME_WITH_HASH: Final = "must not contain '#', which separates marker and probe in NodePodProbe"
NO_OUTPUT: Final = (
    "must set podConditionType or markerPolicy; otherwise the result is not written to the pod"
)
POLICY_STATE: Final = 'supported values: "Succeeded", "Failed", "Unknown"'
POLICY_EMPTY: Final = "must set labels, annotations or fromMessage"
ONE_KEY: Final = "must set either label or annotation"
UNIQUE_KEY: Final = "must be unique in this fromMessage"
OWN_SELECTOR_KEY: Final = (
    "is used by this marker's selector; writing it would change which pods match"
)


class _PolicyRules(NamedTuple):
    """What the policies of one marker have in common.

    Attributes:
        of_selector: label keys that they may not write, as the marker selects by them.
        allowed: reserved label keys that they may write.
        budget: what is left for their patterns.
    """

    of_selector: frozenset[str]
    allowed: Collection[str]
    budget: PatternBudget

    def label_error(self, key: str) -> str | None:
        """Why a policy may not write the label `key`, or None."""
        if key in self.of_selector:
            return OWN_SELECTOR_KEY
        return reserved_label_error(key, self.allowed)


def validate_marker(
    spec: PodProbeMarkerSpec,
    old: PodProbeMarkerSpec | None = None,
    *,
    allowed_labels: Collection[str] = (),
) -> list[FieldError]:
    """Validate `spec` and return the first errors; `old` is the stored spec of an update, None on creation.

    `allowed_labels` are the reserved keys in the manager's `--allowed-label-keys`.
    """
    return field.first_errors(marker_errors(spec, old, allowed_labels=allowed_labels))


def marker_errors(
    spec: PodProbeMarkerSpec,
    old: PodProbeMarkerSpec | None = None,
    *,
    allowed_labels: Collection[str] = (),
) -> Iterator[FieldError]:
    """Validate `spec` lazily. Filter before `first_errors`, so that a huge marker is not validated completely."""
    if old is not None and old.selector is not None and old.selector != spec.selector:
        yield field.invalid("spec.selector", None, SELECTOR_IMMUTABLE)
    yield from _selector(spec.selector or LabelSelector(), "spec.selector")
    yield from _probes(spec, allowed_labels)


def fields_without_effect(spec: PodProbeMarkerSpec) -> tuple[str, ...]:
    """Paths of allowed fields without effect: kubelet uses them to restart containers, kruise-probe restarts none."""
    return tuple(
        f"spec.probes[{index}].probe.terminationGracePeriodSeconds"
        for index, each in enumerate(spec.probes or ())
        if each.probe.termination_grace_period_seconds
    )


def _selector(selector: LabelSelector, path: str) -> Iterator[FieldError]:
    labels = selector.match_labels or {}
    expressions = selector.match_expressions or ()
    if not labels and not expressions:
        yield field.required(path, SELECTOR_EMPTY)
    yield from field.check_items(f"{path}.matchLabels", labels, MAX_SELECTOR_ITEMS)
    yield from field.check_items(f"{path}.matchExpressions", expressions, MAX_SELECTOR_ITEMS)
    yield from _label_map(labels, f"{path}.matchLabels")
    for index, each in enumerate(expressions):
        at = f"{path}.matchExpressions[{index}]"
        values = each.values or ()
        if problem := label_key_error(each.key):
            yield field.invalid(f"{at}.key", each.key, problem)
        yield from field.check_items(f"{at}.values", values, MAX_SELECTOR_ITEMS)
        if each.operator in ("In", "NotIn"):
            if not values:
                yield field.required(f"{at}.values", VALUES_NEEDED)
        elif each.operator in ("Exists", "DoesNotExist"):
            if values:
                yield field.forbidden(f"{at}.values", VALUES_EXCESS)
        else:
            yield field.not_supported(
                f"{at}.operator",
                each.operator,
                'supported values: "In", "NotIn", "Exists", "DoesNotExist"',
            )
        for value in values:
            if problem := label_value_error(value):
                yield field.invalid(f"{at}.values", value, problem)


def _probes(spec: PodProbeMarkerSpec, allowed_labels: Collection[str]) -> Iterator[FieldError]:
    path, probes = "spec.probes", spec.probes or ()
    if not probes:
        yield field.required(path, "must have at least one probe")
    yield from field.check_items(path, probes, MAX_PROBES)
    yield from field.check_unique(path + "[{}].name", (each.name for each in probes), UNIQUE)
    condition_types = (each.pod_condition_type or None for each in probes)
    yield from field.check_unique(path + "[{}].podConditionType", condition_types, UNIQUE)
    rules = _PolicyRules(_selector_keys(spec.selector), allowed_labels, PatternBudget())
    for index, each in enumerate(probes):
        yield from _container_probe(each, f"{path}[{index}]", rules)


def is_valid_probe(entry: ContainerProbe) -> bool:
    """Whether a probe may run: it breaks no rule, except a limit of `CEL_BOUNDS`."""
    return all(each.kind in CEL_BOUNDS for each in validate_entry(entry, ""))


def _selector_keys(selector: LabelSelector | None) -> frozenset[str]:
    if selector is None:
        return frozenset()
    return frozenset(selector.match_labels or ()) | {
        each.key for each in selector.match_expressions or ()
    }


def _container_probe(
    probe: PodContainerProbe, path: str, rules: _PolicyRules
) -> Iterator[FieldError]:
    if not probe.name:
        yield field.required(f"{path}.name", "must name the probe")
    elif "#" in probe.name:
        yield field.invalid(f"{path}.name", probe.name, NAME_WITH_HASH)
    yield from field.check_length(f"{path}.name", probe.name, MAX_NAME)
    if not probe.container_name:
        yield field.required(f"{path}.containerName", "must name the container to probe")
    yield from field.check_length(f"{path}.containerName", probe.container_name, MAX_CONTAINER_NAME)
    yield from validate_entry(probe, path)
    if probe.probe.http_get is not None:
        yield from validate_request(probe.probe.http_get, f"{path}.probe.httpGet")
    condition_type = probe.pod_condition_type
    if not condition_type and not probe.marker_policy:
        yield field.required(path, NO_OUTPUT)
    if condition_type and (
        problem := reserved_condition_error(condition_type) or label_key_error(condition_type)
    ):
        yield field.invalid(f"{path}.podConditionType", condition_type, problem)
    yield from _policies(probe.marker_policy or (), f"{path}.markerPolicy", rules)


def _policies(
    policies: tuple[MarkerPolicy, ...], path: str, rules: _PolicyRules
) -> Iterator[FieldError]:
    yield from field.check_items(path, policies, MAX_POLICIES)
    states = (each.state for each in policies)
    yield from field.check_unique(path + "[{}].state", states, UNIQUE_STATE)
    for index, policy in enumerate(policies):
        at = f"{path}[{index}]"
        if policy.state not in tuple(ProbeState):
            yield field.not_supported(f"{at}.state", policy.state, POLICY_STATE)
        labels, annotations = policy.labels or {}, policy.annotations or {}
        from_message = policy.from_message or ()
        if not labels and not annotations and not from_message:
            yield field.required(at, POLICY_EMPTY)
        yield from field.check_items(f"{at}.labels", labels, MAX_MARKS)
        yield from field.check_items(f"{at}.annotations", annotations, MAX_MARKS)
        yield from _label_map(labels, f"{at}.labels")
        yield from _annotation_map(annotations, f"{at}.annotations")
        for key in labels:
            if problem := rules.label_error(key):
                yield _forbidden_key(f"{at}.labels", key, problem)
        yield from _from_message(from_message, f"{at}.fromMessage", rules)


def _from_message(
    values: tuple[MessageValue, ...], path: str, rules: _PolicyRules
) -> Iterator[FieldError]:
    yield from field.check_items(path, values, MAX_FROM_MESSAGE)
    labels, annotations = (
        (each.label or None for each in values),
        (each.annotation or None for each in values),
    )
    yield from field.check_unique(path + "[{}].label", labels, UNIQUE_KEY)
    yield from field.check_unique(path + "[{}].annotation", annotations, UNIQUE_KEY)
    for index, each in enumerate(values):
        at = f"{path}[{index}]"
        label, annotation = each.label or "", each.annotation or ""
        if bool(label) == bool(annotation):
            yield field.required(at, ONE_KEY)
        if label and (problem := rules.label_error(label)):
            yield _forbidden_key(f"{at}.label", label, problem)
        elif label and (problem := label_key_error(label)):
            yield field.invalid(f"{at}.label", label, problem)
        if annotation and (problem := reserved_annotation_error(annotation)):
            yield _forbidden_key(f"{at}.annotation", annotation, problem)
        elif annotation and (problem := annotation_key_error(annotation)):
            yield field.invalid(f"{at}.annotation", annotation, problem)
        try:
            rules.budget.take(each.regex or "")
        except PatternError as error:
            yield field.invalid(f"{at}.regex", each.regex, str(error))


def _forbidden_key(path: str, key: str, problem: str) -> FieldError:
    return field.forbidden(path, f"key {field.shorten(key)!r} {problem}", key=key)


def _label_map(labels: Mapping[str, str], path: str) -> Iterator[FieldError]:
    for key, value in labels.items():
        if problem := label_key_error(key):
            yield field.invalid(path, key, problem, key=key)
        if problem := label_value_error(value):
            yield field.invalid(path, value, problem, key=key)


def _annotation_map(annotations: Mapping[str, str], path: str) -> Iterator[FieldError]:
    for key, value in annotations.items():
        if problem := reserved_annotation_error(key):
            yield _forbidden_key(path, key, problem)
        elif problem := annotation_key_error(key):
            yield field.invalid(path, key, problem, key=key)
        if problem := annotation_value_error(key, value):
            yield field.invalid(path, value, problem, key=key)
        yield from field.check_length(f"{path}[{field.shorten(key)}]", value, MAX_ANNOTATION_VALUE)
