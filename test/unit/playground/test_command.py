"""The flags of `kruise-probe playground`."""

import click
import pytest

from kruise_probe_playground.command import playground


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param([], False, id="absent"),
        pytest.param(["FLAG"], True, id="alone"),
        pytest.param(["FLAG", "--nodes=2"], True, id="before-another-flag"),
        pytest.param(["FLAG=true"], True, id="true"),
        pytest.param(["FLAG=false"], False, id="false"),
    ],
)
@pytest.mark.parametrize("flag", ["--check", "--no-sample"])
def test_boolean_flags_have_the_syntax_of_go(
    flag: str, arguments: list[str], expected: bool
) -> None:
    given = [each.replace("FLAG", flag) for each in arguments]
    context = playground.make_context("playground", given)

    assert context.params[flag.removeprefix("--").replace("-", "_")] is expected


def test_invalid_boolean_is_an_error() -> None:
    with pytest.raises(click.BadParameter, match="'maybe' is not a boolean; write true or false"):
        playground.make_context("playground", ["--check=maybe"])
