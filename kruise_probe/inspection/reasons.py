"""The table of reasons, `reasons.yaml`: what each means, and what to do. `docs/reasons.md` is generated from it."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Final

import msgspec

PLACEHOLDERS: Final = {
    "pod": "POD -n NAMESPACE",
    "marker": "MARKER -n NAMESPACE",
    "object": "KIND NAME -n NAMESPACE",
    "namespace": "NAMESPACE",
    "container": "CONTAINER",
    "gate": "PodProbeMarkerGate",
}
"""The words in braces that a remedy may have, and their texts if the names are not known."""


class ReasonEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`meaning` and `remedy` are Markdown. There is no remedy if there is nothing to do."""

    meaning: str
    remedy: str = ""


class ReasonSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of the page; `text` is its introduction."""

    title: str
    reasons: dict[str, ReasonEntry]
    text: str = ""


@cache
def reason_sections() -> tuple[ReasonSection, ...]:
    """The table. It is read when a link first needs a remedy, because a cluster without problems needs none."""
    table = files(__package__).joinpath("reasons.yaml").read_bytes()
    return msgspec.yaml.decode(table, type=tuple[ReasonSection, ...])


@cache
def reason_table() -> Mapping[str, ReasonEntry]:
    return {name: each for part in reason_sections() for name, each in part.reasons.items()}


def remedy_of(reason: str, **names: str) -> str:
    """What to do about a broken or waiting link, with commands to paste at its end; `names` replace PLACEHOLDERS."""
    found = reason_table().get(reason)
    return found.remedy.replace("`", "").format_map({**PLACEHOLDERS, **names}) if found else ""
