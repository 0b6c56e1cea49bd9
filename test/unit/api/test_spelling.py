"""Which name is meant by a misspelled one."""

import pytest

from kruise_probe.api.problems import MAX_COMPARED, did_you_mean


@pytest.mark.parametrize(
    ("wrong", "names", "closest"),
    [
        pytest.param("mian", ["main", "sidecar"], "main", id="two-letters-swapped"),
        pytest.param("wbe", ["web"], "web", id="letters-in-another-order"),
        pytest.param("App", ["app"], "app", id="case"),
        pytest.param("main", ["proxy"], "", id="no-similar-name"),
        pytest.param("web", ["web1", "web2"], "", id="more-than-one"),
        pytest.param("gmae-1", ["game-1", "game-2", "game-10"], "game-1", id="closest-of-several"),
        pytest.param("a", ["b"], "", id="too-short-to-tell"),
        pytest.param("main", [], "", id="no-names"),
        pytest.param("perodSeconds", ["periodSeconds"], "periodSeconds", id="missing-letter"),
        pytest.param("v2", ["v1"], "", id="another-number"),
        pytest.param("server-blue", ["server-green"], "", id="common-prefix"),
        pytest.param("game.example.com/role", ["game.example.com/idle"], "", id="common-domain"),
        pytest.param(
            "game.example.com/roel",
            ["game.example.com/role"],
            "game.example.com/role",
            id="typo-in-a-domain",
        ),
        pytest.param("x" * MAX_COMPARED, ["x" * 322], "x" * 322, id="longest-that-is-compared"),
        pytest.param("x" * (MAX_COMPARED + 1), ["x" * 322], "", id="too-long"),
    ],
)
def test_did_you_mean_names_the_only_similar_name(
    wrong: str, names: list[str], closest: str
) -> None:
    assert did_you_mean(wrong, names) == (f" Did you mean {closest!r}?" if closest else "")
