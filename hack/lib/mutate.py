"""Mutation testing: changes the product in one place at a time, and runs the tests that call the changed function.

The tests are collected once. Each mutant is a fork of that process, which gives the functions of the changed file their
mutated code and runs the tests in question until one fails. Code that runs while a module is imported (constants, defaults,
fields of classes) cannot be changed afterwards: such a mutant runs in a fork from before the first import of the product.
"""

import argparse
import ast
import builtins
import ctypes
import functools
import gc
import hashlib
import importlib
import importlib.machinery
import json
import os
import random
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import hypothesis
import pytest
import yaml
from mutants import Mutant, mutants_of

for _name in (
    "cryptography.x509",
    "grpc",
    "kubernetes.config",
    "msgspec",
    "prometheus_client",
    "rich.table",
    "structlog",
):
    # So that forks from before the import of the product need not do it.
    importlib.import_module(_name)

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "kruise-probe/mutate"
EQUIVALENT = Path(__file__).with_name("equivalent-mutants.yaml")
PACKAGES = [
    f"kruise_probe/{name}"
    for name in (
        "client",
        "controllers",
        "daemon",
        "informers",
        "inspection",
        "manager",
        "webhook",
        "workqueue",
    )
]
KILLED, SURVIVED, SLOW, NOT_APPLIED = 1, 0, 70, 71
"""What a fork ends with. `SLOW`: it was ended at its time limit, and counts as killed."""
CALLED = "__called_functions__"
PR_SET_PDEATHSIG = 1
IMPORT_SECONDS = 20
"""Of processor time, for a fork that imports the product and the tests."""
IDLE_SECONDS, BUSY_SECONDS = 12.0, 0.02
"""A fork that used less processor time in so many seconds hangs. Tests of sockets wait for a few seconds."""
IMPORT_TESTS_SECONDS = 5.0
"""Of the tests of a mutant that runs at import, as many as take this long without it."""
MEMORY_BYTES = 6 << 30
"""Of addresses, which are more than the memory in use."""

Function = tuple[str, int]
"""A file and the first line of one of its functions."""


@dataclass(slots=True)
class Test:
    """One test: how long it took, and which functions of the product it called."""

    seconds: float
    functions: frozenset[Function]


def main() -> int:
    options = _options()
    paths = sorted(_files(options.paths))
    found = [mutant for path in paths for mutant in mutants_of(ROOT, path)[1]]
    known = _known_equivalents()
    counted = [mutant for mutant in found if _key(mutant) not in known]
    if options.only:
        counted = [mutant for mutant in counted if options.only in str(mutant)]
    sample = random.Random(options.seed).sample(
        counted, min(options.sample or len(counted), len(counted))
    )
    if options.list:
        print("\n".join(map(str, sample)))
        return 0
    folder = tempfile.mkdtemp(prefix="kruise-probe-mutate.")
    try:
        return _run(options, sample, len(counted), len(found) - len(counted), folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(
    options: argparse.Namespace, sample: list[Mutant], of: int, equivalent: int, folder: str
) -> int:
    importer = _Importer(folder)
    called_at_import: set[Function] = set()
    runner = _Runner(sample, importer, called_at_import, options.verbose)
    sys.settrace(_tracer(called_at_import))
    code = pytest.main(
        [*_pytest_arguments(folder), *options.tests], plugins=[runner, _Hypothesis()]
    )
    importer.close()
    if not runner.finished:
        print(
            f"hack/mutate: the tests could not be collected or fail: pytest ended with {code}",
            file=sys.stderr,
        )
        return 2
    return _report(options, runner.results, of, equivalent)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="hack/mutate", description=__doc__)
    parser.add_argument(
        "paths",
        nargs="*",
        default=PACKAGES,
        metavar="PATH",
        help="files or folders [the packages that decide]",
    )
    parser.add_argument("--sample", type=int, metavar="N", help="so many mutants [all]")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="which ones [1]")
    parser.add_argument(
        "--only", metavar="TEXT", help="mutants whose line in the report contains TEXT"
    )
    parser.add_argument(
        "--tests",
        action="append",
        metavar="PATH",
        help="tests to run [test/unit/PACKAGE]; repeat for several",
    )
    parser.add_argument(
        "--at-least",
        type=float,
        default=0,
        metavar="PERCENT",
        help="exit code 1 if fewer are killed",
    )
    parser.add_argument("--list", action="store_true", help="print the mutants and run nothing")
    parser.add_argument("--verbose", action="store_true", help="print each mutant when it ends")
    options = parser.parse_args()
    options.tests = options.tests or sorted(
        {f"test/unit/{Path(path).parts[1]}" for path in _files(options.paths)}
    )
    return options


