"""The promises of a watch, checked against the history of what was written.

| Rule | Meaning |
|---|---|
| ordered | events come in the order of their versions |
| unique | no change comes twice |
| resumable | a watch from a version delivers the changes after it: none before it, and none is left out |
| bookmarkable | a bookmark comes after every change up to its version, and before every later one |
| true | an event has the type, key and version of a change |

Source: etcd's robustness tests, tests/robustness/validate/watch.go (validateOrdered, validateUnique, validateResumable,
validateReliable, validateBookmarkable, validateEventMatches).
Differs: a change has one object, so there is no rule for transactions; filters are applied to the history beforehand.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

BOOKMARK = "BOOKMARK"


class WatchedChange(NamedTuple):
    """A write, or an event of a watch. A bookmark has no key."""

    version: int
    type: str
    key: str = ""


Changes = Sequence[WatchedChange]


def watch_problems(
    history: Changes,
    events: Changes,
    *,
    since: int,
    until: int = 0,
) -> list[str]:
    """What a watch from version `since` does wrong; `history` is in order.

    Args:
        until: the watch had time to deliver every change up to this version; 0: as far as it came.
    """
    return [
        *_order(events),
        *_repetitions(events),
        *_inventions(history, events),
        *_gaps(history, events, since, until),
        *_bookmarks(history, events, since),
    ]


def _changes(events: Changes) -> list[WatchedChange]:
    return [event for event in events if event.type != BOOKMARK]


def _order(events: Changes) -> Iterator[str]:
    newest = 0
    for event in events:
        if event.version < newest:
            yield f"ordered: {event} comes after version {newest}"
        newest = max(newest, event.version)


def _repetitions(events: Changes) -> Iterator[str]:
    seen: set[int] = set()
    for event in _changes(events):
        if event.version in seen:
            yield f"unique: {event} comes again"
        seen.add(event.version)


def _inventions(history: Changes, events: Changes) -> Iterator[str]:
    written = set(history)
    for event in _changes(events):
        if event not in written:
            yield f"true: {event} was never written"


def _gaps(
    history: Changes,
    events: Changes,
    since: int,
    until: int,
) -> Iterator[str]:
    received = set(_changes(events))
    newest = max([until, *(event.version for event in received)])
    for event in received:
        if event.version <= since:
            yield f"resumable: {event} is not after version {since}"
    for write in history:
        if since < write.version <= newest and write not in received:
            yield f"resumable: {write} is left out"


def _bookmarks(history: Changes, events: Changes, since: int) -> Iterator[str]:
    for place, mark in enumerate(events):
        if mark.type != BOOKMARK:
            continue
        before = set(events[:place])
        for write in history:
            if since < write.version <= mark.version and write not in before:
                yield f"bookmarkable: {write} does not come before the bookmark {mark.version}"
        for event in _changes(events[place:]):
            if event.version <= mark.version:
                yield f"bookmarkable: {event} comes after the bookmark {mark.version}"
