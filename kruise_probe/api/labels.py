"""Labels, annotations and label selectors: validation and matching. A validator returns an error message, or None.

Source: apimachinery pkg/labels/selector.go and metav1.LabelSelectorAsSelector; pkg/util/validation IsQualifiedName,
IsValidLabelValue; pkg/api/validation ValidateAnnotations; kubernetes pkg/apis/core/helper
(GetDeletionCostFromPodAnnotations).
Differs: error messages describe the rule in words instead of showing the regular expression. An empty or absent
selector matches nothing, because PodProbeMarker requires one; client-go's empty selector matches everything.
"""

import re
from collections.abc import Iterator, Mapping
from sys import getsizeof
from typing import Annotated, Any, ClassVar, Final, NamedTuple

from kruise_probe.api.caches import OBJECT_BYTES, STRING_BYTES, Cache, sizes_of
from kruise_probe.api.fields import Field, Rule, Use, each_key, errors_in, literal, rule, shape_of
from kruise_probe.api.names import DELETION_COST_ANNOTATION
from kruise_probe.api.problems import ErrorKind, Problem, violation
from kruise_probe.api.structs import Wire

MAX_NAME_PART: Final = 63
MAX_PREFIX: Final = 253
MAX_KEY: Final = MAX_PREFIX + len("/") + MAX_NAME_PART
MIN_COST: Final = -(2**31)
MAX_COST: Final = 2**31 - 1
COST_PATTERN: Final = "0|[1-9][0-9]{0,9}|-0*[0-9]{1,10}"
"""Integers as the API server parses them: no plus sign, and leading zeros only after a minus. Bounds not included."""
SELECTOR_IMMUTABLE: Final = "field is immutable; delete this PodProbeMarker and apply it again"
_QUALIFIED_NAME: Final = (
    "must consist of alphanumeric characters, '-', '_' or '.', must start and end with an alphanumeric "
    "character, and must be no more than 63 characters (e.g. 'MyName')"
)
KEY_PREFIX: Final = "prefix part must be a lowercase RFC 1123 subdomain of no more than 253 characters (e.g. 'example.com')"
KEY_NAME: Final = f"name part {_QUALIFIED_NAME}"
KEY: Final = (
    f"a qualified name {_QUALIFIED_NAME}, with an optional DNS subdomain prefix and '/' "
    "(e.g. 'example.com/MyName')"
)
LABEL_VALUE: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', must start and end "
    "with an alphanumeric character, and must be no more than 63 characters (e.g. 'MyValue')"
)
DELETION_COST: Final = (
    "controller.kubernetes.io/pod-deletion-cost must be a 32bit integer without a plus sign or leading zeros, "
    "such as -10"
)

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_DNS_LABEL = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_PREFIX = re.compile(rf"{_DNS_LABEL}(\.{_DNS_LABEL})*")
_COST = re.compile(COST_PATTERN)


def label_key_error(key: str) -> str | None:
    """Validate a qualified name: `name` or `dns.prefix/name`."""
    prefix, slash, name = key.rpartition("/")
    if slash and (len(prefix) > MAX_PREFIX or not _PREFIX.fullmatch(prefix)):
        return KEY_PREFIX
    if len(name) > MAX_NAME_PART or not _NAME.fullmatch(name):
        return KEY_NAME
    return None


def annotation_key_error(key: str) -> str | None:
    """Validate as a label key, but allow upper case in the prefix: the API server lower-cases it first."""
    return label_key_error(key.lower() if key.isascii() else key)


def label_value_error(value: str) -> str | None:
    """Validate a label value: empty, or at most 63 characters with the syntax of a key name."""
    if value and (len(value) > MAX_NAME_PART or not _NAME.fullmatch(value)):
        return LABEL_VALUE
    return None


def annotation_value_error(key: str, value: str) -> str | None:
    """Validate a value that the API server itself parses; otherwise it rejects the whole pod patch."""
    if key == DELETION_COST_ANNOTATION and not is_deletion_cost(value):
        return DELETION_COST
    return None


def is_deletion_cost(value: str) -> bool:
    """Whether the API server accepts `value` as a pod deletion cost."""
    if not _COST.fullmatch(value):
        return False
    digits = value.lstrip("-").lstrip("0") or "0"  # int() rejects thousands of digits
    cost = int(digits)
    if value.startswith("-"):
        cost = -cost
    return MIN_COST <= cost <= MAX_COST