def _files(paths: Iterable[str]) -> Iterator[str]:
    for path in paths:
        each = (ROOT / path).resolve()
        if not each.exists():
            raise SystemExit(f"hack/mutate: {path}: no such file")
        for file in [each] if each.is_file() else each.rglob("*.py"):
            if "_pb" not in file.parts:
                yield str(file.relative_to(ROOT))


def _key(mutant: Mutant) -> tuple[str, str, str, str]:
    return mutant.path, mutant.function, mutant.before, mutant.after


def _known_equivalents() -> set[tuple[str, str, str, str]]:
    listed = yaml.safe_load(EQUIVALENT.read_text()) or []
    return {(each["file"], each["function"], each["before"], each["after"]) for each in listed}


def _pytest_arguments(folder: str) -> list[str]:
    return [
        "-o",
        "addopts=--import-mode=importlib",
        "-W",
        "ignore::pytest.PytestAssertRewriteWarning",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:terminal",
        "-p",
        "no:xdist",
        f"--basetemp={folder}/pytest",
        "--timeout=0",
    ]


class _Hypothesis:
    """Properties try the same examples each time, keep none and shrink none."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
        hypothesis.settings.register_profile(
            "mutants", hypothesis.settings.default, derandomize=True, database=None, phases=phases
        )
        hypothesis.settings.load_profile("mutants")


def _tracer(functions: set[Function]) -> Callable[[FrameType, str, Any], None]:
    """A trace function that notes each function of the product that is called."""
    product = f"{ROOT}/kruise_probe/"
    start = len(f"{ROOT}/")

    def called(frame: FrameType, _event: str, _argument: Any) -> None:
        code = frame.f_code
        if code.co_filename.startswith(product):
            functions.add((code.co_filename[start:], code.co_firstlineno))

    return called


# Which test calls what


class _Coverage:
    """Tests and the functions that they call, kept from run to run while neither changes."""

    def __init__(self, items: list[pytest.Item]) -> None:
        self._items = items

    def tests(self) -> dict[str, Test]:
        CACHE.mkdir(parents=True, exist_ok=True)
        kept = CACHE / "coverage.json"
        stored = json.loads(kept.read_text()) if kept.exists() else {}
        by_file: dict[str, list[pytest.Item]] = defaultdict(list)
        for item in self._items:
            by_file[item.nodeid.partition("::")[0]].append(item)
        old = [
            file
            for file, items in by_file.items()
            if not self._is_current(stored.get(file), {item.nodeid for item in items})
        ]
        if old:
            print(f"finding out what {len(old)} test files call", file=sys.stderr)
            again = [item for file in old for item in by_file[file]]
            _wait_for(_fork(lambda: self._measure(again, kept), 3600))
            if failed := (CACHE / "failed").read_text():
                print(f"not used, as they fail without any mutant:\n{failed}", file=sys.stderr)
            stored = json.loads(kept.read_text())
        return {
            nodeid: Test(
                seconds, frozenset((path, line) for path, lines in called.items() for line in lines)
            )
            for file in by_file
            for nodeid, (seconds, called) in stored[file]["tests"].items()
        }

    def _is_current(self, stored: Any, names: set[str]) -> bool:
        return (
            stored is not None
            and names == set(stored["tests"])
            and all(_digest(path) == digest for path, digest in stored["digests"].items())
        )

    def _measure(self, items: list[pytest.Item], kept: Path) -> int:
        """Runs the tests with functions that note their first call, and stores what each file's tests called."""
        called: set[Function] = set()
        _instrument(called)
        failed = _Failures(stop=False)
        items[0].config.pluginmanager.register(failed)
        entry: dict[str, Any] = {"digests": {}, "tests": {}}
        for item, following in zip(items, [*items[1:], None], strict=True):
            called.clear()
            began = time.process_time()
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            lines: dict[str, list[int]] = defaultdict(list)
            for path, line in sorted(called):
                lines[path].append(line)
            if item.nodeid not in failed.names:
                entry["tests"][item.nodeid] = [round(time.process_time() - began, 4), lines]
            if following is None or _file(following) != _file(item):
                paths = {path for _, lines in entry["tests"].values() for path in lines}
                entry["digests"] = {path: _digest(path) for path in {_file(item), *paths}}
                _store(kept, _file(item), entry)
                entry = {"digests": {}, "tests": {}}
        (kept.parent / "failed").write_text("\n".join(failed.names))
        return SURVIVED


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _store(kept: Path, file: str, entry: dict[str, Any]) -> None:
    stored = json.loads(kept.read_text()) if kept.exists() else {}
    kept.write_text(json.dumps(stored | {file: entry}))


