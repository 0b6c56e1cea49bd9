"""The index finds markers by pod and pods by marker after any events."""

from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from support.builders import Json, marker, pod

from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.pods import Pod
from kruise_probe.controllers.compiled import CompiledMarker, compile_marker
from kruise_probe.controllers.matching import Matching

SELECTORS: list[Json] = [
    {"matchLabels": {"app": "web"}},
    {"matchLabels": {"app": "web", "tier": "front"}},
    {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "db"]}]},
    {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]},
    {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
    {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]},
    {"matchLabels": {}},
]
LABELS: list[dict[str, str]] = [
    {},
    {"app": "web"},
    {"app": "db", "tier": "front"},
    {"app": "web", "tier": "front"},
    {"tier": "back"},
]
namespaces = st.sampled_from(["default", "prod"])
names = st.sampled_from(["a", "b"])


class MatchingMachine(RuleBasedStateMachine):
    """After any events, both directions equal a scan of all objects."""

    def __init__(self) -> None:
        super().__init__()
        self.pods: dict[NamespacedName, Pod] = {}
        self.markers: dict[NamespacedName, CompiledMarker] = {}
        self.matching = Matching(lambda: self.pods.values())

    @rule(name=names, namespace=namespaces, labels=st.sampled_from(LABELS))
    def put_pod(self, name: str, namespace: str, labels: dict[str, str]) -> None:
        new = pod(name, namespace=namespace, labels=labels)
        old = self.pods.get(new.key)
        self.pods[new.key] = new
        self.matching.set_pod(old, new)

    @rule(name=names, namespace=namespaces)
    def drop_pod(self, name: str, namespace: str) -> None:
        gone = self.pods.pop(NamespacedName(namespace, name), None)
        if gone is not None:
            self.matching.remove_pod(gone)

    @rule(
        name=names,
        namespace=namespaces,
        selector=st.sampled_from(SELECTORS),
        deleting=st.booleans(),
    )
    def put_marker(self, name: str, namespace: str, selector: Any, deleting: bool) -> None:
        new = compile_marker(
            marker(name, namespace=namespace, selector=selector, deleting=deleting)
        )
        self.markers[new.key] = new
        self.matching.set_marker(new)

    @rule(name=names, namespace=namespaces)
    def drop_marker(self, name: str, namespace: str) -> None:
        self.markers.pop(NamespacedName(namespace, name), None)
        self.matching.remove_marker(NamespacedName(namespace, name))

    @invariant()
    def agrees_with_looking_at_everything(self) -> None:
        for of in self.pods.values():
            expected = {
                each.key
                for each in self.markers.values()
                if each.key.namespace == of.namespace and each.selector.matches(of.labels)
            }
            assert {each.key for each in self.matching.markers_of(of)} == expected
        for each in self.markers.values():
            expected = {
                of.key
                for of in self.pods.values()
                if each.key.namespace == of.namespace and each.selector.matches(of.labels)
            }
            found = [of.key for of in self.matching.pods_of(each)]
            assert set(found) == expected
            assert len(found) == len(expected)
        assert set(self.matching.all_deleting) == {
            each.key for each in self.markers.values() if each.deleting
        }


TestMatching = MatchingMachine.TestCase
TestMatching.settings = settings(max_examples=40, stateful_step_count=25)


@pytest.mark.parametrize("number", range(len(SELECTORS)))
def test_a_pod_needs_every_label_of_a_selector(number: int) -> None:
    """Of LABELS: none, web, db and front, web and front, back. An empty selector selects nothing."""
    expected = [{1, 3}, {3}, {1, 2, 3}, {0, 2, 4}, {2, 3, 4}, {0, 1}, set()]
    pods = [pod(f"p-{each}", labels=labels) for each, labels in enumerate(LABELS)]
    matching = Matching(lambda: pods)
    selecting = compile_marker(marker(selector=SELECTORS[number]))
    matching.set_marker(selecting)
    selected = {f"p-{each}" for each in expected[number]}
    assert {each.name for each in pods if matching.markers_of(each)} == selected
    assert {each.name for each in matching.pods_of(selecting)} == selected


def test_labels_and_namespaces_without_markers_are_not_indexed() -> None:
    matching = Matching(list)
    key = NamespacedName("default", "edited")
    for number in range(20):
        selector = {"matchLabels": {f"key-{number}": "x"}}
        matching.set_marker(compile_marker(marker(key.name, selector=selector)))
    assert len(matching.indexed_labels) == 1
    matching.remove_marker(key)
    assert not matching.indexed_labels


def test_a_namespace_without_markers_uses_no_memory() -> None:
    matching = Matching(list)
    for selector in (SELECTORS[0], SELECTORS[-2]):
        matching.set_marker(compile_marker(marker(selector=selector, deleting=True)))
    matching.remove_marker(NamespacedName("default", "web"))
    assert not any((matching._by_anchor, matching._deleting, matching._without_anchor))


def test_values_that_no_pod_has_any_more_are_not_indexed() -> None:
    matching = Matching(list)
    selector = {"matchExpressions": [{"key": "hash", "operator": "In", "values": ["1", "2"]}]}
    matching.set_marker(compile_marker(marker(selector=selector)))
    first, second = pod("a", labels={"hash": "1"}), pod("b", labels={"hash": "1"})
    for each in (first, second):
        matching.set_pod(None, each)
    matching.remove_pod(first)
    assert {label: set(values) for label, values in matching.indexed_labels.items()} == {
        ("default", "hash"): {"1"}
    }
    matching.set_pod(second, pod("b", labels={"hash": "2"}))
    assert {label: set(values) for label, values in matching.indexed_labels.items()} == {
        ("default", "hash"): {"2"}
    }


def test_a_label_is_indexed_once_while_markers_select_by_it() -> None:
    scans: list[int] = []

    def all_pods() -> list[Pod]:
        scans.append(1)
        return [pod("a", labels={"app": "web"})]

    matching = Matching(all_pods)
    first, second = (compile_marker(marker(name, selector=SELECTORS[0])) for name in "ab")
    for each in (first, first, second):
        matching.set_marker(each)
    matching.remove_marker(first.key)
    assert [each.name for each in matching.pods_of(second)] == ["a"]
    assert len(scans) == 1


def test_a_removed_marker_still_finds_its_pods() -> None:
    """The handler of its deletion enqueues them, and their label is no longer indexed."""
    pods = [pod("a"), pod("b", labels={"app": "db"}), pod("c", namespace="prod")]
    removed = compile_marker(marker(selector=SELECTORS[0]))
    assert [each.name for each in Matching(lambda: pods).pods_of(removed)] == ["a"]


def test_markers_of_a_pod_are_in_order() -> None:
    matching = Matching(list)
    for name, created in (
        ("b", "2026-01-01T00:00:00Z"),
        ("a", "2026-01-01T00:00:00Z"),
        ("c", "2025-01-01T00:00:00Z"),
    ):
        matching.set_marker(compile_marker(marker(name, created=created)))
    assert [each.key.name for each in matching.markers_of(pod())] == ["c", "a", "b"]


def test_a_lookup_returns_the_newest_state_of_a_pod() -> None:
    matching = Matching(list)
    web = compile_marker(marker())
    matching.set_marker(web)
    matching.pods_of(web)
    old = pod()
    new = msgspec.structs.replace(old, ip="127.9.9.9")
    matching.set_pod(None, old)
    matching.set_pod(old, new)
    assert matching.pods_of(web) == [new]
