"""Which test calls which functions of the product. Kept from run to run while neither changes."""

import ast
import builtins
import functools
import hashlib
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from mutation.forks import SURVIVED, run_in_fork
from mutation.functions import ROOT, Function, functions_by_file, replace_code

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "kruise-probe/mutate"
MEASURE_SECONDS = 3600
"""Limit of processor time for all tests."""

_CALLED = "__called_functions__"
_STORED = CACHE / "coverage.json"
_FAILED = CACHE / "failed"


@dataclass(slots=True)
class CoveredTest:
    """How long a test took, and which functions of the product it called."""

    seconds: float
    functions: frozenset[Function]


def tracer(functions: set[Function]) -> Callable[[FrameType, str, Any], None]:
    """Return a trace function that adds each called function of the product to `functions`."""
    product = f"{ROOT}/kruise_probe/"
    start = len(f"{ROOT}/")

    def called(frame: FrameType, _event: str, _argument: Any) -> None:
        code = frame.f_code
        if code.co_filename.startswith(product):
            functions.add((code.co_filename[start:], code.co_firstlineno))

    return called


def covered_tests(items: list[pytest.Item]) -> dict[str, CoveredTest]:
    """Return the tests by node id, without those that fail. Measure the files that have changed."""
    CACHE.mkdir(parents=True, exist_ok=True)
    stored = _load()
    by_file: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        by_file[_file(item)].append(item)
    outdated = [
        file
        for file, of_file in by_file.items()
        if not _is_current(stored.get(file), {item.nodeid for item in of_file})
    ]
    if outdated:
        print(f"measuring which functions {len(outdated)} test files call", file=sys.stderr)
        again = [item for file in outdated for item in by_file[file]]
        run_in_fork(lambda: _measure(again), MEASURE_SECONDS)
        if failed := _FAILED.read_text():
            print(f"not used, because they fail without a mutant:\n{failed}", file=sys.stderr)
        stored = _load()
    return {
        nodeid: CoveredTest(
            seconds, frozenset((path, line) for path, lines in called.items() for line in lines)
        )
        for file in by_file
        for nodeid, (seconds, called) in stored[file]["tests"].items()
    }


def _load() -> dict[str, Any]:
    stored: dict[str, Any] = json.loads(_STORED.read_text()) if _STORED.exists() else {}
    return stored


def _is_current(stored: Any, names: set[str]) -> bool:
    return (
        stored is not None
        and names == set(stored["tests"])
        and all(_digest(path) == digest for path, digest in stored["digests"].items())
    )


class _Failures:
    def __init__(self) -> None:
        self.names: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.names.append(report.nodeid)


def _measure(items: list[pytest.Item]) -> int:
    """Run the tests with functions that record their calls, and store the calls of each file's tests."""
    called: set[Function] = set()
    _instrument(called)
    failures = _Failures()
    items[0].config.pluginmanager.register(failures)
    entry: dict[str, Any] = {"digests": {}, "tests": {}}
    for item, following in zip(items, [*items[1:], None], strict=True):
        called.clear()
        started_at = time.process_time()
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        lines: dict[str, list[int]] = defaultdict(list)
        for path, line in sorted(called):
            lines[path].append(line)
        if item.nodeid not in failures.names:
            entry["tests"][item.nodeid] = [round(time.process_time() - started_at, 4), lines]
        if following is None or _file(following) != _file(item):
            paths = {path for _, lines in entry["tests"].values() for path in lines}
            entry["digests"] = {path: _digest(path) for path in {_file(item), *paths}}
            _STORED.write_text(json.dumps(_load() | {_file(item): entry}))
            entry = {"digests": {}, "tests": {}}
    _FAILED.write_text("\n".join(failures.names))
    return SURVIVED


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _instrument(called: set[Function]) -> None:
    """Make each function of the product add itself to `called`."""
    vars(builtins)[_CALLED] = called
    functions = functions_by_file()
    for file in functions:
        if file.startswith(f"{ROOT}/kruise_probe/"):
            path = str(Path(file).relative_to(ROOT))
            tree = ast.parse(Path(file).read_text())
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    line = min(each.lineno for each in (node, *node.decorator_list))
                    record = ast.parse(f"{_CALLED}.add({(path, line)!r})").body[0]
                    node.body.insert(0, _located(record, node.body[0]))
            replace_code(compile(tree, file, "exec", dont_inherit=True), functions)


def _located(node: ast.stmt, like: ast.stmt) -> ast.stmt:
    for each in ast.walk(node):
        ast.copy_location(each, like)
    return node


@functools.cache
def _digest(path: str) -> str:
    file = ROOT / path
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16] if file.exists() else ""
