"""Label and field selectors of queries.

Source: apimachinery pkg/labels/selector.go, pkg/fields/selector.go.
Differs: no label selectors with < and >.
"""

import re
from collections.abc import Mapping, Set
from typing import NamedTuple

from kruise_probe.api.labels import Requirement, label_key_error, label_value_error
from kruise_probe_playground.apiserver.failures import Failure, bad_request

_COMMA = re.compile(r",(?![^(]*\))")
_SET = re.compile(r"(?P<key>\S+)\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)")
_EQUALITY = re.compile(r"(?P<key>[^!=\s]+)\s*(?P<operator>==?|!=)\s*(?P<values>[^!=,\s]*)")
_PRESENCE = re.compile(r"(?P<operator>!?)\s*(?P<key>[^!=<>\s()]+)")
_OPERATORS = "in, notin, =, ==, !="


class LabelFilter(NamedTuple):
    """A conjunction of requirements; without any it matches everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(each.matches(labels) for each in self.requirements)


class FieldFilter(NamedTuple):
    """(field, value, equal) triples; an absent field is the empty string."""

    terms: tuple[tuple[str, str, bool], ...] = ()

    def matches(self, fields: Mapping[str, str]) -> bool:
        return all((fields.get(name, "") == value) == wanted for name, value, wanted in self.terms)


def parse_labels(text: str) -> LabelFilter:
    parts = _COMMA.split(text) if text.strip() else ()
    return LabelFilter(tuple(_requirement(each.strip()) for each in parts))


def _requirement(part: str) -> Requirement:
    for pattern in (_SET, _EQUALITY, _PRESENCE):
        if match := pattern.fullmatch(part):
            break
    else:
        raise _unparsable(f"found '{part}', expected: an identifier with {_OPERATORS}")
    key, negated = match["key"], match["operator"] in ("notin", "!=", "!")
    if wrong := label_key_error(key):
        raise _unparsable(f'<nil>: Invalid value: "{key}": {wrong}')
    if pattern is _PRESENCE:
        return Requirement(key, None, negated=negated)
    values = frozenset(each.strip() for each in match["values"].split(","))
    for each in values:
        if wrong := label_value_error(each):
            raise _unparsable(f'values[0][{key}]: Invalid value: "{each}": {wrong}')
    return Requirement(key, values, negated=negated)


def _unparsable(why: str) -> Failure:
    return bad_request(f"unable to parse requirement: {why}")


def parse_fields(text: str, known: Set[str]) -> FieldFilter:
    terms = []
    for part in filter(None, re.split(r"(?<!\\),", text)):
        match = re.fullmatch(r"(.*?)(==|=|!=)(.*)", part, re.DOTALL)
        if match is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        name, operator, value = match.groups()
        if name not in known:
            listed = ", ".join(f'"{each}"' for each in sorted(known))
            raise bad_request(f'"{name}" is not a known field selector: only {listed}')
        if not re.fullmatch(r"(?:[^\\,=]|\\[\\,=])*", value, re.DOTALL):
            raise bad_request(f"invalid field selector: unescaped character in value: {value}")
        terms.append((name, re.sub(r"\\([\\,=])", r"\1", value), operator != "!="))
    return FieldFilter(tuple(terms))
