"""Label selectors, compared with a direct implementation of the documentation."""

from collections.abc import Mapping
from contextlib import nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import cases

from kruise_probe.api.labels import LabelSelector, LabelSelectorRequirement, compile_selector
from kruise_probe.api.v1alpha1 import PodProbeMarkerSpec
from kruise_probe.api.validation import marker_errors

KEYS = st.sampled_from(["a", "b", "c"])
VALUES = st.sampled_from(["1", "2", "3"])
LABELS = st.dictionaries(KEYS, VALUES)
EXPRESSIONS = st.builds(
    LabelSelectorRequirement,
    key=KEYS,
    operator=st.sampled_from(["In", "NotIn"]),
    values=st.lists(VALUES, min_size=1).map(tuple),
) | st.builds(
    LabelSelectorRequirement,
    key=KEYS,
    operator=st.sampled_from(["Exists", "DoesNotExist"]),
)


def selectors(
    labels: st.SearchStrategy[dict[str, str]],
    expressions: st.SearchStrategy[LabelSelectorRequirement],
) -> st.SearchStrategy[LabelSelector]:
    some = st.lists(expressions, max_size=3).map(tuple)
    return st.builds(LabelSelector, match_labels=labels, match_expressions=some)


def meets(labels: Mapping[str, str], requirement: LabelSelectorRequirement) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "In":
            return value in (requirement.values or ())
        case _:
            return value not in (requirement.values or ())


def matches(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    wanted = selector.match_labels or {}
    expressions = selector.match_expressions or ()
    if not wanted and not expressions:
        return False
    return wanted.items() <= labels.items() and all(
        meets(labels, requirement) for requirement in expressions
    )


@given(selector=selectors(LABELS, EXPRESSIONS), labels=LABELS)
def test_compiled_selector_matches_as_documented_and_matching_labels_have_its_anchor(
    selector: LabelSelector, labels: dict[str, str]
) -> None:
    compiled = compile_selector(selector)
    assert compiled.matches(labels) is matches(selector, labels)
    if compiled.anchor and compiled.matches(labels):
        key, values = compiled.anchor
        assert labels[key] in values


def test_absent_selector_matches_nothing() -> None:
    assert not compile_selector(None).matches({"a": "1"})
    assert not compile_selector(LabelSelector()).matches({})


@cases(
    "requirement",
    unknown_operator=LabelSelectorRequirement("a", "in", ("1",)),
    in_without_values=LabelSelectorRequirement("a", "In"),
    not_in_without_values=LabelSelectorRequirement("a", "NotIn", ()),
    exists_with_values=LabelSelectorRequirement("a", "Exists", ("1",)),
    no_key=LabelSelectorRequirement("-a", "Exists"),
    no_value=LabelSelectorRequirement("a", "NotIn", ("-",)),
)
def test_invalid_requirement_names_its_key(requirement: LabelSelectorRequirement) -> None:
    with pytest.raises(ValueError, match="a'"):
        compile_selector(LabelSelector(match_expressions=(requirement,)))


POOR_KEYS = KEYS | st.sampled_from(["", "-", "a/b/c"])
POOR_VALUES = VALUES | st.sampled_from(["", "-", "x" * 64])
POOR_EXPRESSIONS = st.builds(
    LabelSelectorRequirement,
    key=POOR_KEYS,
    operator=st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "in"]),
    values=st.lists(POOR_VALUES, max_size=2).map(tuple),
)


@given(selectors(st.dictionaries(POOR_KEYS, POOR_VALUES, max_size=2), POOR_EXPRESSIONS))
def test_selector_compiles_exactly_if_it_is_valid(selector: LabelSelector) -> None:
    errors = marker_errors(PodProbeMarkerSpec(selector))
    is_invalid = any(error.path.startswith("spec.selector.") for error in errors)
    refused = pytest.raises(ValueError, match="selector requirement on")
    with refused if is_invalid else nullcontext():
        compile_selector(selector)
