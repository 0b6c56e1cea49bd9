"""What every probe has in common: where it goes, what comes out, and when nothing can come out.

Source: kubelet pkg/kubelet/prober/prober.go and pkg/probe/probe.go.
Differs: a request or command that does not end in time is a failure in every phase; kubelet throws
such a result away when the time is over in the middle of a body.
"""

import enum
from typing import Final, Protocol

import msgspec


class Verdict(enum.Enum):
    SUCCESS = "success"
    FAILURE = "failure"


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """What one probe found.

    Attributes:
        message: at most 1,024 bytes, without control characters.
        warning: success, with something worth knowing in the message.
        timed_out: the time was over before there was an answer.
    """

    verdict: Verdict
    message: str = ""
    warning: bool = False
    timed_out: bool = False


class Target(msgspec.Struct, frozen=True, gc=False):
    """Where a probe goes; empty is what is not known."""

    pod_ip: str
    container_id: str


REASON_POD_IP_UNKNOWN: Final = "PodIPUnknown"
REASON_PORT_NAME_UNKNOWN: Final = "PortNameUnknown"
REASON_INVALID_PROBE: Final = "InvalidProbe"
REASON_CONTAINER_NOT_CREATED: Final = "ContainerNotCreated"
REASON_CONTAINER_NOT_RUNNING: Final = "ContainerNotRunning"
REASON_RUNTIME_UNAVAILABLE: Final = "RuntimeUnavailable"
REASON_EXEC_IMPOSSIBLE: Final = "ExecImpossible"


class CouldNotProbe(Exception):
    """There is no verdict: neither success nor failure was observed.

    Attributes:
        reason: one of the REASON constants, for machines.
        message: what is wrong and what to do, for people.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message


class Prober(Protocol):
    """Runs one probe. Knows its own timeout; may be run again, but not while it runs."""

    async def run(self, target: Target) -> Outcome:
        """Probes once and comes back within the probe's timeout (exec: plus a second).

        Raises:
            CouldNotProbe: when there can be no verdict.
        """
        ...
