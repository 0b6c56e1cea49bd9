"""exec: succeeds when a command in the container exits with 0.

The message of a success is stdout. The message of a failure is stderr, or stdout if stderr is empty. A timeout is a
failure.

Source: kubelet pkg/probe/exec/exec.go; Kruise pkg/daemon/podprobe/prober.go for which output is the message.
Differs: Kruise drops the stdout of a failing command. A command that prints more than 1 MiB has no result, where kubelet
reads up to 16 MiB of each output.
"""

from typing import Final

from kruise_probe.api.core import ExecAction
from kruise_probe.daemon.cri.runtime import (
    ContainerNotFound,
    ContainerNotRunning,
    ExecOutputTooLarge,
    ExecResult,
    ExecTimeout,
    RuntimeFailure,
    RuntimeUnavailable,
)
from kruise_probe.daemon.probers.exec_gate import ExecGate, ExecKey
from kruise_probe.daemon.probers.exec_shares import Tenant
from kruise_probe.daemon.probers.messages import clean_message, duration
from kruise_probe.daemon.probers.prober import (
    REASON_CONTAINER_NOT_CREATED,
    REASON_CONTAINER_NOT_RUNNING,
    REASON_EXEC_IMPOSSIBLE,
    REASON_EXEC_OUTPUT_TOO_LARGE,
    REASON_EXEC_QUEUED,
    REASON_RUNTIME_UNAVAILABLE,
    CouldNotProbe,
    Outcome,
    Prober,
    Target,
    Verdict,
)

_REASONS: Final[dict[type[RuntimeFailure], str]] = {
    ContainerNotFound: REASON_CONTAINER_NOT_CREATED,
    ContainerNotRunning: REASON_CONTAINER_NOT_RUNNING,
    RuntimeUnavailable: REASON_RUNTIME_UNAVAILABLE,
    ExecOutputTooLarge: REASON_EXEC_OUTPUT_TOO_LARGE,
}


class ExecProber(Prober):
    """Runs a command in the container through the node's `ExecGate`."""

    def __init__(
        self,
        action: ExecAction,
        *,
        timeout_seconds: float,
        period_seconds: float,
        gate: ExecGate,
    ) -> None:
        self._command = action.command or ()
        self._timeout_seconds = timeout_seconds
        self._period_seconds = period_seconds
        self._gate = gate

    async def run(self, target: Target) -> Outcome:
        if not target.container_id:
            raise CouldNotProbe(REASON_CONTAINER_NOT_CREATED, "the container has no id yet")
        key = ExecKey(target.container_id, self._command, self._period_seconds)
        try:
            result = await self._gate.execute(
                key,
                tenant=Tenant(target.namespace, target.pod_uid),
                timeout_seconds=self._timeout_seconds,
                waiter=self,
            )
        except ExecTimeout:
            text = f"command timed out after {duration(self._timeout_seconds)}"
            return Outcome(Verdict.FAILURE, text, timed_out=True)
        except RuntimeFailure as failure:
            reason = _REASONS.get(type(failure), REASON_EXEC_IMPOSSIBLE)
            raise CouldNotProbe(reason, clean_message(str(failure))) from failure
        return judge(result)

    def queued_too_long(self) -> CouldNotProbe | None:
        why = self._gate.queued_too_long(self)
        return CouldNotProbe(REASON_EXEC_QUEUED, clean_message(why)) if why else None


def judge(result: ExecResult) -> Outcome:
    """The result of a command that has exited."""
    if result.exit_code == 0:
        return Outcome(Verdict.SUCCESS, clean_message(result.stdout))
    return Outcome(Verdict.FAILURE, clean_message(result.stderr) or clean_message(result.stdout))
