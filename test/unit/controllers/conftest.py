import pytest
from support.scene import POLICIES, Scene, scene


@pytest.fixture
def api() -> Scene:
    """One node, one pod, one marker with a condition and two policies, and nothing planned yet."""
    return scene(*POLICIES)
