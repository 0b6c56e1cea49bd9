"""Readiness checks of an informer."""

from typing import Any, Final

from kruise_probe.client.watch import READ_DEADLINE_SECONDS
from kruise_probe.informers.shared_informer import SharedInformer
from kruise_probe.serving.endpoints import Checks

MAX_INACTIVITY_SECONDS: Final = 2 * READ_DEADLINE_SECONDS
"""A watch without activity for this long has failed to reconnect at least once; the process is not ready."""


def add_cache_checks(ready: Checks, informer: SharedInformer[Any]) -> None:
    """Add two checks to `ready`: the cache has synced, and its watch was active in the last `MAX_INACTIVITY_SECONDS`."""

    def synced() -> str | None:
        if informer.has_synced:
            return None
        return f"not synced: {informer.last_error or 'no response yet'}"

    def active() -> str | None:
        seconds = informer.seconds_since_activity()
        if seconds <= MAX_INACTIVITY_SECONDS:
            return None
        return f"no activity for {seconds:.0f} s; at most {MAX_INACTIVITY_SECONDS:g} s are healthy"

    ready.add(f"cache {informer.name}", synced)
    ready.add(f"watch {informer.name}", active)
