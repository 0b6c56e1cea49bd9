"""tcpSocket: succeeds when the pod accepts a connection.

Source: kubelet pkg/probe/tcp/tcp.go.
Differs: closes the connection without TIME_WAIT, see `dialing`.
"""

import asyncio
from functools import partial
from typing import Final

from kruise_probe.daemon.probers.dialing import Address, Connection, ProbeDialFailed, prepare
from kruise_probe.daemon.probers.prober import Continuation, Outcome, Prober, Target, Verdict
from kruise_probe.daemon.probers.read_budget import ReadBudget
from kruise_probe.daemon.probers.targets import address_of

_CONNECTED: Final = Outcome(Verdict.SUCCESS)
_READS_NOTHING: Final = ReadBudget(0)


class TcpProber(Prober):
    """Connects to a port of the pod and closes. On this node the handshake usually ends inside `start`."""

    def __init__(self, port: int | str, *, timeout_seconds: float) -> None:
        self._port = port
        self._timeout_seconds = timeout_seconds

    def start(self, target: Target) -> Outcome | Continuation:
        address = address_of(target, self._port)
        try:
            connection = prepare(address, _READS_NOTHING)
            if not connection.begin():
                return partial(self._wait, connection, address)
        except ProbeDialFailed as failure:
            return _failed(failure)
        connection.close()
        return _CONNECTED

    async def run(self, target: Target) -> Outcome:
        started = self.start(target)
        return started if isinstance(started, Outcome) else await started()

    async def _wait(self, connection: Connection, address: Address) -> Outcome:
        try:
            async with asyncio.timeout(self._timeout_seconds):
                await connection.connect()
        except TimeoutError:
            return _timed_out(address)
        except ProbeDialFailed as failure:
            return _failed(failure)
        finally:
            connection.close()
        return _CONNECTED


def _failed(failure: ProbeDialFailed) -> Outcome:
    return Outcome(Verdict.FAILURE, str(failure))


def _timed_out(address: Address) -> Outcome:
    return Outcome(Verdict.FAILURE, f"dial tcp {address}: i/o timeout", timed_out=True)
