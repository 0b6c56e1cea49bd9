"""YAML and JSON as nodes: bounds, positions, aliases, and what kubectl makes of scalars."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import cases
from support.linting import DATA, lint_text
from support.tables import load_table

from kruise_probe.lint import reader
from kruise_probe.lint.findings import Rule
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
    return [value_of(each.root) for each in read(text)]


BILLION = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
)


REFUSED = {
    "aliases-that-multiply": (BILLION, 1, "with aliases expanded"),
    "alias-of-itself": ("a: 1\nb: &b [*b]\n", 2, "levels deep"),
    "alias-without-anchor": ("a: *b\n", 1, "undefined alias 'b'; define"),
    "anchor-of-another-document": ("a: &x 1\n---\nb: *x\n", 3, "undefined"),
    "deep-lists": ("[" * 20_000, 1, "levels deep"),
    "deep-mappings": ("a: " + "{a: " * 20_000, 1, "levels deep"),
    "deep-json": ('{"a":' * 20_000, 1, "levels deep"),
    "deep-block-lists": ("- " * 20_000, 1, "levels deep"),
    "deep-aliases": ("\n".join(["a0: &a0 [1]"] + [f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 100)]), 1, "levels deep"),
    "merged-number": ("a: {<<: 1}\n", 1, "the value of << is not a mapping"),
}  # fmt: skip


@cases("text line message", **REFUSED)
def test_what_is_too_large_or_cyclic_is_refused_at_its_line(
    text: str, line: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "MAX_VALUES", 20_000)  # the product's limit takes seconds to reach
    with pytest.raises(Malformed) as raised:
        parsed(text)

    assert raised.value.finding.position.line == line
    assert message in raised.value.finding.message


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
    with pytest.raises(Malformed) as raised:
        parsed(text)

    assert raised.value.finding.position == tuple(position)
    assert raised.value.finding.message.startswith("not valid JSON: ")
    assert message in raised.value.finding.message


def test_documents_before_a_broken_one_are_checked() -> None:
    marker = json.dumps({"kind": "PodProbeMarker", "apiVersion": "v1"})

    found = lint_text(f"{marker}\n{{\n").findings

    assert {each.rule for each in found} > {Rule.UNKNOWN_KIND, Rule.SYNTAX}


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

    assert [each.key.position.line for each in document.root.entries.values()] == [1, 2, 3]


_TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp", "Cn", "Co")), max_size=6)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1000, 1000) | _TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4),
    max_leaves=20,
)


@given(value=st.dictionaries(_TEXT, _JSON, max_size=4), indent=st.sampled_from([None, 2]))
def test_json_is_read_as_written_and_each_key_is_at_its_position(
    value: dict[str, Any], indent: int | None
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    lines = text.split("\n")
    (document,) = read(text)

    assert value_of(document.root) == value
    for key, (line, column) in _keys(document.root):
        assert lines[line - 1][column - 1 :].startswith(json.dumps(key, ensure_ascii=False))


def _keys(node: Node) -> list[tuple[str, tuple[int, int]]]:
    found: list[tuple[str, tuple[int, int]]] = []
    if isinstance(node, MappingNode):
        for key, entry in node.entries.items():
            found += [(key, entry.key.position), *_keys(entry.value)]
    elif isinstance(node, SequenceNode):
        for each in node.items:
            found += _keys(each)
    return found
