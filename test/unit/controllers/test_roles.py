"""Who holds a role: the decision alone. That no two pods carry it: `test_role_groups`, and the simulation."""

from collections.abc import Mapping
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import owned_fields, pod, policy_wire, probe_wire
from support.tables import load_table
from support.wire import Json
from unit.controllers.common import compiled

from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.pods import Pod
from kruise_probe.controllers.claims import Claim, claims_of
from kruise_probe.controllers.roles import (
    MAX_GROUP,
    Member,
    Role,
    Standing,
    holder_of,
    member_of,
    wanted_in,
)

TABLE = load_table(
    Path(__file__).parents[2] / "data" / "roles.yaml",
    {},
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


NEVER = Standing.NEVER


def member_from(fields: Json) -> Member:
    standing = Standing[fields.get("standing", "SUCCEEDED")]
    return member(**(fields | {"standing": standing}))


@pytest.mark.parametrize("row", TABLE["holders"].values(), ids=TABLE["holders"])
def test_the_holder_is(row: Json) -> None:
    members = [member_from(fields) for fields in row["members"]]
    for shuffled in permutations(members):
        assert holder_of(of(*shuffled), has_epochs=row.get("epochs", False)) == row["holder"]


def test_the_role_of_a_group_that_is_too_large_stays() -> None:
    others = [member(f"p-{number}", order=9) for number in range(MAX_GROUP)]
    assert holder_of(of(*others), has_epochs=False) == "p-0"
    assert holder_of(of(*others, member("q", ours=True)), has_epochs=False) == "q"
    assert holder_of(of(*others, member("q")), has_epochs=False) == ""


EXCLUSIVE: Json = {"exclusive": {}}


def claim() -> Claim:
    policies = [
        policy_wire("Succeeded", {"role": "primary"}, from_message=[{"annotation": "since"}]),
        policy_wire("Failed", {"role": "replica"}),
    ]
    probe = probe_wire(policies=policies) | EXCLUSIVE
    (found,) = claims_of((compiled(probe),)).claims
    return found


def pod_from(fields: Json) -> Pod:
    """`owned`: the label that we wrote."""
    if "owned" in fields:
        fields = fields | {"owned": owned_fields(labels=[fields["owned"]])}
    return pod(**fields)


@pytest.mark.parametrize("row", TABLE["standings"].values(), ids=TABLE["standings"])
def test_a_pod_stands(row: Json) -> None:
    found = member_of(
        pod_from(row["pod"]),
        claim(),
        row["state"],
    )
    assert found.standing is Standing[row["standing"]]


def test_a_label_set_by_hand_is_carried_but_not_ours() -> None:
    ours = owned_fields(labels=["role"])
    by_hand = ours | {"manager": "kubectl-label", "subresource": ""}
    primary = pod(labels={"app": "web", "role": "primary"}, owned=by_hand)
    found = member_of(primary, claim(), "Unknown")
    assert found.standing is NEVER
    assert found.carries
    assert not found.ours


def test_a_probe_whose_marks_cannot_be_told_apart_is_left_out() -> None:
    """CEL does not compare annotations."""
    policies = [policy_wire(state, {}, {"a": "b"}) for state in ("Succeeded", "Failed")]
    found = compiled(probe_wire(policies=policies) | EXCLUSIVE)
    assert found.probes == ()
    (error,) = found.errors
    assert error.path == "spec.probes[0].markerPolicy"


ROLES = {
    "holder": Role(holds=True, may_set=True),
    "waits": Role(holds=True),
    "other": Role(holds=False),
}


@pytest.mark.parametrize("row", TABLE["wanted"].values(), ids=TABLE["wanted"])
def test_a_role_wants(row: Json) -> None:
    wanted = wanted_in(
        ROLES[row["role"]],
        claim(),
        pod_from(row["pod"]),
        row["state"],
    )
    texts = {mark.name: value for mark, value in wanted.items() if not isinstance(value, tuple)}
    assert texts == row["keys"]


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
    found: list[Member],
    has_epochs: bool,
) -> None:
    group = of(*found)
    holder = holder_of(group, has_epochs=has_epochs)
    assert holder_of(dict(reversed([*group.items()])), has_epochs=has_epochs) == holder
    if not holder:
        assert {member.standing for member in group.values()} <= {NEVER}
        return
    after = {}
    for uid, before in group.items():
        holds = uid == holder
        after[uid] = before._replace(carries=holds, ours=holds)
    assert holder_of(after, has_epochs=has_epochs) == holder
