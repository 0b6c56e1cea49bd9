"""The options of a request for a log. The API server parses them, and the node reads the log."""

from datetime import datetime
from typing import NamedTuple


class NoLog(Exception):
    """The container does not exist any more."""


class LogOptions(NamedTuple):
    """core/v1 PodLogOptions without `container`; `since` is the time of sinceTime or sinceSeconds."""

    follow: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    limit_bytes: int | None = None
    since: datetime | None = None
