"""The form of logs."""

import contextlib
import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog
from support.cases import cases

from kruise_probe.runtime.process import configure_logs


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers = root.handlers
    level = root.level
    yield
    root.handlers = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def logged(format: str, level: str = "info", stream: io.StringIO | None = None) -> io.StringIO:
    stream = stream or io.StringIO()
    with contextlib.redirect_stderr(stream):
        configure_logs(format=format, level=level)
    return stream


@cases(
    "stream part",
    file_has_key_value_lines=(
        io.StringIO(),
        'level=info event="probe changed" pod=ns/web-0 state=Failed',
    ),
    terminal_has_colours=(Terminal(), "\x1b["),
)
def test_text_follows_the_stream(stream: io.StringIO, part: str) -> None:
    logged("text", stream=stream)
    structlog.get_logger().info("probe changed", pod="ns/web-0", state="Failed")

    assert part in stream.getvalue()


def test_json_is_one_object_a_line() -> None:
    stream = logged("json")
    structlog.get_logger().info("probe changed", pod="ns/web-0")
    record = json.loads(stream.getvalue())

    assert record["time"].endswith("Z")
    assert record["event"] == "probe changed"
    assert record["level"] == "info"
    assert record["pod"] == "ns/web-0"


@pytest.mark.parametrize("format", ["text", "json"])
def test_records_of_libraries_have_the_same_format(format: str) -> None:
    stream = logged(format)
    logging.getLogger("aiohttp.server").error("broken %s", "pipe")
    line = stream.getvalue()

    assert "broken pipe" in line
    if format == "json":
        assert json.loads(line)["level"] == "error"
    else:
        assert "level=error" in line


@pytest.mark.parametrize("format", ["text", "json"])
def test_below_the_level_nothing_is_written(format: str) -> None:
    stream = logged(format, level="warning")
    structlog.get_logger().info("quiet")
    logging.getLogger("library").info("quiet")

    assert stream.getvalue() == ""


@cases("stream", file=io.StringIO(), terminal=Terminal())
def test_secrets_are_never_written(stream: io.StringIO) -> None:
    logged("text", stream=stream)
    log = structlog.get_logger()
    hidden = "s3cr3t-t0ken-value"
    log.info(
        "a",
        token=hidden,
        authorization=hidden,
        client_key=hidden,
    )
    log.info("b", error=f"refused: Authorization: Bearer {hidden}")
    logging.getLogger("library").warning("header Bearer %s", hidden)
    try:
        raise ValueError(f"Bearer {hidden}")
    except ValueError:
        log.exception("c")

    written = stream.getvalue()
    assert hidden not in written
    assert written.count("[redacted]") == 6


def test_an_exception_in_json_is_one_line_without_local_variables() -> None:
    stream = logged("json")
    password = "hunter2"  # noqa: F841 - it must not come out
    try:
        raise ValueError("broken")
    except ValueError:
        structlog.get_logger().exception("failed")
    (line,) = stream.getvalue().splitlines()

    assert "ValueError: broken" in json.loads(line)["exception"]
    assert "hunter2" not in line.replace('password = "hunter2"', "")


@pytest.mark.parametrize("library", ["asyncio", "aiohttp.access", "grpc._cython.cygrpc", "urllib3"])
def test_libraries_do_not_log_every_call(library: str) -> None:
    stream = logged("json", "debug")

    logging.getLogger(library).debug("called")

    assert stream.getvalue() == ""
