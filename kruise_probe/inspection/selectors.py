"""Selectors as text, and the requirements that a pod does not meet. Pure."""

from collections.abc import Mapping

from kruise_probe.api.labels import Requirement, Selector
from kruise_probe.api.problems import closest_name


def requirement_text(requirement: Requirement) -> str:
    """A requirement in the syntax of `kubectl -l`: `app=game`, `app in (a,b)`, `app!=x`, `!app`."""
    key, values, negated = requirement
    if values is None:
        return f"!{key}" if negated else key
    if len(values) == 1:
        (value,) = values
        return f"{key}!={value}" if negated else f"{key}={value}"
    return f"{key} {'notin' if negated else 'in'} ({','.join(sorted(values))})"


def selector_text(selector: Selector) -> str:
    return ",".join(map(requirement_text, selector.requirements)) or "(nothing)"


def unmet(selector: Selector, labels: Mapping[str, str]) -> list[Requirement]:
    """The requirements that `labels` do not meet."""
    return [each for each in selector.requirements if not each.matches(labels)]


def why_not(selector: Selector, labels: Mapping[str, str]) -> str:
    """The unmet requirements, and what the pod has instead; empty if all are met."""
    if not selector.requirements:
        return "its selector is empty and selects no pod"
    return "; ".join(
        f"it requires {requirement_text(each)}, but the pod has {_actual(each, labels)}"
        for each in unmet(selector, labels)
    )


def _actual(requirement: Requirement, labels: Mapping[str, str]) -> str:
    key = requirement.key
    actual = f"{key}={labels[key]}" if key in labels else f"no label {key}"
    typo = _typo(requirement, labels)
    return f"{actual} (did you mean {typo!r}?)" if typo else actual


def misses_by_typos(selector: Selector, labels: Mapping[str, str]) -> bool:
    """Whether `labels` miss `selector` only by typos in keys or values."""
    missing = unmet(selector, labels)
    return bool(missing) and all(_typo(each, labels) for each in missing)


def distance(selector: Selector, labels: Mapping[str, str]) -> tuple[bool, int, int]:
    """Sort key: typos only first, then most label keys in common, then fewest unmet requirements."""
    known = sum(each.key in labels for each in selector.requirements)
    return (not misses_by_typos(selector, labels), -known, len(unmet(selector, labels)))


def _typo(requirement: Requirement, labels: Mapping[str, str]) -> str:
    """The key or value in `labels` that an unmet requirement misses only by a typing error; empty if there is none."""
    key, values, negated = requirement
    if key not in labels:
        return closest_name(key, labels)
    return labels[key] if not negated and closest_name(labels[key], values or ()) else ""
