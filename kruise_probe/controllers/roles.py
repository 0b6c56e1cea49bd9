"""Decides which pod of a group holds a role, and which marks the others get. Pure functions.

An exclusive probe gives a role: of its pods, or of those with the same value of a label (a *group*), one *carries* the marks of
the policy for Succeeded. It is the holder, in this order:

- a paused pod that carries them: nothing of it is changed, so the others wait.
- the Succeeded pod with the highest epoch, then the one that became Succeeded last. Among equals the current holder stays,
  then the name decides. Without an epoch, a pod never takes the role from a Succeeded one, if the probe has epochs.
- a pod that carries them, while its state is unknown and no policy for Unknown removes them.

Every other pod loses them. Only marks of our own field manager make a pod the current holder: it is also the holder after a
restart, and a label that somebody sets by hand takes no role.

Source: no counterpart. KubeBlocks compares versions of its role events, Patroni and CloudNativePG a lock outside of the labels.
Differs: nothing.
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from kruise_probe.api.extraction import FromMessage
from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.pods import Mark, Owned, Pod
from kruise_probe.api.v1alpha1 import ProbeState
from kruise_probe.controllers.claims import Claim
from kruise_probe.controllers.compiled import Wanted

MAX_GROUP: Final = 500
"""Maximum pods of a group. The role of a larger one stays where it is."""


class Standing(IntEnum):
    """How a pod stands for the role; the highest of a group holds it."""

    NEVER = 0
    KEEPS = 1
    SUCCEEDED = 2
    PAUSED = 3


class Member(NamedTuple):
    """A pod of a group.

    Attributes:
        carries: it carries marks of Succeeded.
        ours: it carries some that we wrote, so it is the current holder.
        order: of the events in which it became Succeeded; 0 if that was before this process saw it.
    """

    pod: NamespacedName
    standing: Standing
    carries: bool
    ours: bool
    epoch: int | None
    order: int


def holder_of(members: Mapping[str, Member], *, has_epochs: bool) -> str:
    """The uid of the pod that holds the role; empty without one. `members` are by uid."""
    found = ""
    best: tuple[object, ...] = ()
    for uid, member in members.items():
        if member.standing is Standing.NEVER:
            continue
        if len(members) > MAX_GROUP and not member.ours:
            continue
        rank = _rank(member, has_epochs)
        if not found or rank < best:
            found = uid
            best = rank
    return found


def _rank(member: Member, has_epochs: bool) -> tuple[object, ...]:
    """The lowest is the best."""
    stays = False
    epoch = member.epoch
    if epoch is None:
        epoch = -1
        stays = has_epochs and member.ours
    return (
        -member.standing,
        -epoch,
        not stays,
        -member.order,
        not member.ours,
        member.pod,
    )


def member_of(
    pod: Pod,
    claim: Claim,
    state: str,
    *,
    epoch: int | None = None,
    order: int = 0,
) -> Member:
    """How `pod` stands. `state` is that of the probe, Unknown also for reasons of the manager, or empty without a result."""
    marks = carried(pod, claim)
    of_others = pod.owned_by_others - pod.owned
    ours = not of_others.issuperset(marks)
    standing = _standing_of(pod, claim, state)
    if not ours and standing is not Standing.SUCCEEDED:
        standing = Standing.NEVER
    return Member(pod.key, standing, bool(marks), ours, epoch, order)


def _standing_of(
    pod: Pod,
    claim: Claim,
    state: str,
) -> Standing:
    """Whether a pod may have the role, by the state of its probe."""
    if pod.paused or claim.paused:
        return Standing.PAUSED
    if pod.deleting or pod.mirror or state == ProbeState.FAILED:
        return Standing.NEVER
    if state == ProbeState.SUCCEEDED and pod.active:
        return Standing.SUCCEEDED
    return Standing.KEEPS


def role_marks(claim: Claim) -> Wanted:
    """The labels and annotations that are set for Succeeded."""
    wanted = claim.wanted[ProbeState.SUCCEEDED]
    return {mark: value for mark, value in wanted.items() if value is not None}


def carried(pod: Pod, claim: Claim) -> list[Mark]:
    """The marks of Succeeded that `pod` carries, whoever wrote them. A value from a message may be any."""
    found = []
    for mark, value in role_marks(claim).items():
        current = pod.value_of(mark)
        if current is None:
            continue
        if current == value or isinstance(value, FromMessage):
            found.append(mark)
    return found


class Role(NamedTuple):
    """What an exclusive probe means for one pod.

    Attributes:
        holds: it is the holder; any other pod loses the marks of Succeeded.
        may_set: no other pod of the group carries them, so they may be written.
        waiting_message: why they may not, if that lasts: `WaitingForPod: …`; else empty.
        moves: the next write moves the role, which is a change of state.
        is_unsettled: an earlier write may still make another pod carry them; no event tells when that is over.
    """

    holds: bool
    may_set: bool = False
    waiting_message: str = ""
    moves: bool = False
    is_unsettled: bool = False

    @property
    def is_withheld(self) -> bool:
        """Whether another pod holds the role, or keeps its holder from the marks for long."""
        return not self.holds or bool(self.waiting_message)


Roles = Mapping[str, Role]
"""By the name of the probe, `<marker>#<probe>`; exclusive probes only."""
NO_ROLES: Final[Roles] = {}


def wanted_in(
    role: Role,
    claim: Claim,
    pod: Pod,
    state: str,
) -> Wanted:
    """The labels and annotations of `pod` in this state, which is empty without a result."""
    wanted = claim.wanted.get(state, {})
    if state == ProbeState.SUCCEEDED:
        if not role.holds:
            return claim.wanted[ProbeState.FAILED]
        if not role.may_set:
            return {mark: value for mark, value in wanted.items() if value is None}
    elif not role.holds:
        removed = dict.fromkeys(carried(pod, claim))
        return {**removed, **wanted}
    return wanted


def role_text(claim: Claim) -> str:
    """The first mark of the role, such as `role=primary`."""
    for mark, value in role_marks(claim).items():
        if isinstance(value, FromMessage):
            return mark.name
        return f"{mark.name}={value}"
    return ""


def marks_to_set(
    keys: Mapping[Mark, str | None],
    claims: Iterable[Claim],
    roles: Roles,
) -> Owned:
    """The marks of roles among the `keys` to write."""
    found: set[Mark] = set()
    for claim in claims:
        if roles[claim.name].may_set:
            found.update(role_marks(claim))
    written = [mark for mark, value in keys.items() if value is not None]
    return frozenset(found.intersection(written))


def moves_role(
    keys: Mapping[Mark, str | None],
    claims: Iterable[Claim],
    roles: Roles,
) -> bool:
    """Whether the `keys` to write take a role from its holder or give it to another one."""
    for claim in claims:
        if not roles[claim.name].moves:
            continue
        if not keys.keys().isdisjoint(role_marks(claim)):
            return True
    return False
