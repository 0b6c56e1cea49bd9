"""The health checks that the documentation shows, by the evaluators of Argo CD (Lua) and Flux (CEL).

Argo CD runs gopher-lua, which is Lua 5.1; the script uses nothing that later versions changed.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from support.cases import cases
from support.pages import blocks
from support.wire import Json

BUILD_SECONDS = 600
pytestmark = pytest.mark.timeout(BUILD_SECONDS)
"""The first test here waits for the build."""

HEALTH = "resource.customizations.health.apps.kruise.io_PodProbeMarker"


def documented(kind: str) -> Json:
    """The object of this kind in the section on health checks."""
    for found in blocks("yaml"):
        if found.page == "works-with.md" and f"kind: {kind}" in found.text:
            document: Json = yaml.safe_load(found.text)
            return document
    raise AssertionError(f"works-with.md shows no {kind}")


def marker(status: Json | None) -> Json:
    wire: Json = {"metadata": {"name": "m", "generation": 2}, "spec": {}}
    return wire if status is None else {**wire, "status": status}


def ready(status: str, generation: int = 2) -> Json:
    """The status of a marker whose condition Ready is about this generation."""
    condition = {"type": "Ready", "status": status, "message": "m"}
    other = {"type": "Degraded", "status": "True", "observedGeneration": 2, "message": "d"}
    return {"conditions": [other, {**condition, "observedGeneration": generation}]}


STATUSES = cases(
    "status flux argo",
    true=(ready("True"), "current", "Healthy"),
    false=(ready("False"), "failed", "Degraded"),
    unknown=(ready("Unknown"), "inProgress", "Progressing"),
    of_an_older_generation=(ready("False", 1), "inProgress", "Progressing"),
    no_condition_yet=({"matchedPods": 0}, "inProgress", "Progressing"),
    no_status_yet=(None, "error", "Progressing"),
)


@pytest.fixture(scope="module")
def cel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not shutil.which("go"):
        pytest.skip("the expressions are evaluated by a Go program, and there is no Go")
    program = tmp_path_factory.mktemp("cel") / "cel"
    subprocess.run(
        ["go", "build", "-trimpath", "-buildvcs=false", "-o", str(program), "."],
        cwd=Path(__file__).parent / "cel",
        check=True,
        timeout=BUILD_SECONDS,
        env=os.environ | {"CGO_ENABLED": "0"},
    )
    return program


@STATUSES
def test_flux_finds_the_state_of_a_marker(
    cel: Path, status: Json | None, flux: str, argo: str
) -> None:
    """Flux evaluates in this order, and waits while an expression cannot be evaluated."""
    (check,) = documented("Kustomization")["spec"]["healthCheckExprs"]
    order = ("inProgress", "failed", "current")
    asked = {"expressions": [check[name] for name in order], "object": marker(status)}
    ran = subprocess.run([cel], input=json.dumps(asked), capture_output=True, text=True, check=True)
    verdicts = dict(zip(order, json.loads(ran.stdout), strict=True))
    found = next(name for name in order if verdicts[name] != "false")
    assert ("error" if verdicts[found] == "error" else found) == flux


@STATUSES
def test_argo_cd_finds_the_health_of_a_marker(
    tmp_path: Path, status: Json | None, flux: str, argo: str
) -> None:
    if not shutil.which("lua5.4"):
        pytest.skip("lua5.4 is not installed")
    script = tmp_path / "health.lua"
    health = documented("ConfigMap")["data"][HEALTH]
    script.write_text(
        f"obj = {lua(marker(status))}\nlocal health = (function()\n{health}\nend)()\n"
        "print(health.status, health.message)\n"
    )
    ran = subprocess.run(["lua5.4", script], capture_output=True, text=True, check=True)
    assert ran.stdout.split("\t")[0] == argo


def lua(value: object) -> str:
    """The value as a Lua constructor."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"[{json.dumps(key)}] = {lua(value[key])}" for key in value) + "}"
    if isinstance(value, list):
        return "{" + ", ".join(map(lua, value)) + "}"
    return json.dumps(value)