def _instrument(called: set[Function]) -> None:
    """Makes each function of the product add itself to `called`."""
    vars(builtins)[CALLED] = called
    functions = _functions_by_file()
    for file in functions:
        if file.startswith(f"{ROOT}/kruise_probe/"):
            path = str(Path(file).relative_to(ROOT))
            tree = ast.parse(Path(file).read_text())
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    line = min(each.lineno for each in (node, *node.decorator_list))
                    note = ast.parse(f"{CALLED}.add({(path, line)!r})").body[0]
                    node.body.insert(0, _located(note, node.body[0]))
            _replace_code(compile(tree, file, "exec", dont_inherit=True), functions)


def _located(node: ast.stmt, like: ast.stmt) -> ast.stmt:
    for each in ast.walk(node):
        ast.copy_location(each, like)
    return node


@functools.cache
def _digest(path: str) -> str:
    file = ROOT / path
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16] if file.exists() else ""


class _Failures:
    def __init__(self, *, stop: bool) -> None:
        self._stop = stop
        self.names: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            if self._stop:
                os._exit(KILLED)
            self.names.append(report.nodeid)


# One mutant


class _Runner:
    """A pytest plugin: runs the tests of each mutant instead of all tests once."""

    def __init__(
        self, sample: list[Mutant], importer: "_Importer", at_import: set[Function], verbose: bool
    ) -> None:
        self._sample = sample
        self._importer = importer
        self._at_import = at_import
        self._verbose = verbose
        self.results: list[tuple[Mutant, int, int]] = []
        """Mutants, what their forks ended with, and how many tests ran at most."""
        self.finished = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        sys.settrace(None)
        if session.testsfailed:
            return True
        self._items = {item.nodeid: item for item in session.items}
        self._tests = _Coverage(session.items).tests()
        self._functions = _functions_by_file()
        began = time.monotonic()
        for number, mutant in enumerate(self._sample, 1):
            result, count = self._try(mutant)
            self.results.append((mutant, result, count))
            if self._verbose:
                print(f"{_word(result, count)}  {mutant}", flush=True)
            elif number % 50 == 0:
                print(
                    f"{number} of {len(self._sample)}, {time.monotonic() - began:.0f} s",
                    file=sys.stderr,
                )
        self.finished = True
        return True

    def _try(self, mutant: Mutant) -> tuple[int, int]:
        function = (mutant.path, mutant.function_line)
        result, names = NOT_APPLIED, []
        if mutant.function:
            names = self._callers(mutant, {function})
            result = self._in_fork(mutant, names)
        if result == NOT_APPLIED or (result == SURVIVED and function in self._at_import):
            names = self._callers(mutant, None)
            result = self._importer.run(mutant, names, self._limit(names)) if names else SURVIVED
        return result, len(names)

    def _callers(self, mutant: Mutant, functions: set[Function] | None) -> list[str]:
        """Tests that call one of the functions, or without functions any of the mutant's file; the likeliest to fail first."""
        stem = f"test_{Path(mutant.path).stem}.py"
        chosen = [
            (stem not in name, test.seconds, name)
            for name, test in self._tests.items()
            if (
                test.functions & functions
                if functions
                else any(path == mutant.path for path, _ in test.functions)
            )
        ]
        chosen.sort()
        if functions is not None:
            return [name for _, _, name in chosen]
        limited, total = [], 0.0
        for _, seconds, name in chosen:
            total += seconds
            if total > IMPORT_TESTS_SECONDS:
                break
            limited.append(name)
        return limited

    def _limit(self, names: list[str]) -> int:
        """Seconds of processor time, so that a busy machine kills no mutant."""
        return int(5 + 5 * sum(self._tests[name].seconds for name in names))

    def _in_fork(self, mutant: Mutant, names: list[str]) -> int:
        if not names:
            return SURVIVED
        code = _mutated_code(mutant)
        return _wait_for(_fork(lambda: self._run_here(code, names), self._limit(names)))

    def _run_here(self, code: CodeType, names: list[str]) -> int:
        if not _replace_code(code, self._functions):
            return NOT_APPLIED
        items = [self._items[name] for name in names]
        items[0].config.pluginmanager.register(_Failures(stop=True))
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        return SURVIVED


def _functions_by_file() -> dict[str, list[FunctionType]]:
    """All functions of the product that exist."""
    gc.unfreeze()
    found: dict[str, list[FunctionType]] = defaultdict(list)
    for each in gc.get_objects():
        if type(each) is FunctionType:
            found[each.__code__.co_filename].append(each)
    gc.freeze()
    return found


def _mutated_code(mutant: Mutant) -> CodeType:
    """Compiles the file of a mutant with its change."""
    tree, again = mutants_of(ROOT, mutant.path)
    (same,) = (each for each in again if each.number == mutant.number)
    same.apply()
    return compile(tree, str(ROOT / mutant.path), "exec", dont_inherit=True)


