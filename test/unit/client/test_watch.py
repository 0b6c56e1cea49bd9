"""Watch events, from the bytes of a stream to typed events."""

import asyncio
from collections import Counter
from typing import cast

import msgspec
import pytest
from support.cases import cases
from support.computations import at_once
from support.fake_transport import OneRead

from kruise_probe.api.core import Lease
from kruise_probe.api.errors import ApiError, Expired, ServerError
from kruise_probe.api.meta import WatchEvent
from kruise_probe.api.resources import LEASES, PODS
from kruise_probe.client.request import Request
from kruise_probe.client.transport import ResponseStream
from kruise_probe.client.watch import WatchStream, decode_event


def encoded(kind: str, body: object) -> bytes:
    return msgspec.json.encode({"type": kind, "object": body})


def decoded_lease(line: bytes) -> WatchEvent[Lease]:
    return at_once(decode_event(LEASES, line, "r"))


METADATA = {"name": "l", "namespace": "n", "resourceVersion": "7"}


@cases(
    "annotations ends",
    plain=({}, False),
    end_of_the_list=({"k8s.io/initial-events-end": "true"}, True),
    other_annotation=({"other": "true"}, False),
)
def test_bookmark_has_version_and_marks_the_end_of_the_initial_list(
    annotations: dict[str, str], ends: bool
) -> None:
    body = {
        "kind": "Pod",
        "metadata": {"resourceVersion": "99", "annotations": annotations},
        "spec": {"containers": None},
    }
    event = at_once(decode_event(PODS, encoded("BOOKMARK", body), "r"))

    assert event.object is None
    assert event.resource_version == "99"
    assert event.initial_events_end == ends


@cases(
    "code reason kind raised_code",
    too_old=(410, "Expired", Expired, 410),
    no_code=(None, None, ServerError, 500),
)
def test_error_event_raises_the_typed_error(
    code: int | None,
    reason: str | None,
    kind: type[ApiError],
    raised_code: int,
) -> None:
    status = {"kind": "Status", "code": code, "reason": reason, "message": "words"}

    with pytest.raises(kind, match=r"GET pods: .* words") as raised:
        at_once(decode_event(PODS, encoded("ERROR", status), "GET pods"))
    assert raised.value.code == raised_code


def test_undecodable_object_is_an_event() -> None:
    broken = {"metadata": METADATA, "spec": {"leaseDurationSeconds": "long"}}
    event = decoded_lease(encoded("MODIFIED", broken))

    assert event.object is None
    assert event.resource_version == "7"
    assert event.undecodable
    assert str(event.undecodable.key) == "n/l"
    assert "leaseDurationSeconds" in event.undecodable.error


@pytest.mark.parametrize("depth", [90, 900, 1_100, 9_990])
@pytest.mark.parametrize("type", ["MODIFIED", "DELETED"])
def test_an_object_that_is_nested_deeply_is_an_event_like_others(type: str, depth: int) -> None:
    """Whoever may write a pod can nest its managedFields as deeply as the API server's own limit."""
    deep = b'{"f:\\"}[":[' * (depth // 2) + b"{}" + b"]}" * (depth // 2)
    lease = encoded(type, {"metadata": METADATA, "spec": {}, "status": {}})
    event = decoded_lease(
        lease.replace(
            b'"metadata":{',
            b'"metadata":{"managedFields":[' + deep + b"],",
        )
    )
    assert event.type == type
    assert event.resource_version == "7"
    assert event.object
    assert str(event.object.key) == "n/l"


@cases(
    "line",
    not_json=b"<html>",
    no_object=b'{"type":"ADDED"}',
    unknown_type=b'{"type":"NEWS","object":{}}',
)
def test_invalid_watch_event_is_an_error(line: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        at_once(decode_event(PODS, line, "r"))


BOOKMARK = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}\n'


async def test_iterator_yields_to_the_loop_after_32_events_of_one_read() -> None:
    passes = 0
    ended = False

    def count() -> None:
        nonlocal passes
        passes += 1
        if not ended:
            asyncio.get_running_loop().call_soon(count)

    stream = cast(ResponseStream, OneRead(BOOKMARK * 100))
    watch = WatchStream(stream, LEASES, Request("GET", "/"))
    count()
    passes_of_events = [passes async for _ in watch]
    ended = True

    assert sorted(Counter(passes_of_events).values()) == [4, 32, 32, 32]
