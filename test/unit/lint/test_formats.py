"""Text, JSON and SARIF."""

import json
import os
from pathlib import Path

import pytest
from support.linting import BROKEN, lint_paths

from kruise_probe.lint.findings import as_json, as_sarif, as_text, summary


def test_json_has_the_documented_fields() -> None:
    document = json.loads(as_json(lint_paths(BROKEN / "container.yaml")))

    for name in ("version", "files", "markers", "podTemplates"):
        assert document[name] == 1
    (finding,) = document["findings"]
    assert finding.keys() == {"file", "line", "column", "path", "rule", "message"}


def test_sarif_has_what_code_scanning_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(BROKEN.parent)
    document = json.loads(as_sarif(lint_paths(Path("broken"))))

    assert document["version"] == "2.1.0"
    (run,) = document["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert all(rule["shortDescription"]["text"] for rule in rules)
    assert len(run["results"]) > 30
    for result in run["results"]:
        rule = rules[result["ruleIndex"]]
        assert rule["id"] == result["ruleId"]
        assert result["message"]["text"]
        (location,) = result["locations"]
        place = location["physicalLocation"]
        assert place["artifactLocation"]["uri"].startswith("broken/")
        region = place["region"]
        assert region.keys() == {"startLine", "startColumn"}
        assert min(region.values()) >= 1


def test_sarif_paths_are_relative_to_the_folder_and_escaped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    odd = Path(os.fsdecode(b"a b#\xff.yaml"))
    inside = tmp_path / "in.yaml"
    outside = tmp_path.parent / "missing.yaml"
    odd.write_text("a: [")
    inside.write_text("a: [")
    report = lint_paths(odd, inside, outside)

    (run,) = json.loads(as_sarif(report))["runs"]

    uris = []
    for result in run["results"]:
        (location,) = result["locations"]
        uris.append(location["physicalLocation"]["artifactLocation"]["uri"])
    assert uris == ["a%20b%23%FF.yaml", "in.yaml", outside.as_uri()]
    assert as_text(report).isascii()


def test_summary_says_which_rules_an_unreadable_file_turns_off(tmp_path: Path) -> None:
    marker = BROKEN / "container.yaml"
    broken = tmp_path / "broken.yaml"
    broken.write_text("apiVersion: [")
    off = ["NoPods", "ContainerNotFound", "PortNameUnknown", "GateUnwritten"]

    alone = lint_paths(marker)
    together = lint_paths(marker, broken)

    assert "Not checked" not in summary(alone)
    assert f"Not checked: {', '.join(off)}:\nthe objects of {broken} are" in summary(together)
    assert json.loads(as_json(alone))["notChecked"] == []
    assert json.loads(as_json(together))["notChecked"] == off
