"""Files without mistakes have no findings: samples, documentation, manifests, and Kruise's examples."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.linting import GOOD, lint_paths, lint_text
from support.marker_table import INVALID, VALID, Row
from support.pages import ROOT, Block, blocks
from support.wire import typed

from kruise_probe.lint.findings import ACCEPTED, Rule
from kruise_probe.manifests.install import Install, default_install

FILES = sorted([*GOOD.iterdir(), *(ROOT / "config" / "samples").iterdir()])


def marker(row: Row) -> str:
    document: dict[str, Any] = typed("PodProbeMarker", metadata={"name": "a"}, spec=row.spec)
    return json.dumps(document)


@pytest.mark.parametrize("path", [pytest.param(each, id=each.name) for each in FILES])
def test_a_good_file_has_no_findings(path: Path) -> None:
    assert lint_paths(path).findings == ()


@pytest.mark.parametrize("each", [pytest.param(each, id=each.id) for each in blocks("yaml")])
def test_each_yaml_of_the_documentation_has_no_findings(each: Block) -> None:
    assert lint_text(each.text).findings == ()


def test_the_sample_and_the_installation_have_no_findings() -> None:
    assert lint_paths(ROOT / "config" / "samples", ROOT / "config" / "crd").findings == ()
    assert lint_text(yaml.safe_dump_all(default_install(Install()))).findings == ()


@pytest.mark.parametrize("row", [pytest.param(each, id=each.id) for each in VALID])
def test_what_the_api_server_accepts_breaks_no_rule(row: Row) -> None:
    rules = {each.rule for each in lint_text(marker(row)).findings}

    assert rules <= {Rule.CONFLICT, *ACCEPTED}


@pytest.mark.parametrize("row", [pytest.param(each, id=each.id) for each in INVALID])
def test_what_the_api_server_refuses_is_found_at_the_same_field(row: Row) -> None:
    paths = {each.path for each in lint_text(marker(row)).findings}

    assert row.field in paths
