"""Commands that may work have no problem, whatever their arguments look like."""

import pytest
from support.cases import cases

from kruise_probe.hints.commands import command_problem, hidden_exit_code


@pytest.mark.parametrize(
    "command",
    [
        [],
        ["sh"],
        ["sh", "-c"],
        ["/bin/sh", "-c", "a | b && c > /dev/null; cd ~"],
        ["sh", "-c", "kill -0 $(cat /pid) $(hostname)"],
        ["sh", "-eu", "/check.sh", "|"],
        ["bash", "./check.sh"],
        ["bash", "check.sh"],
        ["bash", "-euo", "pipefail", "-c", "a"],
        ["bash", "--login", "-c", "a"],
        ["bash", "-s"],
        ["busybox", "sh", "-c", "a | b"],
        ["env", "A=b", "sh", "-c", "a && b"],
        ["timeout", "2", "find", "/", "-exec", "test", "{}", ";"],
        ["find", "/", "-name", "a", "-exec", "ls", "{}", ";"],
        ["grep", "-q", "|", "/a"],
        ["cut", "-d", "|", "-f1", "/a"],
        ["test", "a", "<", "b"],
        ["cmd", "/c", "dir", "|", "find", "a"],
        ["python3", "-c", "import os; print(1 > 0)"],
        ["psql", "-c", "select a || b from c"],
        ["curl", "http://127.0.0.1/a?b=c&d=e"],
        ["echo", "$$(A)"],
        ["/opt/my app/check"],
        ["C:\\Program Files\\check.exe"],
        ["cat", "/a~", "~user"],
    ],
    ids=" ".join,
)
def test_command_that_may_work_has_no_problem(command: list[str]) -> None:
    assert command_problem(command) is None


NEEDS_A_SHELL = {
    "one-word": (["a b"], 0, 'its words: ["a", "b"]'),
    "pipe": (["ps", "-ef", "|", "grep", "a"], 2, '["sh", "-c", "ps -ef | grep a"]'),
    "redirection": (["a", ">/dev/null"], 1, "is an argument of a"),
    "descriptor": (["a", "2>&1"], 1, "is an argument of a"),
    "and": (["timeout", "1", "a", "&&", "b"], 3, "an argument of timeout"),
    "variable": (["a", "$(B)"], 1, '"$B"'),
    "shell-variable": (["curl", "http://127.0.0.1:${PORT}/"], 1, "only a shell replaces ${PORT}"),
    "script-in-one-word": (
        ["cat a; grep -q b c"],
        0,
        'run it in a shell: ["sh", "-c", "cat a; grep -q b c"]',
    ),
    "quoted-word": (["ls", "a b", "|", "wc"], 2, "ls 'a b' | wc"),
    "home": (["cat", "~/a"], 1, "only a shell replaces ~"),
    "no-c": (["bash", "-e", "pg_isready -q"], 2, "write -c before it"),
    "crlf": (["sh", "-c", "a\r\nb"], 2, "CRLF"),
}


@cases("command word message", **NEEDS_A_SHELL)
def test_command_that_needs_a_shell_names_the_word_and_what_to_write(
    command: list[str], word: int, message: str
) -> None:
    problem = command_problem(command)

    assert problem is not None
    assert problem.word == word
    assert message in problem.message


@cases(
    "script hidden",
    head=("curl -sf localhost | head -1", "curl"),
    after_another=("cd /a && ./check | tee log", "./check"),
    two_pipes=("ps | grep b | wc -l", "ps"),
    own_exit_code=("cat a | grep -q b", ""),
    as_advised=('out=$(./check) || exit 1; echo "$out" | tee log', ""),
    quoted=("grep -q 'a | cat' b", ""),
    not_the_last=("a | head -1 | grep -q b; c", ""),
    pipefail=("set -o pipefail; a | head -1", ""),
    no_script=("a 'b", ""),
)
def test_a_pipe_into_a_program_that_always_succeeds_hides_the_exit_code(
    script: str, hidden: str
) -> None:
    found = hidden_exit_code(["sh", "-c", script])

    assert (found is not None) == bool(hidden)
    assert found is None or f"also if {hidden} fails" in found.message
