"""Selectors of queries."""

import pytest

from kruise_probe.playground.apiserver.failures import Failure
from kruise_probe.playground.apiserver.selecting import parse_fields, parse_labels


@pytest.mark.parametrize(
    ("selector", "labels", "expected"),
    [
        pytest.param("", {}, True, id="nothing-asked"),
        pytest.param("a=b", {"a": "b"}, True, id="equal"),
        pytest.param("a=b", {}, False, id="absent"),
        pytest.param("a==b", {"a": "b"}, True, id="double"),
        pytest.param("a != b", {}, True, id="unequal-absent"),
        pytest.param("a!=b", {"a": "b"}, False, id="unequal"),
        pytest.param("a in (b,c)", {"a": "c"}, True, id="in"),
        pytest.param("a in ( b , c )", {"a": "b"}, True, id="in-with-spaces"),
        pytest.param("a notin (b)", {"a": "b"}, False, id="notin"),
        pytest.param("a notin (b)", {}, True, id="notin-absent"),
        pytest.param("a", {"a": ""}, True, id="exists"),
        pytest.param("!a", {"a": ""}, False, id="does-not-exist"),
        pytest.param("a=b,c!=d", {"a": "b", "c": "d"}, False, id="conjunction"),
        pytest.param("x.io/a in (b), c", {"x.io/a": "b", "c": ""}, True, id="prefix-and-comma"),
        pytest.param("a>5", {"a": "6"}, True, id="greater"),
        pytest.param("a<5", {"a": "x"}, False, id="no-number"),
        pytest.param("a=", {"a": ""}, True, id="empty-value"),
    ],
)
def test_label_selectors(selector: str, labels: dict[str, str], expected: bool) -> None:
    assert parse_labels(selector).matches(labels) is expected


@pytest.mark.parametrize("selector", ["a===b", "a in b", "in (a)", "=b", "a>x", "a b", "(a)"])
def test_what_is_no_label_selector(selector: str) -> None:
    with pytest.raises(Failure) as refused:
        parse_labels(selector)
    assert refused.value.code == 400


KNOWN = frozenset({"metadata.name", "spec.nodeName"})


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        pytest.param("", True, id="nothing-asked"),
        pytest.param("metadata.name=a", True, id="equal"),
        pytest.param("metadata.name==b", False, id="double"),
        pytest.param("metadata.name!=b,spec.nodeName=", True, id="empty-value"),
        pytest.param(r"metadata.name=a\,b", False, id="escaped-comma"),
    ],
)
def test_field_selectors(selector: str, expected: bool) -> None:
    assert parse_fields(selector, KNOWN).matches({"metadata.name": "a"}) is expected


@pytest.mark.parametrize("selector", ["metadata.name", "nonsense=1", "=x"])
def test_what_is_no_field_selector(selector: str) -> None:
    with pytest.raises(Failure) as refused:
        parse_fields(selector, KNOWN)
    assert refused.value.code == 400


def test_a_pinned_field_is_known() -> None:
    parsed = parse_fields("metadata.name=a,spec.nodeName!=b", KNOWN)
    assert parsed.pinned("metadata.name") == "a"
    assert parsed.pinned("spec.nodeName") is None
