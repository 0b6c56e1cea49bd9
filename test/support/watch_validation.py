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


def watch_problems(
    history: Sequence[WatchedChange], events: Sequence[WatchedChange], *, since: int, until: int = 0
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


def _changes(events: Sequence[WatchedChange]) -> list[WatchedChange]:
    return [each for each in events if each.type != BOOKMARK]


def _order(events: Sequence[WatchedChange]) -> Iterator[str]:
    newest = 0
    for each in events:
        if each.version < newest:
            yield f"ordered: {each} comes after version {newest}"
        newest = max(newest, each.version)


def _repetitions(events: Sequence[WatchedChange]) -> Iterator[str]:
    seen: set[int] = set()
    for each in _changes(events):
        if each.version in seen:
            yield f"unique: {each} comes again"
        seen.add(each.version)


def _inventions(history: Sequence[WatchedChange], events: Sequence[WatchedChange]) -> Iterator[str]:
    written = set(history)
    for each in _changes(events):
        if each not in written:
            yield f"true: {each} was never written"


def _gaps(
    history: Sequence[WatchedChange], events: Sequence[WatchedChange], since: int, until: int
) -> Iterator[str]:
    received = set(_changes(events))
    newest = max([until, *(each.version for each in received)])
    for each in received:
        if each.version <= since:
            yield f"resumable: {each} is not after version {since}"
    for each in history:
        if since < each.version <= newest and each not in received:
            yield f"resumable: {each} is left out"


def _bookmarks(
    history: Sequence[WatchedChange], events: Sequence[WatchedChange], since: int
) -> Iterator[str]:
    for place, mark in enumerate(events):
        if mark.type != BOOKMARK:
            continue
        before = set(events[:place])
        for each in history:
            if since < each.version <= mark.version and each not in before:
                yield f"bookmarkable: {each} does not come before the bookmark {mark.version}"
        for each in _changes(events[place:]):
            if each.version <= mark.version:
                yield f"bookmarkable: {each} comes after the bookmark {mark.version}"
