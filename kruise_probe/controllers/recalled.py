"""What a marker's status reports that only the manager before this one has seen.

It stays in the status until this manager could have seen it too, so a restart changes no status.

What it says of silent daemons is taken over by `daemon_leases`, as the daemons themselves show when it ends.

Source: no counterpart.
Differs: nothing.
"""

from typing import Final

from kruise_probe.api.meta import Condition
from kruise_probe.api.v1alpha1 import PodProbeMarker
from kruise_probe.controllers.causes import NO_DAEMON
from kruise_probe.controllers.conditions import (
    CHANGED_BY_ADMISSION,
    CHANGED_BY_ANOTHER,
)
from kruise_probe.controllers.counts import TWO_DAEMONS
from kruise_probe.controllers.foreign import MARGIN_SECONDS, REPORTED_SECONDS

TURNS_SECONDS: Final = 160.0
"""Two daemons of one node have renewed its Lease in turns so often within this time that `daemon_leases` names them."""

RECALLED_SECONDS: Final = {
    CHANGED_BY_ANOTHER: REPORTED_SECONDS,
    CHANGED_BY_ADMISSION: REPORTED_SECONDS,
    TWO_DAEMONS: TURNS_SECONDS,
}
"""By reason, for how long a condition stays."""


class Recalled:
    """The conditions of one marker that the manager before this one wrote, and until when they stay.

    `now` is loop time. An edit of the marker ends them, as it may be the remedy.
    """

    def __init__(self, marker: PodProbeMarker, now: float) -> None:
        self._until: dict[Condition, float] = {}
        for condition in marker.conditions:
            seconds = RECALLED_SECONDS.get(condition.reason)
            if condition.status == "True" and seconds is not None:
                self._until[condition] = now + seconds

    def conditions(self, generation: int, now: float) -> dict[str, Condition]:
        """By type, the conditions that stay."""
        found = {}
        for condition, until in self._until.items():
            if now < until and condition.observed_generation == generation:
                found[condition.type] = condition
        return found

    def seconds_left(self, now: float) -> list[float]:
        """Seconds until each of the conditions does not stay any more."""
        return [until - now + MARGIN_SECONDS for until in self._until.values() if now < until]


def reports_no_daemon(marker: PodProbeMarker) -> bool:
    """Whether the status says that nodes of the marker have no daemon."""
    reasons = [condition.reason for condition in marker.conditions]
    return NO_DAEMON in reasons
