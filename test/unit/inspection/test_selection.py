import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import pod_wire

from kruise_probe.api.labels import Selector, compile_selector
from kruise_probe.api.meta import LabelSelector
from kruise_probe.api.resources import PODS
from kruise_probe.inspection.selection import alike, nearest, selector_text, unmet, why_not

KEYS = st.sampled_from(["app", "tier", "zone"])
VALUES = st.sampled_from(["a", "b", "c"])
REQUIREMENTS = st.one_of(
    st.builds(
        lambda key, operator, values: {"key": key, "operator": operator, "values": values},
        KEYS,
        st.sampled_from(["In", "NotIn"]),
        st.lists(VALUES, min_size=1),
    ),
    st.builds(
        lambda key, operator: {"key": key, "operator": operator},
        KEYS,
        st.sampled_from(["Exists", "DoesNotExist"]),
    ),
)


def selector(*requirements: object) -> Selector:
    return compile_selector(msgspec.convert({"matchExpressions": requirements}, LabelSelector))


@given(st.lists(REQUIREMENTS, min_size=1, max_size=4), st.dictionaries(KEYS, VALUES))
def test_a_selector_matches_exactly_when_nothing_is_unmet(
    requirements: list[object], labels: dict[str, str]
) -> None:
    compiled = selector(*requirements)
    assert compiled.matches(labels) == (not unmet(compiled, labels))
    assert bool(why_not(compiled, labels)) == bool(unmet(compiled, labels))


@pytest.mark.parametrize(
    ("requirement", "text"),
    [
        pytest.param({"key": "a", "operator": "In", "values": ["x"]}, "a=x", id="one-value"),
        pytest.param({"key": "a", "operator": "In", "values": ["y", "x"]}, "a in (x,y)", id="in"),
        pytest.param({"key": "a", "operator": "NotIn", "values": ["x"]}, "a!=x", id="not-one"),
        pytest.param(
            {"key": "a", "operator": "NotIn", "values": ["x", "y"]}, "a notin (x,y)", id="not-in"
        ),
        pytest.param({"key": "a", "operator": "Exists"}, "a", id="exists"),
        pytest.param({"key": "a", "operator": "DoesNotExist"}, "!a", id="does-not-exist"),
    ],
)
def test_requirements_read_as_kubectl_takes_them(requirement: object, text: str) -> None:
    assert selector_text(selector(requirement)) == text


def test_an_empty_selector_selects_nothing_and_says_so() -> None:
    assert why_not(compile_selector(None), {"app": "web"}) == "its selector selects nothing"


@pytest.mark.parametrize(
    ("wanted", "there", "hint"),
    [
        pytest.param("mian", ["main", "sidecar"], " (but main)", id="two-letters-swapped"),
        pytest.param("wbe", ["web"], " (but web)", id="letters-in-another-order"),
        pytest.param("App", ["app"], " (but app)", id="case"),
        pytest.param("main", ["proxy"], "", id="nothing-alike"),
        pytest.param("web", ["web1", "web2"], "", id="more-than-one"),
        pytest.param("a", ["b"], "", id="too-short-to-tell"),
        pytest.param("main", [], "", id="nothing-there"),
    ],
)
def test_a_slip_of_the_pen_is_recognised(wanted: str, there: list[str], hint: str) -> None:
    assert alike(wanted, there) == hint


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        pytest.param({"app": "wbe", "tier": "front"}, True, id="slip-in-a-value"),
        pytest.param({"ap": "web", "tier": "front"}, True, id="slip-in-a-key"),
        pytest.param({"app": "wbe", "tier": "back"}, False, id="and-something-else"),
        pytest.param({"app": "web", "tier": "front"}, False, id="selected"),
        pytest.param({}, False, id="no-labels"),
    ],
)
def test_a_pod_that_is_missed_by_a_slip_is_the_nearest(labels: dict[str, str], found: bool) -> None:
    wanted = compile_selector(LabelSelector(match_labels={"app": "web", "tier": "front"}))
    pod = PODS.decode(msgspec.json.encode(pod_wire("web-0", labels=labels)))
    assert nearest(wanted, [pod]) == (pod if found else None)
