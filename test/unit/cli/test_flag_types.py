"""Flags accept Go's syntax and refuse the rest with an example of it."""

import re

import click
import pytest

from kruise_probe.api.times import parse_duration
from kruise_probe.cli.flag_types import (
    GO_BOOL,
    LABEL_KEYS,
    LISTEN_ADDRESS,
    RATE,
    number,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("15s", 15),
        ("1m30s", 90),
        ("500ms", 0.5),
        ("1.5h", 5400),
        ("0", 0),
        ("+2s", 2),
        ("1h2m3s4ms5us6ns", 3723.004005006),
        (".5s", 0.5),
        ("15", None),
        ("", None),
        ("s", None),
        ("-1s", None),
        ("1 s", None),
        ("1d", None),
        ("1s2", None),
        ("nan", None),
    ],
)
def test_durations_have_the_syntax_of_go(text: str, seconds: float | None) -> None:
    parsed = parse_duration(text)

    assert parsed == (pytest.approx(seconds) if seconds is not None else None)


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("1", True), ("T", True), ("false", False), ("0", False), ("FALSE", False)],
)
def test_booleans_have_the_syntax_of_go(text: str, value: bool) -> None:
    assert GO_BOOL.convert(text, None, None) is value


@pytest.mark.parametrize("text", ["yes", "on", "", "tRue"])
def test_other_booleans_are_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="write true or false"):
        GO_BOOL.convert(text, None, None)


@pytest.mark.parametrize(
    "text", [":8080", "127.0.0.1:8080", "[::1]:8080", "[10.0.0.1]:8080", "localhost:0"]
)
def test_listen_addresses_are_accepted(text: str) -> None:
    assert LISTEN_ADDRESS.convert(text, None, None) == text


@pytest.mark.parametrize("text", ["", "0"])
def test_zero_or_empty_address_disables_the_server(text: str) -> None:
    assert LISTEN_ADDRESS.convert(text, None, None) == ""


@pytest.mark.parametrize("text", ["nan", "inf", "1e400", "-1", "many"])
def test_rate_must_be_a_finite_number(text: str) -> None:
    with pytest.raises(click.BadParameter):
        RATE.convert(text, None, None)
    assert RATE.convert("0.5", None, None) == 0.5


@pytest.mark.parametrize("text", ["many", "0", "1.5", "9" * 400, ""])
def test_number_outside_of_its_bounds_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"is not a valid number.* of at least 1"):
        number(1).convert(text, None, None)


@pytest.mark.parametrize("text", ["8080", ":http", ":70000", "::1:8080", "a:b:1", "127.0.0.1"])
def test_other_addresses_are_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="write :8080"):
        LISTEN_ADDRESS.convert(text, None, None)


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("", set()),
        ("pod-template-hash", {"pod-template-hash"}),
        (" a.example/b, c ,", {"a.example/b", "c"}),
    ],
)
def test_label_keys_are_a_list_with_commas(text: str, keys: set[str]) -> None:
    assert LABEL_KEYS.convert(text, None, None) == keys


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a b", "'a b' is not a label key"),
        ("topology.kubernetes.io/*", "is not a label key"),
        (",".join(f"k{n}" for n in range(33)), "33 keys are too many; write at most 32"),
    ],
)
def test_wrong_label_keys_are_refused(text: str, error: str) -> None:
    with pytest.raises(click.BadParameter, match=re.escape(error)):
        LABEL_KEYS.convert(text, None, None)
