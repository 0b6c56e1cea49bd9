"""Serves the embedded runtime's CRI on a Unix socket."""

import asyncio
from pathlib import Path

import grpc

from kruise_probe.daemon.cri._pb.cri_pb2_grpc import (
    RuntimeServiceServicer,
    add_RuntimeServiceServicer_to_server,
)

MESSAGE_BYTES = 16 * 1024 * 1024
"""Maximum message, as in containerd. An exec with more output fails with ResourceExhausted."""


class CriServer:
    """One gRPC server at `socket`; the server and the file exist while `run` runs."""

    def __init__(self, service: RuntimeServiceServicer, *, socket: Path) -> None:
        self._service = service
        self._socket = socket
        self.listening = asyncio.Event()

    @property
    def endpoint(self) -> str:
        return f"unix://{self._socket}"

    async def run(self) -> None:
        """Serve until cancelled; then end the calls in flight and kill their commands."""
        server = grpc.aio.server(
            options=[
                ("grpc.max_send_message_length", MESSAGE_BYTES),
                ("grpc.max_receive_message_length", MESSAGE_BYTES),
            ]
        )
        add_RuntimeServiceServicer_to_server(self._service, server)
        server.add_insecure_port(self.endpoint)
        self._socket.chmod(0o600)  # a client of the socket runs commands as this user
        await server.start()
        self.listening.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.listening.clear()
            await server.stop(grace=None)
            self._socket.unlink(missing_ok=True)
