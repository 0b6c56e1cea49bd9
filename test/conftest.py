"""For all tests: in CI nothing is skipped, no property fails because the machine is busy, and Ctrl-C means something."""

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

# Ignored in what a shell has started with `&`; programs under test would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Whatever says that it cannot run here has failed in CI."""
    report = yield
    if report.skipped and os.environ.get("CI") == "true":
        _, _, reason = report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{reason} (with CI=true that is a failure)"
    return report
