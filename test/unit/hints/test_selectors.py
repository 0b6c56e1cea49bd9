import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import cases

from kruise_probe.api.labels import LabelSelector, Selector, compile_selector, parse_selector
from kruise_probe.hints.selectors import (
    corrected,
    distance,
    selector_text,
    unmet,
    why_not,
)

KEYS = st.sampled_from(["app", "tier", "zone"])
VALUES = st.sampled_from(["a", "b", "c"])
REQUIREMENTS = st.fixed_dictionaries(
    {
        "key": KEYS,
        "operator": st.sampled_from(["In", "NotIn"]),
        "values": st.lists(VALUES, min_size=1),
    }
) | st.fixed_dictionaries(
    {
        "key": KEYS,
        "operator": st.sampled_from(["Exists", "DoesNotExist"]),
    }
)
WEB_FRONT = {"app": "web", "tier": "front"}
"""The labels that a selector requires."""


def selector(*requirements: object) -> Selector:
    return compile_selector(msgspec.convert({"matchExpressions": requirements}, LabelSelector))


@given(st.lists(REQUIREMENTS, min_size=1, max_size=4), st.dictionaries(KEYS, VALUES))
def test_selector_matches_exactly_if_no_requirement_is_unmet(
    requirements: list[object], labels: dict[str, str]
) -> None:
    compiled = selector(*requirements)
    matches = compiled.matches(labels)
    assert matches == (not unmet(compiled, labels))
    assert matches == (not why_not(compiled, labels))


@pytest.mark.parametrize("text", ["a=x", "a in (x,y)", "a!=x", "a notin (x,y)", "a", "a=x,!b"])
def test_selector_text_has_the_syntax_of_kubectl(text: str) -> None:
    assert selector_text(parse_selector(text)) == text


@cases(
    "text labels matches",
    equals=("app=web", {"app": "web"}, True),
    double_equals_and_spaces=("app == web", {"app": "web"}, True),
    not_equals_matches_without_the_key=("app!=web", {}, True),
    empty_value=("app=", {"app": ""}, True),
    several=("app in (a, web),tier", {"app": "web", "tier": "x"}, True),
    not_in=("app notin (a,web)", {"app": "web"}, False),
    absent=("! app", {"app": "web"}, False),
    prefix=("example.com/a=b", {"example.com/a": "b"}, True),
)
def test_selector_is_parsed_as_kubectl_does(
    text: str, labels: dict[str, str], matches: bool
) -> None:
    assert parse_selector(text).matches(labels) == matches


@pytest.mark.parametrize(
    "text",
    ["", ",", "a=b,", "a=b=c", "a in b", "a in (b", "a b", "!a=b", "a in (b) c", "=b", "-a=b"],
)
def test_malformed_selector_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="selector"):
        parse_selector(text)


def test_empty_selector_reports_that_it_selects_no_pod() -> None:
    why = why_not(compile_selector(None), {"app": "web"})
    assert why == "its selector is empty and selects no pod"


@cases(
    "text why",
    typo_in_the_value=("app=wbe", "app=wbe, but the pod has app=web (did you mean 'web'?)"),
    another_value=("app=game", "app=game, but the pod has app=web"),
    typo_in_the_key=("ap", "ap, but the pod has no label ap (did you mean 'app'?)"),
    no_such_key=("tier", "tier, but the pod has no label tier"),
    negated=("app!=web", "app!=web, but the pod has app=web"),
)
def test_why_not_suggests_the_closest_key_or_value(text: str, why: str) -> None:
    found = why_not(parse_selector(text), {"app": "web"})
    assert found == f"the selector requires {why}"


@cases(
    "labels found",
    typo_in_a_value=({"app": "wbe", "tier": "front"}, "app=wbe"),
    typo_in_a_key=({"ap": "web", "tier": "front"}, "ap=web"),
    and_something_else=({"app": "wbe", "tier": "back"}, ""),
    selected=(WEB_FRONT, ""),
    no_labels=({}, ""),
)
def test_typos_are_told_from_other_labels(labels: dict[str, str], found: str) -> None:
    wanted = compile_selector(LabelSelector(match_labels=WEB_FRONT))
    assert corrected(wanted, labels) == found


def test_a_value_that_a_selector_excludes_is_no_typo() -> None:
    excludes = selector({"key": "app", "operator": "NotIn", "values": ["web", "wbe"]})
    assert not corrected(excludes, {"app": "web"})


def test_distance_prefers_typos_then_common_keys_then_met_requirements() -> None:
    wanted = compile_selector(LabelSelector(match_labels=WEB_FRONT))
    farthest_first: list[dict[str, str]] = [
        {},
        {"app": "web"},
        {"app": "shop", "tier": "back"},
        {"app": "web", "tier": "back"},
        {"app": "wbe", "tier": "front"},
    ]
    found = sorted(farthest_first, key=lambda labels: distance(wanted, labels))
    assert found == farthest_first[::-1]
