"""YAML and JSON as nodes: bounds, positions, aliases, and what kubectl makes of scalars."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import cases
from support.linting import DATA, lint_text
from support.tables import load_table

from kruise_probe.lint import reader
from kruise_probe.lint.findings import Finding, Position, Rule
from kruise_probe.lint.linter import Source, documents
from kruise_probe.lint.nodes import (
    Document,
    Malformed,
    MappingNode,
    Node,
    SequenceNode,
    value_of,
)


def read(text: str) -> list[Document]:
    return list(documents(Source("a.yaml", text)))


def parsed(text: str) -> list[Any]:
    return [value_of(document.root) for document in read(text)]


def malformed(text: str) -> Finding:
    """The finding for a text that cannot be read."""
    with pytest.raises(Malformed) as raised:
        read(text)
    return raised.value.finding


def aliases(depth: int, *, times: int) -> str:
    """Lists, each of which contains the list before it `times` times."""
    lines = ["a0: &a0 [1]\n"]
    for number in range(1, depth):
        items = ", ".join([f"*a{number - 1}"] * times)
        lines.append(f"a{number}: &a{number} [{items}]\n")
    return "".join(lines)


@cases(
    "text line message",
    aliases_that_multiply=(aliases(12, times=10), 1, "with aliases expanded"),
    alias_of_itself=("a: 1\nb: &b [*b]\n", 2, "levels deep"),
    alias_without_anchor=("a: *b\n", 1, "undefined alias 'b'; define"),
    anchor_of_another_document=("a: &x 1\n---\nb: *x\n", 3, "undefined"),
    deep_lists=("[" * 20_000, 1, "levels deep"),
    deep_mappings=("a: " + "{a: " * 20_000, 1, "levels deep"),
    deep_json=('{"a":' * 20_000, 1, "levels deep"),
    deep_block_lists=("- " * 20_000, 1, "levels deep"),
    deep_aliases=(aliases(100, times=1), 1, "levels deep"),
    merged_number=("a: {<<: 1}\n", 1, "the value of << is not a mapping"),
)
def test_what_is_too_large_or_cyclic_is_refused_at_its_line(
    text: str, line: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "MAX_VALUES", 20_000)  # the product's limit takes seconds to reach
    finding = malformed(text)

    assert finding.position.line == line
    assert message in finding.message


TABLE = load_table(DATA / "reading.yaml", {})


@cases("text value", **TABLE["scalars"])
def test_scalars_have_the_types_that_kubectl_gives_them(text: str, value: object) -> None:
    assert parsed(f"a: {text}") == [{"a": value}]


@cases("text values", **TABLE["streams"])
def test_text_that_begins_with_a_brace_is_a_stream_of_json(text: str, values: object) -> None:
    assert parsed(text) == values


@cases("text position message", **TABLE["invalid-json"])
def test_json_that_is_not_valid_is_an_error_at_its_place(
    text: str, position: list[int], message: str
) -> None:
    finding = malformed(text)

    assert list(finding.position) == position
    assert finding.message.startswith("not valid JSON: ")
    assert message in finding.message


def test_documents_before_a_broken_one_are_checked() -> None:
    marker = json.dumps({"kind": "PodProbeMarker", "apiVersion": "v1"})

    found = lint_text(f"{marker}\n{{\n").findings

    assert {finding.rule for finding in found} > {Rule.UNKNOWN_KIND, Rule.SYNTAX}


@cases("text", json="[{}]", yaml="- {}")
def test_list_of_objects_is_refused_as_kubectl_refuses_it(text: str) -> None:
    (finding,) = lint_text(text.format('{"apiVersion": "v1", "kind": "Pod"}')).findings

    assert "kubectl refuses a list of objects" in finding.message


def test_explicit_keys_take_precedence_over_merged_ones() -> None:
    text = "a: &a {x: 1, y: 1}\nb: {<<: [*a, {z: 3}], x: 2}\n"

    assert parsed(text)[0]["b"] == {"x": 2, "y": 1, "z": 3}


def test_only_line_feeds_count_as_lines() -> None:
    text = "a: é\u2028\nb: 1\r\nc: 2\n"
    (document,) = read(text)
    assert isinstance(document.root, MappingNode)

    entries = document.root.entries.values()
    assert [entry.key.position.line for entry in entries] == [1, 2, 3]


_CHARACTERS = st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp", "Cn", "Co"))
_TEXT = st.text(_CHARACTERS, max_size=6)


def _mappings(values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(_TEXT, values, max_size=4)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1000, 1000) | _TEXT,
    lambda inner: st.lists(inner, max_size=4) | _mappings(inner),
    max_leaves=20,
)


@given(value=_mappings(_JSON), indent=st.sampled_from([None, 2]))
def test_json_is_read_as_written_and_each_key_is_at_its_position(
    value: dict[str, Any], indent: int | None
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    lines = text.split("\n")
    (document,) = read(text)

    assert value_of(document.root) == value
    for key, (line, column) in _keys(document.root):
        rest = lines[line - 1][column - 1 :]
        assert rest.startswith(json.dumps(key, ensure_ascii=False))


def _keys(node: Node) -> Iterator[tuple[str, Position]]:
    if isinstance(node, MappingNode):
        for key, entry in node.entries.items():
            yield key, entry.key.position
            yield from _keys(entry.value)
    elif isinstance(node, SequenceNode):
        for item in node.items:
            yield from _keys(item)
