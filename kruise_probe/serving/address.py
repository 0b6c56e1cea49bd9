"""Listen addresses in Go's notation, and their listening sockets.

Source: controller-runtime's `:8080`, `127.0.0.1:0` and `0` for off.
Differs: the error for a port in use is one line and names the flag to change.
"""

import errno
import socket
from typing import NamedTuple

from kruise_probe.api.errors import FatalError

OFF = frozenset({"", "0"})
BACKLOG = 512

_REASONS = {
    errno.EADDRINUSE: "is taken already",
    errno.EADDRNOTAVAIL: "is no address of this machine",
    errno.EACCES: "needs more privileges than this user has",
}


class BindError(FatalError):
    """Cannot listen on the address. The message is one line with the address, the flag and a remedy."""


class Address(NamedTuple):
    """Host and port; an empty `host` means every interface."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str, *, flag: str) -> "Address | None":
        """Parse `:8080`, `127.0.0.1:0` or `[::1]:80`; None if `text` turns the server off.

        Raises:
            BindError: `text` is not a valid address.
        """
        if text in OFF:
            return None
        host, separator, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not separator or not port.isascii() or not port.isdigit() or int(port) > 65535:
            raise BindError(
                f"{flag}={text}: is no address to listen on; write [host]:port, as :8080, or 0 to turn it off"
            )
        return cls(host, int(port))


def listen(address: Address, *, flag: str) -> socket.socket:
    """Open a listening socket; an empty host means all interfaces, IPv4 and IPv6.

    Raises:
        BindError: the address is in use, not local, or not permitted.
    """
    try:
        if not address.host:
            if socket.has_dualstack_ipv6():
                return socket.create_server(
                    ("", address.port),
                    family=socket.AF_INET6,
                    backlog=BACKLOG,
                    dualstack_ipv6=True,
                )
            return socket.create_server(("", address.port), backlog=BACKLOG)
        family, *_, target = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.create_server(target[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, error.strerror or str(error))
        raise BindError(f"{flag}={address}: {reason}; {_advice(address, error, flag)}") from error


def _advice(address: Address, error: OSError, flag: str) -> str:
    if error.errno == errno.EADDRINUSE and address.port == 10221:
        return (
            f"OpenKruise's daemon listens there, too: stop it, or choose another port with {flag}"
        )
    return f"choose another address with {flag}"
