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
import os, subprocess, sys, time
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
def controller(kubeconfig, tmp_path):
    main, log = Path(__file__).with_name("main.py"), tmp_path / "log"
    environ = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    with log.open("w") as output:
        process = subprocess.Popen([sys.executable, main], env=environ, stdout=output, stderr=output)
    try:
        # Else the start of the interpreter would use up the test's own limit.
        deadline = time.monotonic() + 60
        while "caches synced" not in log.read_text():
            assert process.poll() is None and time.monotonic() < deadline, "it does not start"
            time.sleep(0.05)
        yield process
    finally:
        process.terminate()
        code = process.wait()
        print(log.read_text())
    assert code == 0

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
