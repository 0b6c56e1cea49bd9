"""The playground's programs: watched, restarted, and given up if they end again and again."""

import os
import signal
from pathlib import Path

import pytest
from support.cases import cases
from support.patience import PATIENCE_SECONDS
from support.playground import ControlledPlayground
from support.programs import until

from kruise_probe_playground import programs
from kruise_probe_playground.programs import Child, ChildFailed


async def test_killed_program_is_restarted_with_a_note() -> None:
    notes: list[str] = []
    async with ControlledPlayground(on_note=notes.append) as running:
        first = running.manager.pid
        assert first
        os.kill(first, signal.SIGKILL)

        async def is_restarted() -> bool:
            return running.manager.pid not in (None, first)

        await until("the manager runs again", is_restarted)
        assert notes == ["the manager ended with exit code 137; it is restarted"]


@cases(
    "script word starts",
    fails=("echo start; echo no such socket; exit 1", "exit code 1: no such socket", 3),
    usage=("echo start; echo bad flag; exit 2", "exit code 2: bad flag", 1),
    ends=("echo start; exit 0", "exit code 0: start", 3),
)
async def test_program_that_keeps_ending_fails_with_its_last_log_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, word: str, starts: int
) -> None:
    monkeypatch.setattr(programs, "SETTLED_SECONDS", PATIENCE_SECONDS)
    log = tmp_path / "program.log"
    program = Child(
        "program",
        ("sh", "-c", script),
        environment=dict(os.environ),
        log=log,
        on_end=lambda *_: None,
    )
    with pytest.raises(ChildFailed, match=word):
        await program.run()
    assert log.read_text().count("start\n") == starts
