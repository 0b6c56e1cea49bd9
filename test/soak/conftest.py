"""Long tests; `hack/soak` runs them. KRUISE_PROBE_SOAK is `short` or `long`."""

import logging
import os
import secrets
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from random import Random

import pytest
import structlog
from support.control_plane import ControlPlane
from support.output import print_line


def pytest_sessionstart() -> None:
    quiet = structlog.make_filtering_bound_logger(logging.ERROR)
    structlog.configure(wrapper_class=quiet)


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("KRUISE_PROBE_SOAK") not in ("short", "long"):
        raise pytest.UsageError("test/soak is run by hack/soak")


NOT_CHECKED = "not checked in this run"


class Limits:
    """Limits that hold on a machine without other work: the long form checks them, the short form lists them."""

    def __init__(self, item: pytest.Item, *, short: bool) -> None:
        self._item = item
        self._short = short

    def check(self, limit: str, holds: bool) -> None:
        if self._short:
            self.skip(limit)
        else:
            assert holds, limit

    def skip(self, limit: str) -> None:
        self._item.user_properties.append((NOT_CHECKED, limit))


@pytest.fixture
def limits(request: pytest.FixtureRequest) -> Limits:
    return Limits(request.node, short=os.environ["KRUISE_PROBE_SOAK"] == "short")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    limits: list[str] = []
    for report in chain.from_iterable(terminalreporter.stats.values()):
        if getattr(report, "when", "") != "call":
            continue
        for name, limit in report.user_properties:
            if name == NOT_CHECKED:
                limits.append(limit)
    if limits:
        listed = "; ".join(limits)
        terminalreporter.write_line(f"{len(limits)} limits {NOT_CHECKED}: {listed}")


@pytest.fixture
def random(request: pytest.FixtureRequest) -> Random:
    seed = int(os.environ.get("KRUISE_PROBE_SOAK_SEED") or secrets.randbelow(2**32))
    print_line(f"{request.node.name}: KRUISE_PROBE_SOAK_SEED={seed}")
    return Random(seed)


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """One for each pytest process."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    first_port = os.environ.get("KRUISE_PROBE_SOAK_PORT", "27443")
    port = int(first_port) + 20 * int(worker.removeprefix("gw"))
    folders = Path(os.environ.get("TMPDIR", "/tmp"))
    plane = ControlPlane(folders / f"kp-soak-{port}", port=str(port))
    with plane.running():
        yield plane
