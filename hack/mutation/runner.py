"""The pytest plugin that runs the tests of each mutant instead of all tests once."""

import sys
import time
from pathlib import Path
from types import CodeType
from typing import NamedTuple

import pytest

from mutation.coverage import covered_tests
from mutation.forks import (
    NOT_APPLIED,
    SURVIVED,
    TIME_LIMIT,
    limit_processor_time,
    run_in_fork,
)
from mutation.functions import Function, functions_by_file, import_product, replace_code
from mutation.importer import Importer
from mutation.mutants import Mutant, mutated_code
from mutation.sessions import ExitOnFailure

IMPORT_TESTS_SECONDS = 5.0
"""Total time, without a mutant, of the tests that run for a mutant of code that runs at import."""


class MutantResult(NamedTuple):
    """`result` is that of the fork; `tests` is the number of tests that could kill the mutant."""

    mutant: Mutant
    result: int
    tests: int

    def __str__(self) -> str:
        if self.result == SURVIVED:
            return f"SURVIVED {self.tests} tests" if self.tests else "SURVIVED: no test calls it"
        return "killed (time limit)" if self.result == TIME_LIMIT else "killed"


class Runner:
    """Runs each mutant of a sample.

    `at_import` are the functions that are called while the tests are collected. `finished` is False if the tests
    could not be collected.
    """

    def __init__(
        self, sample: list[Mutant], importer: Importer, at_import: set[Function], *, verbose: bool
    ) -> None:
        self._sample = sample
        self._importer = importer
        self._at_import = at_import
        self._verbose = verbose
        self.results: list[MutantResult] = []
        self.finished = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        import_product()
        sys.settrace(None)
        if session.testsfailed:
            return True
        self._items = {item.nodeid: item for item in session.items}
        self._tests = covered_tests(session.items)
        self._functions = functions_by_file()
        started_at = time.monotonic()
        for number, mutant in enumerate(self._sample, 1):
            result = self._run(mutant)
            self.results.append(result)
            if self._verbose:
                print(f"{result}  {mutant}", flush=True)
            elif number % 50 == 0:
                seconds = time.monotonic() - started_at
                print(f"{number} of {len(self._sample)}, {seconds:.0f} s", file=sys.stderr)
        self.finished = True
        return True

    def _run(self, mutant: Mutant) -> MutantResult:
        function = (mutant.path, mutant.function_line)
        result, names = NOT_APPLIED, list[str]()
        if mutant.function:
            names = self._callers_of(mutant.path, function)
            result = self._run_in_fork(mutant, names)
        if result == NOT_APPLIED or (result == SURVIVED and function in self._at_import):
            names = self._callers_of_file(mutant.path)
            result = self._importer.run(mutant, names, self._limit(names)) if names else SURVIVED
        return MutantResult(mutant, result, len(names))

    def _callers_of(self, path: str, function: Function) -> list[str]:
        """The tests that call the function; those that are most likely to fail come first."""
        return self._likeliest_first(
            path, [name for name, test in self._tests.items() if function in test.functions]
        )

    def _callers_of_file(self, path: str) -> list[str]:
        """Tests that call any function of the file, up to IMPORT_TESTS_SECONDS."""
        callers = self._likeliest_first(
            path,
            [
                name
                for name, test in self._tests.items()
                if any(path == of_test for of_test, _ in test.functions)
            ],
        )
        seconds = 0.0
        for index, name in enumerate(callers):
            seconds += self._tests[name].seconds
            if seconds > IMPORT_TESTS_SECONDS:
                return callers[:index]
        return callers

    def _likeliest_first(self, path: str, names: list[str]) -> list[str]:
        """Sort tests: those of the module of this name, then the fastest ones."""
        own = f"test_{Path(path).stem}.py"
        return sorted(names, key=lambda name: (own not in name, self._tests[name].seconds, name))

    def _limit(self, names: list[str]) -> int:
        """Limit in seconds of processor time, so that a busy machine kills no mutant."""
        return int(5 + 5 * sum(self._tests[name].seconds for name in names))

    def _run_in_fork(self, mutant: Mutant, names: list[str]) -> int:
        if not names:
            return SURVIVED
        code = mutated_code(mutant.path, mutant.number)
        return run_in_fork(lambda: self._replace_and_run(code, names), self._limit(names))

    def _replace_and_run(self, code: CodeType, names: list[str]) -> int:
        if not replace_code(code, self._functions):
            return NOT_APPLIED
        items = [self._items[name] for name in names]
        items[0].config.pluginmanager.register(ExitOnFailure())
        for item, following in zip(items, [*items[1:], None], strict=True):
            limit_processor_time(self._limit([item.nodeid]))
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        return SURVIVED
