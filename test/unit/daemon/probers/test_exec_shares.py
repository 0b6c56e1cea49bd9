"""How the exec places of a node are shared."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from kruise_probe.daemon.probers.exec_shares import (
    Account,
    ExecShares,
    HeldBy,
    Limit,
    PlaceRequest,
    SharedPlaces,
    Tenant,
)

LONG_SECONDS = 10.0

SHORT = 1.0
LONG = 3600.0


class Node:
    """The places of a node; `ask` queues one command, `serve` gives away all places that may be given."""

    def __init__(self, places: int = 16) -> None:
        self.shares: ExecShares[PlaceRequest] = ExecShares(places)
        self.now = 0.0
        self.running: list[PlaceRequest] = []

    def ask(
        self, namespace: str, pod: str = "pod", *, timeout: float = SHORT, period: float = 1.0
    ) -> PlaceRequest:
        request = PlaceRequest(Tenant(namespace, f"{namespace}/{pod}"), timeout)
        self.shares.add(request, now=self.now, period_seconds=period)
        return request

    def serve(self) -> list[PlaceRequest]:
        started: list[PlaceRequest] = []
        while (request := self.shares.take()) is not None:
            started.append(request)
        self.running += started
        return started

    def end(self, request: PlaceRequest) -> None:
        self.running.remove(request)
        self.shares.remove(request)
        assert not request.has_place

    def held(self) -> Counter[str]:
        return Counter(each.tenant.namespace for each in self.running)

    def held_by_pods(self) -> Counter[str]:
        return Counter(each.tenant.pod_uid for each in self.running)


def flood(node: Node, *namespaces: str, pods: int = 1, timeout: float = SHORT) -> None:
    """Each namespace has more commands than the node has places."""
    for number in range(40):
        for namespace in namespaces:
            node.ask(namespace, f"pod-{number % pods}", timeout=timeout)


class Group:
    """Tenants that share places."""

    def __init__(self, places: int, members: int) -> None:
        self.places = places
        self.members = [Account() for _ in range(members)]

    @property
    def free(self) -> int:
        return self.places - sum(each.held for each in self.members)

    def allows(self, member: int) -> bool:
        shared = SharedPlaces(self.places, self.places - self.free, self.members)
        return shared.allows(self.members[member].held)

    def take(self, member: int) -> None:
        self.members[member].held += self.allows(member)


@given(st.integers(1, 64), st.lists(st.integers(0, 11), max_size=200))
def test_members_never_hold_more_than_all_places(places: int, order: list[int]) -> None:
    group = Group(places, 12)
    for member in order:
        group.take(member)
        assert group.free >= 0


@given(members=st.integers(2, 30), data=st.data())
def test_hostile_members_in_any_order_leave_places_to_the_others(
    members: int, data: st.DataObject
) -> None:
    """The last member is a victim; of the others up to six take whatever they get, in any order."""
    group = Group(16, members)
    hostile = data.draw(st.integers(1, min(6, members - 1)))
    for member in data.draw(st.lists(st.integers(0, hostile - 1), min_size=40, max_size=120)):
        group.take(member)

    assert group.free >= (4 if hostile <= 3 else 2)
    assert group.allows(members - 1)


@pytest.mark.parametrize(
    ("hostile", "left"),
    [
        pytest.param(0, 16, id="alone-it-has-all"),
        pytest.param(1, 8, id="one"),
        pytest.param(2, 5, id="two"),
        pytest.param(3, 4, id="three"),
        pytest.param(6, 2, id="six"),
        pytest.param(12, 1, id="twelve"),
    ],
)
def test_hostile_namespaces_leave_a_share(hostile: int, left: int) -> None:
    node = Node()
    node.ask("victim", period=30)
    assert node.serve()
    node.end(node.running[0])
    names = [f"hostile-{number}" for number in range(hostile)]
    for name in names:
        node.ask(name)
    for name in names:
        flood(node, name, timeout=LONG)
        flood(node, name)
        node.serve()

    flood(node, "victim", pods=40)
    node.serve()

    assert node.held()["victim"] >= left


@pytest.mark.parametrize("places", [1, 2, 3, 4, 5, 8, 16, 64])
def test_long_commands_leave_places_for_others_however_many_namespaces_run_them(
    places: int,
) -> None:
    node = Node(places)
    for number in range(200):
        flood(node, f"hostile-{number}", timeout=LONG, pods=4)
        node.serve()
    held = sum(node.held().values())
    assert held == max(1, places - max(1, places // 4))

    node.ask("victim")
    assert len(node.serve()) == (1 if places > 1 else 0)


def test_long_commands_of_one_pod_and_of_its_namespace_have_limits_of_their_own() -> None:
    node = Node()
    flood(node, "alone", timeout=LONG)
    node.serve()
    assert node.held() == {"alone": 2}

    for number in range(8):
        node.ask("alone", f"other-{number}", timeout=LONG)
    node.serve()
    assert node.held() == {"alone": 4}

    node.ask("alone")
    assert node.serve(), "a short command does not wait for them"


@pytest.mark.parametrize("timeout", [SHORT, 5.0, LONG_SECONDS])
def test_a_single_namespace_has_all_places(timeout: float) -> None:
    node = Node()
    flood(node, "alone", pods=40, timeout=timeout)
    assert len(node.serve()) == 16


def test_a_single_pod_has_all_places() -> None:
    node = Node()
    flood(node, "alone")
    assert len(node.serve()) == 16


def test_a_pod_leaves_places_for_the_other_pods_of_its_namespace() -> None:
    node = Node()
    for number in range(30):
        node.ask("games", f"good-{number}")
    while started := node.serve():
        for request in started:
            node.end(request)
    flood(node, "games")
    node.serve()
    assert node.held_by_pods()["games/pod-0"] <= 4
    for number in range(30):
        node.ask("games", f"good-{number}")
    started = node.serve()
    assert len({each.tenant.pod_uid for each in started}) == 12


def test_many_pods_of_one_namespace_have_its_share_together() -> None:
    node = Node()
    node.ask("victim")
    node.serve()
    flood(node, "hostile", pods=40)
    node.serve()
    assert node.held()["hostile"] == 8


def test_many_namespaces_use_places_that_others_leave() -> None:
    node = Node()
    for number in range(9):
        node.ask(f"quiet-{number}")
    for request in node.serve():
        node.end(request)
    flood(node, "busy", pods=40)
    node.serve()
    assert node.held() == {"busy": 7}, "nine stay free for the nine others"


def test_less_than_a_quarter_is_given_away_however_many_others_there_are() -> None:
    node = Node()
    for number in range(30):
        node.ask(f"quiet-{number}")
    while started := node.serve():
        for request in started:
            node.end(request)
    flood(node, "busy", pods=40)
    node.serve()
    assert node.held() == {"busy": 4}


def test_above_the_share_of_its_namespace_a_pod_leaves_the_part_of_another_pod() -> None:
    node = Node()
    for number in range(9):
        node.ask(f"quiet-{number}")
    node.ask("busy", "other")
    while started := node.serve():
        for request in started:
            node.end(request)
    flood(node, "busy")
    node.serve()
    assert node.held() == {"busy": 1}


def test_tenants_with_the_fewest_places_are_served_first() -> None:
    node = Node(4)
    flood(node, "a", pods=8)
    node.serve()
    waiting = node.ask("b"), node.ask("b"), node.ask("c")
    for request in node.running[:2]:
        node.end(request)

    assert node.serve() == [waiting[0], waiting[2]]


def test_requests_of_one_pod_are_served_in_order_of_arrival() -> None:
    node = Node(1)
    requests = [node.ask("a", timeout=timeout) for timeout in (SHORT, LONG, SHORT, LONG)]
    order: list[PlaceRequest] = []
    for _ in requests:
        order += node.serve()
        node.end(order[-1])

    assert order == requests


def test_of_pods_with_equal_places_the_one_that_waits_longer_is_served_first() -> None:
    node = Node(4)
    running = [node.ask("a", pod) for pod in ("p", "q", "p", "q")]
    assert node.serve() == running
    first, second = node.ask("a", "p"), node.ask("a", "q")
    node.end(running[0])
    node.end(running[1])
    assert node.serve() == [first, second]


def test_namespaces_and_their_pods_take_turns() -> None:
    node = Node(1)
    for namespace, pod in (("a", "p"), ("a", "p"), ("a", "q"), ("a", "q"), ("b", "p"), ("b", "p")):
        node.ask(namespace, pod)
    served: list[str] = []
    while started := node.serve():
        served += [each.tenant.pod_uid for each in started]
        node.end(started[0])

    assert served == ["a/p", "b/p", "a/q", "b/p", "a/p", "a/q"]


def test_a_short_request_passes_long_ones_that_may_not_run() -> None:
    node = Node()
    flood(node, "a", timeout=LONG)
    node.serve()
    request = node.ask("a")
    assert node.serve() == [request]


def test_a_request_that_becomes_long_is_limited_as_a_long_one() -> None:
    node = Node()
    requests = [node.ask("a") for _ in range(8)]
    for request in requests:
        node.shares.lengthen(request, LONG)
    assert len(node.serve()) == 2


@pytest.mark.parametrize(
    ("period", "seconds"),
    [
        pytest.param(1.0, 60.0, id="at-least-a-minute"),
        pytest.param(100.0, 200.0, id="two-periods"),
        pytest.param(1e9, 600.0, id="at-most-ten-minutes"),
    ],
)
def test_a_tenant_keeps_its_share_for_two_periods(period: float, seconds: float) -> None:
    node = Node()
    node.ask("other", period=period)
    node.end(node.serve()[0])
    # Tenants are looked through once a second at most.
    for now, held in ((seconds, 8), (seconds + 0.5, 8), (seconds + 1.0, 16)):
        node.now = now
        flood(node, "busy", pods=40)
        node.serve()
        assert node.held() == {"busy": held}


def test_tenants_that_have_gone_are_forgotten() -> None:
    node = Node()
    for number in range(100):
        node.now += 100
        node.ask(f"namespace-{number}")
        node.end(node.serve()[0])
    flood(node, "namespace-99", pods=40)
    assert len(node.serve()) == 16


@pytest.mark.parametrize(
    ("others", "own", "limit"),
    [
        pytest.param(0, [("pod", LONG)] * 3, Limit(HeldBy.POD, 2, True), id="long-of-the-pod"),
        pytest.param(
            0,
            [(f"pod-{number}", LONG) for number in range(5)],
            Limit(HeldBy.NAMESPACE, 4, True),
            id="long-of-the-namespace",
        ),
        pytest.param(
            30, [("pod", LONG)], Limit(HeldBy.NODE, 12, True), id="long-of-other-namespaces"
        ),
        pytest.param(0, [("pod", SHORT)] * 17, Limit(HeldBy.POD, 16, False), id="of-the-pod"),
        pytest.param(
            0,
            [(f"pod-{number}", SHORT) for number in range(17)],
            Limit(HeldBy.NAMESPACE, 16, False),
            id="of-the-namespace",
        ),
    ],
)
def test_a_limit_says_whose_commands_hold_the_places(
    others: int, own: list[tuple[str, float]], limit: Limit
) -> None:
    node = Node()
    for number in range(others):
        node.ask(f"other-{number}", timeout=LONG)
    node.serve()
    requests = [node.ask("own", pod, timeout=timeout) for pod, timeout in own]
    node.serve()

    assert node.shares.limit_of(requests[-1]) == limit


class Places(RuleBasedStateMachine):
    """Any history of requests, ends and departures."""

    waiting = Bundle("waiting")

    def __init__(self) -> None:
        super().__init__()
        self.node = Node(7)
        self.requests: set[PlaceRequest] = set()

    @rule(
        target=waiting,
        namespace=st.sampled_from("abcdef"),
        pod=st.sampled_from("xyz"),
        timeout=st.sampled_from([SHORT, 5.0, LONG]),
        seconds=st.sampled_from([0.0, 0.0, 1.0, 100.0]),
    )
    def ask(self, namespace: str, pod: str, timeout: float, seconds: float) -> PlaceRequest:
        self.node.now += seconds
        request = self.node.ask(namespace, pod, timeout=timeout)
        self.requests.add(request)
        self._serve()
        return request

    @rule(request=consumes(waiting))
    def end(self, request: PlaceRequest) -> None:
        self.requests.remove(request)
        if request.has_place:
            self.node.running.remove(request)
        self.node.shares.remove(request)
        self._serve()

    def _serve(self) -> None:
        before = self.node.held()
        for request in self.node.serve():
            namespace = request.tenant.namespace
            ahead = {
                each.tenant.namespace
                for each in self.requests
                if not each.has_place and not each.long and before[each.tenant.namespace] == 0
            }
            assert before[namespace] == 0 or not ahead, "one without a place waits"
            before[namespace] += 1

    @invariant()
    def places_are_never_exceeded(self) -> None:
        held = [each for each in self.requests if each.has_place]
        assert len(held) == self.node.shares.held <= 7
        assert sum(each.long for each in held) <= 6

    @invariant()
    def a_free_place_waits_only_for_tenants_below_their_share(self) -> None:
        waiting = [each for each in self.requests if not each.has_place and not each.long]
        if waiting and self.node.shares.held < 7:
            held = self.node.held()
            assert all(held[each.tenant.namespace] for each in waiting)

    def teardown(self) -> None:
        """No request starves: once others end, each has its turn."""
        for _ in range(len(self.requests)):
            for request in [each for each in self.requests if each.has_place]:
                self.node.end(request)
                self.requests.remove(request)
            self.node.serve()
        assert not self.requests


test_any_history_keeps_the_rules: Any = Places.TestCase
