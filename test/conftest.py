"""For all tests: nothing is skipped in CI, a busy machine fails no property, Ctrl-C works, and a leak fails its own test."""

import asyncio
import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from support.leaks import freeze_imports, no_leaks

settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

# A shell ignores SIGINT in what it starts with `&`; programs under test would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_sessionstart() -> None:
    """Set no loop: otherwise `get_event_loop`, which looptime calls for each test, creates one that is never closed."""
    asyncio.set_event_loop(None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI, a skipped test is a failure. A failure shows the ends of the logs of `product`."""
    report = yield
    if report.failed:
        logs = getattr(item, "funcargs", {}).get("product") or {}
        for name, log in logs.items():
            lines = log.read_text(errors="replace").splitlines()
            report.sections.append((f"log of {name}", "\n".join(lines[-60:])))
    is_skip = report.skipped and not hasattr(report, "wasxfail")
    if is_skip and os.environ.get("CI") == "true":
        assert isinstance(report.longrepr, tuple), "a skip has a file, a line and a reason"
        _, _, reason = report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{reason} (with CI=true that is a failure)"
    return report


UNIT = Path(__file__).parent / "unit"
"""Its tests use no sockets, except those with the marker `sockets`."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the leak check before all other fixtures, so that it comes after them in the end."""
    for item in items:
        uses_sockets = item.get_closest_marker("sockets") or not item.path.is_relative_to(UNIT)
        if isinstance(item, pytest.Function) and uses_sockets:
            item.fixturenames[:0] = [no_leaks_of_module.__name__, no_leaks_of_test.__name__]


def pytest_collection_finish() -> None:
    freeze_imports()


@pytest.fixture
def no_leaks_of_test(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with no_leaks():
        yield
        # The tracebacks of what asyncio logged keep its transports.
        for phase in ("setup", "call", "teardown"):
            for record in caplog.get_records(phase):
                record.exc_info = None


@pytest.fixture(scope="module")
def no_leaks_of_module() -> Iterator[None]:
    """Checks fixtures that the tests of a module share; a leak fails the last test of the module."""
    with no_leaks():
        yield
