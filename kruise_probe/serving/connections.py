"""The open connections of a server, and which one to close if there are too many or their bodies are too large.

Only decides; the server closes connections.
"""

import asyncio
import socket
from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple

from kruise_probe.serving.stream import ConnectionStream

GRACE_SECONDS: Final = 1.0
"""A connection without a complete request is not evicted before this age, unless all others are busy too."""


class Limits(NamedTuple):
    """Limits of a server.

    Attributes:
        idle_seconds: how long a connection without a request is kept.
        all_bodies_bytes: maximum size of the bodies of all connections together.
        max_connections: during a flood, a new client has time to send its request until this many others have connected.
    """

    idle_seconds: float = 15.0
    max_body_bytes: int = 0
    all_bodies_bytes: int = 0
    max_connections: int = 256


class ConnectionStage(Enum):
    """Stage of a connection."""

    INCOMPLETE = "has sent no complete request"
    IDLE = "is between two requests"
    ANSWERING = "has a request in flight"


class OpenConnection:
    """One accepted connection; `since` is when it entered its stage."""

    def __init__(self, accepted: socket.socket, now: float) -> None:
        self.stream: Final = ConnectionStream(accepted)
        self.stage = ConnectionStage.INCOMPLETE
        self.since = now
        self.body: list[bytes] = []
        """Body chunks received so far. A local variable of a cancelled task would keep them until the next garbage collection."""
        self.body_bytes = 0
        self.task: asyncio.Task[None] | None = None


class ConnectionTable:
    """The open connections by stage, in the order in which they entered it, and the size of their bodies."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._all: dict[OpenConnection, None] = {}
        self._by_stage: dict[ConnectionStage, dict[OpenConnection, None]] = {
            stage: {} for stage in ConnectionStage
        }
        self.body_bytes = 0

    def __iter__(self) -> Iterator[OpenConnection]:
        """Iterate over a copy, oldest connection first."""
        return iter(tuple(self._all))

    @property
    def is_full(self) -> bool:
        return len(self._all) >= self._limits.max_connections

    def add(self, connection: OpenConnection) -> None:
        self._all[connection] = None
        self._by_stage[connection.stage][connection] = None

    def discard(self, connection: OpenConnection) -> None:
        """Remove the connection, if it is still there, and its body."""
        self._all.pop(connection, None)
        self._by_stage[connection.stage].pop(connection, None)
        self.release_body(connection)

    def enter(self, connection: OpenConnection, stage: ConnectionStage, now: float) -> None:
        """Change the stage; no-op for a connection that was discarded, whose task may still run."""
        if connection not in self._all:
            return
        self._by_stage[connection.stage].pop(connection, None)
        self._by_stage[stage][connection] = None
        connection.stage, connection.since = stage, now

    def to_evict(self, now: float) -> OpenConnection:
        """Return the connection to close for a new one.

        First the oldest without a complete request, if it is older than `GRACE_SECONDS`. Then the one idle for
        longest, then the oldest of all. So a new client gets a response even while others flood the server.
        """
        incomplete = next(iter(self._by_stage[ConnectionStage.INCOMPLETE]), None)
        if incomplete is not None and now - incomplete.since >= GRACE_SECONDS:
            return incomplete
        idle = next(iter(self._by_stage[ConnectionStage.IDLE]), None)
        return idle if idle is not None else next(iter(self._all))

    def store_body(self, connection: OpenConnection, chunk: bytes) -> None:
        connection.body.append(chunk)
        connection.body_bytes += len(chunk)
        self.body_bytes += len(chunk)

    def release_body(self, connection: OpenConnection) -> None:
        self.body_bytes -= connection.body_bytes
        connection.body_bytes = 0
        connection.body.clear()

    def to_close_for_bodies(self, newest: OpenConnection) -> OpenConnection | None:
        """Return the connection to close because all bodies together are too large; None if they are not.

        It is the oldest with an incomplete body, or `newest` if there is none.
        """
        if self.body_bytes <= self._limits.all_bodies_bytes:
            return None
        incomplete = self._by_stage[ConnectionStage.INCOMPLETE]
        return next((each for each in incomplete if each.body_bytes), newest)
