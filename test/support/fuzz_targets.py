"""Fuzz targets: one function for each parser of bytes from a peer.

A target takes any bytes and returns; an exception is a defect. Errors that a parser documents are part of its contract
and are caught here. Where a parser takes its input in pieces, the target feeds it whole and in pieces and compares.

`hack/fuzz` runs them under a coverage-guided fuzzer; the unit lane replays the corpora in test/data/fuzz: one file for
each target, one input a line, in base64.
"""

import json
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
from google.protobuf.message import DecodeError
from support.computations import at_once
from websocket import ABNF

from kruise_probe.api.criteria import Extract, MetricSample
from kruise_probe.api.errors import ApiError, ConnectionFailed
from kruise_probe.api.extraction import (
    MAX_VALUE_BYTES,
    FromMessage,
    PatternBudget,
    PatternError,
    PatternTooCostly,
    value_of,
)
from kruise_probe.api.labels import label_value_error
from kruise_probe.api.messages import (
    MAX_MESSAGE_BYTES,
    command_message,
    normalise_message,
)
from kruise_probe.api.meta import DECODE_ERRORS, HostPort, Resource
from kruise_probe.api.node_pod_probe import NodePodProbe
from kruise_probe.api.pods import Mark
from kruise_probe.api.problems import first_errors
from kruise_probe.api.resources import LEASES, MARKERS, NODE_POD_PROBES, NODES, PODS
from kruise_probe.api.validation import marker_errors
from kruise_probe.client.credentials import ConfigError
from kruise_probe.client.kubeconfig import load as load_kubeconfig
from kruise_probe.client.pod_streams import MessageParser, encode
from kruise_probe.client.watch import decode_event
from kruise_probe.controllers.compiled import compile_marker
from kruise_probe.daemon.cri import grpc_runtime
from kruise_probe.daemon.cri._pb import cri_pb2 as pb
from kruise_probe.daemon.desired import desired_probes, invalid_reason
from kruise_probe.daemon.probers.health_call import HealthCall
from kruise_probe.daemon.probers.http_responses import (
    MAX_BODY_BYTES,
    ResponseReader,
)
from kruise_probe.daemon.probers.urls import url_of_action, url_of_redirect
from kruise_probe.daemon.probers.values import MAX_VALUE_BYTES as MAX_EXTRACTED_BYTES
from kruise_probe.daemon.probers.values import NoValue, number_of, rounded, text_of, value_in
from kruise_probe.daemon.status import recorded_in
from kruise_probe.lint.findings import Position, as_json, as_sarif, as_text
from kruise_probe.lint.linter import Source, decoded, lint
from kruise_probe.webhook.admission import (
    BadReview,
    annotate_pod,
    decode_review,
    encode_review,
    review_marker,
)
from kruise_probe.wire.requests import RefusedRequest, parse_head
from kruise_probe.wire.responses import InvalidResponse

Target = Callable[[bytes], object]

CORPORA: Final = Path(__file__).parents[1] / "data" / "fuzz"

MAX_STREAM_MESSAGE_BYTES: Final = 64
MAX_REPLY_BYTES: Final = 64 * 1024
"""An admission response is small, whatever the request contains."""


def pieces(data: bytes) -> Iterator[bytes]:
    """Cuts `data` into pieces of 1 to 16 bytes, by its own content."""
    start = 0
    while start < len(data):
        size = 1 + data[start] % 16
        yield data[start : start + size]
        start += size


def http_answer(data: bytes) -> None:
    """What a pod's HTTP server sends to a probe."""
    whole = _read_answer([data])
    assert whole == _read_answer(pieces(data)), "the response depends on how it was split"
    if isinstance(whole, tuple):
        assert len(whole[1]) <= MAX_BODY_BYTES


def _read_answer(chunks: Any) -> object:
    reader = ResponseReader()
    try:
        for chunk in chunks:
            reader.read(chunk)
            if reader.ended:
                break
        else:
            reader.read(b"")
    except InvalidResponse as error:
        return type(error)
    return reader.status, reader.text


