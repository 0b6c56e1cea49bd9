"""Selectors as text, and the requirements that a pod does not meet. Pure."""

from collections.abc import Mapping

from kruise_probe.api.labels import Requirement, Selector
from kruise_probe.api.problems import closest_name


def requirement_text(requirement: Requirement) -> str:
    """A requirement in the syntax of `kubectl -l`: `app=game`, `app in (a,b)`, `app!=x`, `!app`."""
    key, values, negated = requirement
    if values is None:
        if negated:
            return f"!{key}"
        return key
    listed = ",".join(sorted(values))
    has_several = len(values) > 1
    if has_several and negated:
        return f"{key} notin ({listed})"
    if has_several:
        return f"{key} in ({listed})"
    if negated:
        return f"{key}!={listed}"
    return f"{key}={listed}"


def selector_text(selector: Selector) -> str:
    requirements = map(requirement_text, selector.requirements)
    return ",".join(requirements) or "(nothing)"


def unmet(selector: Selector, labels: Mapping[str, str]) -> list[Requirement]:
    """The requirements that `labels` do not meet."""
    requirements = selector.requirements
    return [requirement for requirement in requirements if not requirement.matches(labels)]


def why_not(selector: Selector, labels: Mapping[str, str]) -> str:
    """The unmet requirements, and what the pod has instead; empty if all are met."""
    if not selector.requirements:
        return "its selector is empty and selects no pod"
    reasons = []
    for requirement in unmet(selector, labels):
        required = requirement_text(requirement)
        actual = _actual(requirement, labels)
        reasons.append(f"the selector requires {required}, but the pod has {actual}")
    return "; ".join(reasons)


def _actual(requirement: Requirement, labels: Mapping[str, str]) -> str:
    key = requirement.key
    actual = f"no label {key}"
    if key in labels:
        value = labels[key]
        actual = f"{key}={value}"
    typo = _typo(requirement, labels)
    if typo:
        actual += f" (did you mean {typo!r}?)"
    return actual


def corrected(selector: Selector, labels: Mapping[str, str]) -> str:
    """What `labels` have instead of each requirement that they miss by a typo, as `app=hello`; empty if another is unmet."""
    found = []
    for requirement in unmet(selector, labels):
        typo = _typo(requirement, labels)
        if not typo:
            return ""
        key = requirement.key
        if key not in labels:
            key = typo
        value = labels[key]
        found.append(f"{key}={value}")
    return ",".join(found)


def distance(selector: Selector, labels: Mapping[str, str]) -> tuple[bool, int, int]:
    """Sort key: typos only first, then most label keys in common, then fewest unmet requirements."""
    known = selector.keys & labels.keys()
    missed = unmet(selector, labels)
    return (
        not corrected(selector, labels),
        -len(known),
        len(missed),
    )


def _typo(requirement: Requirement, labels: Mapping[str, str]) -> str:
    """The key or value in `labels` that an unmet requirement misses only by a typing error; empty if there is none."""
    key, values, negated = requirement
    if key not in labels:
        return closest_name(key, labels)
    if negated or values is None:
        return ""
    value = labels[key]
    if not closest_name(value, values):
        return ""
    return value
