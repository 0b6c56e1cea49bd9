"""Which events predicates accept."""

import pytest

from kruise_probe.runtime import (
    ANNOTATIONS_CHANGED,
    DELETION,
    GENERATION_CHANGED,
    LABELS_CHANGED,
    RESOURCE_VERSION_CHANGED,
    ApiObject,
    ObjectMeta,
    Predicate,
    object_predicate,
    update_predicate,
)

NEVER = Predicate(create=lambda obj: False, update=lambda old, new: False, delete=lambda obj: False)
OLD = ApiObject(ObjectMeta("a", generation=1, labels={"x": "1"}))
RELABELED = ApiObject(ObjectMeta("a", generation=1, labels={"x": "2"}))
EDITED = ApiObject(ObjectMeta("a", generation=2, labels={"x": "1"}))
ANNOTATED = ApiObject(ObjectMeta("a", generation=1, labels={"x": "1"}, annotations={"y": "1"}))
DELETING = ApiObject(
    ObjectMeta("a", generation=2, labels={"x": "1"}, deletion_timestamp="2026-01-01T00:00:00Z")
)
LABELED_ONE = object_predicate(lambda obj: obj.metadata.labels.get("x") == "1")


@pytest.mark.parametrize(
    ("predicate", "accepted"),
    [
        pytest.param(GENERATION_CHANGED, {"edited", "deleting"}, id="generation"),
        pytest.param(LABELS_CHANGED, {"relabeled"}, id="labels"),
        pytest.param(ANNOTATIONS_CHANGED, {"annotated"}, id="annotations"),
        pytest.param(DELETION, {"deleting"}, id="deletion"),
        pytest.param(
            LABELS_CHANGED | GENERATION_CHANGED, {"relabeled", "edited", "deleting"}, id="or"
        ),
        pytest.param(GENERATION_CHANGED & ~DELETION, {"edited"}, id="and-not"),
        pytest.param(LABELED_ONE, {"relabeled", "edited", "annotated", "deleting"}, id="objects"),
        pytest.param(NEVER, set(), id="never"),
    ],
)
def test_updates_that_are_accepted(predicate: Predicate, accepted: set[str]) -> None:
    after = {"relabeled": RELABELED, "edited": EDITED, "annotated": ANNOTATED, "deleting": DELETING}
    assert {name for name, new in after.items() if predicate.update(OLD, new)} == accepted


def constant(accepts: bool) -> Predicate:
    return Predicate(
        create=lambda obj: accepts, update=lambda old, new: accepts, delete=lambda obj: accepts
    )


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("second", [True, False])
def test_operators_combine_every_filter(first: bool, second: bool) -> None:
    one, other = constant(first), constant(second)
    for combined, accepts in (
        (one & other, first and second),
        (one | other, first or second),
        (~one, not first),
    ):
        results = combined.create(OLD), combined.update(OLD, EDITED), combined.delete(OLD)
        assert results == (accepts, accepts, accepts)


def test_a_resync_does_not_change_the_resource_version() -> None:
    first, second = (ApiObject(ObjectMeta("a", resource_version=each)) for each in "12")
    assert not RESOURCE_VERSION_CHANGED.update(first, first)
    assert RESOURCE_VERSION_CHANGED.update(first, second)


@pytest.mark.parametrize(
    ("predicate", "create", "delete"),
    [
        pytest.param(GENERATION_CHANGED, True, True, id="changes-accept-both"),
        pytest.param(DELETION, False, True, id="deletion"),
        pytest.param(~update_predicate(lambda old, new: True), False, False, id="not"),
        pytest.param(LABELED_ONE, True, True, id="objects"),
        pytest.param(LABELED_ONE & NEVER, False, False, id="and"),
        pytest.param(LABELED_ONE | NEVER, True, True, id="or"),
    ],
)
def test_creations_and_deletions_that_are_accepted(
    predicate: Predicate, create: bool, delete: bool
) -> None:
    assert (predicate.create(OLD), predicate.delete(OLD)) == (create, delete)
