"""Which markers are considered for a pod, kept by label set while markers and pods come, change and go."""

from itertools import product
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from support.builders import marker, pod, probe_wire
from support.wire import Json

from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.pods import Pod
from kruise_probe.controllers.compiled import CompiledMarker, compile_marker
from kruise_probe.controllers.limits import first_markers, select
from kruise_probe.controllers.matching import Matching

KEYS = ("app", "tier", "zone")
VALUES = ("a", "b")

labels = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), max_size=3)
requirements = st.one_of(
    st.builds(
        lambda key, values, negated: {
            "key": key,
            "operator": "NotIn" if negated else "In",
            "values": sorted(values),
        },
        st.sampled_from(KEYS),
        st.sets(st.sampled_from(VALUES), min_size=1),
        st.booleans(),
    ),
    st.builds(
        lambda key, negated: {"key": key, "operator": "DoesNotExist" if negated else "Exists"},
        st.sampled_from(KEYS),
        st.booleans(),
    ),
)
selectors = st.lists(requirements, min_size=1, max_size=2).map(
    lambda each: {"matchExpressions": each}
)
names = st.sampled_from("abcd")
changes = st.one_of(
    st.tuples(st.just("pod"), names, labels),
    st.tuples(st.just("no pod"), names, st.none()),
    st.tuples(st.just("marker"), names, st.tuples(selectors, st.booleans(), st.booleans())),
    st.tuples(st.just("no marker"), names, st.none()),
)


def compiled(name: str, selector: Json, *, older: bool, deleting: bool) -> CompiledMarker:
    created = "2025-01-01T00:00:00Z" if older else "2026-01-01T00:00:00Z"
    return compile_marker(marker(name, selector=selector, created=created, deleting=deleting))


class Cluster:
    """Pods and markers, and the index of them; `changed` are the pods that the last change of a marker returned."""

    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}
        self.markers: dict[str, CompiledMarker] = {}
        self.matching = Matching(lambda _: [*self.pods.values()])
        self.changed: list[Pod] = []

    def apply(self, what: str, name: str, value: Any) -> None:
        self.changed = []
        if what == "pod":
            old = self.pods.get(name)
            self.pods[name] = pod(name, labels=value)
            self.matching.set_pod(old, self.pods[name])
        elif what == "no pod" and name in self.pods:
            self.matching.remove_pod(self.pods.pop(name))
        elif what == "marker":
            selector, older, deleting = value
            self.markers[name] = compiled(name, selector, older=older, deleting=deleting)
            self.changed = self.matching.set_marker(self.markers[name])
        elif what == "no marker" and name in self.markers:
            del self.markers[name]
            self.changed = self.matching.remove_marker(NamespacedName("default", name))

    def selecting(self, of: Pod, *, deleting: bool = False) -> tuple[CompiledMarker, ...]:
        """Computed from scratch."""
        found = [
            each
            for each in self.markers.values()
            if (deleting or not each.deleting) and each.selector.matches(of.labels)
        ]
        return tuple(sorted(found, key=lambda each: each.order))


@settings(max_examples=100)
@given(st.lists(changes, max_size=25))
def test_the_index_is_that_of_a_search_after_every_change(steps: list[Any]) -> None:
    cluster = Cluster()
    for what, name, value in steps:
        before = {each.name: cluster.selecting(each) for each in cluster.pods.values()}
        cluster.apply(what, name, value)
        for each in cluster.pods.values():
            now = cluster.selecting(each)
            assert cluster.matching.considered_of(each) == now
            assert cluster.matching.markers_of(each) == cluster.selecting(each, deleting=True)
            if "marker" in what:
                assert (each in cluster.changed) == (before.get(each.name) != now)
        for of in cluster.markers.values():
            found = {each.name for each in cluster.matching.pods_of(of)}
            expected = {
                each.name for each in cluster.pods.values() if of.selector.matches(each.labels)
            }
            assert found == expected
            for key, value in product(of.label_keys, ("", *VALUES)):
                group = {each.name for each in cluster.matching.group_of(of, key, value)}
                assert group == {
                    name for name in expected if cluster.pods[name].labels.get(key, "") == value
                }


@given(st.lists(st.integers(1, 32), min_size=1, max_size=120), st.randoms())
def test_what_is_selected_among_the_first_markers_is_selected_among_all(
    sizes: list[int], random: Random
) -> None:
    live: list[CompiledMarker] = []
    for number, size in enumerate(sizes):
        probes = [probe_wire(f"p{each}", condition=f"c/{number}-{each}") for each in range(size)]
        created = f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z"
        live.append(compile_marker(marker(f"m{number}", created=created, probes=probes)))
    shuffled = tuple(random.sample(live, len(live)))
    among_all, among_first = select(shuffled), select(first_markers(live))
    assert among_first.considered == among_all.considered
    assert among_first.reported == among_all.reported
