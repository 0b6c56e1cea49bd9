"""Types that all probers share: target, result of one attempt, and the error for an attempt without a result.

Source: kubelet pkg/kubelet/prober/prober.go, pkg/probe/probe.go and pkg/probe/util.go (ResolveContainerPort).
Differs: a timeout is a failure in every phase; kubelet drops the result when the timeout ends while it reads a body.
The manager resolves port names before it writes the NodePodProbe; a remaining name is an error.
"""

from collections.abc import Callable
from enum import StrEnum
from functools import lru_cache
from ipaddress import ip_address
from typing import Final, NamedTuple, Protocol

import msgspec

from kruise_probe.api.meta import HostPort
from kruise_probe.api.probe import MAX_PORT

MAX_ATTEMPT_BYTES: Final = 256 * 1024
"""How much one attempt reads over all of its connections, with TLS handshakes. Health checks use less than a tenth of it."""
MAX_TEXT_BYTES: Final = 256 * 1024
"""How much of an output or body is read for a value."""
MAX_VALUE_ATTEMPT_BYTES: Final = MAX_ATTEMPT_BYTES + 64 * 1024
"""As `MAX_ATTEMPT_BYTES`, for a probe that needs `MAX_TEXT_BYTES` of a body: with room for heads and handshakes."""
TLS_BYTES: Final = 40 * 1024
"""What OpenSSL holds for a connection before the server has sent anything."""

_MAX_PORT_DIGITS = 15
"""A longer text is no number: `int` refuses thousands of digits."""


class ProbeResult(msgspec.Struct, frozen=True, gc=False):
    """The result of one attempt; see `success` and `failure`.

    Attributes:
        message: at most 1,024 bytes, as `normalise_message` returns it.
        timed_out: the timeout ended before the response was complete.
        value: of `extract`, before it is rounded; empty without one.
        epoch: what `exclusive.epoch` found in the output of a success.
    """

    succeeded: bool
    message: str = ""
    timed_out: bool = False
    value: str = ""
    epoch: int | None = None


def success(message: str = "") -> ProbeResult:
    return ProbeResult(True, message)


def failure(message: str = "", *, timed_out: bool = False) -> ProbeResult:
    return ProbeResult(False, message, timed_out=timed_out)


class Target(msgspec.Struct, frozen=True, gc=False):
    """The pod and container of a probe. Unknown fields are empty.

    Attributes:
        refusal: why the pod's address must not be dialled; `pod_ip` is empty then.
    """

    pod_ip: str
    container_id: str
    refusal: str = ""


class Reason(StrEnum):
    """Why an attempt has no result."""

    NODE_RESOURCES = "NodeResources"
    POD_IP_UNKNOWN = "PodIPUnknown"
    ADDRESS_NOT_ALLOWED = "AddressNotAllowed"
    PORT_NAME_UNKNOWN = "PortNameUnknown"
    INVALID_PROBE = "InvalidProbe"
    CONTAINER_NOT_CREATED = "ContainerNotCreated"
    CONTAINER_NOT_RUNNING = "ContainerNotRunning"
    RUNTIME_UNAVAILABLE = "RuntimeUnavailable"
    EXEC_IMPOSSIBLE = "ExecImpossible"
    EXEC_QUEUED = "ExecQueued"
    ATTEMPT_QUEUED = "AttemptQueued"
    EXEC_OUTPUT_TOO_LARGE = "ExecOutputTooLarge"
    NO_VALUE = "NoValue"


class CouldNotProbe(Exception):
    """The attempt has no result: neither success nor failure was observed. The message says what to do."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason


class BytesQueued(Exception):
    """The attempt needs more bytes than its pod may hold now. It must end, and run again when it gets them."""


class Resources(Protocol):
    """What one attempt may use of the node; `places.Place` shares it with other attempts."""

    def hold(self, size: int) -> None:
        """Count that the attempt holds `size` bytes beside those of every attempt. Raises: BytesQueued."""
        ...

    async def compute(self, step: Callable[[], bool], deadline: float) -> bool:
        """Run a step that may need much CPU, and return its result.

        Raises:
            TimeoutError: at `deadline`; the step still runs in its thread.
            CouldNotProbe: no thread was free until `deadline`.
        """
        ...


class _Unlimited(Resources):
    def hold(self, size: int) -> None:
        pass

    async def compute(self, step: Callable[[], bool], deadline: float) -> bool:
        return step()


UNLIMITED: Final = _Unlimited()
"""Resources of an attempt that is the only one of its process."""


class Output(NamedTuple):
    """What an attempt that has succeeded by its code received: stdout or a body.

    Attributes:
        is_cut: there is more.
        introduction: of its message without `extract`.
    """

    text: bytes
    is_cut: bool
    introduction: bytes = b""


class Criteria(Protocol):
    """What decides about attempts of a probe with `extract` or `successWhen`: `judging.ValueCriteria`.

    Attributes:
        reads_text: the whole output or body is needed.
        codes: as the marker writes them; empty for those of the kubelet.
    """

    @property
    def reads_text(self) -> bool: ...

    @property
    def codes(self) -> str: ...

    def allows(self, code: int, *, is_success: bool) -> bool:
        """Whether an attempt with this exit or status code may succeed. `is_success`: for the kubelet it has."""
        ...

    async def judge(self, output: Output, resources: Resources, deadline: float) -> ProbeResult:
        """The result of an attempt that has succeeded by its code.

        Raises:
            CouldNotProbe: there is no value, or the time has ended before one was found.
        """
        ...


class Prober(Protocol):
    """Runs the attempts of one probe, one at a time. Enforces the probe's timeout."""

    def run_now(self, target: Target) -> ProbeResult | None:
        """The result of an attempt that need not wait, without the CPU of a task. None: await `run` instead.

        Raises:
            CouldNotProbe: the attempt has no result.
        """
        return None

    async def run(self, target: Target, resources: Resources = UNLIMITED) -> ProbeResult:
        """Run one attempt. It ends within the probe's timeout (exec: plus 1 s).

        Raises:
            CouldNotProbe: the attempt has no result.
            BytesQueued: see there.
        """
        ...


def address_of(target: Target, port: int | str) -> HostPort:
    """The pod's IP and the port number.

    Raises:
        CouldNotProbe: the pod has no IP, its IP must not be dialled, or the port is unknown.
    """
    number = _port_number(port)
    if target.refusal:
        raise CouldNotProbe(Reason.ADDRESS_NOT_ALLOWED, target.refusal)
    if not target.pod_ip:
        raise CouldNotProbe(Reason.POD_IP_UNKNOWN, "the pod has no IP yet; its events show why")
    if not _is_ip(target.pod_ip):
        raise CouldNotProbe(
            Reason.POD_IP_UNKNOWN,
            f"the pod's IP {target.pod_ip!r} is not an IP address; correct IP in the NodePodProbe",
        )
    return HostPort(target.pod_ip, number)


@lru_cache(maxsize=1024)
def _is_ip(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _port_number(port: int | str) -> int:
    if isinstance(port, str):
        is_number = port.isascii() and port.isdigit()
        if not is_number or len(port) > _MAX_PORT_DIGITS:
            raise CouldNotProbe(
                Reason.PORT_NAME_UNKNOWN,
                f"port {port} not found: the container has no port of this name; add it to the container, or use a number",
            )
        port = int(port)
    if not 0 < port <= MAX_PORT:
        raise CouldNotProbe(
            Reason.INVALID_PROBE, f"port {port} is out of range; use 1 to {MAX_PORT}"
        )
    return port
