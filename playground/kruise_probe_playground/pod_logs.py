"""What a client asks of a container's log: shared by the API server, which parses it, and the node, which has the log."""

from datetime import datetime
from typing import NamedTuple


class NoLog(Exception):
    """The container has no log yet, or no longer; the text is the kubelet's message."""


class LogOptions(NamedTuple):
    """core/v1 PodLogOptions. `previous` is the attempt before the last start; `since` also stands for sinceSeconds."""

    container: str
    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    limit_bytes: int | None = None
    since: datetime | None = None
