"""The event loops of tests that share a playground."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent
SCOPES = {HERE / "playground": "module", HERE / "usage": "session"}
"""A playground lives as long as its module, or for all tests of a folder, so its loop must, too."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        scope = SCOPES.get(item.path.parent)
        if scope and item.get_closest_marker("asyncio"):
            item.add_marker(
                pytest.mark.asyncio(loop_scope=scope),
                append=False,
            )