def grpc_answer(data: bytes) -> None:
    """What a pod's gRPC server sends to a health check."""
    for chunks in ([data], pieces(data)):
        call = HealthCall(
            service="s",
            authority="a:1",
            scheme="http",
            user_agent="fuzz",
            timeout_seconds=1,
        )
        call.bytes_to_send()
        for chunk in chunks:
            call.feed(chunk)
            call.bytes_to_send()
            if call.result is not None:
                break
        else:
            call.feed(b"")
        assert call.result is not None


def redirect(data: bytes) -> None:
    """The Location header of a redirect."""
    url = url_of_action("http", HostPort("127.0.0.1", 80), "/a")
    with suppress(ValueError):
        url_of_redirect(url, data.decode(errors="surrogateescape"))


def command_output(data: bytes) -> None:
    """What a command prints, and words of errors."""
    for message in (normalise_message(data), command_message(1, data, data[::-1])):
        assert len(message.encode()) <= MAX_MESSAGE_BYTES
        assert "\x1b" not in message
        assert normalise_message(message) == message
        json.loads(msgspec.json.encode(message))


def cri_answer(data: bytes) -> None:
    """What the container runtime sends: names, labels and outputs are a pod's."""
    with suppress(DecodeError):
        for container in pb.ListContainersResponse.FromString(data).containers:
            grpc_runtime._container(container)
    with suppress(DecodeError):
        grpc_runtime._status(pb.ContainerStatusResponse.FromString(data))


def http_request(data: bytes) -> None:
    """Requests to health, metrics and webhook ports."""
    try:
        request, body_bytes = parse_head(data, max_body_bytes=1024)
    except RefusedRequest:
        return
    assert request.path.startswith(("/", "*"))
    assert 0 <= body_bytes <= 1024


def admission_review(data: bytes) -> None:
    """Requests to the webhook's port."""
    try:
        request = decode_review(data)
    except BadReview:
        return
    for decided in (review_marker(request), annotate_pod(request, ())):
        reply = encode_review(request, decided)
        json.loads(reply)
        assert len(reply) <= MAX_REPLY_BYTES + 2 * len(request.uid)


def watch_stream(data: bytes) -> None:
    """What the API server streams; the objects' contents are the tenants'."""
    for line in data.split(b"\n"):
        for resource in _WATCHED:
            with suppress(*DECODE_ERRORS, ApiError):
                event = at_once(decode_event(resource, line, request="fuzz"))
                if event.object is not None:
                    _use(event.object)


_WATCHED: Final[tuple[Resource[Any], ...]] = (MARKERS, NODE_POD_PROBES, PODS, NODES, LEASES)


def websocket_messages(data: bytes) -> None:
    """What the API server sends on a stream to a pod."""
    whole = _read_messages([data])
    assert whole == _read_messages(pieces(data)), "the messages depend on how they were cut"
    encode(ABNF.OPCODE_BINARY, data)


def _read_messages(chunks: Any) -> object:
    parser = MessageParser(MAX_STREAM_MESSAGE_BYTES)
    found = []
    try:
        for chunk in chunks:
            parser.feed(chunk)
            while message := parser.next():
                assert len(message.payload) <= MAX_STREAM_MESSAGE_BYTES
                found.append(message)
    except ConnectionFailed as error:
        return found, str(error)
    return found, ""


def marker(data: bytes) -> None:
    """A stored PodProbeMarker, under Kruise's CRD or a hand-made one."""
    with suppress(*DECODE_ERRORS):
        _use(MARKERS.decode(data))


def message_value(data: bytes) -> None:
    """A pattern of a marker and a message of a pod; a form feed separates them."""
    pattern, _, message = (part.decode(errors="replace") for part in data.partition(b"\f"))
    with suppress(PatternError):
        source = FromMessage(pattern, None, PatternBudget().take(pattern))
        label = value_of(Mark("labels", "a"), source, message) or ""
        assert not label_value_error(label)
        annotation = value_of(Mark("annotations", "example.com/a"), source, message) or ""
        assert len(annotation.encode()) <= MAX_VALUE_BYTES


