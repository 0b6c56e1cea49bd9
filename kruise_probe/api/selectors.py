"""Label selectors as compiled predicates.

Source: apimachinery pkg/labels/selector.go and metav1.LabelSelectorAsSelector.
Differs: an empty or absent selector matches nothing, as PodProbeMarker requires one; client-go's empty
selector matches everything.
"""

from collections.abc import Mapping
from typing import NamedTuple

from cachetools import LRUCache, cached

from kruise_probe.api.labels import label_key_error, label_value_error
from kruise_probe.api.meta import LabelSelector

COMPILED_SELECTORS = 4096
"""Cache size for compiled selectors: far more than the markers of a cluster; about 2 MB when full."""


class Requirement(NamedTuple):
    """A requirement on one key. `negated` turns In into NotIn and Exists into DoesNotExist.

    If `values` is None, only the presence of the key counts.
    """

    key: str
    values: frozenset[str] | None
    negated: bool

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        if self.values is None:
            return (value is not None) != self.negated
        return (value is not None and value in self.values) != self.negated


class Selector(NamedTuple):
    """A conjunction of requirements; without requirements it matches nothing."""

    requirements: tuple[Requirement, ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        return bool(self.requirements) and all(each.matches(labels) for each in self.requirements)

    @property
    def keys(self) -> frozenset[str]:
        """The label keys of the requirements."""
        return frozenset(each.key for each in self.requirements)

    @property
    def anchor(self) -> tuple[str, frozenset[str]] | None:
        """A key, and values of which a matching pod must have one; for index lookups.

        None if no requirement lists values; then every pod of the namespace is a candidate.
        """
        pinned = [each for each in self.requirements if each.values and not each.negated]
        best = min(pinned, key=lambda each: len(each.values or ()), default=None)
        return (best.key, best.values) if best and best.values else None


def compile_selector(selector: LabelSelector | None) -> Selector:
    """Compile a selector; results are cached.

    Raises:
        ValueError: the API server would refuse the selector: unknown operator, missing or superfluous values, or an
            invalid key or value.
    """
    if selector is None:
        return Selector(())
    labels = tuple(sorted((selector.match_labels or {}).items()))
    expressions = tuple(
        (each.key, each.operator, each.values or ()) for each in selector.match_expressions or ()
    )
    return _compile(labels, expressions)


@cached(LRUCache(maxsize=COMPILED_SELECTORS))
def _compile(
    labels: tuple[tuple[str, str], ...], expressions: tuple[tuple[str, str, tuple[str, ...]], ...]
) -> Selector:
    requirements = [_requirement(key, "In", (value,)) for key, value in labels]
    requirements += [_requirement(key, operator, values) for key, operator, values in expressions]
    return Selector(tuple(requirements))


def _requirement(key: str, operator: str, values: tuple[str, ...]) -> Requirement:
    problem = label_key_error(key) or next(filter(None, map(label_value_error, values)), None)
    if problem is None:
        match operator:
            case "Exists" | "DoesNotExist":
                if not values:
                    return Requirement(key, None, negated=operator == "DoesNotExist")
                problem = f"operator {operator} takes no values"
            case "In" | "NotIn":
                if values:
                    return Requirement(key, frozenset(values), negated=operator == "NotIn")
                problem = f"operator {operator} needs at least one value"
            case _:
                problem = f"{operator!r} is no operator; use In, NotIn, Exists or DoesNotExist"
    raise ValueError(f"selector requirement on {key!r}: {problem}")
