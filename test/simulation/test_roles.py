"""At most one pod carries a role, whatever fails; and each oracle notices a product that breaks the promise."""

import gc
from typing import Any

import pytest
from simulation.broken import Break, replace, returning
from simulation.plan import make_role_plan
from simulation.roles import NO_HOLDER, RESTARTED, TWO_HOLDERS, judge_roles
from support.cases import cases

from kruise_probe.api.pods import Pod
from kruise_probe.api.times import parse_time
from kruise_probe.controllers import role_groups, roles
from kruise_probe.controllers.claims import Claim
from kruise_probe.controllers.marking import PodResults
from kruise_probe.controllers.role_fence import RoleFence
from kruise_probe.controllers.role_groups import RoleGroups
from kruise_probe.controllers.roles import Member, Role, Standing


def clear_without_response(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod whose patch is in flight carries nothing any more."""
    pods_of = RoleGroups._pods_of

    def settled(self: RoleGroups, role: Any, claim: Claim) -> list[Pod]:
        state: Any = self._look.__self__  # type: ignore[attr-defined]
        return [pod for pod in pods_of(self, role, claim) if pod.key not in state.writing]

    monkeypatch.setattr(RoleGroups, "_pods_of", settled)


def decide_by_one_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod that is Succeeded holds the role."""

    def alone(
        self: RoleGroups,
        role: Any,
        group: Any,
        pod: Pod,
        claim: Claim,
    ) -> Role:
        holds = group.members[pod.uid].standing is Standing.SUCCEEDED
        return Role(holds, may_set=holds)

    monkeypatch.setattr(RoleGroups, "_role", alone)


def decide_by_wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state with the latest time of its node is the last."""
    member = RoleGroups._member

    def timed(self: RoleGroups, pod: Pod, claim: Claim, results: PodResults) -> Member:
        found = member(self, pod, claim, results)
        state = results.states.get(claim.name)
        moved_at = parse_time(state.last_transition_time) if state else None
        if not moved_at:
            return found._replace(order=0)
        return found._replace(order=int(moved_at.timestamp()))

    monkeypatch.setattr(RoleGroups, "_member", timed)


def forget_at_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks make no pod the holder."""
    member_of = roles.member_of

    def unowned(*arguments: Any, **options: Any) -> Member:
        return member_of(*arguments, **options)._replace(ours=False)

    monkeypatch.setattr(role_groups, "member_of", unowned)


BROKEN = {
    "set before clear": (
        TWO_HOLDERS,
        replace(role_groups, "carried", returning([])),
    ),
    "clear without response": (TWO_HOLDERS, clear_without_response),
    "decide by one pod": (TWO_HOLDERS, decide_by_one_pod),
    "decide by wall clock": (NO_HOLDER, decide_by_wall_clock),
    "forget at restart": (RESTARTED, forget_at_restart),
    "no wait for a lost response": (
        TWO_HOLDERS,
        replace(RoleFence, "is_unsettled", returning(False)),
    ),
}
"""The oracle that fails, and how the product is broken."""


@cases("oracle break_it", **BROKEN)
def test_the_oracle_notices_a_broken_product(
    oracle: str,
    break_it: Break,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    break_it(monkeypatch)
    for seed in range(40):
        found = judge_roles(make_role_plan(seed)).oracle
        gc.collect()
        if found:
            assert found == oracle
            return
    pytest.fail("40 plans did not notice it")
