"""Metrics of the test's own process."""

from collections.abc import Callable
from functools import partial

from prometheus_client import REGISTRY


def metric(name: str, /, **labels: str) -> float:
    """The current value, 0.0 if there is none yet."""
    return REGISTRY.get_sample_value(name, labels) or 0.0


def counted(name: str, /, **labels: str) -> Callable[[], float]:
    """How far it has moved since now."""
    now = partial(metric, name, **labels)
    before = now()
    return lambda: now() - before
