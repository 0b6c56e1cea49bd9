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
"""Bound of the cache of compiled selectors: far above the markers of a cluster, some 2 MB when full."""


class Requirement(NamedTuple):
    """One condition on one key: `negated` turns In into NotIn and Exists into DoesNotExist.

    `values` None asks for presence only.
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
    """A conjunction of requirements; without any it matches nothing."""

    requirements: tuple[Requirement, ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        return bool(self.requirements) and all(each.matches(labels) for each in self.requirements)

    @property
    def keys(self) -> frozenset[str]:
        """The label keys that this selector looks at."""
        return frozenset(each.key for each in self.requirements)

    @property
    def anchor(self) -> tuple[str, frozenset[str]] | None:
        """A key and the values of which one must be there for a match: what an index can look up.

        None when no requirement pins a value (then every pod of the namespace is a candidate).
        """
        pinned = [each for each in self.requirements if each.values and not each.negated]
        best = min(pinned, key=lambda each: len(each.values or ()), default=None)
        return (best.key, best.values) if best and best.values else None


def compile_selector(selector: LabelSelector | None) -> Selector:
    """Compiles; the same selector is compiled once.

    Raises:
        ValueError: what the API server would refuse in a selector: an operator that does not exist, values missing or
            in excess, a key or value that no label can have. The message names it.
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
