"""Commands: as text, and those that need a shell, because the runtime runs the words of a command without one."""

import json
import re
import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final, NamedTuple

import msgspec

from kruise_probe.api.probe import ExecAction, GRPCAction, HTTPGetAction, TCPSocketAction
from kruise_probe.api.v1alpha1 import ContainerProbe

SHELLS: Final = frozenset(
    {
        "sh",
        "bash",
        "dash",
        "ash",
        "zsh",
        "ksh",
    }
)
_TAKE_ANY_WORD: Final = frozenset(
    {
        *("awk", "column", "cut", "echo", "egrep", "expr", "fgrep", "find", "gawk", "grep", "jq", "mawk", "paste"),
        *("printf", "rg", "sed", "sort", "test", "tr", "["),
    }
)  # fmt: skip
"""Programs to which `|` or `>` may be an argument."""
_OPERATOR: Final = re.compile(r"\|\|?|&&|;|<|(?:[0-9]|&)?>>?(?:&[0-9]|/\S*)?")
_VARIABLE: Final = re.compile(r"(?<!\$)\$\([A-Za-z_][A-Za-z0-9_.-]*\)")
_CONSTANT: Final = re.compile(r"(?<!\$)\$\([A-Z_][A-Z0-9_]*\)")
"""In a script, `$(name)` is a substitution of a command; commands are not written in capitals."""
_SHELL_VARIABLE: Final = re.compile(r"(?:^|[=:/])(\$(?:[A-Z_][A-Z0-9_]*|\{[A-Z_][A-Z0-9_]*\}))")
_SHELL_CHARACTERS: Final = re.compile(r"[;|&<>$`'\"]")
_EXITS_WITH_0: Final = frozenset(
    {
        "cat",
        "column",
        "cut",
        "head",
        "nl",
        "sort",
        "tail",
        "tee",
        "tr",
        "uniq",
        "wc",
    }
)
"""Programs at the end of a pipe whose exit code says nothing about the program before them."""
_PRINTS: Final = ("echo", "printf")
"""Programs before a pipe that do not fail."""
_BLANK_OR_QUOTE: Final = re.compile(r"[\s'\"]")
_SCRIPT_OPTION: Final = re.compile(r"-[^-]*[cs]")
"""Options of a shell that reads a script from the next word or from standard input."""
_TAKES_VALUE: Final = re.compile(r"[-+]\w*[oO]|--rcfile|--init-file")


FAILURES: Final = {
    r"(?i:exec format error)": "begin the script with a line such as #!/bin/sh; a program must be built for the CPU of the node",
    r"\^M:|\w\\r\W{1,3}No such|bad interpreter|\bexec \S*/\S+: no such file or directory": (
        "the file exists, but not the interpreter that its first line names: often it has CRLF line ends; write it with LF, "
        "or name an interpreter of the image"
    ),
    r"\Acommand timed out after ": "make the command faster, or raise timeoutSeconds (default 1)",
    r"^\S*sh: .*/\S*: not found$": (  # of dash and busybox, also if only the interpreter is missing
        "the container has no such file, or no interpreter of the name in its first line; CRLF line ends make that name wrong"
    ),
    r"^\S*sh: .*not found$|executable file .*not found|\bexec: \S+: stat .*: no such file|^exit code 127$": (
        "the container has no such program: correct its name, or add it to the image"
    ),
    r"^\S*sh: (?!.*can(?:not|'t) (?:create|open)).*(?:Permission denied|cannot execute.*)$|^exit code 126$|\bexec: \S+: permission denied|\bopen executable: Permission denied": (
        "the container's user may not run this file, or may not open it for a redirection: make it executable with chmod +x, "
        "or correct its owner"
    ),
}
"""By a pattern in messages of runc, crun, CRI-O, dash, busybox, bash and env: why a command failed, and what to do.

The message has the exit code of a command without output only.
"""


class CommandProblem(NamedTuple):
    """Why a command cannot work; `word` is its number."""

    word: int
    message: str


