import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kruise_probe.daemon.probers.messages import (
    clean_message,
    clean_output,
    duration,
    first_line_length,
    one_line,
    quote,
    with_first_line,
)

MAX_MESSAGE_BYTES = 1024


@pytest.mark.parametrize(
    ("output", "message"),
    [
        pytest.param(b"", "", id="nothing-stays-nothing"),
        pytest.param(b"full\n", "full", id="line-end-of-echo-is-cut"),
        pytest.param(b"one\r\ntwo\n\nthree", "one two three", id="line-ends-become-a-space"),
        pytest.param(b"a\tb", "a b", id="tab-becomes-a-space"),
        pytest.param(b"\x1b[31mred\x1b[0m", "[31mred[0m", id="escape-characters-go"),
        pytest.param(b"a\x00b\x7fc", "abc", id="nul-and-delete-go"),
        pytest.param("grün".encode(), "grün", id="umlauts-stay"),
        pytest.param(b"a\xffb", "a\ufffdb", id="no-utf-8-is-replaced"),
        pytest.param(b"\xc2\x85x\xc2\x9b", "x", id="c1-controls-go"),
        pytest.param("a\ud800b", "ab", id="half-a-surrogate-goes"),
        pytest.param("a\u2028b", "a b", id="line-separator-becomes-a-space"),
    ],
)
def test_output_becomes_one_line_of_valid_text(output: bytes | str, message: str) -> None:
    assert clean_message(output) == message


@pytest.mark.parametrize(
    ("output", "first_line"),
    [
        pytest.param(b"7\n", None, id="one-line"),
        pytest.param(b"7\r\nmore\r\n", "7", id="carriage-return-line-feed"),
        pytest.param(b"\n\n 7\n\n\nmore", "7", id="blank-lines"),
        pytest.param(b"a\tb\nc", "a b", id="tab-is-no-line-end"),
        pytest.param("a\u2028b", "a", id="line-separator"),
        pytest.param(b"\x1b\x00\n7\nmore", "7", id="first-visible-line"),
        pytest.param(b"7\n\x1b", None, id="nothing-visible-follows"),
        pytest.param(b"x" * 2000 + b"\nmore", None, id="longer-than-a-message"),
    ],
)
def test_published_message_has_the_length_of_its_first_line(
    output: bytes | str, first_line: str | None
) -> None:
    length = first_line_length(clean_output(output))

    assert (length if length is None else clean_message(output)[:length]) == first_line


@given(st.binary(max_size=3000) | st.text("ab \t\r\n\v\x00\x1e\x85", max_size=50))
def test_output_is_restored_from_the_published_message(output: bytes | str) -> None:
    kept = clean_output(output)
    length = first_line_length(kept)

    assert with_first_line(one_line(kept), length) == kept
    assert one_line(kept) == clean_message(output)


@pytest.mark.parametrize("length", [None, -2, 0, 2, 9])
def test_a_length_that_does_not_end_at_a_space_is_ignored(length: int | None) -> None:
    assert with_first_line(" bc d", length) == " bc d"
    assert with_first_line(" bc d", 3) != " bc d"


@pytest.mark.parametrize(
    ("character", "count"),
    [
        pytest.param("x", 1024, id="one-byte"),
        pytest.param("ü", 512, id="two-bytes"),
        pytest.param("€", 341, id="three-bytes"),
        pytest.param("🙂", 256, id="four-bytes"),
    ],
)
def test_long_output_is_cut_at_a_character(character: str, count: int) -> None:
    assert clean_message(character.encode() * 5000) == character * count


@given(st.binary(max_size=3000) | st.text(max_size=3000))
def test_any_output_makes_a_message_that_a_status_can_hold(output: bytes | str) -> None:
    message = clean_message(output)

    assert len(message.encode()) <= MAX_MESSAGE_BYTES
    assert not any(ord(character) < 0x20 or 0x7F <= ord(character) < 0xA0 for character in message)
    assert json.loads(json.dumps(message)) == message
    assert clean_message(message) == message


@pytest.mark.parametrize("hidden", [" ", "\n", "\x00", "\x7f", " \t\x1b\r\n"])
@pytest.mark.parametrize("count", [9000, 8 << 20])
def test_invisible_bytes_do_not_hide_later_text(hidden: str, count: int) -> None:
    output = (hidden * count)[:count] + "full\n"

    assert clean_message(output) == "full"
    assert clean_message(output.encode()) == "full"


def test_only_the_beginning_of_a_long_output_is_decoded() -> None:
    """Eight times the size of a message, from the first visible byte."""
    assert clean_message(b"x" * (16 << 20)) == "x" * MAX_MESSAGE_BYTES
    for text in ("\n a" + "\x00" * 8190 + "bc", "\n a" + "\x00" * 8191 + "bc"):
        seen = "ab" if len(text) == 8195 else "a"
        assert clean_message(text) == clean_message(text.encode()) == seen


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        pytest.param(b"ok", '"ok"', id="plain"),
        pytest.param(b'a"b\\', r'"a\"b\\"', id="quote-and-backslash"),
        pytest.param(b"A: \x00", r'"A: \x00"', id="control"),
        pytest.param(b"\r\n", r'"\r\n"', id="line-end"),
        pytest.param(b"\xff", r'"\xff"', id="no-utf-8"),
        pytest.param("ü", '"ü"', id="printable"),
        pytest.param("\u200b", r'"\u200b"', id="invisible"),
        pytest.param(b"\x80\xfe", r'"\x80\xfe"', id="no-utf-8-from-0x80-on"),
        pytest.param(b"\x1f\x7f", r'"\x1f\x7f"', id="ascii-controls"),
        pytest.param("\x80\x9f", r'"\u0080\u009f"', id="controls-above-ascii"),
        pytest.param("\uffff", r'"\uffff"', id="last-of-four-digits"),
        pytest.param("\U0001d173", r'"\U0001d173"', id="eight-digits"),
        pytest.param("x" * 2000, f'"{"x" * 1024}"', id="truncated"),
    ],
)
def test_quote_is_as_in_go(text: bytes | str, quoted: str) -> None:
    assert quote(text) == quoted


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.5, "500ms"),
        (1, "1s"),
        (1.5, "1.5s"),
        (59.9999999, "1m0s"),
        (60, "1m0s"),
        (90, "1m30s"),
        (3600, "1h0m0s"),
    ],
)
def test_duration_is_as_in_go(seconds: float, text: str) -> None:
    assert duration(seconds) == text
