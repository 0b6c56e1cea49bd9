"""Label and field selectors of queries.

Source: apimachinery pkg/labels/selector.go, pkg/fields/selector.go.
Differs: no label selectors with < and >.
"""

import re
from collections.abc import Mapping, Set
from typing import NamedTuple

from kruise_probe.api.labels import Requirement, parse_selector
from kruise_probe_playground.apiserver.failures import bad_request


class FieldTerm(NamedTuple):
    """An absent field is the empty string."""

    name: str
    value: str
    negated: bool

    def matches(self, fields: Mapping[str, str]) -> bool:
        return (fields.get(self.name, "") == self.value) != self.negated


def parse_labels(text: str) -> tuple[Requirement, ...]:
    try:
        return parse_selector(text).requirements if text.strip() else ()
    except ValueError as error:
        raise bad_request(f"unable to parse requirement: {error}") from error


def parse_fields(text: str, known: Set[str]) -> tuple[FieldTerm, ...]:
    terms = []
    for part in filter(None, re.split(r"(?<!\\),", text)):
        match = re.fullmatch(r"(.*?)(==|=|!=)(.*)", part, re.DOTALL)
        if match is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        name, operator, value = match.groups()
        if name not in known:
            listed = ", ".join(f'"{field}"' for field in sorted(known))
            raise bad_request(f'"{name}" is not a known field selector: only {listed}')
        if not re.fullmatch(r"(?:[^\\,=]|\\[\\,=])*", value, re.DOTALL):
            raise bad_request(f"invalid field selector: unescaped character in value: {value}")
        terms.append(
            FieldTerm(
                name,
                re.sub(r"\\([\\,=])", r"\1", value),
                operator == "!=",
            )
        )
    return tuple(terms)
