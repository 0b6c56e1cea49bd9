"""The log of a container: bounded, readable in parts, and to follow."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kruise_probe_playground.node.container_log import (
    LINE_OVERHEAD_BYTES,
    MAX_LINE_BYTES,
    MAX_LOG_BYTES,
    ContainerLog,
)


def log_of(*chunks: bytes) -> ContainerLog:
    log = ContainerLog()
    for each in chunks:
        log.take(each)
    return log


async def read(log: ContainerLog, **options: Any) -> bytes:
    return b"".join([each async for each in log.read(**options)])


@given(st.lists(st.binary(max_size=40_000), max_size=12))
async def test_log_is_the_end_of_the_output_and_bounded(chunks: list[bytes]) -> None:
    log = log_of(*chunks * 3)
    log.close()
    kept, output = await read(log), b"".join(chunks * 3)
    assert output.endswith(kept)
    pieces = len(log._lines)
    assert len(kept) + pieces * LINE_OVERHEAD_BYTES <= MAX_LOG_BYTES
    if (
        len(output)
        + (output.count(b"\n") + len(output) // MAX_LINE_BYTES + 1) * (LINE_OVERHEAD_BYTES)
        <= MAX_LOG_BYTES
    ):
        assert kept == output


async def test_follower_that_falls_behind_misses_only_dropped_lines() -> None:
    log = log_of(b"old\n")
    reading = log.read(follow=True)
    assert await anext(reading) == b"old\n"
    log.take(b"x" * MAX_LOG_BYTES + b"\n")
    log.take(b"new\n")
    log.close()
    rest = b"".join([each async for each in reading])
    assert rest.endswith(b"x\nnew\n")


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        pytest.param(b"", "", id="nothing"),
        pytest.param(b"Traceback\n\nValueError: no\n \n", "ValueError: no", id="blank-lines-at-the-end"),
        pytest.param(b"caf\xe9\n", "caf\ufffd", id="not-utf-8"),
    ],
)  # fmt: skip
def test_last_line_is_the_last_that_is_not_blank(output: bytes, expected: str) -> None:
    assert log_of(output).last_line() == expected
