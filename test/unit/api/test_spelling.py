"""Which name is meant by a misspelled one."""

from support.cases import cases

from kruise_probe.api.problems import did_you_mean


@cases(
    "wrong names closest",
    two_letters_swapped=("mian", "main sidecar", "main"),
    letters_in_another_order=("wbe", "web", "web"),
    case=("App", "app", "app"),
    no_similar_name=("main", "proxy", ""),
    more_than_one=("web", "web1 web2", ""),
    closest_of_several=("gmae-1", "game-1 game-2 game-10", "game-1"),
    too_short_to_tell=("a", "b", ""),
    too_long_to_compare=("x" * 321, "x" * 320 + "y", ""),
    no_names=("main", "", ""),
    missing_letter=("perodSeconds", "periodSeconds", "periodSeconds"),
    another_number=("v2", "v1", ""),
    common_prefix=("server-blue", "server-green", ""),
    common_domain=("game.example.com/role", "game.example.com/idle", ""),
    typo_in_a_domain=("game.example.com/roel", "game.example.com/role", "game.example.com/role"),
)
def test_did_you_mean_names_the_only_similar_name(wrong: str, names: str, closest: str) -> None:
    assert did_you_mean(wrong, names.split()) == (f" Did you mean {closest!r}?" if closest else "")
