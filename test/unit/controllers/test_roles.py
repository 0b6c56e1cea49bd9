"""Who holds a role: the decision alone. That no two pods carry it: `test_role_groups`, and the simulation."""

from collections.abc import Mapping
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import marker, owned_fields, pod, policy_wire, probe_wire
from support.cases import cases

from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.pods import Pod
from kruise_probe.controllers.claims import Claim, claims_of
from kruise_probe.controllers.compiled import compile_marker
from kruise_probe.controllers.roles import (
    MAX_GROUP,
    Member,
    Role,
    Standing,
    carried,
    holder_of,
    member_of,
    wanted_in,
)


def member(
    name: str,
    standing: Standing = Standing.SUCCEEDED,
    *,
    ours: bool = False,
    order: int = 0,
    epoch: int | None = None,
) -> Member:
    return Member(NamespacedName("default", name), standing, ours, ours, epoch, order)


def of(*members: Member) -> Mapping[str, Member]:
    """By uid, which is the name here."""
    return {found.pod.name: found for found in members}


KEEPS, NEVER, PAUSED = Standing.KEEPS, Standing.NEVER, Standing.PAUSED


@cases(
    "members holder",
    nobody=((), ""),
    none_succeeded=((member("a", NEVER), member("b", NEVER)), ""),
    the_only_one=((member("a", NEVER), member("b")), "b"),
    by_name_if_all_is_equal=((member("b"), member("a")), "a"),
    the_current_one_if_the_order_is_equal=((member("a"), member("b", ours=True)), "b"),
    the_last_to_succeed=((member("a", ours=True, order=1), member("b", order=2)), "b"),
    the_last_also_after_an_older_one_came_back=((member("a", order=3), member("b", ours=True, order=2)), "a"),
    unknown_keeps_it=((member("a", NEVER), member("b", KEEPS, ours=True)), "b"),
    unknown_loses_it_to_a_succeeded_one=((member("a"), member("b", KEEPS, ours=True, order=9)), "a"),
    two_unknown=((member("b", KEEPS, ours=True), member("a", KEEPS, ours=True)), "a"),
    paused_keeps_it_from_all=((member("a", order=9), member("b", PAUSED, ours=True)), "b"),
    failed_loses_it=((member("a", NEVER, ours=True), member("b")), "b"),
)  # fmt: skip
def test_the_holder_is(members: tuple[Member, ...], holder: str) -> None:
    for shuffled in permutations(members):
        assert holder_of(of(*shuffled), has_epochs=False) == holder


@cases(
    "members holder",
    highest_epoch=((member("a", ours=True, epoch=7, order=1), member("b", epoch=8, order=0)), "b"),
    a_late_claim_of_an_older_epoch=((member("a", epoch=7, order=9), member("b", ours=True, epoch=8)), "b"),
    last_of_equal_epochs=((member("a", epoch=7, order=2), member("b", ours=True, epoch=7, order=1)), "a"),
    no_epoch_displaces_none=((member("a", order=9), member("b", ours=True)), "b"),
    no_epoch_is_lowest=((member("a", order=9), member("b", epoch=0)), "b"),
    no_epoch_gets_a_free_role=((member("a", order=9), member("b", NEVER, ours=True, epoch=3)), "a"),
    largest=((member("a", epoch=2**64 - 1), member("b", epoch=2**63, order=3)), "a"),
)  # fmt: skip
def test_the_holder_by_epoch_is(members: tuple[Member, ...], holder: str) -> None:
    for shuffled in permutations(members):
        assert holder_of(of(*shuffled), has_epochs=True) == holder


def test_the_role_of_a_group_that_is_too_large_stays() -> None:
    others = [member(f"p-{number}", order=9) for number in range(MAX_GROUP)]
    assert holder_of(of(*others), has_epochs=False) == "p-0"
    assert holder_of(of(*others, member("q", ours=True)), has_epochs=False) == "q"
    assert holder_of(of(*others, member("q")), has_epochs=False) == ""


def claim(**more: object) -> Claim:
    policies = [
        policy_wire("Succeeded", {"role": "primary"}, from_message=[{"annotation": "since"}]),
        policy_wire("Failed", {"role": "replica"}),
    ]
    probe = probe_wire(policies=policies) | {"exclusive": {}} | more
    (found,) = claims_of((compile_marker(marker(probes=[probe])),)).claims
    return found


PRIMARY = {"app": "web", "role": "primary"}
OURS = owned_fields(labels=["role"])


