"""What the API server needs of a node: the options of a log, and why a log or a command is not there."""

from typing import NamedTuple


class NotOnNode(Exception):
    """The container is gone, or its command cannot be started; the text says why."""


class LogOptions(NamedTuple):
    """Some of core/v1 PodLogOptions."""

    follow: bool = False
    tail_lines: int | None = None
