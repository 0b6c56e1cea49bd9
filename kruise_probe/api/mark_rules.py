"""Rules of the condition types, labels and annotations that a marker may write.

Those about labels depend on the manager's --allowed-label-keys too, and those about patterns on all patterns of the marker: `validation`
checks both.

Source: apiserver pkg/cel/library for what a call costs.
"""

from collections.abc import Iterator
from typing import Final

from kruise_probe.api.fields import TEXT, Rule, each_key, literal, rule
from kruise_probe.api.labels import (
    DELETION_COSTS,
    KEY,
    LABEL_KEYS,
    LABEL_VALUES,
    annotation_key_error,
    is_key_cel,
    label_key_error,
)
from kruise_probe.api.problems import ErrorKind
from kruise_probe.api.reserved import (
    ANNOTATIONS,
    CONDITIONS,
    LABELS,
    USE_ANOTHER_CONDITION,
    USE_ANOTHER_KEY,
    USE_ANOTHER_LABEL,
    ReservedKeys,
    reserved_condition_error,
)

MAX_PATTERN: Final = 256
"""Maximum characters of a pattern."""
SYNTAX: Final = "must be an RE2 pattern (see github.com/google/re2/wiki/Syntax)"
ALLOWED_LABELS: Final = "<allowed labels>"
"""In CEL, the place of the list of allowed labels."""


def _list(texts: tuple[str, ...]) -> str:
    return f"[{', '.join(map(literal, texts))}]"


def _is_reserved(row: ReservedKeys) -> str:
    """CEL: whether the row covers the key `k`, as in `ReservedKeys.covers`."""
    conditions = [f"k.startsWith({literal(each)})" for each in row.prefixes]
    if row.keys:
        conditions.append(f"k in {_list(row.keys)}")
    if row.domains:
        domains = "|".join(each.replace(".", "[.]") for each in row.domains)
        exceptions = [f"!k.startsWith({literal(each + '/')})" for each in row.exceptions]
        conditions.append(" && ".join([f"k.matches('^([^/]*[.])?({domains})/')", *exceptions]))
    return " || ".join(conditions)


def _reserved_labels(keys: str) -> Iterator[Rule]:
    for row in LABELS:
        cel = f"k in {ALLOWED_LABELS} || !({_is_reserved(row)})"
        message = row.error(USE_ANOTHER_LABEL)
        yield each_key(message, cel, None, keys=keys, kind=ErrorKind.FORBIDDEN)


def _annotation_keys(keys: str) -> Iterator[Rule]:
    yield each_key(KEY, is_key_cel("k", letters="A-Za-z"), annotation_key_error, keys=keys)
    yield from (_reserved_annotation(row, keys) for row in ANNOTATIONS)


def _reserved_annotation(row: ReservedKeys, keys: str) -> Rule:
    message, cel = row.error(USE_ANOTHER_KEY), f"!({_is_reserved(row)})"

    def error(key: str) -> str | None:
        return message if row.covers(key) else None

    return each_key(message, cel, error, keys=keys, kind=ErrorKind.FORBIDDEN)


def _reserved_condition(row: ReservedKeys) -> Rule:
    message = row.error(USE_ANOTHER_CONDITION)
    return rule(message, f"!(self in {_list(row.keys)})", lambda name: not row.covers(name))


LABEL_RULES: Final = (LABEL_KEYS, LABEL_VALUES, *_reserved_labels("self"))
LABEL_KEY_RULES: Final = (
    each_key(KEY, is_key_cel("k"), label_key_error, keys=TEXT),
    *_reserved_labels(TEXT),
)
ANNOTATION_RULES: Final = (*_annotation_keys("self"), DELETION_COSTS)
ANNOTATION_KEY_RULES: Final = tuple(_annotation_keys(TEXT))
CONDITION_TYPE_RULES: Final = (
    *map(_reserved_condition, CONDITIONS),
    rule(
        KEY,
        f"self == '' || ({is_key_cel('self')})",
        lambda name: not name or reserved_condition_error(name) or not label_key_error(name),
    ),
)
PATTERN: Final = Rule(SYNTAX, "''.matches(self) || !''.matches(self)")
"""Go's regular expressions are RE2's. An invalid one is an error of the rule, and the API server refuses the marker."""