@cases(
    "found state standing",
    succeeded=(pod(), "Succeeded", Standing.SUCCEEDED),
    failed=(pod(labels=PRIMARY, owned=OURS), "Failed", NEVER),
    no_result=(pod(), "", NEVER),
    no_result_but_our_mark=(pod(labels=PRIMARY, owned=OURS), "", KEEPS),
    unknown_with_our_mark=(pod(labels=PRIMARY, owned=OURS), "Unknown", KEEPS),
    mark_without_an_owner=(pod(labels=PRIMARY), "Unknown", KEEPS),
    terminating=(pod(labels=PRIMARY, owned=OURS, deleting=True), "Succeeded", NEVER),
    finished=(pod(labels=PRIMARY, owned=OURS, phase="Succeeded"), "Unknown", KEEPS),
    finished_without_a_mark=(pod(phase="Failed"), "Succeeded", NEVER),
    paused=(pod(labels=PRIMARY, owned=OURS, annotations={"kruise-probe.io/paused": "true"}), "", PAUSED),
    paused_without_a_mark=(pod(annotations={"kruise-probe.io/paused": "true"}), "Succeeded", NEVER),
)  # fmt: skip
def test_a_pod_stands(found: Pod, state: str, standing: Standing) -> None:
    assert member_of(found, claim(), state).standing is standing


def test_a_label_set_by_hand_is_carried_but_not_ours() -> None:
    by_hand = {**OURS, "manager": "kubectl-label", "subresource": ""}
    found = member_of(pod(labels=PRIMARY, owned=by_hand), claim(), "Unknown")
    assert (found.standing, found.carries, found.ours) == (NEVER, True, False)


def test_a_probe_whose_marks_cannot_be_told_apart_is_left_out() -> None:
    """CEL does not compare annotations."""
    policies = [policy_wire("Succeeded", {}, {"a": "b"}), policy_wire("Failed", {}, {"a": "b"})]
    compiled = compile_marker(marker(probes=[probe_wire(policies=policies) | {"exclusive": {}}]))
    assert compiled.probes == ()
    (error,) = compiled.errors
    assert error.path == "spec.probes[0].markerPolicy"


HOLDS = Role(holds=True, may_set=True)
WAITS = Role(holds=True)
OTHER = Role(holds=False)


@cases(
    "role state found keys",
    holder=(HOLDS, "Succeeded", pod(), {"role": "primary"}),
    holder_that_waits=(WAITS, "Succeeded", pod(labels={"role": "replica"}), {}),
    another_that_succeeds=(OTHER, "Succeeded", pod(), {"role": "replica", "since": None}),
    another_that_fails=(OTHER, "Failed", pod(), {"role": "replica", "since": None}),
    another_without_a_result=(OTHER, "", pod(labels=PRIMARY), {"role": None}),
    another_unknown=(OTHER, "Unknown", pod(labels=PRIMARY, annotations={"since": "x"}), {"role": None, "since": None}),
    another_without_marks=(OTHER, "Unknown", pod(labels={"role": "replica"}), {}),
    holder_that_is_unknown=(HOLDS, "Unknown", pod(labels=PRIMARY), {}),
)  # fmt: skip
def test_a_role_wants(role: Role, state: str, found: Pod, keys: dict[str, str | None]) -> None:
    wanted = wanted_in(role, claim(), found, state)
    texts = {mark.name: value for mark, value in wanted.items() if not isinstance(value, tuple)}
    assert texts == keys


members = st.builds(
    member,
    st.sampled_from("abcdef"),
    st.sampled_from(Standing),
    ours=st.booleans(),
    order=st.integers(0, 3),
    epoch=st.none() | st.integers(0, 3),
)


@given(st.lists(members, max_size=6), st.booleans())
def test_the_holder_does_not_depend_on_the_order_of_pods_and_keeps_the_role(
    found: list[Member], has_epochs: bool
) -> None:
    group = of(*found)
    holder = holder_of(group, has_epochs=has_epochs)
    assert holder_of(dict(reversed([*group.items()])), has_epochs=has_epochs) == holder
    if not holder:
        assert all(each.standing is NEVER for each in group.values())
        return
    after = {
        uid: each._replace(carries=uid == holder, ours=uid == holder) for uid, each in group.items()
    }
    assert holder_of(after, has_epochs=has_epochs) == holder


@pytest.mark.parametrize("state", ["Succeeded", "Failed", "Unknown", ""])
def test_only_a_holder_that_may_be_set_carries_the_marks(state: str) -> None:
    for role in (WAITS, OTHER):
        for labels in (PRIMARY, {"role": "replica"}, {}):
            wanted = wanted_in(role, claim(), pod(labels=labels), state)
            assert "primary" not in wanted.values()
            if not role.holds and carried(pod(labels=labels), claim()):
                assert wanted
