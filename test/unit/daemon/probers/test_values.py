"""The value that `extract` names, and what there is instead, in tables; each step of hostile texts is short."""

import time
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest
from support.cases import cases
from support.computations import at_once
from support.tables import load_table
from support.wire import Json

from kruise_probe.api.criteria import Extract, MetricSample, path_steps
from kruise_probe.api.extraction import PatternTooCostly, Steps
from kruise_probe.daemon.probers.prober import MAX_TEXT_BYTES
from kruise_probe.daemon.probers.values import (
    NoValue,
    Value,
    metric_value,
    names_of_metrics,
    rounded,
    text_of,
    value_in,
)


def numbered(of: tuple[str, int]) -> str:
    """Repeat the text, formatted with 0, 1, …"""
    text, count = of
    return "".join(text % number for number in range(count))


DATA = Path(__file__).parents[3] / "data"
TABLE = load_table(DATA / "values.yaml", {"numbered": numbered})
VALUES: Json = TABLE["values"]
HOSTILE: Json = TABLE["hostile"]


def value_of(text: str, extract: Json, *, is_cut: bool) -> str:
    """The value as it is published, or why there is none."""
    wanted = msgspec.convert(extract, Extract)
    try:
        value = at_once(value_in(text.encode("latin-1"), wanted, is_cut=is_cut))
    except (NoValue, PatternTooCostly) as error:
        return f"NoValue: {error}"
    return text_of(value)


@pytest.mark.parametrize("row", VALUES.values(), ids=VALUES)
def test_a_text_has_the_value_or_a_reason_why_not(row: Json) -> None:
    value = value_of(
        row["text"],
        row["extract"],
        is_cut=row.get("cut", False),
    )
    if value.startswith("NoValue: no JSON: "):
        assert value.startswith(row["value"])
    else:
        assert value == row["value"]


@cases(
    "number step expected",
    down=("12.7", "5", "10"),
    exact=("10", "5", "10"),
    below_zero=("-1", "5", "-5"),
    fraction=("0.74", "0.25", "0.5"),
    large=("1e40", "3", "9" * 40),
)
def test_a_number_is_rounded_down_to_a_step(number: str, step: str, expected: str) -> None:
    assert text_of(rounded(Decimal(number), step)) == expected


def test_steps_of_a_path_are_keys_and_indexes() -> None:
    assert path_steps(r""".a.b\.c[0]['x-y']["z\"]"]""") == ["a", "b.c", 0, "x-y", 'z"]']


def test_the_names_of_samples_are_those_that_a_text_has() -> None:
    assert names_of_metrics(b'# a b\na 1\nb{x="c"} 2\na 3\n {"c.d"} 4\n') == ["a", "b", "c.d"]


def slowest(steps: Steps[Value]) -> float:
    """The CPU time of the longest step, in seconds."""
    longest = 0.0
    has_ended = False
    while not has_ended:
        began = time.thread_time()
        try:
            next(steps)
        except (StopIteration, NoValue, PatternTooCostly):
            has_ended = True
        longest = max(longest, time.thread_time() - began)
    return longest


@pytest.mark.parametrize("row", HOSTILE.values(), ids=HOSTILE)
def test_no_step_is_long_whatever_the_text(row: Json) -> None:
    text = row["text"].encode("latin-1")
    extract = msgspec.convert(row["extract"], Extract)

    # The least of three: another process of the machine lengthens a step, but never shortens it.
    times = [slowest(value_in(text, extract, is_cut=False)) for _ in range(3)]
    assert min(times) < 0.05


def test_an_exporter_that_never_ends_its_metrics_costs_no_more_than_a_thousand_lines() -> None:
    text = b'a{b="c"} 1\n' * (MAX_TEXT_BYTES // 11)

    with pytest.raises(NoValue, match="more than 1,024 samples of a"):
        at_once(metric_value(text, MetricSample("a", {"b": "d"})))
