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

LABEL = Mark("labels", "a")
ANNOTATION = Mark("annotations", "a")
COST = Mark("annotations", "controller.kubernetes.io/pod-deletion-cost")


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
    "mark message valid",
    label=(LABEL, "primary", True),
    label_with_a_space=(LABEL, "a b", False),
    label_of_63_characters=(LABEL, "v" * 63, True),
    label_of_64_characters=(LABEL, "v" * 64, False),
    label_in_another_script=(LABEL, "ключ", False),
    annotation=(ANNOTATION, "any text: ключ", True),
    annotation_of_1024_bytes=(ANNOTATION, "x" * 1024, True),
    annotation_of_1025_bytes=(ANNOTATION, "x" * 1025, False),
    bytes_not_characters=(ANNOTATION, "é" * 600, False),
    cost=(COST, "-10", True),
    cost_that_is_no_integer=(COST, "10.5", False),
    cost_that_is_too_large=(COST, "99999999999", False),
)
def test_a_mark_needs_a_valid_value(mark: Mark, message: str, valid: bool) -> None:
    wanted = FromMessage("", "static", 10, over_limit=False)
    over_limit = FromMessage(".*", "static", 10, over_limit=True)

    assert value_of(mark, wanted, message) == (message if valid else None)
    assert value_of(mark, over_limit, message) is None


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
    budget = PatternBudget()
    pattern = ".{1,200}"
    fitting = MAX_MARKER_INSTRUCTIONS // budget.take(pattern)
    for _ in range(fitting - 1):
        budget.take(pattern)
    with pytest.raises(PatternError, match=re.escape(TOO_LARGE)):
        budget.take(pattern)
