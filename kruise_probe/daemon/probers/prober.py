"""Types that all probers share: target, result of one attempt, and the error for an attempt without a result.

Source: kubelet pkg/kubelet/prober/prober.go and pkg/probe/probe.go.
Differs: a timeout is a failure in every phase; kubelet drops the result when the timeout ends while it reads a body.
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
    """The result of one attempt.

    Attributes:
        message: at most 1,024 bytes, without control characters.
        warning: a success whose message needs attention.
        timed_out: the timeout ended before the response was complete.
    """

    verdict: Verdict
    message: str = ""
    warning: bool = False
    timed_out: bool = False


class Target(msgspec.Struct, frozen=True, gc=False):
    """The pod and container of a probe. Unknown fields are empty.

    Attributes:
        refusal: why the pod's address must not be dialled; `pod_ip` is empty then.
        namespace, pod_uid: the tenant whose share of the exec places a command uses.
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
    """The attempt has no result: neither success nor failure was observed.

    Attributes:
        reason: one of the REASON constants.
        message: what is wrong and what to do.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message


Continuation = Callable[[], Coroutine[Any, Any, Outcome]]
"""The rest of a started attempt. Call it once and await the result."""


class PendingResponse(abc.ABC):
    """An attempt whose request was sent. Call `look` once, at the end of the round (see `rounds`).

    It may be dropped without `look`; its socket is closed then.
    """

    @abc.abstractmethod
    def look(self) -> "Outcome | Continuation":
        """Return the result, or the continuation if the response is not complete."""


StartResult = Outcome | PendingResponse | Continuation


class Prober(Protocol):
    """Runs the attempts of one probe, one at a time. Enforces the probe's timeout."""

    def start(self, target: Target) -> StartResult:
        """Start an attempt. Return its result if no waiting is needed, else how to get it.

        Raises:
            CouldNotProbe: as `run`.
        """
        return partial(self.run, target)

    async def run(self, target: Target) -> Outcome:
        """Run one attempt within the probe's timeout (exec: plus 1 s).

        Raises:
            CouldNotProbe: the attempt has no result.
        """
        ...

    def queued_too_long(self) -> CouldNotProbe | None:
        """Return why the attempt in flight is still queued, if it has waited too long; else None."""
        return None
