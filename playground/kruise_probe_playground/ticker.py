"""Changes as lines of text: the difference of two rows, and Events. Pure."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from kruise_probe.api.kinds import Resource
from kruise_probe.api.meta import ApiObject
from kruise_probe_playground.rows import PodRow, ProbeRow


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


def _as_is(event: PodEvent) -> PodEvent:
    return event


POD_EVENTS: Final = Resource("", "v1", "events", "Event", wire=PodEvent, project=_as_is)


class Line(NamedTuple):
    """`about` is the pod, or empty; `tone` is one of good, bad, neutral, event."""

    about: str
    text: str
    tone: str


_TONES = {"Succeeded": "good", "True": "good", "Failed": "bad", "False": "bad"}


def changes(before: PodRow | None, after: PodRow | None) -> Iterator[Line]:
    """The changes between two rows of a pod; None if the pod does not exist."""
    if after is None:
        if before is not None:
            yield Line(before.title, "was deleted", "neutral")
        return
    if before is None:
        yield Line(after.title, f"was created: {after.status}", "neutral")
        before = after._replace(status=after.status, ready="", probes=())
    if before.status != after.status:
        yield Line(after.title, f"{before.status} → {after.status}", "neutral")
    if after.restarts > before.restarts:
        yield Line(after.title, f"container restarted ({after.restarts})", "bad")
    yield from _probe_changes(before, after)
    yield from _mark_changes(before, after)
    if before.ready != after.ready and after.ready:
        yield Line(after.title, f"Ready: {after.ready}", _TONES.get(after.ready, "neutral"))


def _probe_changes(before: PodRow, after: PodRow) -> Iterator[Line]:
    known = {each.probe: each for each in before.probes}
    for row in after.probes:
        earlier = known.get(row.probe)
        was = earlier.state if earlier else ""
        if row.state and row.state != was:
            yield Line(after.title, _probe_text(row, was), _TONES.get(row.state, "neutral"))


def _probe_text(row: ProbeRow, was: str) -> str:
    change = f"{was} → {row.state}" if was else row.state
    message = f": {row.message}" if row.message else ""
    return f"{row.probe.probe} {change}{message}"


def _mark_changes(before: PodRow, after: PodRow) -> Iterator[Line]:
    old, new = (
        {(each.kind, each.key): each.value for probe in row.probes for each in probe.marks}
        for row in (before, after)
    )
    for kind, key in sorted(old.keys() | new.keys()):
        value = new.get((kind, key))
        if value is None:
            yield Line(after.title, f"{kind} {key} removed", "neutral")
        elif value != old.get((kind, key)):
            yield Line(after.title, f"{kind} {key}={value}", "neutral")


def event_line(event: PodEvent) -> Line:
    """One event, with its count."""
    times = f" x{event.count}" if (event.count or 1) > 1 else ""
    namespace, name = event.involved_object.namespace, event.involved_object.name
    about = name if namespace == "default" else f"{namespace}/{name}"
    message = f": {event.message}" if event.message else ""
    return Line(about, f"event {event.reason}{times}{message}", "event")
