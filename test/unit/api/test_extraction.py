"""Values from the message of a result: what is found, and the bounds of patterns."""

import re

import pytest
from support.cases import cases

from kruise_probe.api.extraction import (
    MAX_MARKER_INSTRUCTIONS,
    TOO_LARGE,
    FromMessage,
    PatternBudget,
    PatternError,
    extract,
    value_of,
)
from kruise_probe.api.pods import Mark
from kruise_probe.api.reserved import SYNTAX

COST = "controller.kubernetes.io/pod-deletion-cost"


def wanted(pattern: str = "", *, over_limit: bool = False) -> FromMessage:
    return FromMessage(pattern, "static", 10, over_limit)


@cases(
    "message pattern value",
    group=("players=7 max=9", r"players=(\d+)", "7"),
    first_group=("a=1 b=2", r"(\w)=(\d)", "a"),
    first_match=("n=1 n=2", r"n=(\d)", "1"),
    whole_match_without_group=("load 0.7", r"[0-9.]+", "0.7"),
    group_that_captures_nothing=("load 0.7", r"(?:load) [0-9.]+", "load 0.7"),
    empty_group=("role=", r"role=(\w*)", ""),
    group_outside_the_match=("b", "(a)|b", None),
    no_match=("idle", "busy", None),
    first_line_trimmed=("  primary \r\nsecond", "", "primary"),
    first_line_that_is_not_blank=("\n \n second\n", "", "second"),
    empty_message=("", "", None),
    other_lines_are_searched=("one\ntwo", "t.*", "two"),
    characters_not_bytes=("модель=é", "модель=(.)", "é"),
    part_of_a_character=("é", r"(\C)", None),
    binary=("a\x00b", "a.b", "a\x00b"),
    beyond_what_is_searched=("x" * 1100 + "n=1", "n=1", None),
    no_backtracking=("a" * 900, "(a+)+$x", None),
)
def test_the_value_is_what_the_pattern_finds(message: str, pattern: str, value: str | None) -> None:
    assert extract(message, pattern) == value


@cases(
    "message value",
    valid=("primary", "primary"),
    space=("a b", None),
    of_63_characters=("v" * 63, "v" * 63),
    of_64_characters=("v" * 64, None),
    another_script=("ключ", None),
)
def test_a_label_needs_a_valid_value(message: str, value: str | None) -> None:
    assert value_of(Mark("labels", "a"), wanted(), message) == value
    assert value_of(Mark("labels", "a"), wanted(".*", over_limit=True), message) is None


@cases(
    "key message value",
    any_text=("a", "any text: ключ", "any text: ключ"),
    of_1024_bytes=("a", "x" * 1024, "x" * 1024),
    of_1025_bytes=("a", "x" * 1025, None),
    bytes_not_characters=("a", "é" * 600, None),
    cost=(COST, "-10", "-10"),
    cost_that_is_no_integer=(COST, "10.5", None),
    cost_that_is_too_large=(COST, "99999999999", None),
)
def test_an_annotation_needs_a_valid_value(key: str, message: str, value: str | None) -> None:
    assert value_of(Mark("annotations", key), wanted(), message) == value
    assert value_of(Mark("annotations", key), wanted(".*", over_limit=True), message) is None


@cases(
    "pattern why",
    syntax=("(", SYNTAX),
    look_ahead=("(?=a)", SYNTAX),
    lone_surrogate=("\ud800", SYNTAX),
    of_257_characters=("x" * 257, "256 characters"),
    long_repetition=(".{1,900}", TOO_LARGE),
    nested_repetition=("((a{0,100}){0,10}){0,10}", "repetition"),
    unicode_classes=(r"\pL" * 9, TOO_LARGE),
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
