"""How logs look: text for people, key=value lines for files, JSON for machines.

Everything goes through one chain, also what libraries say by the standard `logging`. Tokens never come through
it: values of secret names and bearer tokens anywhere are struck out.

Source: controller-runtime TMP-LOGGING.md for what is logged (constant messages, keys and values).
"""

import logging
import re
import sys
from typing import Any, Final, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

LEVELS: Final = ("debug", "info", "warning", "error")
FORMATS: Final = ("text", "json")

_SECRET_NAMES = re.compile(
    r"(?i)(^|_)(token|password|secret|authorization|private_key|client_key)$"
)
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}")
_STRUCK_OUT = "[redacted]"


def configure_logs(*, format: str, level: str, stream: TextIO | None = None) -> None:
    """Sets structlog and the standard logging up, once per process, before anything logs.

    Args:
        format: one of `FORMATS`. Text is coloured and aligned on a terminal, key=value elsewhere.
        level: one of `LEVELS`.
        stream: where to; standard error without one.
    """
    stream = stream or sys.stderr
    threshold = logging.getLevelNamesMapping()[level.upper()]
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                redact,
                _renderer(format, stream),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(threshold)
    for chatty in ("asyncio", "aiohttp.access", "grpc", "urllib3"):
        logging.getLogger(chatty).setLevel(max(threshold, logging.WARNING))


def _renderer(format: str, stream: TextIO) -> Processor:
    if format == "json":
        return structlog.processors.JSONRenderer()
    if stream.isatty():
        return structlog.dev.ConsoleRenderer(
            timestamp_key="time", exception_formatter=structlog.dev.plain_traceback
        )
    return structlog.processors.LogfmtRenderer(key_order=["time", "level", "event"])


def redact(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Strikes out what no log may hold."""
    for key, value in event.items():
        if _SECRET_NAMES.search(key):
            event[key] = _STRUCK_OUT
        elif isinstance(value, str):
            event[key] = _without_tokens(value)
    return event


def _without_tokens(text: str) -> Any:
    return _BEARER.sub(rf"\1 {_STRUCK_OUT}", text) if "earer" in text or "asic" in text else text
