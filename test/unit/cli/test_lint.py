"""`kruise-probe lint`: exit codes and flags."""

import json

import pytest
from support.cases import cases
from support.linting import BROKEN, GOOD

from kruise_probe.cli import lint
from kruise_probe.cli.main import run
from kruise_probe.cli.terminal import Terminal, cells
from kruise_probe.lint.findings import Finding, Position, Rule
from kruise_probe.lint.linter import Source as lint_source
from kruise_probe.lint.linter import lint as lint_sources

MARKER = str(GOOD / "kruise-idle.yaml")
HOST = str(BROKEN / "host.yaml")


@cases(
    "arguments code",
    clean=(["-f", MARKER], 0),
    without_f=([MARKER], 0),
    several_after_f=(["-f", MARKER, HOST], 1),
    f_repeated=(["-f", MARKER, "-f", HOST], 1),
    missing_file=(["-f", "missing.yaml"], 1),
    no_file=([], 2),
    unknown_format=([MARKER, "-o", "xml"], 2),
    invalid_key=([MARKER, "--allowed-label-keys=a b"], 2),
)
def test_exit_codes(arguments: list[str], code: int) -> None:
    assert run(["lint", *arguments], {}) == code


def test_findings_go_to_stdout_and_the_summary_to_stderr(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run(["lint", HOST], {})

    out, err = capsys.readouterr()
    assert out.startswith(f"{HOST}:14:9: spec.probes[0].probe.httpGet.host: Forbidden: ")
    assert err == (
        "1 finding in 1 file (1 PodProbeMarker, no pod templates)\n"
        "Not checked without pod templates: selectors, containers, ports and readiness gates\n"
    )


@pytest.mark.parametrize("form", ["json", "sarif"])
def test_formats_for_programs_are_alone_on_stdout(
    form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["lint", HOST, "-o", form], {})

    out, err = capsys.readouterr()
    assert json.loads(out)["version"]
    assert err == ""


@cases(
    "name lines",
    field=(
        "misspelled-field",
        [
            "unknown-field: unknown field 'perodSeconds'",
            "  --> a.yaml:15:7",
            "   |",
            "15 |       perodSeconds: 5",
            "   |       ^^^^^^^^^^^^",
            "   = field: spec.probes[0].probe.perodSeconds",
            "   = help: did you mean 'periodSeconds'?",
        ],
    ),
    long_path=(
        "number-as-annotation",
        [
            "wrong-type: must be a string, but is the number -10",
            "  --> a.yaml:20:53",
            "   |",
            "20 |         controller.kubernetes.io/pod-deletion-cost: -10",
            "   |                                                     ^^^",
        ],
    ),
)
def test_finding_on_a_terminal_has_the_line_with_carets(name: str, lines: list[str]) -> None:
    text = (BROKEN / f"{name}.yaml").read_text()
    (found,) = lint_sources([lint_source("a.yaml", text)]).findings

    drawn = lint.frame(found, text.split("\n"), Terminal(80)).splitlines()

    assert [line.rstrip() for line in drawn[: len(lines)]] == lines


@pytest.mark.parametrize("letters", ["x", "游", "\x1b\x1b\u0301"])
def test_carets_are_below_the_place_in_a_long_line(letters: str) -> None:
    long = letters * 500
    text = f'{{"a": "{long}", "perodSeconds": 5, "b": "{long}"}}'
    script = 'write the whole as one script: ["a; b"]'
    position = Position(1, text.index('"perod') + 1)
    found = Finding(
        position,
        "",
        Rule.UNKNOWN_FIELD,
        f"no; {script}",
        "a.json",
    )

    drawn = lint.frame(found, [text], Terminal(60))

    *_, source, carets, remedy = drawn.strip().splitlines()

    before, name, after = source.partition('"perodSeconds"')
    assert cells(source) <= 60
    assert cells(carets) <= 60
    assert remedy == f"  = help: {script}"
    assert "\x1b" not in source
    assert before.count("…") == 1
    assert after.count("…") == 1
    assert carets.index("^") == cells(before)
    assert carets.count("^") == len(name)
