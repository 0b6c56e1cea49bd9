"""The same three controllers in four libraries: docs/library.md, and `peers/` for kopf, kr8s and lightkube.

The peers run in a virtual environment of their own, with the versions of constraints-peers.txt.
"""

import ast
import asyncio
import hashlib
import io
import os
import subprocess
import sys
import tokenize
import venv
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

from support.library import EXAMPLES
from support.programs import Program

from benchmarks.process import running

ROOT: Final = Path(__file__).parents[2]
PEERS: Final = Path(__file__).parent / "peers"
PINS: Final = ROOT / "constraints-peers.txt"

CONTROLLERS: Final = tuple(EXAMPLES)
OURS: Final = "kruise-probe"
LIBRARIES: Final = (OURS, "kopf", "kr8s", "lightkube")

MAIN: Final = """
from {module} import setup

from kruise_probe import runtime

manager = runtime.Manager(name="{module}")
setup(manager{arguments})
manager.run()
"""
_ARGUMENTS: Final = {"buckets": ", Path(sys.argv[1])"}
_IMPORTS: Final = {"buckets": "import sys\nfrom pathlib import Path\n"}

_NO_CODE: Final = (
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
)  # fmt: skip


class Contender(NamedTuple):
    """One controller in one library; `sources` are what its user writes, by file name."""

    library: str
    controller: str
    sources: dict[str, str]

    @property
    def lines(self) -> int:
        """Lines of code: without blank lines, comments, docstrings and imports."""
        return sum(map(code_lines, self.sources.values()))

    def command(self, folder: Path) -> list[str]:
        """The program. Its sources, and later the folders of buckets, go into the new `folder`."""
        python = sys.executable if self.library == OURS else str(peers_python())
        (folder / "folders").mkdir(parents=True)
        for name, text in self.sources.items():
            (folder / name).write_text(text)
        words = [python, "main.py", str(folder / "folders")]
        if self.library == "kopf":
            words[1:] = [
                "-m",
                "kopf",
                "run",
                "--quiet",
                "--standalone",
                "--all-namespaces",
                "main.py",
            ]
        return words


def contender(library: str, controller: str) -> Contender:
    if library != OURS:
        text = (PEERS / library / f"{controller}.py").read_text()
        return Contender(library, controller, {"main.py": text})
    main = MAIN.format(module=controller, arguments=_ARGUMENTS.get(controller, ""))
    sources = {f"{controller}.py": EXAMPLES[controller]}
    return Contender(OURS, controller, {**sources, "main.py": _IMPORTS.get(controller, "") + main})


def code_lines(text: str) -> int:
    """How many lines have code that is no import and no docstring."""
    rows: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            rows.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom) or _is_docstring(node):
            rows -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))  # type: ignore[attr-defined]  # both have lines
    return len(rows)


def _is_docstring(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def versions() -> dict[str, str]:
    """The versions of the peers."""
    shown = subprocess.run(
        [
            peers_python(),
            "-c",
            "import importlib.metadata as m\nfor x in ('kopf', 'kr8s', 'lightkube'): print(m.version(x))",
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    return dict(zip(LIBRARIES[1:], shown.stdout.split(), strict=True))


def peers_python() -> Path:
    """The interpreter with the peers; installs them when the pins have changed."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    pins = hashlib.sha256(PINS.read_bytes()).hexdigest()[:16]
    folder = cache / "kruise-probe" / f"peers-{pins}"
    python = folder / "bin" / "python"
    if not (folder / "installed").exists():
        venv.create(folder, with_pip=True, clear=True)
        options = "--quiet --disable-pip-version-check --require-hashes --no-deps --requirement"
        subprocess.run([python, "-m", "pip", "install", *options.split(), PINS], check=True)
        (folder / "installed").touch()
    return python


@asynccontextmanager
async def running_contender(
    contender: Contender, kubeconfig: Path, folder: Path
) -> AsyncIterator[Program]:
    """Its process, with its output in `folder`."""
    command = await asyncio.to_thread(contender.command, folder)
    name = f"{contender.library}-{contender.controller}"
    environ = {"KUBECONFIG": str(kubeconfig), "FOLDERS": str(folder / "folders")}
    async with running(name, command, folder / "log", environ, cwd=folder) as program:
        yield program
