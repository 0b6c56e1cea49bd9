"""Runs mutants of code that runs at import, each in a fork that has not imported the product yet."""

import functools
import importlib
import importlib.machinery
import json
import os
from types import CodeType
from typing import Any

import pytest

from mutation.forks import KILLED, SURVIVED, run_in_fork
from mutation.mutants import Mutant, mutated_code
from mutation.sessions import SameExamples, pytest_arguments

IMPORT_SECONDS = 20
"""Of processor time, for a fork that imports the product and the tests."""

# Imported once here instead of in every fork.
for _name in (
    "cryptography.x509",
    "grpc",
    "kubernetes.config",
    "msgspec",
    "prometheus_client",
    "rich.table",
    "structlog",
):
    importlib.import_module(_name)


class Importer:
    """A process without the product, which forks once for each mutant."""

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

    def run(self, mutant: Mutant, names: list[str], seconds: int) -> int:
        """Run the tests `names`; return the result of the fork. `seconds` is the limit without the imports."""
        line = json.dumps([mutant.path, mutant.number, names, seconds]) + "\n"
        os.write(self._requests, line.encode())
        return int(os.read(self._answers, 16))

    def close(self) -> None:
        os.close(self._requests)

    def _serve(self, requests: int, answers: int) -> None:
        with os.fdopen(requests) as lines:
            for line in lines:
                path, number, names, seconds = json.loads(line)
                code = mutated_code(path, number)
                work = functools.partial(self._import_and_run, code, number, names)
                os.write(answers, str(run_in_fork(work, seconds + IMPORT_SECONDS)).encode())

    def _import_and_run(self, code: CodeType, number: int, names: list[str]) -> int:
        original = importlib.machinery.SourceFileLoader.get_code

        def get_code(loader: Any, name: str) -> Any:
            return code if loader.path == code.co_filename else original(loader, name)

        importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign,assignment]
        arguments = [*pytest_arguments(basetemp=f"{self._folder}/{number}"), "-x", *names]
        ended = pytest.main(arguments, plugins=[SameExamples()])
        return SURVIVED if ended == pytest.ExitCode.OK else KILLED
