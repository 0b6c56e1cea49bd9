"""Values from the message of a result: what is found, and the bounds of patterns."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kruise_probe.api.extraction import (
    MAX_MARKER_INSTRUCTIONS,
    TOO_LARGE,
    FromMessage,
    PatternBudget,
    PatternError,
    annotation_value,
    extract,
    label_value,
)
from kruise_probe.api.reserved import SYNTAX

COST = "controller.kubernetes.io/pod-deletion-cost"


def wanted(pattern: str = "", *, over_limit: bool = False) -> FromMessage:
    return FromMessage(pattern, "static", 10, over_limit)


@pytest.mark.parametrize(
    ("message", "pattern", "value"),
    [
        pytest.param("players=7 max=9", r"players=(\d+)", "7", id="group"),
        pytest.param("a=1 b=2", r"(\w)=(\d)", "a", id="first-group"),
        pytest.param("n=1 n=2", r"n=(\d)", "1", id="first-match"),
        pytest.param("load 0.7", r"[0-9.]+", "0.7", id="whole-match-without-group"),
        pytest.param("load 0.7", r"(?:load) [0-9.]+", "load 0.7", id="group-that-captures-nothing"),
        pytest.param("role=", r"role=(\w*)", "", id="empty-group"),
        pytest.param("b", "(a)|b", None, id="group-outside-the-match"),
        pytest.param("idle", "busy", None, id="no-match"),
        pytest.param("  primary \r\nsecond", "", "primary", id="first-line-trimmed"),
        pytest.param("\n \n second\n", "", "second", id="first-line-that-is-not-blank"),
        pytest.param("", "", None, id="empty-message"),
        pytest.param("one\ntwo", "t.*", "two", id="other-lines-are-searched"),
        pytest.param("модель=é", "модель=(.)", "é", id="characters-not-bytes"),
        pytest.param("é", r"(\C)", None, id="part-of-a-character"),
        pytest.param("a\x00b", "a.b", "a\x00b", id="binary"),
        pytest.param("x" * 1100 + "n=1", "n=1", None, id="beyond-what-is-searched"),
        pytest.param("a" * 900, "(a+)+$x", None, id="no-backtracking"),
    ],
)
def test_the_value_is_what_the_pattern_finds(message: str, pattern: str, value: str | None) -> None:
    assert extract(message, pattern) == value


@pytest.mark.parametrize(
    ("message", "value"),
    [
        pytest.param("primary", "primary", id="valid"),
        pytest.param("a b", None, id="space"),
        pytest.param("v" * 63, "v" * 63, id="63-characters"),
        pytest.param("v" * 64, None, id="64-characters"),
        pytest.param("ключ", None, id="another-script"),
    ],
)
def test_a_label_needs_a_valid_value(message: str, value: str | None) -> None:
    assert label_value(wanted(), message) == value
    assert label_value(wanted(".*", over_limit=True), message) is None


@pytest.mark.parametrize(
    ("key", "message", "value"),
    [
        pytest.param("a", "any text: ключ", "any text: ключ", id="any-text"),
        pytest.param("a", "x" * 1024, "x" * 1024, id="1024-bytes"),
        pytest.param("a", "x" * 1025, None, id="1025-bytes"),
        pytest.param("a", "é" * 600, None, id="bytes-not-characters"),
        pytest.param(COST, "-10", "-10", id="cost"),
        pytest.param(COST, "10.5", None, id="cost-that-is-no-integer"),
        pytest.param(COST, "99999999999", None, id="cost-that-is-too-large"),
    ],
)
def test_an_annotation_needs_a_valid_value(key: str, message: str, value: str | None) -> None:
    assert annotation_value(wanted(), key, message) == value
    assert annotation_value(wanted(".*", over_limit=True), key, message) is None


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        pytest.param("(", SYNTAX, id="syntax"),
        pytest.param("(?=a)", SYNTAX, id="look-ahead"),
        pytest.param("\ud800", SYNTAX, id="lone-surrogate"),
        pytest.param("x" * 257, "256 characters", id="257-characters"),
        pytest.param(".{1,900}", TOO_LARGE, id="long-repetition"),
        pytest.param("((a{0,100}){0,10}){0,10}", "repetition", id="nested-repetition"),
        pytest.param(r"\pL" * 9, TOO_LARGE, id="unicode-classes"),
    ],
)
def test_an_unusable_pattern_is_refused_with_the_reason(pattern: str, why: str) -> None:
    with pytest.raises(PatternError, match=re.escape(why)):
        PatternBudget().take(pattern)


def test_the_patterns_of_a_marker_are_bounded_in_total() -> None:
    budget, pattern = PatternBudget(), ".{1,200}"
    fitting = MAX_MARKER_INSTRUCTIONS // budget.take(pattern)
    for _ in range(fitting - 1):
        budget.take(pattern)
    with pytest.raises(PatternError, match=re.escape(TOO_LARGE)):
        budget.take(pattern)


@given(st.text(alphabet="ab=1 \n", max_size=40))
def test_the_first_match_is_that_of_other_engines(message: str) -> None:
    for pattern in (r"a=(\d)", r"b+", r"(a|b)=", r"a(b)?"):
        match = re.search(pattern, message)
        expected = match and match[1 if "(" in pattern else 0]
        assert extract(message, pattern) == expected
