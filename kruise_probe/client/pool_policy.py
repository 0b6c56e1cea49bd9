"""When the pool opens a connection, lets a request wait for one, or gives one up. No I/O: all times are arguments.

A load balancer may allow a client few connections. It then resets further ones, or leaves them unanswered. One attempt
after the other finds out when it allows more; requests share the open connections meanwhile.

A server that responds with 5xx may be one of several behind one address. Another connection may lead to a good one.
But a 5xx may also be a fault of the request, or of all servers, and then new connections are only more work for them.

Source: Go net/http transport.go (a request takes a new or a released connection, whichever comes first); client-go has
one HTTP/2 connection, and closes it if a ping is not answered.
"""

from enum import Enum, IntEnum
from typing import Final

from kruise_probe.client.request import WRITES, Request

MAX_DIALS: Final = 8
"""Attempts to open a connection at once, without those of leases and watches."""

FIRST_PAUSE_SECONDS: Final = 1.0
"""Pause after an attempt that failed. It doubles with each further one."""
LAST_PAUSE_SECONDS: Final = 30.0

GIVE_UP_SECONDS: Final = 1.0
"""Interval of connections that are given up for a 5xx that the request may have caused."""
LAST_GIVE_UP_SECONDS: Final = 16.0
"""Interval if new connections respond with 5xx too. It doubles until then."""


class Turn(IntEnum):
    """The order in which waiting requests get a connection."""

    LEASE = 0
    STREAM = 1
    OTHER = 2


def turn_of(request: Request) -> Turn:
    """The turn of a request. Reads of leases are requests like others."""
    if request.streams:
        return Turn.STREAM
    if request.method in WRITES and "/leases" in request.target:
        return Turn.LEASE
    return Turn.OTHER


def may_be_at_fault(request: Request) -> bool:
    """True if a 5xx may come from an admission webhook: of writes, except for those of leases."""
    if request.method not in WRITES:
        return False
    return turn_of(request) is not Turn.LEASE


class Growth:
    """Whether another connection may be opened now.

    Attributes:
        paused_until: loop time; no ordinary request opens a connection before it.
    """

    def __init__(self) -> None:
        self.paused_until = float("-inf")
        self._paused_at = float("-inf")
        self._pause_seconds = 0.0

    @property
    def limited(self) -> bool:
        """True if the last attempt failed."""
        return self._pause_seconds > 0

    def may_dial(self, now: float, turn: Turn, *, tried: bool, dialing: int, busy: int) -> bool:
        """True if a waiting request may open a connection, which the first in the queue will get.

        Args:
            now: loop time.
            turn: turn of the request.
            tried: it has opened one already, in vain.
            dialing: attempts in flight.
            busy: connections that other requests will release; those of watches do not count.
        """
        if now < self.paused_until:
            if turn is Turn.OTHER:
                return not busy and not dialing
            return not tried
        if turn is not Turn.OTHER:
            return True
        most = MAX_DIALS
        if self.limited:
            most = 1
        return dialing < most

    def failed(self, now: float, began_at: float) -> None:
        """An attempt to open a connection failed. Attempts that began together count once."""
        if began_at <= self._paused_at:
            return
        self._paused_at = now
        pause = max(2 * self._pause_seconds, FIRST_PAUSE_SECONDS)
        self._pause_seconds = min(pause, LAST_PAUSE_SECONDS)
        self.paused_until = now + self._pause_seconds

    def succeeded(self) -> None:
        """A connection was opened."""
        self.paused_until = float("-inf")
        self._pause_seconds = 0.0


class Closing(Enum):
    """Which connections are closed after a 5xx."""

    NONE = "none"
    THIS = "the one that carried it"
    THIS_AND_OLDER = "it, and all that were opened before now"


class GivingUp:
    """Which connections are given up after a 5xx."""

    def __init__(self) -> None:
        self._not_before = float("-inf")
        self._interval_seconds = GIVE_UP_SECONDS

    def closing(self, now: float, *, worked: bool, may_be_at_fault: bool) -> Closing:
        """Decide after a 5xx on one connection.

        Args:
            now: loop time.
            worked: an earlier response on it was not a 5xx.
            may_be_at_fault: see the function of this name.
        """
        if worked and not may_be_at_fault:
            self._interval_seconds = GIVE_UP_SECONDS
            return Closing.THIS_AND_OLDER
        if now < self._not_before:
            return Closing.NONE
        if worked:
            self._interval_seconds = GIVE_UP_SECONDS
        self._not_before = now + self._interval_seconds
        if not worked:
            doubled = 2 * self._interval_seconds
            self._interval_seconds = min(doubled, LAST_GIVE_UP_SECONDS)
        return Closing.THIS
