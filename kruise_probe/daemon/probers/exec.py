"""exec: succeeds when a command in the container exits with 0.

The message of a success is stdout; see `command_message` for that of a failure. A timeout is a failure.

Source: kubelet pkg/probe/exec/exec.go.
Differs: Kruise drops the stdout of a failing command. A command that prints more than 1 MiB has no result, where kubelet
reads up to 16 MiB of each output.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from kruise_probe.api.messages import (
    code_of,
    command_message,
    duration,
    normalise_message,
)
from kruise_probe.api.names import CODE_EXEC_STUCK
from kruise_probe.api.node_pod_probe import ContainerProbeState
from kruise_probe.api.probe import ExecAction
from kruise_probe.api.times import loop_time
from kruise_probe.api.v1alpha1 import ProbeState
from kruise_probe.daemon.cri.runtime import (
    ContainerNotFound,
    ContainerNotRunning,
    ExecOutputTooLarge,
    ExecResult,
    ExecTimeout,
    RuntimeFailure,
    RuntimeUnavailable,
)
from kruise_probe.daemon.probers.prober import (
    MAX_TEXT_BYTES,
    UNLIMITED,
    CouldNotProbe,
    Criteria,
    Output,
    Prober,
    ProbeResult,
    Reason,
    Resources,
    Target,
    failure,
)

_REASONS: Final[dict[type[RuntimeFailure], Reason]] = {
    ContainerNotFound: Reason.CONTAINER_NOT_CREATED,
    ContainerNotRunning: Reason.CONTAINER_NOT_RUNNING,
    RuntimeUnavailable: Reason.RUNTIME_UNAVAILABLE,
    ExecOutputTooLarge: Reason.EXEC_OUTPUT_TOO_LARGE,
}


class Commands(Protocol):
    """Runs the commands of probes: `GrpcRuntime.exec_sync`."""

    async def exec_sync(
        self, container_id: str, command: Sequence[str], *, timeout_seconds: float
    ) -> ExecResult:
        """Run the command and return its output. Raises: RuntimeFailure."""
        ...


class ExecProber(Prober):
    """Runs a command in the container."""

    def __init__(
        self,
        action: ExecAction,
        *,
        timeout_seconds: float,
        commands: Commands,
        criteria: Criteria | None = None,
    ) -> None:
        self._command = action.command
        self._timeout_seconds = timeout_seconds
        self._commands = commands
        self._criteria = criteria

    async def run(self, target: Target, resources: Resources = UNLIMITED) -> ProbeResult:
        criteria = self._criteria
        deadline = 0.0
        if criteria is not None:
            deadline = loop_time() + self._timeout_seconds
        try:
            result = await self._commands.exec_sync(
                target.container_id, self._command, timeout_seconds=self._timeout_seconds
            )
        except ExecTimeout:
            text = f"command timed out after {duration(self._timeout_seconds)}"
            return failure(text, timed_out=True)
        except RuntimeFailure as error:
            reason = _REASONS.get(type(error), Reason.EXEC_IMPOSSIBLE)
            raise CouldNotProbe(reason, normalise_message(str(error))) from error
        if criteria is None:
            return probe_result(result)
        is_success = result.exit_code == 0
        if not criteria.allows(result.exit_code, is_success=is_success):
            return _failed_by_code(result, criteria)
        stdout = result.stdout[:MAX_TEXT_BYTES]
        is_cut = len(stdout) < len(result.stdout)
        output = Output(stdout, is_cut=is_cut)
        return await criteria.judge(output, resources, deadline)


def _failed_by_code(result: ExecResult, criteria: Criteria) -> ProbeResult:
    """The failure of a command whose exit code is none of a success."""
    if not criteria.codes:
        return probe_result(result)
    message = f"exit code {result.exit_code}, not in {criteria.codes}"
    if result.stdout or result.stderr:
        output = command_message(result.exit_code or 1, result.stdout, result.stderr)
        message = f"{message}\n{output}"
    return failure(normalise_message(message))


def probe_result(result: ExecResult) -> ProbeResult:
    """The result of a command that has exited."""
    message = command_message(result.exit_code, result.stdout, result.stderr)
    return ProbeResult(result.exit_code == 0, message)


def is_stuck(state: ContainerProbeState) -> bool:
    """Whether the command timed out every time, by the message of `stuck_message`."""
    return state.state == ProbeState.FAILED and code_of(state.message or "") == CODE_EXEC_STUCK


def stuck_message(message: str, period_seconds: float) -> str:
    """The message of a command that times out every time, with its longer period and what its author can do."""
    return normalise_message(
        f"{CODE_EXEC_STUCK}: {message} every time, so it runs every {period_seconds:g} s; make it faster, or raise timeoutSeconds; "
        "if it ends in time, end its child processes, or run an init process in the container"
    )
