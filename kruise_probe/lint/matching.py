"""Which markers select which pod templates, certainly or possibly.

The cluster may have objects that are not in the files. A controller or a probe may set a label to any value, and
`kubectl -n` may set an absent namespace.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import NamedTuple

from kruise_probe.api.reserved import reserved_label_error
from kruise_probe.api.spelling import closest_name
from kruise_probe.inspection.selectors import unmet
from kruise_probe.lint.markers import WrittenMarker
from kruise_probe.lint.templates import PodTemplate


class Selection(NamedTuple):
    """The templates of one marker.

    Attributes:
        possible: those that it may select.
        certain: their positions in the list of all templates, if it certainly selects them.
    """

    possible: tuple[PodTemplate, ...]
    certain: frozenset[int]


class Selections:
    """The selections of all markers."""

    def __init__(self, markers: Sequence[WrittenMarker], templates: Sequence[PodTemplate]) -> None:
        self._templates = templates
        self._written = frozenset(key for each in markers for key in each.compiled.labels)
        self._selections = {id(each): self._selection(each) for each in markers}

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
        for number, template in enumerate(self._templates if selector.requirements else ()):
            missing = unmet(selector, template.pod.labels)
            if may_share_namespace(marker, template) and all(
                self._may_be_set_later(each.key, template) for each in missing
            ):
                possible.append(template)
                if not missing and marker.namespace == template.namespace:
                    certain.append(number)
        return Selection(tuple(possible), frozenset(certain))

    def _may_be_set_later(self, key: str, template: PodTemplate) -> bool:
        """Whether a controller or a probe may set this label on running pods."""
        if key in self._written or reserved_label_error(key) is not None:
            return True
        labels = template.pod.labels
        return not (template.is_exact or key in labels or closest_name(key, labels))


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
