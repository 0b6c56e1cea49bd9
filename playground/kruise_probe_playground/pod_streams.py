"""What the API server needs of a node: the options of a log, and why a log or a command is not there."""

from datetime import datetime
from typing import NamedTuple


class NotOnNode(Exception):
    """The container is gone, or its command cannot be started; the text says why."""


class LogOptions(NamedTuple):
    """core/v1 PodLogOptions without `container`; `since` is the time of sinceTime or sinceSeconds."""

    follow: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    limit_bytes: int | None = None
    since: datetime | None = None
