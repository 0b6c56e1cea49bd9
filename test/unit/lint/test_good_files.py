"""Files without mistakes have no findings: samples, documentation, manifests, and Kruise's examples."""

import json
from pathlib import Path

import pytest
import yaml
from support.linting import GOOD, lint_paths, lint_text
from support.marker_table import INVALID, VALID, Row
from support.pages import ROOT, Block, blocks
from support.wire import typed

from kruise_probe.lint.findings import ACCEPTED, Finding, Rule
from kruise_probe.manifests.install import Install, default_install

FILES = sorted([*GOOD.iterdir(), *(ROOT / "config" / "samples").iterdir()])


def findings_of(row: Row) -> tuple[Finding, ...]:
    document = typed("PodProbeMarker", metadata={"name": "a"}, spec=row.spec)
    return lint_text(json.dumps(document)).findings


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_good_file_has_no_findings(path: Path) -> None:
    assert lint_paths(path).findings == ()


@pytest.mark.parametrize("block", blocks("yaml"), ids=lambda block: block.id)
def test_each_yaml_of_the_documentation_has_no_findings(block: Block) -> None:
    assert lint_text(block.text).findings == ()


def test_the_sample_and_the_installation_have_no_findings() -> None:
    assert lint_paths(ROOT / "config" / "samples", ROOT / "config" / "crd").findings == ()
    assert lint_text(yaml.safe_dump_all(default_install(Install()))).findings == ()


@pytest.mark.parametrize("row", VALID, ids=lambda row: row.id)
def test_what_the_api_server_accepts_breaks_no_rule(row: Row) -> None:
    rules = {finding.rule for finding in findings_of(row)}

    assert rules <= {Rule.CONFLICT, *ACCEPTED}


@pytest.mark.parametrize("row", INVALID, ids=lambda row: row.id)
def test_what_the_api_server_refuses_is_found_at_the_same_field(row: Row) -> None:
    paths = {finding.path for finding in findings_of(row)}

    assert row.field in paths
