"""Which markers select which pod templates, certainly or possibly.

The cluster may have objects that are not in the files. A controller or a probe may set a label to any value, and
`kubectl -n` may set an absent namespace.
"""

from collections.abc import Sequence
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
        certain: the positions in the list of all templates of those that it certainly selects.
    """

    marker: WrittenMarker
    possible: tuple[PodTemplate, ...]
    certain: frozenset[int]


def select(markers: Sequence[WrittenMarker], templates: Sequence[PodTemplate]) -> list[Selection]:
    """The selection of each marker."""
    written = frozenset(key for marker in markers for key in marker.compiled.labels)
    selections = []
    for marker in markers:
        selector, possible, certain = marker.compiled.selector, [], set[int]()
        for number, template in enumerate(templates if selector.requirements else ()):
            if not may_share_namespace(marker, template):
                continue
            missing = [each.key for each in unmet(selector, template.pod.labels)]
            if all(key in written or _may_be_set_later(key, template) for key in missing):
                possible.append(template)
                if not missing and marker.namespace == template.namespace:
                    certain.add(number)
        selections.append(Selection(marker, tuple(possible), frozenset(certain)))
    return selections


def _may_be_set_later(key: str, template: PodTemplate) -> bool:
    """Whether a controller may set this label on running pods."""
    if reserved_label_error(key) is not None:
        return True
    labels = template.pod.labels
    return not (template.is_exact or key in labels or closest_name(key, labels))


def may_share_namespace(marker: WrittenMarker, template: PodTemplate) -> bool:
    return not (marker.namespace and template.namespace) or marker.namespace == template.namespace


def share_pods(first: Selection, second: Selection) -> bool:
    """Whether both select a common pod, because one selector includes the other or both select one template.

    Markers without a namespace that are in different folders may be of different clusters.
    """
    one, other = first.marker, second.marker
    if not one.namespace and PurePath(one.file).parent != PurePath(other.file).parent:
        return False
    mine, yours = (set(each.compiled.selector.requirements) for each in (one, other))
    if not mine or not yours:
        return False
    return mine <= yours or yours <= mine or not first.certain.isdisjoint(second.certain)
