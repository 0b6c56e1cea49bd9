"""The JSON Schema that editors use."""

import json
from collections.abc import Iterator

import pytest
from support.pages import ROOT
from support.wire import Json

from kruise_probe.cli.main import run
from kruise_probe.manifests.crds import marker_json_schema


def schemas(schema: Json) -> Iterator[Json]:
    yield schema
    for field in schema.get("properties", {}).values():
        yield from schemas(field)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from schemas(schema[key])


def test_unknown_fields_are_errors_and_extensions_are_gone() -> None:
    for schema in schemas(marker_json_schema()):
        assert not any(key.startswith("x-") for key in schema)
        assert ("properties" in schema) == (schema.get("additionalProperties") is False)


def test_the_page_about_markers_in_git_names_each_default_of_the_spec() -> None:
    defaults = []
    for schema in schemas(marker_json_schema()["properties"]["spec"]):
        for name, field in schema.get("properties", {}).items():
            if "default" in field:
                defaults.append(f"`{name}: {field['default']}`")
    assert sorted(defaults) == ["`path: /`", "`scheme: HTTP`"]
    page = (ROOT / "docs/install.md").read_text()
    assert all(default in page for default in defaults)


def test_a_port_is_a_number_or_a_name() -> None:
    probes = marker_json_schema()["properties"]["spec"]["properties"]["probes"]
    action = probes["items"]["properties"]["probe"]["properties"]["tcpSocket"]

    assert action["properties"]["port"]["anyOf"] == [{"type": "integer"}, {"type": "string"}]
    assert action["required"] == ["port"]


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["manifests", "--json-schema"], {}) == 0
    assert json.loads(capsys.readouterr().out) == marker_json_schema()
