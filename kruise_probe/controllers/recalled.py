"""Conditions of a marker that the previous manager reported and that this one cannot have observed yet.

Each is kept until it expires, so a restart changes no status. What conditions say of silent daemons: `takeover`.

Source: no counterpart.
Differs: nothing.
"""

from collections.abc import Iterable
from typing import Final

from kruise_probe.api.meta import Condition
from kruise_probe.controllers.conditions import (
    CHANGED_BY_ADMISSION,
    CHANGED_BY_ANOTHER,
    GROUP_MISSING,
    GROUP_TOO_LARGE,
    NOT_MARKED,
    WRITES_LIMITED,
)
from kruise_probe.controllers.counts import TWO_DAEMONS
from kruise_probe.controllers.foreign import MARGIN_SECONDS, REPORTED_SECONDS
from kruise_probe.controllers.limits import NO_ROOM

TURNS_SECONDS: Final = 160.0
"""So long two daemons of a node take for `daemon_leases.HOLDERS` renewals, if each renews every 40 s."""
RESYNC_SECONDS: Final = 60.0
"""So long the first reconcile of every pod and node takes in a large cluster, with the writes that the API server refuses."""

RECALLED_SECONDS: Final = {
    CHANGED_BY_ANOTHER: REPORTED_SECONDS,
    CHANGED_BY_ADMISSION: REPORTED_SECONDS,
    TWO_DAEMONS: TURNS_SECONDS,
    NOT_MARKED: RESYNC_SECONDS,
    NO_ROOM.reason: RESYNC_SECONDS,
    WRITES_LIMITED: RESYNC_SECONDS,
    GROUP_TOO_LARGE: RESYNC_SECONDS,
    GROUP_MISSING: RESYNC_SECONDS,
}
"""By reason, for how long a condition is kept."""


class Recalled:
    """The conditions of one marker that the previous manager reported, and when they expire.

    `now` is loop time. An edit of the marker ends them, as it may be the remedy.
    """

    def __init__(self, conditions: Iterable[Condition], now: float) -> None:
        self._expires_at: dict[Condition, float] = {}
        for condition in conditions:
            seconds = RECALLED_SECONDS.get(condition.reason)
            if seconds is not None and condition.status == "True":
                self._expires_at[condition] = now + seconds

    def current(self, generation: int, now: float) -> dict[str, Condition]:
        """By type, the conditions that have not expired."""
        found = {}
        for condition, expires_at in self._expires_at.items():
            if now < expires_at and condition.observed_generation == generation:
                found[condition.type] = condition
        return found

    def seconds_left(self, now: float) -> list[float]:
        """Seconds until each of the conditions expires."""
        return [
            expires_at - now + MARGIN_SECONDS
            for expires_at in self._expires_at.values()
            if now < expires_at
        ]