def _replace_code(code: CodeType, functions: dict[str, list[FunctionType]]) -> bool:
    """Whether it could be done: the number of variables of a function's closure cannot change."""
    new = {(each.co_qualname, each.co_firstlineno): each for each in _codes_within(code)}
    for function in functions[code.co_filename]:
        replacement = new.get((function.__code__.co_qualname, function.__code__.co_firstlineno))
        if replacement is None or replacement == function.__code__:
            continue
        if replacement.co_freevars != function.__code__.co_freevars:
            return False
        function.__code__ = replacement
    return True


def _codes_within(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes_within(constant)


class _Importer:
    """A process without the product, which forks another one for each mutant of what runs at import."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        requests, self._requests = os.pipe()
        self._answers, answers = os.pipe()
        if os.fork() == 0:
            os.close(self._requests)
            os.close(self._answers)
            self._serve(requests, answers)
            os._exit(0)
        os.close(requests)
        os.close(answers)

    def run(self, mutant: Mutant, names: list[str], limit: int) -> int:
        line = json.dumps([mutant.path, mutant.number, names, limit]) + "\n"
        os.write(self._requests, line.encode())
        return int(os.read(self._answers, 16))

    def close(self) -> None:
        os.close(self._requests)

    def _serve(self, requests: int, answers: int) -> None:
        with os.fdopen(requests) as lines:
            for line in lines:
                path, number, names, limit = json.loads(line)
                (mutant,) = (each for each in mutants_of(ROOT, path)[1] if each.number == number)
                work = functools.partial(self._import_and_run, _mutated_code(mutant), number, names)
                os.write(answers, str(_wait_for(_fork(work, limit + IMPORT_SECONDS))).encode())

    def _import_and_run(self, code: CodeType, number: int, names: list[str]) -> int:
        original = importlib.machinery.SourceFileLoader.get_code

        def get_code(loader: Any, name: str) -> Any:
            return code if loader.path == code.co_filename else original(loader, name)

        importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign,assignment]
        folder = f"{self._folder}/{number}"
        arguments = [*_pytest_arguments(self._folder), f"--basetemp={folder}", "-x", *names]
        return (
            SURVIVED
            if pytest.main(arguments, plugins=[_Hypothesis()]) == pytest.ExitCode.OK
            else KILLED
        )


def _fork(work: Callable[[], int], seconds: int) -> int:
    """Runs in a process of its own, without output, for so much processor time; returns its id."""
    if process := os.fork():
        return process
    code = KILLED
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nowhere, descriptor)
        code = work()
    finally:
        os._exit(code)


def _wait_for(process: int) -> int:
    """Ends a fork that waits for what never happens: one that has used no processor time. A busy one ends itself."""
    descriptor = os.pidfd_open(process)
    used = -1.0
    while not select.select([descriptor], [], [], IDLE_SECONDS)[0]:
        before, used = used, _processor_seconds(process)
        if used - before < BUSY_SECONDS:
            os.killpg(process, signal.SIGKILL)
            break
    os.close(descriptor)
    _, status = os.waitpid(process, 0)
    code = os.waitstatus_to_exitcode(status)
    if code in (SURVIVED, NOT_APPLIED):
        return code
    return SLOW if code in (-signal.SIGKILL, -signal.SIGXCPU) else KILLED


def _processor_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# What came out


def _word(result: int, count: int) -> str:
    if result == SURVIVED:
        return f"SURVIVED {count} tests" if count else "SURVIVED: no test calls it"
    return "killed (time limit)" if result == SLOW else "killed"


def _report(
    options: argparse.Namespace, results: list[tuple[Mutant, int, int]], of: int, equivalent: int
) -> int:
    counted: Counter[str] = Counter()
    survived: Counter[str] = Counter()
    slow = 0
    print("\nSurvivors:")
    for mutant, result, count in sorted(results, key=lambda each: (each[0].path, each[0].number)):
        package = mutant.path.split("/")[1]
        counted[package] += 1
        slow += result == SLOW
        if result == SURVIVED:
            survived[package] += 1
            print(f"  {mutant}  [{_word(result, count)}]")
    print(f"\n{'package':<12} {'mutants':>8} {'killed':>8} {'score':>7}")
    for package in sorted(counted):
        _row(package, counted[package], survived[package])
    _row("all", counted.total(), survived.total())
    print(
        f"\nA sample of {counted.total()} of {of} mutants, seed {options.seed}; {equivalent} known to be equivalent are left out; {slow} killed by the time limit."
    )
    return int(_score(counted.total(), survived.total()) < options.at_least)


def _row(name: str, counted: int, survived: int) -> None:
    print(f"{name:<12} {counted:>8} {counted - survived:>8} {_score(counted, survived):>6.1f}%")


def _score(counted: int, survived: int) -> float:
    return 100 * (counted - survived) / counted if counted else 100.0


if __name__ == "__main__":
    sys.exit(main())
