"""Label and field selectors of queries.

Source: apimachinery pkg/labels/selector.go, pkg/fields/selector.go.
Differs: nothing.
"""

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from kruise_probe.api.labels import Requirement, label_key_error, label_value_error
from kruise_probe_playground.apiserver.failures import Failure, bad_request

_TOKEN = re.compile(r"\s*(?:(?P<text>[^\s=!,()<>]+)|(?P<symbol>==|!=|[=!,()<>])|$)")
_OPERATORS = "in, notin, =, ==, !=, gt, lt"


class _Bound(NamedTuple):
    """A requirement of an integer below or above a limit."""

    key: str
    operator: str
    limit: int

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        if value is None or not re.fullmatch(r"-?\d+", value):
            return False
        return int(value) < self.limit if self.operator == "<" else int(value) > self.limit


class LabelFilter(NamedTuple):
    """A conjunction of requirements; without any it matches everything."""

    requirements: tuple[Requirement | _Bound, ...] = ()

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
    return LabelFilter(tuple(_Parser(text).requirements()))


class _Parser:
    """A selector's tokens from left to right; the last token is empty."""

    def __init__(self, text: str) -> None:
        self._tokens = [each.group().strip() for each in _TOKEN.finditer(text)]
        if self._tokens[-1]:
            self._tokens.append("")
        self._at = 0

    def _next(self) -> str:
        token = self._tokens[min(self._at, len(self._tokens) - 1)]
        self._at += 1
        return token

    def requirements(self) -> Iterator[Requirement | _Bound]:
        token = self._next()
        if not token:
            return
        while True:
            if token != "!" and not _is_text(token):
                raise bad_request(f"found '{token}', expected: !, identifier, or 'end of string'")
            yield self._requirement(token)
            after = self._next()
            if not after:
                return
            if after != ",":
                raise bad_request(f"found '{after}', expected: ',' or 'end of string'")
            token = self._next()
            if token != "!" and not _is_text(token):
                raise bad_request(f"found '{token}', expected: identifier after ','")

    def _requirement(self, key: str) -> Requirement | _Bound:
        negated = key == "!"
        if negated:
            key = self._next()
            if not _is_text(key):
                raise _unparsable(f"found '{key}', expected: identifier")
        if wrong := label_key_error(key):
            raise _unparsable(f'<nil>: Invalid value: "{key}": {wrong}')
        if negated:
            return Requirement(key, None, negated=True)
        operator = self._next()
        match operator:
            case "" | ",":
                self._at -= 1
                return Requirement(key, None, negated=False)
            case "in" | "notin":
                return Requirement(key, self._values(key), negated=operator == "notin")
            case "=" | "==" | "!=":
                return Requirement(key, self._value(key), negated=operator == "!=")
            case "<" | ">":
                (bound,) = self._value(key)
                if not re.fullmatch("[-+]?[0-9]{1,63}", bound) or int(bound) >= 1 << 63:
                    raise _unparsable(f"values[0]: Invalid value: \"{bound}\": for 'Gt', 'Lt'")
                return _Bound(key, operator, int(bound))
            case _:
                raise _unparsable(f"found '{operator}', expected: {_OPERATORS}")

    def _value(self, key: str) -> frozenset[str]:
        value = self._next()
        if value in ("", ","):
            self._at -= 1
            return frozenset({""})
        if not _is_text(value):
            raise _unparsable(f"found '{value}', expected: identifier")
        return _checked(key, [value])

    def _values(self, key: str) -> frozenset[str]:
        token = self._next()
        if token != "(":
            raise _unparsable(f"found '{token}' expected: '('")
        values = [""]
        while True:
            match self._next():
                case ")":
                    return _checked(key, values)
                case ",":
                    values.append("")
                case token if _is_text(token) and not values[-1]:
                    values[-1] = token
                case token:
                    raise _unparsable(f"found '{token}', expected: ',' or ')'")


def _is_text(token: str) -> bool:
    return bool(token) and token[0] not in "=!,()<>"


def _checked(key: str, values: Sequence[str]) -> frozenset[str]:
    for index, value in enumerate(values):
        if wrong := label_value_error(value):
            raise _unparsable(f'values[{index}][{key}]: Invalid value: "{value}": {wrong}')
    return frozenset(values)


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
