import pytest
from support.scripted_node import ScriptedNode


@pytest.fixture
def node() -> ScriptedNode:
    return ScriptedNode()
