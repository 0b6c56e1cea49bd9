"""The two forms of a long test. Each has a name of its own in the report, which says how much it proves."""

import os

import pytest


def forms(*, short: str, long: str) -> pytest.MarkDecorator:
    """Gives a test the argument `short`, and the name of the form that runs (KRUISE_PROBE_SOAK)."""
    is_short = os.environ.get("KRUISE_PROBE_SOAK") != "long"
    return pytest.mark.parametrize(
        "short", [pytest.param(is_short, id=short if is_short else long)]
    )
