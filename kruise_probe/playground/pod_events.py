"""Events about pods, as the playground reads them.

Source: k8s.io/api core/v1 Event.
"""

from typing import Final

import msgspec

from kruise_probe.api.meta import ApiObject
from kruise_probe.api.resources import Resource


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