def command_problem(command: Sequence[str]) -> CommandProblem | None:
    """The first problem of a command; None if it may work."""
    if not command:
        return None
    if hint := split_hint(command):
        return CommandProblem(0, f"the runtime looks for a program of this whole name; {hint}")
    if PurePosixPath(command[0]).name in SHELLS:
        return _shell_problem(command)
    takes_any = False
    for index, word in enumerate(command):
        name = PurePosixPath(word).name
        if name in SHELLS:
            return None
        takes_any |= name in _TAKE_ANY_WORD
        message = _word_problem(command, word, takes_any)
        if message:
            return CommandProblem(index, message)
    return None


def _word_problem(command: Sequence[str], word: str, takes_any: bool) -> str:
    """Why a word needs a shell; empty if it does not. `takes_any`: its program may take it as an argument."""
    variable = _VARIABLE.search(word)
    if variable is not None:
        return _variable(variable[0])
    if word == "~" or word.startswith("~/"):
        return f"only a shell replaces ~ in {word!r}; write the path of the folder"
    if takes_any:
        return ""
    script = _script(command)
    remedy = f"write the whole as one script: {script}"
    variable = _SHELL_VARIABLE.search(word)
    if variable is not None:
        return f"only a shell replaces {variable[1]} in {word!r}; {remedy}"
    if _OPERATOR.fullmatch(word):
        program = PurePosixPath(command[0]).name
        return f"without a shell, {word!r} is an argument of {program}; {remedy}"
    return ""


def failure_hint(message: str) -> str:
    """What to do about a command that failed with this message; empty if the message has no known cause."""
    for pattern, hint in FAILURES.items():
        if re.search(pattern, message, re.MULTILINE):
            return hint
    return ""


def split_hint(command: Sequence[str]) -> str:
    """What to do about a command of one word that has spaces; empty for any other command."""
    if len(command) != 1:
        return ""
    only = command[0]
    words = only.split()
    if len(words) < 2 or _is_path_with_spaces(words):
        return ""
    if _SHELL_CHARACTERS.search(only):
        script = _script(command)
        return f"run it in a shell: {script}"
    split = _json(words)
    return f"split the command into its words: {split}, or run it in a shell: [sh, -c, ...]"


def _is_path_with_spaces(words: Sequence[str]) -> bool:
    first, second, *_ = words
    if second.startswith(("/", "-")):
        return False
    return first.startswith("/") and "/" in second


def _shell_problem(command: Sequence[str]) -> CommandProblem | None:
    is_value = False
    for index, word in enumerate(command[1:], start=1):
        if is_value:
            is_value = False
        elif not word.startswith(("-", "+")):
            return _file_problem(command, index)
        elif _SCRIPT_OPTION.match(word):
            if "c" not in word:
                return None
            return _script_problem(command, index + 1)
        else:
            is_value = _TAKES_VALUE.fullmatch(word) is not None
    return None


def _file_problem(command: Sequence[str], index: int) -> CommandProblem | None:
    """That a word without `-c` before it is no name of a file."""
    word = command[index]
    parts = word.split()
    has_spaces = len(parts) > 1
    if has_spaces and _is_path_with_spaces(parts):
        return None
    is_path = "/" in word or "." in word
    if is_path and not has_spaces:
        return None
    shell = PurePosixPath(command[0]).name
    script = _script(command[index:], shell)
    message = (
        f"{shell} takes {word!r} as the name of a file with a script; write -c before it: {script}"
    )
    return CommandProblem(index, message)


def _script_problem(command: Sequence[str], index: int) -> CommandProblem | None:
    if index >= len(command):
        return None
    script = command[index]
    variable = _CONSTANT.search(script)
    if variable is not None:
        message = _variable(variable[0])
        return CommandProblem(index, message)
    if "\r\n" in script:
        message = "the script has CRLF line ends, which a shell takes as part of the words; use LF"
        return CommandProblem(index, message)
    return None


