"""A forwarded port on virtual time: the messages of its two channels, whatever their sizes, and its deadlines."""

from typing import cast

import pytest

from kruise_probe.api.errors import ConnectionFailed
from kruise_probe.client.pod_streams import ForwardedPort, ForwardRefused
from kruise_probe.client.websocket import WebSocket

MAX_ERROR_BYTES = 64 * 1024

PORT = b"\x90\x1f"


class Messages:
    """A stream that delivers these messages and then ends."""

    def __init__(self, *messages: bytes) -> None:
        self._left = list(messages)
        self.deadlines: list[float] = []

    async def receive(self, *, deadline_seconds: float) -> bytes | None:
        self.deadlines.append(deadline_seconds)
        return self._left.pop(0) if self._left else None


def forwarded(messages: Messages) -> ForwardedPort:
    return ForwardedPort(cast(WebSocket, messages))


async def test_bytes_of_the_pod_are_received_until_the_stream_ends() -> None:
    port = forwarded(Messages(b"\x00ab", b"\x00c", b"\x00", b"", b"\x01", b"\x07x", b"\x00d"))
    received = [await port.receive(deadline_seconds=1) for _ in range(4)]
    assert received == [b"ab", b"c", b"d", b""]


@pytest.mark.parametrize("text", ["x", "connection refused"])
async def test_error_of_the_runtime_is_raised(text: str) -> None:
    with pytest.raises(ForwardRefused, match=f"^{text}$"):
        await forwarded(Messages(b"\x01" + text.encode())).receive(deadline_seconds=1)


async def test_error_of_the_runtime_is_truncated() -> None:
    with pytest.raises(ForwardRefused) as raised:
        await forwarded(Messages(b"\x01" + b"x" * 2 * MAX_ERROR_BYTES)).receive(deadline_seconds=1)
    assert len(str(raised.value)) == MAX_ERROR_BYTES


async def test_port_forward_begins_with_a_message_of_each_channel() -> None:
    messages = Messages(b"\x00" + PORT, b"\x01" + PORT, b"\x00ab")
    port = forwarded(messages)
    await port.wait_until_started()
    assert await port.receive(deadline_seconds=1) == b"ab"
    assert messages.deadlines == [10, 10, 1]


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param([], id="nothing"),
        pytest.param([b"\x00" + PORT], id="one-channel"),
        pytest.param([b"\x00" + PORT, b"\x00" + PORT], id="one-channel-twice"),
        pytest.param([b"", b"\x00" + PORT, b"\x01" + PORT], id="empty-message"),
    ],
)
async def test_port_forward_that_ends_before_it_begins_is_an_error(messages: list[bytes]) -> None:
    with pytest.raises(ConnectionFailed, match="ended before it began"):
        await forwarded(Messages(*messages)).wait_until_started()