_NAME_CEL: Final = f"[A-Za-z0-9]([-A-Za-z0-9_.]{{0,{MAX_NAME_PART - 2}}}[A-Za-z0-9])?"


def is_key_cel(key: str, *, letters: str = "a-z") -> str:
    """CEL: whether the variable `key` is a qualified name."""
    part = f"[{letters}0-9]([-{letters}0-9]*[{letters}0-9])?"
    pattern = f"^({part}(\\\\.{part})*/)?{_NAME_CEL}$"
    return f"{key}.indexOf('/') <= {MAX_PREFIX} && {key}.matches('{pattern}')"


def _is_value_cel(value: str) -> str:
    return f"{value} == '' || {value}.matches('^{_NAME_CEL}$')"


def _value_errors(labels: Any, path: str) -> Iterator[Problem]:
    for key, value in labels.items():
        if problem := label_value_error(value):
            yield violation(path, ErrorKind.INVALID, problem, value, key=key)


def _cost_errors(annotations: Any, path: str) -> Iterator[Problem]:
    cost = annotations.get(DELETION_COST_ANNOTATION)
    if cost is not None and not is_deletion_cost(cost):
        yield violation(path, ErrorKind.INVALID, DELETION_COST, cost, key=DELETION_COST_ANNOTATION)


LABEL_KEYS: Final = each_key(KEY, is_key_cel("k"), label_key_error)
LABEL_VALUES: Final = Rule(
    LABEL_VALUE,
    f"self.all(k, {_is_value_cel('self[k]')})",
    _value_errors,
    item=f"'value of \"' + self.filter(k, !({_is_value_cel('self[k]')}))[0] + '\": '",
)
_COST_CEL: Final = f"self[{literal(DELETION_COST_ANNOTATION)}]"
DELETION_COSTS: Final = Rule(
    DELETION_COST,
    f"!({literal(DELETION_COST_ANNOTATION)} in self) || ({_COST_CEL}.matches('^({COST_PATTERN})$') && "
    f"int({_COST_CEL}) >= {MIN_COST} && int({_COST_CEL}) <= {MAX_COST})",
    _cost_errors,
)

LabelValue = Annotated[str, Field(most=MAX_NAME_PART)]
MAX_SELECTOR_ITEMS: Final = 32
"""Maximum labels, expressions, and values of one expression in a selector."""


class LabelSelectorRequirement(Wire, frozen=True):
    """metav1.LabelSelectorRequirement.

    Attributes:
        key: Label key.
        operator: Relation of the key to the values.
        values: Label values for In and NotIn.
    """

    key: Annotated[
        str,
        Field(
            most=MAX_KEY,
            rules=(
                rule(
                    KEY,
                    is_key_cel("self"),
                    lambda key: not label_key_error(key),
                ),
            ),
        ),
    ]
    operator: Annotated[str, Field(values=("In", "NotIn", "Exists", "DoesNotExist"))]
    values: Annotated[
        tuple[LabelValue, ...],
        Field(
            most=MAX_SELECTOR_ITEMS,
            rules=(each_key(LABEL_VALUE, _is_value_cel("k"), label_value_error),),
        ),
    ] = ()

    RULES: ClassVar = (
        rule(
            "must be specified when `operator` is 'In' or 'NotIn'",
            "!(self.operator in ['In', 'NotIn']) || (has(self.values) && self.values.size() > 0)",
            lambda each: each.values or each.operator not in ("In", "NotIn"),
            kind=ErrorKind.REQUIRED,
            field="values",
        ),
        rule(
            "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            "!(self.operator in ['Exists', 'DoesNotExist']) || !has(self.values) || self.values.size() == 0",
            lambda each: not each.values or each.operator not in ("Exists", "DoesNotExist"),
            kind=ErrorKind.FORBIDDEN,
            field="values",
        ),
    )


