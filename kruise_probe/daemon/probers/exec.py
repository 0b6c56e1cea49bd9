"""exec: succeeds when a command in the container exits with 0.

The message of a success is stdout; see `command_message` for that of a failure. A timeout is a failure.

Source: kubelet pkg/probe/exec/exec.go.
Differs: Kruise drops the stdout of a failing command. A command that prints more than 1 MiB has no result, where kubelet
reads up to 16 MiB of each output.
"""

from typing import Final, Protocol

from kruise_probe.api.core import ExecAction
from kruise_probe.api.messages import command_message, duration, normalise_message
from kruise_probe.daemon.cri.runtime import (
    ContainerNotFound,
    ContainerNotRunning,
    ExecOutputTooLarge,
    ExecResult,
    ExecTimeout,
    RuntimeFailure,
    RuntimeUnavailable,
)
from kruise_probe.daemon.probers.exec_gate import ExecKey, Waiter
from kruise_probe.daemon.probers.exec_shares import Tenant
from kruise_probe.daemon.probers.prober import (
    CouldNotProbe,
    Prober,
    ProbeResult,
    Reason,
    Target,
    failure,
)

_REASONS: Final[dict[type[RuntimeFailure], Reason]] = {
    ContainerNotFound: Reason.CONTAINER_NOT_CREATED,
    ContainerNotRunning: Reason.CONTAINER_NOT_RUNNING,
    RuntimeUnavailable: Reason.RUNTIME_UNAVAILABLE,
    ExecOutputTooLarge: Reason.EXEC_OUTPUT_TOO_LARGE,
}


class CommandGate(Protocol):
    """Runs the commands of probes. The daemon's is `ExecGate`."""

    async def execute(
        self, key: ExecKey, *, tenant: Tenant, timeout_seconds: float, waiter: Waiter
    ) -> ExecResult:
        """Run the command of `key` and return its output. Raises: RuntimeFailure."""
        ...

    def queued_too_long(self, waiter: Waiter) -> str:
        """Why `waiter` still waits for a place; empty if it has not waited too long."""
        ...


class ExecProber(Prober):
    """Runs a command in the container through `gate`, whose `Waiter` it is."""

    def __init__(
        self,
        action: ExecAction,
        *,
        timeout_seconds: float,
        period_seconds: float,
        gate: CommandGate,
    ) -> None:
        self._command = action.command or ()
        self._timeout_seconds = timeout_seconds
        self.period_seconds = period_seconds
        self._gate = gate

    async def run(self, target: Target) -> ProbeResult:
        if not target.container_id:
            raise CouldNotProbe(Reason.CONTAINER_NOT_CREATED, "the container has no id yet")
        key = ExecKey(target.container_id, self._command, self.period_seconds)
        try:
            result = await self._gate.execute(
                key,
                tenant=Tenant(target.namespace, target.pod_uid),
                timeout_seconds=self._timeout_seconds,
                waiter=self,
            )
        except ExecTimeout:
            text = f"command timed out after {duration(self._timeout_seconds)}"
            return failure(text, timed_out=True)
        except RuntimeFailure as error:
            reason = _REASONS.get(type(error), Reason.EXEC_IMPOSSIBLE)
            raise CouldNotProbe(reason, normalise_message(str(error))) from error
        return probe_result(result)

    def set_period(self, period_seconds: float) -> None:
        self.period_seconds = period_seconds

    def queued_too_long(self) -> str:
        why = self._gate.queued_too_long(self)
        return f"{Reason.EXEC_QUEUED}: {normalise_message(why)}" if why else ""


def probe_result(result: ExecResult) -> ProbeResult:
    """The result of a command that has exited."""
    message = command_message(result.exit_code, result.stdout, result.stderr)
    return ProbeResult(result.exit_code == 0, message)


def stuck_message(message: str, period_seconds: float) -> str:
    """The message of a command that times out every time, with its longer period and what its author can do."""
    return normalise_message(
        f"{message} (ExecStuck: the command times out every time; it now runs every {period_seconds:g} s; "
        "make it faster, or raise timeoutSeconds; if it ends in time, end its child processes, or run an init process in the container)"
    )
