"""The value that `extract` names, and what there is instead, in tables; each step of hostile texts is short."""

import time
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from support.cases import cases

from kruise_probe.api.criteria import Extract, MetricSample, path_steps
from kruise_probe.api.extraction import Steps
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
from kruise_probe.workqueue.slices import at_once

METRICS = b"""\
# HELP queue_size Jobs that wait.
# TYPE queue_size gauge
queue_size{shard="0"} 3
queue_size{shard="1"} 4.50 1395066363000
queue_size_total 9
idle 1e3
 \tindented\t7
broken x
nan NaN
inf +Inf
less -Inf
h_bucket{le="+Inf"} 5 # {trace_id="}#"} 0.67 1520879607.789
h_count 5 1520879607.789
{"http.server.active", "a b"="c"} 2
{"queue.size"} 8
quoted{a="x\\"}\\n # y"} 6
twice 1
twice 2
twice 3
# EOF
"""


def found(text: bytes, wire: dict[str, Any], *, is_cut: bool = False) -> str:
    """The value as it is published, or why there is none."""
    try:
        value = at_once(value_in(text, msgspec.convert(wire, Extract), is_cut=is_cut))
        return text_of(value)
    except NoValue as error:
        return f"NoValue: {error}"


def metric(name: str, **labels: str) -> dict[str, Any]:
    return {"metric": {"name": name, "labels": labels}}


@cases(
    "wanted expected",
    by_label=(metric("queue_size", shard="0"), "3"),
    with_time=(metric("queue_size", shard="1"), "4.5"),
    longer_name=(metric("queue_size_total"), "9"),
    exponent=(metric("idle"), "1000"),
    indented=(metric("indented"), "7"),
    exemplar=(metric("h_bucket", le="+Inf"), "5"),
    openmetrics_time=(metric("h_count"), "5"),
    quoted_name=(metric("http.server.active", **{"a b": "c"}), "2"),
    quoted_name_only=(metric("queue.size"), "8"),
    escaped_label=(metric("quoted", a='x"}\n # y'), "6"),
    two_samples=(metric("queue_size"), 'NoValue: 2 samples of queue_size: {shard="0"}, {shard="1"}'),
    three_samples=(metric("twice"), "NoValue: more than 2 samples of twice: {}, {}"),
    no_such_label=(metric("queue_size", shard="2"), 'NoValue: no sample of queue_size{shard="2"}'),
    histogram=(metric("h"), "NoValue: no sample of h"),
    absent=(metric("queue"), "NoValue: no sample of queue"),
    default=({**metric("queue"), "default": "0"}, "0"),
    nan=({**metric("nan"), "default": "0"}, "NoValue: nan is not finite: NaN"),
    infinite=(metric("inf"), "NoValue: inf is not finite: Infinity"),
    negative_infinite=(metric("less"), "NoValue: less is not finite: -Infinity"),
    malformed=(metric("broken"), "NoValue: malformed sample 'broken x'"),
)  # fmt: skip
def test_a_metric_is_the_only_sample_with_its_name_and_labels(wanted: Any, expected: str) -> None:
    assert found(METRICS, wanted) == expected


JSON = rb"""
{"a": {"b": [{"x-y": 3.10}, 7], "b.c": "text", "null": null, "": "empty"}, "yes": true, "list": [],
 "big": 12345678901234567890123, "long": "%s", "lines": "a\nb", "e": 1.5e3, "small": 1E-3, "twice": 1, "twice": 2,
 "digits": 1%s, "huge": 1e999}
""" % (b"x" * 300, b"0" * 400)


@cases(
    "path expected",
    nested=(".a.b[0]['x-y']", "3.1"),
    item=(".a.b[1]", "7"),
    escaped_point=(r".a.b\.c", "text"),
    double_quotes=('.a["b.c"]', "text"),
    empty_key=(".a['']", "empty"),
    boolean=(".yes", "true"),
    big=(".big", "12345678901234567890123"),
    exponent=(".e", "1500"),
    small=(".small", "0.001"),
    last_of_two_counts=(".twice", "2"),
    list=(".list", "NoValue: .list is a list"),
    object=(".a", "NoValue: .a is an object"),
    null=(".a.null", "NoValue: .a.null is null"),
    absent=(".a.q", "NoValue: .a.q: no 'q'"),
    index_beyond=(".a.b[2]", "NoValue: .a.b[2]: no 2"),
    member_of_list=(".a.b.c", "NoValue: .a.b.c: no 'c'"),
    index_of_object=("[0]", "NoValue: [0]: no 0"),
    long=(".long", "NoValue: the value has more than 256 bytes"),
    lines=(".lines", "NoValue: the value has several lines"),
    digits=(".digits", "NoValue: the number has more than 256 digits"),
    huge=(".huge", "NoValue: the number has more than 256 digits"),
)
def test_a_path_leads_to_one_value_of_json(path: str, expected: str) -> None:
    assert found(JSON, {"jsonPath": path}) == expected


@cases(
    "text expected",
    none=(b"<html>", "no JSON: JSON is malformed: invalid character (byte 0)"),
    cut=(b'{"a": [', "no JSON: Input data was truncated"),
    more=(b'{"a": 1} 2', "no JSON: JSON is malformed: trailing characters (byte 10)"),
    too_deep=(b'{"b":' + b"[" * 200_000, "no JSON: maximum recursion depth exceeded"),
    no_utf_8=(b'{"a": "\xff"}', "no JSON: 'utf-8' codec can't decode"),
    nan=(b'{"a": NaN}', "no JSON: JSON is malformed: invalid character (byte 6)"),
    empty=(b" \n", "the text is empty"),
)
def test_what_is_no_json_has_no_value_also_with_a_default(text: bytes, expected: str) -> None:
    result = found(text, {"jsonPath": ".a", "default": "0"})

    assert result.startswith(f"NoValue: {expected}")


