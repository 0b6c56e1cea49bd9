"""What every probe has in common: where it goes, what comes out, and when nothing can come out.

Source: kubelet pkg/kubelet/prober/prober.go and pkg/probe/probe.go.
Differs: a request or command that does not end in time is a failure in every phase; kubelet throws
such a result away when the time is over in the middle of a body.
"""

import abc
import enum
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, Protocol

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
    """Where a probe goes; empty is what is not known.

    Attributes:
        refusal: why the pod's address must not be dialled; `pod_ip` is empty then.
        namespace, pod_uid: whose share of the exec places a command uses.
    """

    pod_ip: str
    container_id: str
    refusal: str = ""
    namespace: str = ""
    pod_uid: str = ""


REASON_POD_IP_UNKNOWN: Final = "PodIPUnknown"
REASON_ADDRESS_NOT_ALLOWED: Final = "AddressNotAllowed"
REASON_PORT_NAME_UNKNOWN: Final = "PortNameUnknown"
REASON_INVALID_PROBE: Final = "InvalidProbe"
REASON_CONTAINER_NOT_CREATED: Final = "ContainerNotCreated"
REASON_CONTAINER_NOT_RUNNING: Final = "ContainerNotRunning"
REASON_RUNTIME_UNAVAILABLE: Final = "RuntimeUnavailable"
REASON_EXEC_IMPOSSIBLE: Final = "ExecImpossible"
REASON_EXEC_QUEUED: Final = "ExecQueued"
REASON_EXEC_OUTPUT_TOO_LARGE: Final = "ExecOutputTooLarge"


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


Continuation = Callable[[], Coroutine[Any, Any, Outcome]]
"""What is left of a probe that was begun: call it once, and await the outcome."""


class PendingResponse(abc.ABC):
    """A probe whose answer is there in a moment: to be looked for once, at the end of the round.

    Dropped without a look, it leaves nothing behind.
    """

    @abc.abstractmethod
    def look(self) -> "Outcome | Continuation":
        """What came of it, or what is left to wait for."""


StartResult = Outcome | PendingResponse | Continuation


class Prober(Protocol):
    """Runs one probe. Knows its own timeout; may be run again, but not while it runs."""

    def start(self, target: Target) -> StartResult:
        """Begins a probe: its outcome where nothing has to be waited for, else how to come by it.

        Raises:
            CouldNotProbe: as `run`.
        """
        return partial(self.run, target)

    async def run(self, target: Target) -> Outcome:
        """Probes once and comes back within the probe's timeout (exec: plus a second).

        Raises:
            CouldNotProbe: when there can be no verdict.
        """
        ...

    def queued_too_long(self) -> CouldNotProbe | None:
        """Why the run that is in flight has not begun for too long; None if it has begun or may still wait."""
        return None
