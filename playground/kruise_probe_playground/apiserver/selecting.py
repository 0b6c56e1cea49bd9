"""Label and field selectors of queries.

Source: apimachinery pkg/labels/selector.go, pkg/fields/selector.go.
Differs: nothing.
"""

import re
from collections.abc import Mapping, Set
from typing import NamedTuple

from kruise_probe_playground.apiserver.failures import Failure, bad_request

_TERM = re.compile(
    r"""\s*(?:
        (?P<absent>!)\s*(?P<absent_key>[^\s=!,()<>]+)
      | (?P<key>[^\s=!,()<>]+)
        (?:\s*(?P<op>==|=|!=|<|>)\s*(?P<value>[^\s=!,()<>]*)
          |\s+(?P<set>in|notin)\s*\((?P<values>[^()]*)\))?
    )\s*(?:,|$)""",
    re.VERBOSE,
)


class _Requirement(NamedTuple):
    """`values` None requires the key; `bound` compares integers."""

    key: str
    values: frozenset[str] | None
    negated: bool
    bound: tuple[str, int] | None = None

    def matches(self, present: Mapping[str, str]) -> bool:
        value = present.get(self.key)
        if self.bound is not None:
            return _in_bound(value, self.bound)
        if self.values is None:
            return (value is not None) != self.negated
        return (value in self.values) != self.negated


def _in_bound(value: str | None, bound: tuple[str, int]) -> bool:
    if value is None or not re.fullmatch(r"-?\d+", value):
        return False
    operator, limit = bound
    return int(value) < limit if operator == "<" else int(value) > limit


class LabelFilter(NamedTuple):
    """A conjunction of requirements; without any it matches everything."""

    requirements: tuple[_Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(each.matches(labels) for each in self.requirements)


class FieldFilter(NamedTuple):
    """(field, value, equal) triples; an absent field is the empty string."""

    terms: tuple[tuple[str, str, bool], ...] = ()

    def matches(self, fields: Mapping[str, str]) -> bool:
        return all((fields.get(name, "") == value) == wanted for name, value, wanted in self.terms)

    def pinned(self, name: str) -> str | None:
        """The value that the field must have, or None."""
        for each, value, wanted in self.terms:
            if each == name and wanted:
                return value
        return None


def parse_labels(text: str) -> LabelFilter:
    """Parse a label selector."""
    found, place = [], 0
    while place < len(text):
        match = _TERM.match(text, place)
        if match is None or match.end() == place:
            raise _unparsable(text)
        found.append(_requirement(match, text))
        place = match.end()
    return LabelFilter(tuple(found))


def _requirement(match: re.Match[str], text: str) -> _Requirement:
    if match["absent"]:
        return _Requirement(match["absent_key"], None, negated=True)
    key = match["key"]
    if match["set"]:
        values = frozenset(each.strip() for each in match["values"].split(","))
        return _Requirement(key, values, negated=match["set"] == "notin")
    match match["op"]:
        case None:
            return _Requirement(key, None, negated=False)
        case "<" | ">" as operator:
            if not re.fullmatch(r"-?\d+", match["value"]):
                raise _unparsable(text)
            return _Requirement(key, None, negated=False, bound=(operator, int(match["value"])))
        case operator:
            return _Requirement(key, frozenset({match["value"]}), negated=operator == "!=")


def _unparsable(text: str) -> Failure:
    return bad_request(f"unable to parse requirement: {text!r} is not a label selector")


def parse_fields(text: str, known: Set[str]) -> FieldFilter:
    """Parse a field selector."""
    terms = []
    for part in filter(None, _split_terms(text)):
        match = re.fullmatch(r"\s*([^=!\s]+)\s*(==|=|!=)(.*)", part, re.DOTALL)
        if match is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        name, operator, value = match.groups()
        if name not in known:
            raise bad_request(f"field label not supported: {name}")
        terms.append((name, re.sub(r"\\([\\,=])", r"\1", value), operator != "!="))
    return FieldFilter(tuple(terms))


def _split_terms(text: str) -> list[str]:
    return re.split(r"(?<!\\),", text)
