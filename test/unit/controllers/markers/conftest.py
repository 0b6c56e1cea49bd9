import pytest
from support.builders import probe_wire
from support.scene import POLICIES, Scene


@pytest.fixture
def api() -> Scene:
    """Two nodes, a pod on each, and one marker."""
    api = Scene()
    for number in (1, 2):
        api.put_node(f"node-{number}", f"web-{number}")
    api.put_marker(probe_wire(policies=POLICIES))
    return api
