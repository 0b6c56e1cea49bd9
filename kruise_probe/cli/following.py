"""Informers of what `status --watch` prints, and of the playground's live view."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from kruise_probe.api.errors import FatalError
from kruise_probe.cli.query_client import DEADLINE_SECONDS
from kruise_probe.informers.shared_informer import SharedInformer
from kruise_probe.inspection.snapshot import Snapshot


class Following:
    """The informers of all kinds, in the order of `Snapshot.of_lists`; None if the user may not list a kind.

    `changed` is set on every event.
    """

    def __init__(
        self,
        informers: Sequence[SharedInformer[Any] | None],
        *,
        allowed_labels: frozenset[str],
        now: Callable[[], datetime],
    ) -> None:
        self.changed = asyncio.Event()
        self.informers = [each for each in informers if each is not None]
        self._all = informers
        self._allowed_labels = allowed_labels
        self._now = now
        for each in self.informers:
            each.add_event_handler(self)

    def on_add(self, obj: object, is_initial: bool) -> None:
        self.changed.set()

    def on_update(self, old: object, new: object) -> None:
        self.changed.set()

    def on_delete(self, last_known: object) -> None:
        self.changed.set()

    async def wait_for_sync(self) -> None:
        """Wait until all informers have synced.

        Raises:
            FatalError: a watch or list failed, for example if a kind may be listed but not watched.
            TimeoutError: the server did not respond in time.
        """
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                for each in self.informers:
                    await each.wait_for_sync()
        except TimeoutError:
            for error in self._errors():
                raise FatalError(
                    f"{error}; --watch needs permission to watch what it lists"
                ) from None
            raise

    def notes(self) -> list[str]:
        """Why the objects may be stale: at most one line, because watches usually fail for the same reason."""
        return [f"not current, retrying: {error}" for error in self._errors()[:1]]

    def _errors(self) -> list[str]:
        return [each.last_error for each in self.informers if each.last_error]

    def snapshot(self) -> Snapshot:
        """The current objects of the caches."""
        lists = [None if each is None else each.lister.list() for each in self._all]
        return Snapshot.of_lists(lists, allowed_labels=self._allowed_labels, now=self._now())
