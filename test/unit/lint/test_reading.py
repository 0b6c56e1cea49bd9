"""YAML and JSON as nodes: bounds, positions, aliases, and what kubectl makes of scalars."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.linting import lint_text

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
from kruise_probe.lint.reader import MAX_VALUES


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


@pytest.mark.parametrize(("text", "line", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_too_large_or_cyclic_is_refused_at_its_line(
    text: str, line: int, message: str
) -> None:
    with pytest.raises(Malformed) as raised:
        parsed(text)

    assert raised.value.finding.position.line == line
    assert message in raised.value.finding.message


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
        pytest.param("!!int '3'", 3, id="quoted-integer-with-a-tag"),
        pytest.param("!!bool 'true'", True, id="quoted-boolean-with-a-tag"),
        pytest.param("!!float 3", 3, id="tagged-float"),
        pytest.param("!!int x", "x", id="text-that-contradicts-its-tag"),
        pytest.param("! 5", "5", id="tagged-as-text"),
        pytest.param("!own 5", "5", id="own-tag"),
        pytest.param("0.1_0", 0.1, id="underscore-in-a-fraction"),
        pytest.param(".5", 0.5, id="fraction-without-zero"),
        pytest.param("0x", "0x", id="prefix-only"),
        pytest.param("18446744073709551616", 18446744073709551616.0, id="more-than-64-bits"),
        pytest.param("5s", "5s", id="duration"),
        pytest.param("9" * 5000, float("inf"), id="too-many-digits"),
    ],
)
def test_scalars_have_the_types_that_kubectl_gives_them(text: str, value: object) -> None:
    assert parsed(f"a: {text}") == [{"a": value}]


POD = '{"kind":"Pod"}'


@pytest.mark.parametrize(
    ("text", "values"),
    [
        pytest.param(f"\n\n {POD}", [{"kind": "Pod"}], id="blank-first-lines"),
        pytest.param(f"{POD}\n{POD}", [{"kind": "Pod"}] * 2, id="lines"),
        pytest.param(POD + POD, [{"kind": "Pod"}] * 2, id="without-a-separator"),
        pytest.param(json.dumps({"a": "😀"}), [{"a": "😀"}], id="surrogates"),
        pytest.param(r'{"a":"\ud83d!"}', [{"a": "\ufffd!"}], id="surrogate-without-its-partner"),
        pytest.param(r'{"a":"\/\u0000\u007f"}', [{"a": "/\0\x7f"}], id="escapes"),
        pytest.param('{"a":"yes","b":-1.5e1}', [{"a": "yes", "b": -15.0}], id="scalars"),
        pytest.param('{"a\u2028":"\x7f\u0085"}', [{"a\u2028": "\x7f\u0085"}], id="not-in-yaml"),
        pytest.param('{"a":\t[],"b":{}}', [{"a": [], "b": {}}], id="empty"),
    ],
)
def test_text_that_begins_with_a_brace_is_a_stream_of_json(text: str, values: object) -> None:
    assert parsed(text) == values


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        pytest.param("{a: 1}", (1, 2), "Expecting property name", id="yaml"),
        pytest.param('{"a":\n 1,b}', (2, 4), "Expecting property name", id="no-quotes"),
        pytest.param('{"a" 1}', (1, 6), "Expecting ':' delimiter", id="no-colon"),
        pytest.param('{"a":[1 2]}', (1, 9), "Expecting ',' delimiter", id="no-comma"),
        pytest.param('{"a":01}', (1, 7), "Expecting ',' delimiter", id="octal"),
        pytest.param('{"a":', (1, 6), "Expecting value", id="end"),
        pytest.param('{"a":"b', (1, 6), "Unterminated string", id="open-string"),
        pytest.param('{"a":"b\n"}', (1, 8), "Invalid control character", id="line-break"),
        pytest.param(f"{POD}\n---\n{POD}", (2, 1), "Expecting value", id="separator-of-yaml"),
        pytest.param(
            f"{POD}\n{POD}\n{{,}}\n{POD}", (3, 2), "Expecting property name", id="third-document"
        ),
    ],
)
def test_json_that_is_not_valid_is_an_error_at_its_place(
    text: str, position: tuple[int, int], message: str
) -> None:
    with pytest.raises(Malformed) as raised:
        parsed(text)

    assert raised.value.finding.position == position
    assert raised.value.finding.message.startswith("not valid JSON: ")
    assert message in raised.value.finding.message


def test_documents_before_a_broken_one_are_checked() -> None:
    marker = json.dumps({"kind": "PodProbeMarker", "apiVersion": "v1"})

    found = lint_text(f"{marker}\n{{\n").findings

    assert {each.rule for each in found} > {Rule.UNKNOWN_KIND, Rule.SYNTAX}


@pytest.mark.parametrize("text", ["[{}]", "- {}"], ids=["json", "yaml"])
def test_list_of_objects_is_refused_as_kubectl_refuses_it(text: str) -> None:
    (finding,) = lint_text(text.format('{"apiVersion": "v1", "kind": "Pod"}')).findings

    assert "kubectl refuses a list of objects" in finding.message


def test_three_megabytes_of_json_are_read() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a": "é" * 90}}}
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [pod] * 5000})

    assert len(text) > 3_000_000
    assert lint_text(text).templates == 0


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
