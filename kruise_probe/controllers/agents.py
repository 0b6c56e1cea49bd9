"""Detects agents that stop or resume renewing their Lease. Key: the node's name.

Decides nothing about pods: it only enqueues them when the result of `staleness` has changed.

Source: kubernetes pkg/controller/nodelifecycle (monitorNodeHealth).
Differs: one timer per agent, which fires when its Lease expires, instead of a periodic check of all nodes.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from kruise_probe.controllers.caches import Caches
from kruise_probe.controllers.metrics import AGENTS_STALE
from kruise_probe.workqueue.controller import Result

MARGIN_SECONDS: Final = 0.1
"""Added to the expiry, so that rounding never fires the timer before it."""


class AgentReconciler:
    """Keeps the set of nodes whose agent is stale; calls `on_change` with a node that entered or left it."""

    def __init__(
        self, caches: Caches, *, on_change: Callable[[str], None], now: Callable[[], datetime]
    ) -> None:
        self._caches = caches
        self._on_change = on_change
        self._now = now
        self._silent: set[str] = set()

    def is_silent(self, node: str) -> bool:
        """Whether the last check found the node stale. It may be outdated; decisions use `Caches.stale_message`."""
        return node in self._silent or node in self._caches.called_stale

    async def reconcile(self, node: str) -> Result | None:
        silent = self._caches.node(node) is not None and bool(self._caches.stale_message(node))
        was_silent = node in self._silent if silent else self.is_silent(node)
        if silent != was_silent:
            (self._silent.add if silent else self._silent.discard)(node)
            if not silent:
                self._caches.called_stale.discard(node)
            AGENTS_STALE.set(len(self._silent))
            self._on_change(node)
        beat = self._caches.heartbeats.get(node)
        if beat is None:
            return None
        remaining = (beat.expires_at - self._now()).total_seconds()
        return Result(remaining + MARGIN_SECONDS) if remaining >= 0 else None
