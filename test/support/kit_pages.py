"""The tests that docs/library.md and docs/testing.md show, as files that a user would have."""

from pathlib import Path

from support.library import EXAMPLES
from support.pages import block

MAIN = """
from fleets import setup

from kruise_probe import runtime

manager = runtime.Manager(name="fleets")
setup(manager)
manager.run()
"""

FAULTS = """
import os, subprocess, sys
from pathlib import Path

import pytest
from fleets import Fleet


@pytest.fixture
def kube_crds():
    return [Fleet]


def fleet(name):
    spec = {"replicas": 1, "image": "nginx"}
    return {"apiVersion": "example.com/v1", "kind": "Fleet", "metadata": {"name": name}, "spec": spec}


@pytest.fixture
def controller(kubeconfig):
    main = Path(__file__).with_name("main.py")
    process = subprocess.Popen([sys.executable, main], env={**os.environ, "KUBECONFIG": str(kubeconfig)})
    yield process
    process.terminate()
    assert process.wait() == 0

"""


def write_tests(folder: Path) -> int:
    """Write them, with the controller that they test; return their number."""
    files = {
        "pytest.ini": "[pytest]\nfilterwarnings = error\nasyncio_default_fixture_loop_scope = function\n",
        "fleets.py": EXAMPLES["fleets"],
        "main.py": MAIN,
        "test_library.py": block("library.md", "Tests", "python").text,
        "test_kit.py": block("testing.md", "Testing a controller", "python").text,
        "test_faults.py": FAULTS + block("testing.md", "Faults", "python").text,
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    return sum(text.count("def test_") for text in files.values())
