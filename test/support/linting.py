"""Files for lint, and shorthands."""

import textwrap
from pathlib import Path

from kruise_probe.lint.findings import LintReport
from kruise_probe.lint.linter import Source, lint, read_sources

DATA = Path(__file__).parents[1] / "data" / "lint"
BROKEN = DATA / "broken"
GOOD = DATA / "good"


def lint_paths(*paths: Path) -> LintReport:
    return lint(read_sources(map(str, paths)))


def lint_texts(*texts: str) -> LintReport:
    """Checks texts as the files 1.yaml, 2.yaml and so on."""
    sources = [
        Source(f"{number}.yaml", textwrap.dedent(text))
        for number, text in enumerate(texts, start=1)
    ]
    return lint(sources)


def lint_text(text: str) -> LintReport:
    return lint_texts(text)
