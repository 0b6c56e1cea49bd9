"""tcpSocket: success when the pod takes a connection.

Source: kubelet pkg/probe/tcp/tcp.go.
Differs: how the connection ends, see `dialing`.
"""

import asyncio
from typing import Final

from kruise_probe.daemon.probers.dialing import Address, DialFailed, dial
from kruise_probe.daemon.probers.prober import Outcome, Target, Verdict
from kruise_probe.daemon.probers.targets import address_of

_CONNECTED: Final = Outcome(Verdict.SUCCESS)


class TcpProber:
    """Connects to a port of the pod and closes."""

    def __init__(self, port: int | str, *, timeout_seconds: float) -> None:
        self._port = port
        self._timeout_seconds = timeout_seconds

    async def run(self, target: Target) -> Outcome:
        address = address_of(target, self._port)
        try:
            async with asyncio.timeout(self._timeout_seconds):
                connection = await dial(address)
        except TimeoutError:
            return _timed_out(address)
        except DialFailed as failure:
            return Outcome(Verdict.FAILURE, str(failure))
        connection.close()
        return _CONNECTED


def _timed_out(address: Address) -> Outcome:
    return Outcome(Verdict.FAILURE, f"dial tcp {address}: i/o timeout", timed_out=True)
