import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.background import background
from support.fake_runtime import Script, ScriptedRuntime, exit_with, hang, refuse, succeed

from kruise_probe.api.core import ExecAction, Probe
from kruise_probe.daemon.cri.runtime import (
    ContainerNotFound,
    ContainerNotRunning,
    ExecImpossible,
    ExecOutputTooLarge,
    ExecResult,
    RuntimeFailure,
    RuntimeUnavailable,
)
from kruise_probe.daemon.probers.exec import judge
from kruise_probe.daemon.probers.exec_gate import ExecGate
from kruise_probe.daemon.probers.prober import CouldNotProbe, Outcome, Target, Verdict
from kruise_probe.daemon.probers.selection import prober_for


async def outcome_of(script: Script, *, timeout: int = 1) -> Outcome:
    runtime = ScriptedRuntime()
    container = runtime.start()
    runtime.on_exec("check", script=script)
    gate = ExecGate(runtime, max_concurrent=1)
    async with background(gate.run()):
        probe = Probe(exec=ExecAction(command=("check",)), timeout_seconds=timeout)
        return await prober_for(probe, gate=gate, user_agent="x").run(Target("", container.id))


@pytest.mark.parametrize(
    ("script", "outcome"),
    [
        pytest.param(succeed(b"fine\n"), Outcome(Verdict.SUCCESS, "fine"), id="stdout-of-success"),
        pytest.param(
            succeed(b"fine", b"warning"), Outcome(Verdict.SUCCESS, "fine"), id="not-its-stderr"
        ),
        pytest.param(
            exit_with(1, b"out", b"err"), Outcome(Verdict.FAILURE, "err"), id="stderr-of-failure"
        ),
        pytest.param(
            exit_with(1, b"full"),
            Outcome(Verdict.FAILURE, "full"),
            id="stdout-of-failure-where-stderr-is-empty",
        ),
        pytest.param(
            exit_with(3, b"full", b" \n"),
            Outcome(Verdict.FAILURE, "full"),
            id="stderr-of-white-space-is-empty",
        ),
        pytest.param(exit_with(137), Outcome(Verdict.FAILURE, ""), id="killed-is-failure"),
    ],
)
async def test_message_is_what_the_command_printed(script: Script, outcome: Outcome) -> None:
    assert await outcome_of(script) == outcome


async def test_command_that_hangs_fails_when_its_time_is_over(looptime: float) -> None:
    outcome = await outcome_of(hang(), timeout=90)

    expected = Outcome(Verdict.FAILURE, "command timed out after 1m30s", timed_out=True)
    assert outcome == expected
    assert 90 <= looptime <= 91


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (ExecImpossible("no such file"), "ExecImpossible"),
        (ExecOutputTooLarge("print less"), "ExecOutputTooLarge"),
        (ContainerNotRunning("exited"), "ContainerNotRunning"),
        (ContainerNotFound("gone"), "ContainerNotCreated"),
        (RuntimeUnavailable("away"), "RuntimeUnavailable"),
        (RuntimeFailure("odd"), "ExecImpossible"),
    ],
)
async def test_command_that_cannot_run_is_no_verdict(failure: RuntimeFailure, reason: str) -> None:
    with pytest.raises(CouldNotProbe) as caught:
        await outcome_of(refuse(failure))

    assert (caught.value.reason, caught.value.message) == (reason, str(failure))


@given(st.binary(max_size=2000), st.binary(max_size=2000), st.integers(-1, 300))
def test_any_output_and_code_make_a_verdict(stdout: bytes, stderr: bytes, code: int) -> None:
    outcome = judge(ExecResult(code, stdout, stderr))

    assert outcome.verdict is (Verdict.SUCCESS if code == 0 else Verdict.FAILURE)
    assert len(outcome.message.encode()) <= 1024
