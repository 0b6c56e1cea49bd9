"""Well-behaved pods, whose state changes with the machine's uptime every `WINDOW_SECONDS`.

So the time of each change is known to some milliseconds, and the delay of its label is measured from there.
"""

import math
import time
from typing import NamedTuple

from soak.stale import PodHandler
from support import hollow
from support.real_node import busybox_pod
from support.wire import Json

from kruise_probe.api.pods import Pod

WINDOW_SECONDS = 20
PERIODS = {"exec": 5, "http": 1}
"""Of the probes, in seconds."""
LABEL = "victim.example.com/"

_FLIP = f"""
mkdir -p /tmp/www; cd /tmp/www; httpd -p 8080
while :; do
  read now idle < /proc/uptime
  now=${{now%.*}}${{now#*.}}  # in hundredths of a second
  if [ $((now / {WINDOW_SECONDS}00 % 2)) = 0 ]; then echo up > ok; else rm -f ok; fi
  usleep $((({WINDOW_SECONDS}00 - now % {WINDOW_SECONDS}00) * 10000))
done
"""


def uptime_seconds() -> float:
    """The clock of /proc/uptime."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _name(number: int) -> str:
    return f"victim-{number}"


def victim(number: int) -> Json:
    return busybox_pod(
        _name(number),
        "sh",
        "-c",
        _FLIP,
        labels={"app": "victim"},
    )


def victims_marker() -> Json:
    """Two probes, each with a condition, and a label that is `up` or `down`."""
    handlers: dict[str, Json] = {
        "exec": {"exec": {"command": ["test", "-f", "/tmp/www/ok"]}},
        "http": {"httpGet": {"port": 8080, "path": "/ok"}},
    }
    probes: list[Json] = []
    for name, handler in handlers.items():
        label = LABEL + name
        probe = hollow.probe(
            name,
            probe={
                **handler,
                "periodSeconds": PERIODS[name],
                "timeoutSeconds": 5,
            },
            podConditionType=label,
            markerPolicy=[
                {"state": "Succeeded", "labels": {label: "up"}},
                {"state": "Failed", "labels": {label: "down"}},
            ],
        )
        probes.append(probe)
    return hollow.marker_object(*probes, name="victims", app="victim")


class Change(NamedTuple):
    """A label has a new value since this uptime."""

    at: float
    value: str


class LabelChanges(PodHandler):
    """The changes of the victims' labels.

    Attributes:
        of: by the names of pod and probe; the first change is the first value.
    """

    def __init__(self, namespace: str, pods: int) -> None:
        self.of: dict[tuple[str, str], list[Change]] = {}
        self._namespace = namespace
        for number in range(pods):
            for probe in PERIODS:
                self.of[_name(number), probe] = []

    def on_delete(self, last_known: Pod) -> None:
        """A deleted pod adds no label change."""

    def observe(self, pod: Pod) -> None:
        if pod.namespace != self._namespace:
            return
        for probe in PERIODS:
            value = pod.labels.get(LABEL + probe)
            changes = self.of[pod.name, probe]
            if value and (not changes or changes[-1].value != value):
                changes.append(Change(uptime_seconds(), value))

    async def all_since(self, uptime: float) -> bool:
        """Whether each label has changed since then."""
        return all(changes and changes[-1].at > uptime for changes in self.of.values())

    def delays(self, probe: str, windows: range) -> list[float]:
        """One for each pod and window, sorted; infinite if the label did not show the state of its window in time."""
        delays: list[float] = []
        for (_, name), changes in self.of.items():
            if name == probe:
                delays += [_delay(changes, window) for window in windows]
        return sorted(delays)


def _delay(changes: list[Change], window: int) -> float:
    state = "down" if window % 2 else "up"
    begins_at = window * WINDOW_SECONDS
    for at, value in changes:
        if value == state and begins_at <= at < begins_at + WINDOW_SECONDS:
            return at - begins_at
    return math.inf