@cases(
    "text pattern expected",
    group=(b"a\nplayers=5 of 9\n", r"players=(\d+)", "5"),
    whole=(b"a\nplayers=5 of 9\n", r"players=\d+", "players=5"),
    line_ends=(b"a\r\nb\r\nc", "^b$", "b"),
    within_a_line=(b"a\nb", r"a\sb", "NoValue: no line matches 'a\\\\sb'"),
    class_without_line_end=(b"a\nb", "a[^x]b", "NoValue: no line matches 'a[^x]b'"),
    group_that_took_no_part=(b"b", "(a)?b", "NoValue: no line matches '(a)?b'"),
    no_utf_8=(b"\xff", r"\C", "NoValue: the value is no UTF-8"),
    long=(b"x" * 300, "x+", "NoValue: the value has more than 256 bytes"),
    line_too_long=(b"x" * 200_000, "a.{0,90}b", "NoValue: pattern too costly"),
    body_too_long=(b"x" * 99 + b"\n" + b"x" * 99_000, "[^a]{0,900}b", "NoValue: pattern too costly"),
    far_away=(b"x" * 99 + b"\n" * 200_000 + b"n=7", "n=(.)", "7"),
)  # fmt: skip
def test_a_pattern_matches_within_a_line(text: bytes, pattern: str, expected: str) -> None:
    assert found(text, {"regex": pattern}) == expected


@cases(
    "wanted expected",
    found_before=(metric("queue_size", shard="0"), "3"),
    last_line_is_incomplete=(metric("twice"), "NoValue: 2 samples of twice: {}, {}"),
    not_found=(metric("z") | {"default": "0"}, "NoValue: no sample of z in the first 262,144 bytes"),
    json=({"jsonPath": ".a"}, "NoValue: JSON of more than 262,144 bytes"),
)  # fmt: skip
def test_of_a_text_that_is_cut_nothing_is_said_to_be_absent(wanted: Any, expected: str) -> None:
    text = METRICS.partition(b" 3\n# EOF")[0]

    assert found(text, wanted, is_cut=True) == expected


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


KIB_256 = MAX_TEXT_BYTES
HOSTILE = {
    "samples": (b"a 1\n" * (KIB_256 // 4), metric("a")),
    "labels": (b'a{b="c"} 1\n' * (KIB_256 // 11), metric("a", b="d")),
    "other-names": (b'b{a="c"} 1\n' * (KIB_256 // 11), metric("a")),
    "one-line": (b"xa " * (KIB_256 // 3), metric("a")),
    "one-sample": (b"a{" + b'b="",' * (KIB_256 // 5) + b"} 1", metric("a")),
    "quotes": (b'a{"' * (KIB_256 // 3), metric("a")),
    "short-names": (b"b\n" * (KIB_256 // 2) + b"a 1", metric("a")),
    "lists": (b"[" + b"[]," * (KIB_256 // 3 - 1) + b"0]", {"jsonPath": "[0]"}),
    "objects": (b"[" + b'{"":0},' * (KIB_256 // 7) + b"0]", {"jsonPath": "[1].x"}),
    "members": (b"{%s}" % b",".join(b'"%x":0' % n for n in range(28_000)), {"jsonPath": ".x"}),
    "nested": (b'{"a":' * 250 + b"1" + b"}" * 250, {"jsonPath": ".a" * 128}),
    "wide-and-deep": (
        b'{"a":[' * 60 + b"0," * (KIB_256 // 2 - 500) + b"0" + b"]}" * 60,
        {"jsonPath": ".a[0]" * 50},
    ),
    "digits": (b"[" + b"9" * (KIB_256 - 2) + b"]", {"jsonPath": "[0]"}),
    "exponents": (b"[" + b"1e99," * (KIB_256 // 5) + b"0]", {"jsonPath": "[0]"}),
    "lines": (b"x\n" * (KIB_256 // 2), {"regex": "z"}),
    "pattern": (b"ab" * 500 + b"\n", {"regex": "(?:[ab]{0,900})c"}),
}


def slowest(steps: Steps[Value]) -> float:
    """The CPU time of the longest step, in seconds."""
    longest = 0.0
    has_ended = False
    while not has_ended:
        began = time.thread_time()
        try:
            next(steps)
        except (StopIteration, NoValue):
            has_ended = True
        longest = max(longest, time.thread_time() - began)
    return longest


@pytest.mark.parametrize("name", HOSTILE)
def test_no_step_is_long_whatever_the_text(name: str) -> None:
    text, wire = HOSTILE[name]
    extract = msgspec.convert(wire, Extract)

    # The least of three: another process of the machine lengthens a step, but never shortens it.
    assert min(slowest(value_in(text, extract, is_cut=False)) for _ in range(3)) < 0.05


def test_an_exporter_that_never_ends_its_metrics_costs_no_more_than_a_thousand_lines() -> None:
    text = b'a{b="c"} 1\n' * (KIB_256 // 11)

    with pytest.raises(NoValue, match="more than 1,024 samples of a"):
        at_once(metric_value(text, MetricSample("a", {"b": "d"})))
