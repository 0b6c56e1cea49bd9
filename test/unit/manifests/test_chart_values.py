"""The chart's values, schema and templates have the same keys."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from support.pages import ROOT

from kruise_probe.cli.gates import parse_gates

CHART = ROOT / "config" / "chart"
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
TEMPLATES = "\n".join(each.read_text() for each in sorted((CHART / "templates").rglob("*.*")))
OPTIONAL = {
    "enabled",
    "global",
    *(f"featureGates.{each}" for each in SCHEMA["properties"]["featureGates"]["properties"]),
}


def keys_of(schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """The paths of the schema, down to objects whose keys Kubernetes or the user defines."""
    for name, each in schema.get("properties", {}).items():
        where = f"{path}{name}"
        if where.endswith((".resources", ".updateStrategy")) or "properties" not in each:
            yield where
        else:
            yield from keys_of(each, f"{where}.")


KEYS = set(keys_of(SCHEMA))


def holds(values: Any, path: str) -> bool:
    for name in path.split("."):
        if not isinstance(values, dict) or name not in values:
            return False
        values = values[name]
    return True


def paths_of(values: dict[str, Any], path: str = "") -> Iterator[str]:
    for name, each in values.items():
        where = f"{path}{name}"
        if where in KEYS or where == "featureGates":
            yield where
        elif isinstance(each, dict):
            yield from paths_of(each, f"{where}.")
        else:
            yield where


def test_the_schema_allows_exactly_the_values() -> None:
    assert set(paths_of(VALUES)) - {"featureGates"} == KEYS - OPTIONAL


def test_the_schema_refuses_unknown_keys_everywhere() -> None:
    def closed(schema: dict[str, Any]) -> bool:
        inner = schema.get("properties", {}).values()
        return schema.get("additionalProperties") is False and all(
            closed(each) for each in inner if "properties" in each
        )

    assert closed(SCHEMA)


def test_every_value_is_used_by_a_template() -> None:
    unused = {key for key in KEYS - OPTIONAL if not re.search(rf"\.Values\.{key}\b", TEMPLATES)}

    assert not unused


def test_every_value_in_a_template_exists() -> None:
    used = set(re.findall(r"\.Values\.([A-Za-z.]+)", TEMPLATES))
    unknown = {each for each in used if each not in OPTIONAL and not holds(VALUES, each)}

    assert not unknown


def test_the_schema_has_the_feature_gates_of_the_command() -> None:
    names = SCHEMA["properties"]["featureGates"]["properties"]
    assert all(parse_gates(f"{name}=true") for name in names)
    with pytest.raises(ValueError, match="unknown feature gate") as refused:
        parse_gates("NoSuchGate=true")
    assert set(re.findall(r"\b(?:All|Enable|PodProbe|Kruise)\w+", str(refused.value))) == set(names)
