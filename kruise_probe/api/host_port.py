"""Network address of a server.

Source: Go net.JoinHostPort.
"""

from typing import NamedTuple


class HostPort(NamedTuple):
    """Host name or IP address, and port. An IPv6 address is printed in brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
