"""Messages: normalised output of programs, and values as Go formats them."""

import json
import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import cases
from support.tables import load_table

from kruise_probe.api.messages import command_message, normalise_message, searched_part

MAX_MESSAGE_BYTES = 1024

PARTS = st.sampled_from(
    [
        b"\x1b",
        b"[3",
        b"1m",
        b"]0;",
        b"\x07",
        b"\\",
        b"\r",
        b"\n",
        b"\t",
        b" ",
        b"\0",
        b"a",
        b"\xc2\x9b",
        "\u00fc\u20ac\U0001f642".encode(),
        b"\xff",
        b"x" * 500,
        b"\xef\xbb\xbf",
    ]
)
OUTPUTS = st.binary(max_size=3000) | st.lists(PARTS, max_size=30).map(b"".join)


TABLE = load_table(Path(__file__).parents[2] / "data" / "messages.yaml", {})


@cases("output message", **TABLE["normalised"])
def test_normalised_message_is_readable_text(output: bytes | str, message: str) -> None:
    assert normalise_message(output) == message
    if isinstance(output, str):
        assert normalise_message(output.encode()) == message


def test_half_a_surrogate_is_left_out() -> None:
    assert normalise_message("a\ud800b") == "ab"


SEQUENCES = st.sampled_from(
    [
        b"\x1b[1;31m",
        b"\x1b[0m",
        b"\xc2\x9b4m",
        b"\x1b]0;t\x07",
        b"\x1b]8;;http://x\x1b\\",
        b"\x1b7",
        b"\x1b(B",
        b"\x1bP1$r0m\x1b\\",
        b"\x1b",
        b"\x1b[",
    ]
)
TIMES = st.sampled_from([1, 2, 900])
TEXTS = st.sampled_from(["", "\n", "\n(!)", "\n\u00b0"])


@given(st.lists(st.tuples(SEQUENCES, TIMES, TEXTS), max_size=8), SEQUENCES)
def test_text_between_sequences_is_whole(runs: list[tuple[bytes, int, str]], end: bytes) -> None:
    output = b""
    texts = ""
    for sequence, times, text in runs:
        output += sequence * times + text.encode()
        texts += text
    assert normalise_message(output + end[:-1]) == texts.strip()


@cases(
    "part",
    text=b"a",
    escapes=b"\x1b",
    sequences=b"\x1b[m",
    sequences_and_text=b"a\x1b[m",
    unknown_sequences=b"\x1ba ",
    unfinished_strings=b"\x1b]",
    c1_strings=b"\xc2\x90",
    latin=b"\xc2",
    control_characters=b"\x01a",
)
def test_a_megabyte_of_output_blocks_the_loop_for_milliseconds(part: bytes) -> None:
    output = part * ((1 << 20) // len(part))
    began = time.thread_time()
    command_message(1, output, output)
    assert time.thread_time() - began < 0.1, "two outputs, 50 ms each"


@pytest.mark.parametrize("character", ["x", "\u00fc", "\u20ac", "\U0001f642"])
def test_long_message_is_cut_at_a_character(character: str) -> None:
    fitting = MAX_MESSAGE_BYTES // len(character.encode())
    assert normalise_message(character.encode() * 5000) == character * fitting


@given(OUTPUTS, OUTPUTS, st.integers(0, 255))
def test_normalising_twice_changes_nothing(stdout: bytes, stderr: bytes, exit_code: int) -> None:
    for message in (normalise_message(stdout), command_message(exit_code, stdout, stderr)):
        assert len(message.encode()) <= MAX_MESSAGE_BYTES
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", message)
        assert json.loads(json.dumps(message)) == message
        assert normalise_message(message) == message


@given(st.text(max_size=300) | OUTPUTS.map(lambda output: output.decode(errors="replace")))
def test_kruises_raw_message_of_a_success_normalises_to_ours(raw: str) -> None:
    output = raw.encode(errors="ignore")[:MAX_MESSAGE_BYTES].decode(errors="ignore")
    assert normalise_message(output) == command_message(0, output.encode(), b"a warning")


@pytest.mark.parametrize("hidden", [" ", "\n", "\x00", "\x7f", " \t\x0e\r\n"])
def test_invisible_bytes_do_not_hide_later_text(hidden: str) -> None:
    output = (hidden * (1 << 20))[: 1 << 20] + "full\n"
    assert normalise_message(output) == "full"
    assert normalise_message(output.encode()) == "full"


@cases("exit_code stdout stderr message", **TABLE["failed"])
def test_failing_command_says_all_it_can(
    exit_code: int,
    stdout: str,
    stderr: str,
    message: str,
) -> None:
    assert command_message(exit_code, stdout.encode(), stderr.encode()) == message


def test_last_line_of_a_megabyte_of_output_stays() -> None:
    trace = b"Traceback\n" + b"  File x\n" * (1 << 16) + "ValueError: gr\u00fcn\n".encode()
    message = command_message(1, trace, trace)
    assert message.startswith("Traceback\n")
    assert message.count("ValueError: gr\u00fcn") == 2


@cases(
    "message failed part",
    whole=("x" * 1020, False, ""),
    cut=("x" * 1021, False, "the first 1,024 bytes"),
    counted_in_bytes=("é" * 511, False, "the first 1,024 bytes"),
    failed=("x" * 600 + "…" + "x" * 421, True, "the beginning and the end"),
    succeeded=("x" * 1021 + "…", False, "the first 1,024 bytes"),
)
def test_message_that_was_cut_names_what_is_searched(message: str, failed: bool, part: str) -> None:
    expected = f"only {part} of the output are searched" if part else ""

    assert searched_part(message, failed=failed) == expected
