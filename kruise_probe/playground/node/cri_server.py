"""Serves the embedded runtime's CRI on a Unix socket."""

import asyncio
from pathlib import Path

import grpc

from kruise_probe.daemon.cri._pb.cri_pb2_grpc import (
    RuntimeServiceServicer,
    add_RuntimeServiceServicer_to_server,
)

MESSAGE_BYTES = 16 * 1024 * 1024
"""Largest message, as with containerd: an exec that wrote more is answered with ResourceExhausted."""


class CriServer:
    """One gRPC server at `socket`; it and the file live as long as `run`, but for the time between `stop` and `start`."""

    def __init__(self, service: RuntimeServiceServicer, *, socket: Path) -> None:
        self._service = service
        self._socket = socket
        self.listening = asyncio.Event()
        self._wanted = asyncio.Event()
        self._wanted.set()
        self._unwanted = asyncio.Event()

    @property
    def endpoint(self) -> str:
        return f"unix://{self._socket}"

    def stop(self) -> None:
        """The runtime goes away, as when its service is stopped: containers live on, calls under way are cut off."""
        self._wanted.clear()
        self._unwanted.set()

    def start(self) -> None:
        """It comes back, at the same socket."""
        self._unwanted.clear()
        self._wanted.set()

    async def run(self) -> None:
        """Runs until cancelled; calls under way are cut off, their commands killed."""
        while True:
            await self._wanted.wait()
            await self._serve()

    async def _serve(self) -> None:
        server = grpc.aio.server(
            options=[
                ("grpc.max_send_message_length", MESSAGE_BYTES),
                ("grpc.max_receive_message_length", MESSAGE_BYTES),
            ]
        )
        add_RuntimeServiceServicer_to_server(self._service, server)
        server.add_insecure_port(self.endpoint)
        self._socket.chmod(0o600)  # who may connect may run commands as this user
        await server.start()
        self.listening.set()
        try:
            await self._unwanted.wait()
        finally:
            self.listening.clear()
            await server.stop(grace=None)
            self._socket.unlink(missing_ok=True)
