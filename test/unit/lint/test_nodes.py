"""YAML as nodes: bounds, positions, aliases, and what kubectl makes of scalars."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.linting import lint_text

from kruise_probe.lint.findings import Rule
from kruise_probe.lint.nodes import (
    MAX_DEPTH,
    MAX_VALUES,
    Lines,
    Malformed,
    MappingNode,
    SequenceNode,
    YamlNode,
    documents,
)
from kruise_probe.lint.scalars import value_of


def parsed(text: str) -> list[Any]:
    return [value_of(each.root) for each in documents(text, Lines(text))]


BILLION = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        pytest.param(BILLION, 6, "with aliases expanded", id="aliases-that-multiply"),
        pytest.param("a: 1\nb: &b [*b]\n", 2, "contains itself", id="alias-of-itself"),
        pytest.param("a: *b\n", 1, "has no anchor &b", id="alias-without-anchor"),
        pytest.param("a: &x 1\n---\nb: *x\n", 3, "no anchor", id="anchor-of-another-document"),
        pytest.param("[" * 20_000, 1, "levels deep", id="deep-lists"),
        pytest.param("{a: " * 20_000, 1, "levels deep", id="deep-mappings"),
        pytest.param("- " * 20_000, 1, "levels deep", id="deep-block-lists"),
        pytest.param(
            "\n".join(["a0: &a0 [1]"] + [f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 100)]),
            MAX_DEPTH,
            "levels deep",
            id="deep-aliases",
        ),
        pytest.param("a: {<<: 1}\n", 1, "the value of << is not a mapping", id="merged-number"),
    ],
)
def test_what_is_too_large_or_cyclic_is_refused_at_its_line(
    text: str, line: int, message: str
) -> None:
    start = time.monotonic()

    with pytest.raises(Malformed) as raised:
        parsed(text)

    assert raised.value.position.line == line
    assert message in raised.value.message
    assert time.monotonic() - start < 5


def test_a_file_of_many_values_is_refused() -> None:
    (finding,) = lint_text("apiVersion: v1\nkind: List\nitems:\n" + "- 1\n" * MAX_VALUES).findings

    assert finding.rule is Rule.SYNTAX
    assert "split it" in finding.message


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("y", True, id="y"),
        pytest.param("No", False, id="no"),
        pytest.param("off", False, id="off"),
        pytest.param("'yes'", "yes", id="quoted"),
        pytest.param("~", None, id="null"),
        pytest.param("0777", 511, id="octal"),
        pytest.param("0o17", 15, id="octal-with-letter"),
        pytest.param("0b11", 3, id="binary"),
        pytest.param("-0x1F", -31, id="hex"),
        pytest.param("08", 8.0, id="not-octal"),
        pytest.param("1_000", 1000, id="underscore"),
        pytest.param("1e3", 1000.0, id="exponent"),
        pytest.param("12:30", "12:30", id="no-sexagesimal-number"),
        pytest.param("2001-12-14", "2001-12-14", id="date"),
        pytest.param("!!str 5", "5", id="tagged"),
        pytest.param("5s", "5s", id="duration"),
        pytest.param("9" * 5000, float("inf"), id="too-many-digits"),
    ],
)
def test_scalars_have_the_types_that_kubectl_gives_them(text: str, value: object) -> None:
    assert parsed(f"a: {text}") == [{"a": value}]


def test_explicit_keys_take_precedence_over_merged_ones() -> None:
    text = "a: &a {x: 1, y: 1}\nb: {<<: [*a, {z: 3}], x: 2}\n"

    assert parsed(text)[0]["b"] == {"x": 2, "y": 1, "z": 3}


def test_only_line_feeds_count_as_lines() -> None:
    text = "a: é\u2028\nb: 1\r\nc: 2\n"
    (document,) = documents(text, Lines(text))
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
    (document,) = documents(text, Lines(text))

    assert value_of(document.root) == value
    for key, (line, column) in _keys(document.root):
        assert lines[line - 1][column - 1 :].startswith(json.dumps(key, ensure_ascii=False))


def _keys(node: YamlNode) -> list[tuple[str, tuple[int, int]]]:
    found: list[tuple[str, tuple[int, int]]] = []
    if isinstance(node, MappingNode):
        for key, entry in node.entries.items():
            found += [(key, entry.key.position), *_keys(entry.value)]
    elif isinstance(node, SequenceNode):
        for each in node.items:
            found += _keys(each)
    return found
