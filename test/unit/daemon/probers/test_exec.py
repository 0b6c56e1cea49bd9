import pytest
from support.builders import entry_of
from support.cases import cases
from support.fake_runtime import Script, ScriptedRuntime, exit_with, hang, refuse, succeed

from kruise_probe.api.probe import ExecAction, Probe
from kruise_probe.daemon.cri.runtime import (
    ContainerNotFound,
    ContainerNotRunning,
    ExecImpossible,
    ExecOutputTooLarge,
    RuntimeFailure,
    RuntimeUnavailable,
)
from kruise_probe.daemon.probers import prober_for
from kruise_probe.daemon.probers.prober import CouldNotProbe, ProbeResult, Target, failure, success


async def attempt_with(script: Script, *, timeout: int | None = None) -> ProbeResult:
    runtime = ScriptedRuntime()
    container = runtime.start()
    runtime.on_exec("check", "it", script=script)
    action = ExecAction(command=("check", "it"))
    entry = entry_of(Probe(exec=action, timeout_seconds=timeout))
    prober = prober_for(entry, commands=runtime, user_agent="x")
    return await prober.run(Target("", container.id))


@cases(
    "script result",
    stdout_of_success=(succeed(b"fine\n"), success("fine")),
    not_its_stderr=(succeed(b"fine", b"warning"), success("fine")),
    failure=(exit_with(1, b"out", b"err"), failure("err\nout")),
    killed=(exit_with(137), failure("exit code 137 (signal 9)")),
)
async def test_message_is_what_the_command_printed(script: Script, result: ProbeResult) -> None:
    assert await attempt_with(script) == result


@cases(
    "timeout effective text",
    given=(90, 90, "1m30s"),
    longest=(3600, 3600, "1h0m0s"),
    absent=(None, 1, "1s"),
    zero=(0, 1, "1s"),
)
async def test_command_that_hangs_fails_at_its_timeout(
    looptime: float,
    timeout: int | None,
    effective: int,
    text: str,
) -> None:
    result = await attempt_with(hang(), timeout=timeout)

    assert result == failure(f"command timed out after {text}", timed_out=True)
    assert effective <= looptime <= effective + 1


@cases(
    "error reason",
    no_program=(ExecImpossible("no such file"), "ExecImpossible"),
    too_much_output=(ExecOutputTooLarge(), "ExecOutputTooLarge"),
    exited=(ContainerNotRunning("exited"), "ContainerNotRunning"),
    no_container=(ContainerNotFound("gone"), "ContainerNotCreated"),
    no_runtime=(RuntimeUnavailable("away"), "RuntimeUnavailable"),
    another=(RuntimeFailure("odd"), "ExecImpossible"),
)
async def test_command_that_cannot_run_gives_no_result(error: RuntimeFailure, reason: str) -> None:
    with pytest.raises(CouldNotProbe) as caught:
        await attempt_with(refuse(error))

    assert str(caught.value) == f"{reason}: {error}"
