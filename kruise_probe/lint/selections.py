"""Which pod templates a marker selects, and which markers select the same pods.

The cluster may have objects that are not in the files. A controller or a probe may set a label to any value, and `kubectl -n` may
set an absent namespace.
"""

from collections.abc import Sequence, Set
from pathlib import PurePath
from typing import NamedTuple

from kruise_probe.api.problems import closest_name
from kruise_probe.api.reserved import reserved_label_error
from kruise_probe.hints.selectors import unmet
from kruise_probe.lint.markers import WrittenMarker
from kruise_probe.lint.nodes import PodTemplate


class Selection(NamedTuple):
    """The templates that one marker may select, and those of them that it certainly selects."""

    marker: WrittenMarker
    possible: list[PodTemplate]
    certain: set[PodTemplate]


def select(
    marker: WrittenMarker,
    templates: Sequence[PodTemplate],
    written: Set[str],
) -> Selection:
    """The selection of a marker; `written` are the labels that probes write."""
    selection = Selection(marker, [], set())
    selector = marker.compiled.selector
    if not selector.requirements:
        return selection
    for template in templates:
        if not may_share_namespace(marker, template):
            continue
        missing = [requirement.key for requirement in unmet(selector, template.pod.labels)]
        if all(key in written or _may_be_set_later(key, template) for key in missing):
            selection.possible.append(template)
            if not missing and marker.key.namespace == template.namespace:
                selection.certain.add(template)
    return selection


def _may_be_set_later(key: str, template: PodTemplate) -> bool:
    """Whether a controller may set this label on running pods."""
    if reserved_label_error(key) is not None:
        return True
    labels = template.pod.labels
    return not (template.is_exact or key in labels or closest_name(key, labels))


def may_share_namespace(marker: WrittenMarker, template: PodTemplate) -> bool:
    if not marker.key.namespace or not template.namespace:
        return True
    return marker.key.namespace == template.namespace


def share_pods(first: Selection, second: Selection) -> bool:
    """Whether different markers select a common pod, because one selector includes the other or both select one template.

    Markers without a namespace that are in different folders may be of different clusters.
    """
    one = first.marker
    other = second.marker
    if one.key.name == other.key.name:
        return False
    if not one.key.namespace and PurePath(one.file).parent != PurePath(other.file).parent:
        return False
    mine = set(one.compiled.selector.requirements)
    yours = set(other.compiled.selector.requirements)
    if not mine or not yours:
        return False
    return mine <= yours or yours <= mine or not first.certain.isdisjoint(second.certain)