def extracted_value(data: bytes) -> None:
    """A metric, a path or a pattern, and an output of a pod; a form feed separates them."""
    given, _, text = data.partition(b"\f")
    word = given[1:257].decode(errors="replace") or "a"
    match given[:1]:
        case b"j":
            extract = Extract(json_path=word)
        case b"r":
            extract = Extract(regex=word)
        case b"l":
            extract = Extract(metric=MetricSample(word, {"a": "b"}))
        case b"s":
            extract = Extract(metric=MetricSample(word, {}), step=1)
        case _:
            extract = Extract(metric=MetricSample(word, {}))
    with suppress(PatternError, PatternTooCostly, NoValue):
        PatternBudget().take(extract.regex or "")
        is_cut = len(text) % 2 > 0
        value = at_once(value_in(text, extract, is_cut=is_cut))
        assert len(text_of(value).encode()) <= 2 * MAX_EXTRACTED_BYTES
        number = number_of(value, needed_for="step")
        below = number - rounded(number, "0.5")
        assert 0 <= below < 1 or number.adjusted() > 20


def node_pod_probe(data: bytes) -> None:
    """A stored NodePodProbe that a user edited."""
    with suppress(*DECODE_ERRORS):
        _use(NODE_POD_PROBES.decode(data))


def _use(decoded: Any) -> None:
    if isinstance(decoded, NodePodProbe):
        recorded_in(decoded.status)
        for entry in desired_probes(decoded.spec).values():
            invalid_reason(entry.entry)
    elif hasattr(decoded, "spec") and hasattr(decoded.spec, "probes"):
        first_errors(marker_errors(decoded.spec))
        compile_marker(decoded)


def kubeconfig(data: bytes) -> None:
    """A kubeconfig file."""
    with tempfile.NamedTemporaryFile(suffix=".yaml") as file:
        path = Path(file.name)
        path.write_bytes(data)
        with suppress(ConfigError):
            load_kubeconfig(str(path), "--kubeconfig")


def linted_files(data: bytes) -> None:
    """Files that lint checks; a form feed separates them."""
    sources = [decoded(f"{n}.yaml", text) for n, text in enumerate(data.split(b"\f"))]
    report = lint(sources)
    for form in (as_text, as_json, as_sarif):
        form(report).encode()
    for finding in report.findings:
        _is_in_file(sources, finding.file, finding.position)


def _is_in_file(sources: list[Source], file: str, position: Position) -> None:
    (raw,) = (source.raw for source in sources if source.name == file)
    lines = raw.decode("utf-8-sig", errors="replace").split("\n")
    assert 1 <= position.line <= len(lines), f"{file} has no line {position.line}"
    assert 1 <= position.column <= len(lines[position.line - 1]) + 1


TARGETS: Final[Mapping[str, Target]] = {
    target.__name__: target
    for target in (
        http_answer,
        grpc_answer,
        redirect,
        command_output,
        cri_answer,
        http_request,
        admission_review,
        watch_stream,
        websocket_messages,
        marker,
        message_value,
        extracted_value,
        node_pod_probe,
        kubeconfig,
        linted_files,
    )
}


def read_corpus(name: str) -> list[bytes]:
    """The corpus of a target; empty if it was never fuzzed."""
    file = CORPORA / name
    text = file.read_text() if file.exists() else ""
    return list(map(b64decode, text.split()))


def write_corpus(name: str, inputs: set[bytes]) -> None:
    """Shortest first, so that a changed corpus is a small change of the file."""
    by_length = sorted(sorted(inputs), key=len)
    text = "".join(f"{b64encode(data).decode()}\n" for data in by_length)
    (CORPORA / name).write_text(text)
