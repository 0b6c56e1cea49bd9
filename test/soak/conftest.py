"""What takes long; `hack/soak` runs it. KRUISE_PROBE_SOAK says how long: `short` or `long`."""

import asyncio
import logging
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
import structlog
from support.control_plane import ControlPlane
from support.saying import say


def pytest_sessionstart() -> None:
    """Set no loop: otherwise `get_event_loop`, which looptime calls for each test, creates one that is never closed."""
    asyncio.set_event_loop(None)
    quiet = structlog.make_filtering_bound_logger(logging.ERROR)
    structlog.configure(wrapper_class=quiet)


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("KRUISE_PROBE_SOAK") not in ("short", "long"):
        raise pytest.UsageError("test/soak is run by hack/soak")


@pytest.fixture(scope="session")
def short() -> bool:
    return os.environ["KRUISE_PROBE_SOAK"] == "short"


@pytest.fixture
def random(request: pytest.FixtureRequest) -> Random:
    seed = int(os.environ.get("KRUISE_PROBE_SOAK_SEED") or secrets.randbelow(2**32))
    say(f"{request.node.name}: KRUISE_PROBE_SOAK_SEED={seed}")
    return Random(seed)


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """One for each process of the tests."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    port = int(os.environ.get("KRUISE_PROBE_SOAK_PORT", "27443")) + 20 * int(worker[2:])
    folder = Path(os.environ.get("TMPDIR", "/tmp")) / f"kp-soak-{port}"
    plane = ControlPlane(folder, port=str(port))
    with plane.running():
        yield plane