def hidden_exit_code(command: Sequence[str]) -> CommandProblem | None:
    """A script that ends with a pipe into a program that exits with 0 whatever it reads: the probe always succeeds."""
    if len(command) < 3 or "c" not in command[-2]:
        return None
    program = PurePosixPath(command[0]).name
    if program not in SHELLS:
        return None
    if "pipefail" in " ".join(command):
        return None
    script = command[-1].strip("; \n")
    script = script.replace("\n", " ; ")
    lexer = shlex.shlex(script, posix=True, punctuation_chars=True)
    pipe: list[list[str]] = [[]]
    try:
        for word in lexer:
            if word in (";", "&&", "||", "&"):
                pipe = [[]]
            elif word == "|":
                pipe.append([])
            else:
                pipe[-1].append(word)
    except ValueError:
        return None
    if len(pipe) < 2 or [] in pipe:
        return None
    first = pipe[0][0]
    last = pipe[-1][0]
    if last not in _EXITS_WITH_0 or first in _PRINTS:
        return None
    message = (
        f"the exit code is that of {last}, which is 0 also if {first} fails; "
        f'write: out=$({first} ...) || exit 1; echo "$out" | ...'
    )
    last_word = len(command) - 1
    return CommandProblem(last_word, message)


def _variable(text: str) -> str:
    name = text[2:-1]
    return (
        f"the kubelet replaces {text} in a probe's command, kruise-probe does not; "
        f'use a variable of the shell: [sh, -c, ...] with "${name}"'
    )


def _script(words: Sequence[str], shell: str = "sh") -> str:
    """The words as one script; a word that has blanks or quotes stays one. One word is a script already."""
    if len(words) == 1:
        return _json([shell, "-c", words[0]])
    quoted = []
    for word in words:
        if _BLANK_OR_QUOTE.search(word):
            quoted.append(shlex.quote(word))
        else:
            quoted.append(word)
    script = " ".join(quoted)
    return _json([shell, "-c", script])


def _json(words: Sequence[str]) -> str:
    return json.dumps(words, ensure_ascii=False)


def _shell_word(word: str) -> str:
    """A word of a command as bash reads it; control characters are escaped, so that it is on one line."""
    if _CONTROL.search(word) is None:
        return shlex.quote(word)
    escaped = word.translate(_ESCAPES)
    return f"$'{escaped}'"


_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_ESCAPES: Final = {
    **{code: f"\\x{code:02x}" for code in (*range(32), 127)},
    ord("\t"): r"\t", ord("\n"): r"\n", ord("\r"): r"\r", ord("'"): r"\'", ord("\\"): r"\\",
}  # fmt: skip


def check_text(entry: ContainerProbe) -> str:
    """What an attempt does, which value it takes and when it succeeds, on one line."""
    parts = [handler_text(entry)]
    extract = entry.extract
    if extract is not None:
        parts.append(extract.source)
        if extract.step is not None:
            parts.append(f"step {extract.step}")
        if extract.default is not None:
            default = _shell_word(extract.default)
            parts.append(f"default {default}")
    when = entry.success_when
    if when is not None:
        clauses = msgspec.to_builtins(when)
        for name, clause in clauses.items():
            text = _clause_text(clause)
            parts.append(f"{name} {text}")
    return ", ".join(parts)


def _clause_text(clause: object) -> str:
    if isinstance(clause, list):
        texts = map(str, clause)
        return " ".join(texts)
    return str(clause)


def value_text(entry: ContainerProbe, value: str) -> str:
    """A published value with its source, or the value alone: `metric queue{a="b"} = 5 (in steps of 5)`."""
    extract = entry.extract
    if extract is None:
        return value
    text = f"{extract.source} = {value}"
    if extract.step is not None:
        text += f" (in steps of {extract.step})"
    return text


def handler_text(entry: ContainerProbe) -> str:
    """What an attempt does, on one line: `exec sh -c 'test -e idle'`, `http-get http://:8080/healthz`."""
    match entry.probe.handler:
        case ExecAction() as action:
            words = map(_shell_word, action.command)
            return " ".join(["exec", *words])
        case HTTPGetAction() as action:
            action = action.with_defaults()
            scheme = str(action.scheme).lower()
            return f"http-get {scheme}://:{action.port}{action.path}"
        case TCPSocketAction() as action:
            return f"tcp-socket :{action.port}"
        case GRPCAction() as action:
            text = f"grpc :{action.port}"
            if action.service:
                text += f" {action.service}"
            if action.mode == "TLS":
                text += " TLS"
            return text
        case _:
            return "none"
