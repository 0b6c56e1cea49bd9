"""In CI nothing is skipped: whatever says that it cannot run here has failed there."""

import os
from collections.abc import Iterator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    if report.skipped and os.environ.get("CI") == "true":
        _, _, reason = report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{reason} (with CI=true that is a failure)"
    return report
