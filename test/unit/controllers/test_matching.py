"""Which markers are considered for a pod, kept by label set while markers and pods come, change and go."""

from collections.abc import Iterable
from itertools import product
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from support.builders import CREATED, marker, pod
from unit.controllers.common import compiled, numbered_probes, stamp

from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.pods import Pod
from kruise_probe.controllers.compiled import CompiledMarker, compile_marker
from kruise_probe.controllers.limits import first_markers, select
from kruise_probe.controllers.matching import Matching

VALUES = ("a", "b")

keys = st.sampled_from(["app", "tier", "zone"])
values = st.sampled_from(VALUES)
labels = st.dictionaries(keys, values, max_size=3)
of_values = st.fixed_dictionaries(
    {
        "key": keys,
        "operator": st.sampled_from(["In", "NotIn"]),
        "values": st.lists(values, min_size=1, unique=True),
    }
)
of_presence = st.fixed_dictionaries(
    {
        "key": keys,
        "operator": st.sampled_from(["Exists", "DoesNotExist"]),
    }
)
requirements = st.lists(of_values | of_presence, min_size=1, max_size=2)
markers = st.fixed_dictionaries(
    {
        "selector": st.fixed_dictionaries({"matchExpressions": requirements}),
        "created": st.sampled_from(["2025-01-01T00:00:00Z", CREATED]),
        "deleting": st.booleans(),
    }
)
names = st.sampled_from("abcd")
changes = st.one_of(
    st.tuples(st.just("pod"), names, labels),
    st.tuples(
        st.just("no pod"),
        names,
        st.none(),
    ),
    st.tuples(st.just("marker"), names, markers),
    st.tuples(
        st.just("no marker"),
        names,
        st.none(),
    ),
)


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
            self.markers[name] = compile_marker(marker(name, **value))
            self.changed = self.matching.set_marker(self.markers[name])
        elif what == "no marker" and name in self.markers:
            del self.markers[name]
            self.changed = self.matching.remove_marker(NamespacedName("default", name))

    def selecting(self, of: Pod, *, deleting: bool = False) -> tuple[CompiledMarker, ...]:
        """Computed from scratch."""
        found = [marker for marker in self.markers.values() if marker.selector.matches(of.labels)]
        if not deleting:
            found = [marker for marker in found if not marker.deleting]
        return tuple(sorted(found, key=lambda marker: marker.order))


def names_of(pods: Iterable[Pod]) -> set[str]:
    return {pod.name for pod in pods}


@settings(max_examples=100)
@given(st.lists(changes, max_size=25))
def test_the_index_is_that_of_a_search_after_every_change(steps: list[Any]) -> None:
    cluster = Cluster()
    matching = cluster.matching
    for what, name, value in steps:
        before = {target.name: cluster.selecting(target) for target in cluster.pods.values()}
        cluster.apply(what, name, value)
        pods = cluster.pods.values()
        for target in pods:
            now = cluster.selecting(target)
            assert matching.considered_of(target) == now
            assert matching.markers_of(target) == cluster.selecting(target, deleting=True)
            if "marker" in what:
                assert (target in cluster.changed) == (before.get(target.name) != now)
        for compiled_marker in cluster.markers.values():
            selected = [pod for pod in pods if compiled_marker.selector.matches(pod.labels)]
            assert names_of(matching.pods_of(compiled_marker)) == names_of(selected)
            for key, label in product(compiled_marker.label_keys, ("", *VALUES)):
                group = [pod for pod in selected if pod.labels.get(key, "") == label]
                assert names_of(matching.group_of(compiled_marker, key, label)) == names_of(group)


@given(st.lists(st.integers(1, 32), min_size=1, max_size=120), st.randoms())
def test_what_is_selected_among_the_first_markers_is_selected_among_all(
    sizes: list[int],
    random: Random,
) -> None:
    live: list[CompiledMarker] = []
    for number, size in enumerate(sizes):
        probes = numbered_probes(size, f"c/{number}-")
        live.append(
            compiled(
                *probes,
                name=f"m{number}",
                created=stamp(number),
            )
        )
    among_all = select(
        tuple(
            random.sample(
                live,
                len(live),
            )
        )
    )
    among_first = select(first_markers(live))
    assert among_first.considered == among_all.considered
    assert among_first.reported == among_all.reported
