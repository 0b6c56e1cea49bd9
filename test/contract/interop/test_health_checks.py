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


def marker(**more: Json) -> Json:
    return {
        "metadata": {"name": "m", "generation": 2},
        "spec": {},
        **more,
    }


def ready(status: str, generation: int = 2) -> Json:
    """A marker whose condition Ready is about this generation."""
    condition = {
        "type": "Ready",
        "status": status,
        "message": "m",
        "observedGeneration": generation,
    }
    other = {
        "type": "Degraded",
        "status": "True",
        "observedGeneration": 2,
        "message": "d",
    }
    return marker(status={"conditions": [other, condition]})


MARKERS = cases(
    "marker flux argo",
    true=(ready("True"), "current", "Healthy"),
    false=(ready("False"), "failed", "Degraded"),
    unknown=(ready("Unknown"), "inProgress", "Progressing"),
    of_an_older_generation=(ready("False", 1), "inProgress", "Progressing"),
    no_condition_yet=(marker(status={"matchedPods": 0}), "inProgress", "Progressing"),
    no_status_yet=(marker(), "error", "Progressing"),
)


@pytest.fixture(scope="module")
def cel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not shutil.which("go"):
        pytest.skip("a Go program evaluates the expressions, and Go is not installed")
    program = tmp_path_factory.mktemp("cel") / "cel"
    subprocess.run(
        ["go", "build", "-trimpath", "-buildvcs=false", "-o", str(program), "."],
        cwd=Path(__file__).parent / "cel",
        check=True,
        timeout=BUILD_SECONDS,
        env=os.environ | {"CGO_ENABLED": "0"},
    )
    return program


@MARKERS
def test_flux_finds_the_state_of_a_marker(cel: Path, marker: Json, flux: str, argo: str) -> None:
    """Flux evaluates in this order, and waits while an expression cannot be evaluated."""
    (check,) = documented("Kustomization")["spec"]["healthCheckExprs"]
    states = ("inProgress", "failed", "current")
    request = {"expressions": [check[state] for state in states], "object": marker}
    values = json.loads(output_of(str(cel), stdin=json.dumps(request)))
    state, value = next(
        (state, value) for state, value in zip(states, values, strict=True) if value != "false"
    )
    assert ("error" if value == "error" else state) == flux


@MARKERS
def test_argo_cd_finds_the_health_of_a_marker(
    tmp_path: Path, marker: Json, flux: str, argo: str
) -> None:
    if not shutil.which("lua5.4"):
        pytest.skip("lua5.4 is not installed")
    script = tmp_path / "health.lua"
    health = documented("ConfigMap")["data"][HEALTH]
    script.write_text(
        f"obj = {lua(marker)}\nlocal health = (function()\n{health}\nend)()\n"
        "print(health.status, health.message)\n"
    )
    assert output_of("lua5.4", str(script)).split("\t")[0] == argo


def output_of(*command: str, stdin: str = "") -> str:
    ran = subprocess.run(
        command,
        input=stdin,
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout


def lua(value: object) -> str:
    """The value as a Lua constructor."""
    if isinstance(value, dict):
        fields = [(json.dumps(key), lua(field)) for key, field in value.items()]
        parts = [f"[{key}] = {field}" for key, field in fields]
    elif isinstance(value, list):
        parts = [lua(item) for item in value]
    else:
        return json.dumps(value)
    return "{" + ", ".join(parts) + "}"
