"""The labels and annotations that a probe writes in one state, with the values from the message of its result. Pure.

Source: no counterpart. Kruise writes static values only.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from kruise_probe.api.extraction import FromMessage, annotation_value, label_value
from kruise_probe.api.messages import normalise_message, searched_part
from kruise_probe.api.pods import Pod
from kruise_probe.api.v1alpha1 import ContainerProbeState, ProbeState
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.controllers.pods.claims import (
    Claims,
    WantedItems,
    WantedMarks,
    claims_with_container,
)


class InvalidValue(NamedTuple):
    """A key for which the message of `probe` has no valid value.

    Attributes:
        kind: "label" or "annotation".
        searched: what part of the output the message is; empty for a whole one.
    """

    probe: str
    kind: str
    key: str
    searched: str = ""


class Values(NamedTuple):
    """What a pod should have; None for keys that must be absent.

    `invalid_labels` and `invalid_annotations` are the keys for which the message has no valid value.
    """

    labels: Mapping[str, str | None]
    annotations: Mapping[str, str | None]
    invalid_labels: tuple[str, ...]
    invalid_annotations: tuple[str, ...]


def values_of(wanted: WantedMarks, result: ContainerProbeState | None) -> Values:
    """The values of `wanted` for this result; None has no message."""
    labels, invalid_labels = _resolve(wanted.labels, result, _label_value)
    annotations, invalid_annotations = _resolve(wanted.annotations, result, annotation_value)
    return Values(labels, annotations, invalid_labels, invalid_annotations)


def invalid_values(
    compiled: CompiledMarker, pod: Pod, claims: Claims, states: Mapping[str, ContainerProbeState]
) -> list[InvalidValue]:
    """The keys of a marker for which the current messages of `pod` have no valid value."""
    names = {each.name: each.probe for each in compiled.probes}
    found: list[InvalidValue] = []
    for claim in claims_with_container(pod, claims).claims:
        state = states.get(claim.name)
        wanted = claim.wanted.get(state.state) if state is not None else None
        if claim.name not in names or state is None or wanted is None:
            continue
        probe, values = names[claim.name], values_of(wanted, state)
        searched = searched_part(state.message or "", failed=state.state == ProbeState.FAILED)
        found += [
            InvalidValue(probe, kind, key, searched)
            for kind, keys in (
                ("label", values.invalid_labels),
                ("annotation", values.invalid_annotations),
            )
            for key in keys
        ]
    return found


def _label_value(source: FromMessage, _: str, message: str) -> str | None:
    return label_value(source, message)


def _resolve(
    items: WantedItems,
    result: ContainerProbeState | None,
    value_of: Callable[[FromMessage, str, str], str | None],
) -> tuple[dict[str, str | None], tuple[str, ...]]:
    """Return the values, and the keys for which the message has no valid one."""
    values: dict[str, str | None] = {}
    invalid: list[str] = []
    for key, wanted in items:
        if isinstance(wanted, FromMessage):
            # Providers and Kruise's daemon do not normalise their messages.
            message = normalise_message(result.message or "") if result else ""
            values[key] = value_of(wanted, key, message)
            if values[key] is None:
                values[key] = wanted.static
                invalid.append(key)
        else:
            values[key] = wanted
    return values, tuple(invalid)
