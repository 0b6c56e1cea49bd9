"""The chart's values, schema and templates have the same keys."""

import json
import re
from collections.abc import Iterator

import pytest
import yaml
from support.pages import ROOT
from support.wire import Json

from kruise_probe.cli.gates import parse_gates

CHART = ROOT / "config" / "chart"
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
TEMPLATES = "\n".join(file.read_text() for file in (CHART / "templates").rglob("*.*"))
GATES = set(SCHEMA["properties"]["featureGates"]["properties"])
OPTIONAL = {"enabled", "global", *(f"featureGates.{gate}" for gate in GATES)}


def keys_of(schema: Json, path: str = "") -> Iterator[str]:
    """The paths of the schema, down to objects whose keys Kubernetes or the user defines."""
    for name, inner in schema.get("properties", {}).items():
        where = f"{path}{name}"
        if where.endswith((".resources", ".updateStrategy")) or "properties" not in inner:
            yield where
        else:
            yield from keys_of(inner, f"{where}.")


KEYS = set(keys_of(SCHEMA))


def paths_of(values: Json, path: str = "") -> Iterator[str]:
    for name, value in values.items():
        where = f"{path}{name}"
        if isinstance(value, dict) and where not in KEYS and where != "featureGates":
            yield from paths_of(value, f"{where}.")
        else:
            yield where


def test_the_schema_allows_exactly_the_values() -> None:
    assert set(paths_of(VALUES)) - {"featureGates"} == KEYS - OPTIONAL


def test_the_schema_refuses_unknown_keys_everywhere() -> None:
    def check(schema: Json, path: str) -> None:
        assert schema.get("additionalProperties") is False, path
        for name, inner in schema["properties"].items():
            if "properties" in inner:
                check(inner, f"{path}.{name}")

    check(SCHEMA, "")


def test_every_value_is_used_by_a_template() -> None:
    for key in KEYS - OPTIONAL:
        assert re.search(rf"\.Values\.{key}\b", TEMPLATES), key


def test_every_value_in_a_template_exists() -> None:
    used = set(re.findall(r"\.Values\.([A-Za-z.]+)", TEMPLATES))
    for path in used - OPTIONAL:
        values = VALUES
        for name in path.split("."):
            assert name in values, path
            values = values[name]


def test_the_schema_has_the_feature_gates_of_the_command() -> None:
    assert all(parse_gates(f"{gate}=true") for gate in GATES)
    with pytest.raises(ValueError, match="unknown feature gate") as refused:
        parse_gates("NoSuchGate=true")
    names = re.findall(r"\b(?:All|Enable|PodProbe|Kruise)\w+", str(refused.value))
    assert set(names) == GATES
