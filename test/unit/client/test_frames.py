"""From the bytes of a watch to its events."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kruise_probe.api.errors import Expired, Forbidden, ServerError
from kruise_probe.api.resources import LEASES, PODS
from kruise_probe.api.watching import EventType
from kruise_probe.client import frames
from kruise_probe.client.frames import LineSplitter, decode_frame


@given(
    lines=st.lists(st.binary(max_size=40).map(lambda line: line.replace(b"\n", b""))),
    cuts=st.lists(st.integers(min_value=0, max_value=400)),
)
def test_lines_come_out_however_the_stream_is_cut(lines: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    ends = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    splitter = LineSplitter()
    seen: list[bytes] = []
    for begin, end in zip(ends, ends[1:], strict=False):  # noqa: RUF007 - reads like the slices
        seen += splitter.feed(stream[begin:end])

    assert seen == [line for line in lines if line]
    assert not splitter.incomplete


def test_half_a_line_is_known_to_be_half() -> None:
    splitter = LineSplitter()

    assert splitter.feed(b'{"a":1}\n{"b"') == [b'{"a":1}']
    assert splitter.incomplete


def test_a_line_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MAX_LINE_BYTES", 100)
    splitter = LineSplitter()
    splitter.feed(b"x" * 60)

    with pytest.raises(ValueError, match="more than 100 bytes"):
        splitter.feed(b"x" * 60)


def _frame(kind: str, body: object) -> bytes:
    return msgspec.json.encode({"type": kind, "object": body})


LEASE = {"metadata": {"name": "l", "namespace": "n", "resourceVersion": "7"}, "spec": {}}


@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED", "DELETED"])
def test_an_event_carries_its_object_and_version(kind: str) -> None:
    event = decode_frame(LEASES, _frame(kind, LEASE), request="r")

    assert (event.type, event.resource_version) == (EventType(kind), "7")
    assert event.object is not None
    assert event.object.metadata.name == "l"


@pytest.mark.parametrize(
    ("annotations", "ends"),
    [
        pytest.param(None, False, id="plain"),
        pytest.param({"k8s.io/initial-events-end": "true"}, True, id="end-of-the-list"),
        pytest.param({"other": "true"}, False, id="other-annotation"),
    ],
)
def test_a_bookmark_carries_a_version_and_the_end_of_the_initial_list(
    annotations: dict[str, str] | None, ends: bool
) -> None:
    body = {
        "kind": "Pod",
        "metadata": {"resourceVersion": "99", "annotations": annotations},
        "spec": {"containers": None},
    }
    event = decode_frame(PODS, _frame("BOOKMARK", body), request="r")

    assert event.object is None
    assert (event.resource_version, event.initial_events_end) == ("99", ends)


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        pytest.param(410, "Expired", Expired, id="too-old"),
        pytest.param(410, "Gone", Expired, id="gone"),
        pytest.param(403, "Forbidden", Forbidden, id="forbidden"),
        pytest.param(500, "InternalError", ServerError, id="server"),
        pytest.param(None, None, ServerError, id="no-code"),
    ],
)
def test_an_error_event_is_the_typed_error(
    code: int | None, reason: str | None, kind: type[Exception]
) -> None:
    line = _frame("ERROR", {"kind": "Status", "code": code, "reason": reason, "message": "words"})

    with pytest.raises(kind, match=r"GET pods: .* words"):
        decode_frame(PODS, line, request="GET pods")


def test_an_object_that_does_not_fit_its_kind_is_an_event_of_its_own() -> None:
    broken = {**LEASE, "spec": {"leaseDurationSeconds": "long"}}
    event = decode_frame(LEASES, _frame("MODIFIED", broken), request="r")

    assert event.object is None
    assert event.undecodable is not None
    assert (str(event.undecodable.key), event.resource_version) == ("n/l", "7")
    assert "leaseDurationSeconds" in event.undecodable.error


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"<html>", id="not-json"),
        pytest.param(b'{"type":"ADDED"}', id="no-object"),
        pytest.param(b'{"type":"NEWS","object":{}}', id="unknown-type"),
    ],
)
def test_what_is_no_watch_event_is_refused(line: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_frame(PODS, line, request="r")
