"""Whole clusters in one process, under a deterministic loop. See `support/simulation`."""

import asyncio
import gc
import math
import os
from collections.abc import Iterator
from itertools import chain
from time import monotonic

import pytest
import structlog
from support.output import print_line

SEEDS_PER_TEST = 10
SHORT_SEEDS = 60
HOURS = float(os.environ.get("KRUISE_PROBE_SIMULATION_HOURS", "0"))


def pytest_sessionstart() -> None:
    asyncio.set_event_loop(None)


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("PYTHONHASHSEED") != "0":
        raise pytest.UsageError(
            "test/simulation needs PYTHONHASHSEED=0, as the order of sets is part of a run; hack/test simulation sets it"
        )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """KRUISE_PROBE_SIMULATION_SEEDS is `COUNT`, `FIRST-LAST` or `=SEED`.

    With KRUISE_PROBE_SIMULATION_HOURS, one test for each processor takes seeds from FIRST on for so long.
    """
    if "seeds" not in metafunc.fixturenames:
        return
    seeds = _seeds(os.environ.get("KRUISE_PROBE_SIMULATION_SEEDS", str(SHORT_SEEDS)))
    size = SEEDS_PER_TEST
    if HOURS:
        size = 10**9
        seeds = range(seeds[0], seeds[0] + size * (os.cpu_count() or 1))
    parts = [seeds[at : at + size] for at in range(0, len(seeds), size)]
    names = [f"{part[0]}-{part[-1]}" for part in parts]
    metafunc.parametrize("seeds", parts, ids=names)


@pytest.fixture
def ends_at() -> float:
    """When to stop with further seeds, by `time.monotonic`."""
    return monotonic() + HOURS * 3600 if HOURS else math.inf


def _seeds(text: str) -> range:
    if text.startswith("="):
        seed = int(text[1:])
        return range(seed, seed + 1)
    first, dash, last = text.rpartition("-")
    if not dash:
        return range(int(last))
    return range(int(first), int(last) + 1)


@pytest.fixture(autouse=True)
def no_garbage_collection() -> Iterator[None]:
    """A collection at a random moment would end abandoned generators in the middle of a run."""
    gc.disable()
    yield
    gc.enable()
    structlog.reset_defaults()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    figures = []
    for report in chain(*terminalreporter.stats.values()):
        if getattr(report, "when", "") == "call":
            figures += [value for name, value in report.user_properties if name == "simulated"]
    if figures:
        seeds, steps, seconds = map(sum, zip(*figures, strict=True))
        print_line(f"{seeds} seeds: {steps} steps, {seconds / 3600:.1f} hours of virtual time")
