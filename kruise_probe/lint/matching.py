"""Which markers select which pod templates, certainly or possibly.

The cluster may have objects that are not in the files. A controller or a probe may set a label to any value, and
`kubectl -n` may set an absent namespace.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import PurePath
from typing import Final, NamedTuple

from kruise_probe.api.labels import Selector
from kruise_probe.api.reserved import reserved_label_error
from kruise_probe.inspection.selectors import unmet
from kruise_probe.lint.markers import WrittenMarker
from kruise_probe.lint.templates import PodTemplate

MAX_COMPARISONS: Final = 1_000_000
"""Maximum comparisons of a selector and a template in one run: some seconds."""


class Selection(NamedTuple):
    """The templates of one marker.

    Attributes:
        possible: those that it may select.
        certain: their positions in the list of all templates, if it certainly selects them.
    """

    possible: tuple[PodTemplate, ...]
    certain: frozenset[int]


class Selections:
    """The selections of all markers, found through an index of labels.

    Attributes:
        complete: False if there were too many comparisons; selections are then missing.
    """

    def __init__(self, markers: Sequence[WrittenMarker], templates: Sequence[PodTemplate]) -> None:
        self._templates = templates
        self._written = frozenset(key for each in markers for key in each.compiled.labels)
        self._by_label: dict[tuple[str, str], list[int]] = {}
        for number, template in enumerate(templates):
            for label in template.pod.labels.items():
                self._by_label.setdefault(label, []).append(number)
        self._comparisons = 0
        self._selections = {id(each): self._selection(each) for each in markers}
        self.complete = self._comparisons < MAX_COMPARISONS

    def of(self, marker: WrittenMarker) -> Selection:
        return self._selections[id(marker)]

    def share_pods(self, first: WrittenMarker, second: WrittenMarker) -> bool:
        """Whether both select a common pod, because one selector includes the other or both select one template.

        Markers without a namespace that are in different folders may be of different clusters.
        """
        if not first.namespace and PurePath(first.file).parent != PurePath(second.file).parent:
            return False
        one, other = (set(each.compiled.selector.requirements) for each in (first, second))
        if not one or not other:
            return False
        if one <= other or other <= one:
            return True
        return not self.of(first).certain.isdisjoint(self.of(second).certain)

    def _selection(self, marker: WrittenMarker) -> Selection:
        selector, possible, certain = marker.compiled.selector, [], []
        for number in islice(self._candidates(selector), MAX_COMPARISONS - self._comparisons):
            self._comparisons += 1
            template = self._templates[number]
            missing = unmet(selector, template.pod.labels)
            if may_share_namespace(marker, template) and self._are_set_later(
                each.key for each in missing
            ):
                possible.append(template)
                if not missing and marker.namespace == template.namespace:
                    certain.append(number)
        return Selection(tuple(possible), frozenset(certain))

    def _candidates(self, selector: Selector) -> Iterable[int]:
        if not selector.requirements:
            return ()
        anchor = selector.anchor
        if anchor is None or self._are_set_later([anchor[0]]):
            return range(len(self._templates))
        key, values = anchor
        return [number for each in sorted(values) for number in self._by_label.get((key, each), ())]

    def _are_set_later(self, keys: Iterable[str]) -> bool:
        """Whether controllers or probes may set all these labels on running pods."""
        return all(key in self._written or reserved_label_error(key) is not None for key in keys)


def may_share_namespace(marker: WrittenMarker, template: PodTemplate) -> bool:
    return not (marker.namespace and template.namespace) or marker.namespace == template.namespace


def selecting(
    markers: Iterable[WrittenMarker], selections: Selections
) -> Mapping[int, Sequence[WrittenMarker]]:
    """By the id of a template, the markers that may select it."""
    found: dict[int, list[WrittenMarker]] = {}
    for marker in markers:
        for template in selections.of(marker).possible:
            found.setdefault(id(template), []).append(marker)
    return found
