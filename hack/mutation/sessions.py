"""How pytest runs here: its arguments, and its plugins."""

import os

import hypothesis
import pytest

from mutation.forks import KILLED


def pytest_arguments(*, basetemp: str) -> list[str]:
    """The arguments without the paths of tests."""
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
        f"--basetemp={basetemp}",
        "--timeout=0",
    ]


class SameExamples:
    """Properties try the same examples in each run, keep none and shrink none."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
        hypothesis.settings.register_profile(
            "mutants", hypothesis.settings.default, derandomize=True, database=None, phases=phases
        )
        hypothesis.settings.load_profile("mutants")


class ExitOnFailure:
    """Ends the process when a test fails."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            os._exit(KILLED)
