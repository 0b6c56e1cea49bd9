"""Addresses to listen on in Go's notation, and their listening sockets.

Source: controller-runtime's `:8080`, `127.0.0.1:0` and `0` for off.
Differs: the error for a port in use is one line and names the flag to change.
"""

import errno
import socket
from typing import Final

from kruise_probe.api.errors import FatalError
from kruise_probe.api.host_port import HostPort

OFF: Final = frozenset({"", "0"})
BACKLOG: Final = 512

_REASONS: Final = {
    errno.EADDRINUSE: "the port is already in use",
    errno.EADDRNOTAVAIL: "this machine has no such address",
    errno.EACCES: "this user may not listen on this port",
}


class BindError(FatalError):
    """Cannot listen on the address. The message is one line with the flag, the address, the reason and a remedy."""


class BindAddress(HostPort):
    """Host and port to listen on; an empty `host` means every interface."""

    @classmethod
    def parse(cls, text: str) -> "BindAddress | None":
        """Parse `:8080`, `127.0.0.1:0` or `[::1]:80`; None if `text` turns the server off.

        Raises:
            ValueError: `text` is not a valid address; the message names the notation.
        """
        if text in OFF:
            return None
        host, separator, port = text.rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        is_port = port.isascii() and port.isdigit() and int(port) <= 65535
        if not separator or not is_port or (":" in host and not bracketed):
            raise ValueError(
                f"{text!r} is not an address to listen on; write :8080, 127.0.0.1:8080, [::1]:8080, or 0 for none"
            )
        return cls(host[1:-1] if bracketed else host, int(port))


def listen(address: BindAddress, *, flag: str) -> socket.socket:
    """Open a listening socket; an empty host means all interfaces, IPv4 and IPv6.

    Raises:
        BindError: the address is in use, not local, not permitted, or its host is not a valid name.
    """
    try:
        if not address.host and socket.has_dualstack_ipv6():
            return socket.create_server(
                ("", address.port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True
            )
        family, *_, target = socket.getaddrinfo(
            address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.create_server(target[:2], family=family, backlog=BACKLOG)
    except UnicodeError as error:  # the host cannot be encoded as a domain name
        reason = "the host is not a valid name"
        raise BindError(f"{flag}={address}: {reason}; set another address with {flag}") from error
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, error.strerror or str(error))
        advice = f"set another address with {flag}"
        if error.errno == errno.EADDRINUSE and address.port == 10221:
            advice = f"stop OpenKruise's daemon, which uses this port too, or set another port with {flag}"
        raise BindError(f"{flag}={address}: {reason}; {advice}") from error
