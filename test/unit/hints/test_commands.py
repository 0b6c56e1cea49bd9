"""Commands that may work have no problem, whatever their arguments look like."""

from pathlib import Path

import pytest
from support.cases import cases
from support.tables import load_table

from kruise_probe.hints.commands import command_problem, hidden_exit_code

TABLE = load_table(Path(__file__).parents[2] / "data" / "commands.yaml", {})


@pytest.mark.parametrize("command", TABLE["fine"], ids=" ".join)
def test_command_that_may_work_has_no_problem(command: list[str]) -> None:
    assert command_problem(command) is None


@cases("command word message", **TABLE["needs-a-shell"])
def test_command_that_needs_a_shell_names_the_word_and_what_to_write(
    command: list[str], word: int, message: str
) -> None:
    problem = command_problem(command)

    assert problem is not None
    assert problem.word == word
    assert message in problem.message


@cases("script hidden", **TABLE["hidden-exit-code"])
def test_a_pipe_into_a_program_that_always_succeeds_hides_the_exit_code(
    script: str, hidden: str
) -> None:
    found = hidden_exit_code(["sh", "-c", script])

    if hidden:
        assert found is not None
        assert f"also if {hidden} fails" in found.message
    else:
        assert found is None
