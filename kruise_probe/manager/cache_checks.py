"""Readiness checks of an informer."""

from typing import Any, Final

from kruise_probe.client.rest import READ_DEADLINE_SECONDS
from kruise_probe.informers.shared_informer import SharedInformer
from kruise_probe.serving.health import Checks, inactivity_check

MAX_INACTIVITY_SECONDS: Final = 2 * READ_DEADLINE_SECONDS
"""A watch without activity for this long has failed to reconnect at least once; the process is not ready."""


def add_cache_checks(ready: Checks, informer: SharedInformer[Any]) -> None:
    """Add two checks to `ready`: the cache has synced, and its watch was active in the last `MAX_INACTIVITY_SECONDS`."""
    name = informer.name
    ready.add(
        f"cache {name}",
        lambda: (
            None
            if informer.has_synced
            else f"not synced: {informer.last_error or 'no response yet'}"
        ),
    )
    check = inactivity_check(informer.seconds_since_activity, limit_seconds=MAX_INACTIVITY_SECONDS)
    ready.add(f"watch {name}", check)
