"""Log setup: text on a terminal, key=value lines in files, or JSON.

All records use one processor chain, also those of libraries that use the standard `logging`. It redacts values of
keys with secret names, and bearer tokens in any value.

Source: controller-runtime TMP-LOGGING.md for what is logged (constant messages, keys and values).
"""

import logging
import re
import sys
from typing import Any, Final

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

LEVELS: Final = ("debug", "info", "warning", "error")
FORMATS: Final = ("text", "json")

_SECRET_NAMES = re.compile(
    r"(?i)(^|_)(token|password|secret|authorization|private_key|client_key)$"
)
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}")
_REDACTED = "[redacted]"


def configure_logs(*, format: str, level: str) -> None:
    """Log to standard error, by structlog and the standard logging. Call once, before the first log record.

    Args:
        format: one of `FORMATS`. Text is coloured and aligned on a terminal, key=value elsewhere.
        level: one of `LEVELS`.
    """
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
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                redact,
                _renderer(format),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(threshold)
    for chatty in ("asyncio", "aiohttp.access", "grpc", "urllib3"):
        logging.getLogger(chatty).setLevel(max(threshold, logging.WARNING))


def _renderer(format: str) -> Processor:
    if format == "json":
        return structlog.processors.JSONRenderer()
    if sys.stderr.isatty():
        return structlog.dev.ConsoleRenderer(
            timestamp_key="time", exception_formatter=structlog.dev.plain_traceback
        )
    return structlog.processors.LogfmtRenderer(key_order=["time", "level", "event"])


def redact(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    for key, value in event.items():
        if _SECRET_NAMES.search(key):
            event[key] = _REDACTED
        elif isinstance(value, str):
            event[key] = _without_tokens(value)
    return event


def _without_tokens(text: str) -> Any:
    return _BEARER.sub(rf"\1 {_REDACTED}", text) if "earer" in text or "asic" in text else text