class LabelSelector(Wire, frozen=True):
    """metav1.LabelSelector; `compile_selector` turns it into a predicate.

    Attributes:
        match_labels: Labels that a pod must have.
        match_expressions: Requirements that a pod must all meet.
    """

    match_labels: Annotated[
        Mapping[str, LabelValue],
        Field(most=MAX_SELECTOR_ITEMS, rules=(LABEL_KEYS, LABEL_VALUES)),
    ] = {}
    match_expressions: Annotated[
        tuple[LabelSelectorRequirement, ...], Field(most=MAX_SELECTOR_ITEMS)
    ] = ()

    RULES: ClassVar = (
        rule(
            "must not be empty; set matchLabels or matchExpressions",
            "(has(self.matchLabels) && self.matchLabels.size() > 0) || "
            "(has(self.matchExpressions) && self.matchExpressions.size() > 0)",
            lambda selector: selector.match_labels or selector.match_expressions,
            kind=ErrorKind.REQUIRED,
        ),
        Rule(SELECTOR_IMMUTABLE, "self == oldSelf"),
    )


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
    """A conjunction of requirements. Without requirements it matches nothing."""

    requirements: tuple[Requirement, ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        for requirement in self.requirements:
            if not requirement.matches(labels):
                return False
        return bool(self.requirements)

    @property
    def keys(self) -> frozenset[str]:
        """The label keys of the requirements."""
        return frozenset(requirement.key for requirement in self.requirements)

    @property
    def anchor(self) -> tuple[str, frozenset[str]] | None:
        """The key with the fewest allowed values, and these values; for index lookups.

        None if no requirement lists values. Every pod of the namespace is then a candidate.
        """
        best: tuple[str, frozenset[str]] | None = None
        for key, values, negated in self.requirements:
            if negated or not values:
                continue
            if best is None or len(values) < len(best[1]):
                best = (key, values)
        return best


def compile_selector(selector: LabelSelector | None) -> Selector:
    """Compile a selector; results are cached.

    Raises:
        ValueError: the API server would reject the selector: unknown operator, missing or superfluous values, or an
            invalid key or value.
    """
    if selector is None:
        return Selector(())
    labels = sorted(selector.match_labels.items())
    required = [LabelSelectorRequirement(key, "In", (value,)) for key, value in labels]
    return _selectors[(*required, *selector.match_expressions)]


def _requirement(written: LabelSelectorRequirement) -> Requirement:
    for error in errors_in(written, shape_of(LabelSelectorRequirement), "", Use.STORED):
        raise ValueError(f"selector requirement on {written.key!r}: {error.message}")
    negated = written.operator in ("NotIn", "DoesNotExist")
    return Requirement(
        written.key,
        frozenset(written.values) if written.values else None,
        negated,
    )


_Expressions = tuple[LabelSelectorRequirement, ...]


def _selector_bytes(expressions: _Expressions, selector: Selector) -> int:
    size = OBJECT_BYTES
    for written in expressions:
        size += 2 * OBJECT_BYTES + STRING_BYTES + len(written.key)
        size += sizes_of(written.values)
    for required in selector.requirements:
        size += getsizeof(required.values)
    return size


_selectors = Cache[_Expressions, Selector](
    _selector_bytes, lambda expressions: Selector(tuple(map(_requirement, expressions)))
)


def parse_selector(text: str) -> Selector:
    """Parse and compile the syntax of `kubectl -l`: `app=web,tier in (a,b),!draft`.

    Raises:
        ValueError: names the part that is malformed.
    """
    return _selectors[tuple(map(_expression, _COMMA.split(text)))]


_COMMA: Final = re.compile(r",(?![^(]*\))")
_SET: Final = re.compile(r"(?P<key>\S+)\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)")
_EQUALITY: Final = re.compile(r"(?P<key>[^!=\s]+)\s*(?P<operator>==?|!=)\s*(?P<values>[^!=\s]*)")
_PRESENCE: Final = re.compile(r"(?P<operator>!?)\s*(?P<key>[^!=\s()]+)")
_OPERATORS: Final = {
    "in": "In", "=": "In", "==": "In", "notin": "NotIn", "!=": "NotIn", "": "Exists", "!": "DoesNotExist",
}  # fmt: skip


def _expression(text: str) -> LabelSelectorRequirement:
    part = text.strip()
    for pattern in (_SET, _EQUALITY, _PRESENCE):
        if match := pattern.fullmatch(part):
            values = match.groupdict().get("values")
            found = tuple(map(str.strip, values.split(","))) if values is not None else ()
            return LabelSelectorRequirement(
                match["key"],
                _OPERATORS[match["operator"]],
                found,
            )
    raise ValueError(
        f"{part!r} is not a label selector; write app=web, app!=web, app in (a,b), app or !app"
    )


MAX_ANNOTATION_BYTES: Final = 256 * 1024
"""The API server refuses an object with more bytes in the keys and values of its annotations."""


def annotation_bytes(annotations: Mapping[str, str]) -> int:
    """The size of annotations as the API server counts it."""
    return sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
