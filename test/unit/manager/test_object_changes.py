"""Finalizers, controller references and conditions."""

import pytest

from kruise_probe.api.times import parse_time
from kruise_probe.runtime import (
    AlreadyOwned,
    ApiObject,
    Condition,
    ObjectMeta,
    OwnerReference,
    add_finalizer,
    controller_of,
    get_condition,
    has_finalizer,
    kind,
    remove_finalizer,
    set_condition,
    set_controller_reference,
    utc_now,
)

BEGIN = "2026-01-01T00:00:00Z"
LATER = "2026-01-02T00:00:00Z"


@kind("example.com/v1")
class Fleet(ApiObject, frozen=True):
    pass


def fleet(uid: str = "u1", namespace: str = "default") -> Fleet:
    return Fleet(ObjectMeta("f", namespace=namespace, uid=uid))


POD = ApiObject(ObjectMeta("p", namespace="default"))


def test_a_finalizer_is_added_once_and_removed() -> None:
    added = add_finalizer(POD, "a/b")
    assert has_finalizer(added, "a/b")
    assert add_finalizer(added, "a/b") is added
    assert remove_finalizer(added, "a/b").metadata.finalizers == ()
    assert remove_finalizer(POD, "a/b") is POD


def test_the_controller_of_an_object_is_set_once() -> None:
    owned = set_controller_reference(fleet(), POD)
    reference = controller_of(owned)
    assert reference is not None
    assert (reference.api_version, reference.kind, reference.uid) == (
        "example.com/v1",
        "Fleet",
        "u1",
    )
    assert set_controller_reference(fleet(), owned) == owned
    with pytest.raises(AlreadyOwned, match="default/p: Fleet f is already its controller"):
        set_controller_reference(fleet(uid="u2"), owned)


def test_other_owners_of_an_object_are_kept() -> None:
    other = OwnerReference("v1", "Node", "n", "u9")
    owned = set_controller_reference(
        fleet(), ApiObject(ObjectMeta("p", namespace="default", owner_references=(other,)))
    )
    assert [each.uid for each in owned.metadata.owner_references or ()] == ["u9", "u1"]


@pytest.mark.parametrize("blocks", [True, None])
def test_an_owner_waits_for_its_objects_unless_it_does_not_block(blocks: bool | None) -> None:
    owned = set_controller_reference(fleet(), POD, block_owner_deletion=bool(blocks))
    reference = controller_of(owned)
    assert reference is not None
    assert reference.block_owner_deletion is blocks


def test_an_owner_in_another_namespace_is_refused() -> None:
    with pytest.raises(ValueError, match="in another namespace"):
        set_controller_reference(fleet(namespace="other"), POD)
    assert controller_of(set_controller_reference(fleet(namespace=""), POD))


def ready(status: str, reason: str, *, at: str) -> Condition:
    return Condition("Ready", status, reason, last_transition_time=at)


def test_the_transition_time_changes_with_the_status_only() -> None:
    first = set_condition(None, ready("False", "Starting", at=BEGIN))
    same = set_condition(first, ready("False", "Pulling", at=LATER))
    moved = set_condition(same, ready("True", "Up", at=LATER))
    times = [get_condition(each, "Ready") for each in (first, same, moved)]
    assert [(each.reason, each.last_transition_time) for each in times if each] == [
        ("Starting", BEGIN),
        ("Pulling", BEGIN),
        ("Up", LATER),
    ]


def test_a_condition_without_a_transition_time_gets_the_current_one() -> None:
    (condition,) = set_condition(None, Condition("Ready", "True"))
    at = parse_time(condition.last_transition_time)
    assert at is not None
    assert abs((utc_now() - at).total_seconds()) < 60


def test_other_conditions_keep_their_places() -> None:
    both = (Condition("A", "True"), Condition("B", "True"))
    changed = set_condition(both, Condition("A", "False"))
    assert [each.type for each in changed] == ["A", "B"]
    assert changed[1] is both[1]
