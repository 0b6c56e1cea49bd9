"""Changes as lines of text: the difference of two rows, and Events. Pure."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from kruise_probe.api.meta import ApiObject, Resource, as_is
from kruise_probe_playground.rows import PodRow, ProbeRow, one_line


class InvolvedObject(msgspec.Struct, frozen=True):
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class PodEvent(ApiObject, frozen=True):
    involved_object: InvolvedObject = InvolvedObject()
    reason: str = ""
    message: str = ""
    count: int | None = None


POD_EVENTS: Final[Resource[PodEvent]] = Resource(
    "",
    "v1",
    "events",
    "Event",
    wire=PodEvent,
    project=as_is,
)


class Line(NamedTuple):
    """`about` is the pod, or empty; `tone` is one of good, bad, neutral, event."""

    about: str
    text: str
    tone: str


_TONES = {
    "Succeeded": "good",
    "True": "good",
    "Failed": "bad",
    "False": "bad",
}


def changes(before: PodRow | None, after: PodRow | None) -> Iterator[Line]:
    """The changes between two rows of a pod; None if the pod does not exist."""
    if after is None:
        if before is not None:
            yield Line(before.title, "was deleted", "neutral")
        return
    if before is None:
        yield Line(
            after.title,
            f"was created: {after.status}",
            "neutral",
        )
        before = after._replace(
            status=after.status,
            ready="",
            probes=(),
        )
    if before.status != after.status:
        yield Line(
            after.title,
            f"{before.status} → {after.status}",
            "neutral",
        )
    if after.restarts > before.restarts:
        yield Line(
            after.title,
            f"container restarted ({after.restarts})",
            "bad",
        )
    yield from _probe_changes(before, after)
    if before.ready != after.ready and after.ready:
        yield Line(
            after.title,
            f"Ready: {after.ready}",
            _TONES.get(after.ready, "neutral"),
        )


def _probe_changes(before: PodRow, after: PodRow) -> Iterator[Line]:
    """One line for each probe: its new state, with the marks that it wrote or removed."""
    known = {probe.probe: probe for probe in before.probes}
    remaining = {probe.probe for probe in after.probes}
    gone = [probe for probe in before.probes if probe.probe not in remaining]
    for row in (*after.probes, *(mark._replace(state="", marks=()) for mark in gone)):
        earlier = known.get(row.probe, row._replace(state="", marks=()))
        parts = [
            *_state_change(earlier, row),
            *_mark_changes(earlier, row),
        ]
        if parts:
            text = f"{row.probe.probe} {' · '.join(parts)}"
            yield Line(
                after.title,
                text,
                _TONES.get(row.state, "neutral"),
            )


def _state_change(before: ProbeRow, after: ProbeRow) -> Iterator[str]:
    if after.state and after.state != before.state:
        change = f"{before.state} → {after.state}" if before.state else after.state
        yield f"{change}: {after.message}" if after.message else change


def _mark_changes(before: ProbeRow, after: ProbeRow) -> Iterator[str]:
    keys = {(mark.kind, mark.key) for mark in after.marks}
    yield from (mark.short for mark in reversed(after.marks) if mark not in before.marks)
    for mark in before.marks:
        if (mark.kind, mark.key) not in keys:
            yield f"{mark.short_key} removed"


def event_line(event: PodEvent) -> Line:
    """One event, with its count."""
    times = f" x{event.count}" if (event.count or 1) > 1 else ""
    namespace = event.involved_object.namespace
    name = event.involved_object.name
    about = name if namespace == "default" else f"{namespace}/{name}"
    message = f": {one_line(event.message)}" if event.message else ""
    return Line(
        about,
        f"event {event.reason}{times}{message}",
        "event",
    )
