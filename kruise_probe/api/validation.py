"""Validation of markers and of what a node runs: the declared rules, and those that depend on more than one value.

Source: Kruise pkg/webhook/podprobemarker/validating.
Differs: condition types of Kubernetes are rejected (Kruise checks the probe name instead). grpc is allowed. A policy may
not write its own marker's selector keys. Lists are bounded for CEL's cost budget.
"""

from collections.abc import Collection, Iterator

import msgspec

from kruise_probe.api.extraction import PatternBudget, PatternError
from kruise_probe.api.fields import errors_in, key_error, shape_of
from kruise_probe.api.labels import SELECTOR_IMMUTABLE
from kruise_probe.api.probe import MAX_TIMEOUT_SECONDS
from kruise_probe.api.problems import ErrorKind, Problem, violation
from kruise_probe.api.reserved import reserved_label_error
from kruise_probe.api.v1alpha1 import (
    OWN_SELECTOR_KEY,
    ContainerProbe,
    MarkerPolicy,
    PodContainerProbe,
    PodProbeMarkerSpec,
)


def marker_errors(
    spec: PodProbeMarkerSpec,
    old: PodProbeMarkerSpec | None = None,
    *,
    allowed_labels: Collection[str] = (),
) -> Iterator[Problem]:
    """Validate `spec` lazily; `first_errors` of it do not validate a huge marker completely.

    `old` is the stored spec of an update, None on creation. `allowed_labels` are the reserved keys in the manager's
    `--allowed-label-keys`.
    """
    if old is not None and old.selector is not None and old.selector != spec.selector:
        yield violation("spec.selector", ErrorKind.INVALID, SELECTOR_IMMUTABLE)
    yield from errors_in(spec, shape_of(PodProbeMarkerSpec), "spec")
    selector_keys = _selector_keys(spec)
    budget = PatternBudget()
    for index, probe in enumerate(spec.probes):
        for place, policy in enumerate(probe.marker_policy):
            path = f"spec.probes[{index}].markerPolicy[{place}]"
            yield from _label_errors(policy, path, selector_keys, allowed_labels)
            for number, value in enumerate(policy.from_message):
                yield from _pattern_errors(value.regex, f"{path}.fromMessage[{number}]", budget)
        yield from _criteria_errors(probe, f"spec.probes[{index}].", budget)


def entry_pattern_errors(entry: ContainerProbe) -> Iterator[Problem]:
    """The errors of the patterns of an entry of a NodePodProbe, which the shape of its fields does not show."""
    return _criteria_errors(entry, "", PatternBudget())


def clamp_timeout(entry: PodContainerProbe) -> PodContainerProbe:
    """Clamp the timeout: one that was stored before the limit existed may exceed it. It is reported."""
    if (entry.probe.timeout_seconds or 0) <= MAX_TIMEOUT_SECONDS:
        return entry
    probe = msgspec.structs.replace(entry.probe, timeout_seconds=MAX_TIMEOUT_SECONDS)
    return msgspec.structs.replace(entry, probe=probe)


def fields_without_effect(spec: PodProbeMarkerSpec) -> tuple[str, ...]:
    """Paths of allowed fields without effect: kubelet uses them to restart containers, kruise-probe restarts none."""
    found = []
    for index, probe in enumerate(spec.probes):
        if probe.probe.termination_grace_period_seconds:
            found.append(f"spec.probes[{index}].probe.terminationGracePeriodSeconds")
    return tuple(found)


def _selector_keys(spec: PodProbeMarkerSpec) -> frozenset[str]:
    if spec.selector is None:
        return frozenset()
    keys = {expression.key for expression in spec.selector.match_expressions}
    return frozenset(keys | spec.selector.match_labels.keys())


def _label_errors(
    policy: MarkerPolicy, path: str, selector_keys: frozenset[str], allowed: Collection[str]
) -> Iterator[Problem]:
    """The labels that the policies of this marker may not write."""
    places = [(f"{path}.labels", key) for key in policy.labels]
    for index, value in enumerate(policy.from_message):
        if value.label:
            places.append((f"{path}.fromMessage[{index}].label", value.label))
    for place, key in places:
        problem = reserved_label_error(key, allowed)
        if key in selector_keys:
            problem = OWN_SELECTOR_KEY
        if problem:
            yield key_error(place, key, problem, ErrorKind.FORBIDDEN)


def _pattern_errors(pattern: str | None, path: str, budget: PatternBudget) -> Iterator[Problem]:
    try:
        budget.take(pattern or "")
    except PatternError as error:
        yield violation(f"{path}.regex", ErrorKind.INVALID, str(error), pattern)


def _criteria_errors(probe: ContainerProbe, path: str, budget: PatternBudget) -> Iterator[Problem]:
    """The errors of the patterns of `extract`, `successWhen` and `epoch`. `path` is the prefix of these fields."""
    for field, criteria in (
        ("extract", probe.extract),
        ("successWhen", probe.success_when),
        ("exclusive.epoch", probe.epoch),
    ):
        if criteria is not None:
            yield from _pattern_errors(criteria.regex, f"{path}{field}", budget)
