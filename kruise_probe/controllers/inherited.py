"""Conditions of a marker that the previous manager reported and that this one cannot have observed yet.

Each is kept until it expires. What they say of silent daemons: `takeover`.

Source: no counterpart.
Differs: nothing.
"""

from collections.abc import Iterable
from typing import Final

from kruise_probe.api.meta import Condition
from kruise_probe.controllers.conditions import (
    CHANGED_BY_ADMISSION,
    CHANGED_BY_ANOTHER,
    CONFLICT,
    DEGRADED,
    GROUP_MISSING,
    GROUP_TOO_LARGE,
    NOT_MARKED,
    WRITES_LIMITED,
)
from kruise_probe.controllers.counts import TWO_DAEMONS
from kruise_probe.controllers.foreign import MARGIN_SECONDS, REPORTED_SECONDS
from kruise_probe.controllers.limits import NO_ROOM

HOLDERS_SECONDS: Final = 160.0
"""Time that two daemons of a node need for `daemon_leases.HOLDERS` renewals, if each renews every 40 s."""
FIRST_PASS_SECONDS: Final = 60.0
"""Time that the first reconcile of every pod and node needs in a large cluster, with the writes that the API server refuses."""

INHERITED_SECONDS: Final = {
    CHANGED_BY_ANOTHER: REPORTED_SECONDS,
    CHANGED_BY_ADMISSION: REPORTED_SECONDS,
    TWO_DAEMONS: HOLDERS_SECONDS,
    NOT_MARKED: FIRST_PASS_SECONDS,
    NO_ROOM.reason: FIRST_PASS_SECONDS,
    WRITES_LIMITED: FIRST_PASS_SECONDS,
    GROUP_TOO_LARGE: FIRST_PASS_SECONDS,
    GROUP_MISSING: FIRST_PASS_SECONDS,
}
"""By reason, for how long a condition is kept."""


class Inherited:
    """The conditions of one marker that the previous manager reported, and when they expire.

    `now` is loop time. An edit of the marker ends them, as it may be the remedy.
    """

    def __init__(self, conditions: Iterable[Condition], now: float) -> None:
        self._expires_at: dict[Condition, float] = {}
        for condition in conditions:
            seconds = INHERITED_SECONDS.get(condition.reason)
            if condition.type not in (CONFLICT, DEGRADED) or condition.status != "True":
                continue
            if seconds is not None:
                self._expires_at[condition] = now + seconds

    def current(self, generation: int, now: float) -> dict[str, Condition]:
        """By type, the conditions that have not expired. Drops the others."""
        found = {}
        for condition, expires_at in [*self._expires_at.items()]:
            if now >= expires_at or condition.observed_generation != generation:
                del self._expires_at[condition]
            else:
                found[condition.type] = condition
        return found

    def seconds_left(self, now: float) -> list[float]:
        """Seconds until each of the conditions expires."""
        times = self._expires_at.values()
        return [max(expires_at - now, 0.0) + MARGIN_SECONDS for expires_at in times]
