"""The rules for `metadata` of all kinds.

Source: apimachinery pkg/api/validation/objectmeta.go; apiserver pkg/registry/rest/{create,update}.go.
Differs: messages contain no regular expression; finalizers need no domain; of owners only the presence of their
fields is checked.
"""

import re
import uuid
from collections.abc import Iterator, Mapping
from datetime import datetime
from random import Random
from typing import Any

from kruise_probe.api.labels import (
    annotation_bytes,
    annotation_key_error,
    label_key_error,
    label_value_error,
)
from kruise_probe.api.times import format_time
from kruise_probe_playground.apiserver import failures
from kruise_probe_playground.apiserver.failures import Cause
from kruise_probe_playground.apiserver.kinds import Kind
from kruise_probe_playground.apiserver.schema import Json, listed, put

MAX_ANNOTATIONS_BYTES = 256 << 10

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_IMMUTABLE = "field is immutable"


def stamp_new(metadata: Json, now: datetime, random: Random) -> None:
    """Set the metadata that the server sets on a new object. `random` makes the uid and a generated name."""
    prefix = metadata.get("generateName")
    if prefix and not metadata.get("name"):
        metadata["name"] = prefix[:58] + "".join(random.choices(_SUFFIX_LETTERS, k=5))
    for key in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
        metadata.pop(key, None)
    metadata["uid"] = str(uuid.UUID(int=random.getrandbits(128), version=4))
    metadata["creationTimestamp"] = format_time(now)


def carry_over(new: Json, old: Json) -> None:
    """Keep the metadata that no update changes, whether the client sent it or not."""
    if not new.get("uid"):
        new["uid"] = old["uid"]
    new["creationTimestamp"] = old["creationTimestamp"]
    if "deletionTimestamp" in old:
        new["deletionTimestamp"] = old["deletionTimestamp"]
        new.setdefault("deletionGracePeriodSeconds", old.get("deletionGracePeriodSeconds", 0))
    put(new, "generation", old.get("generation"))
    new.pop("selfLink", None)


def problems(metadata: Json, kind: Kind) -> Iterator[Cause]:
    name = metadata.get("name") or ""
    if not name:
        yield failures.required("metadata.name", "name or generateName is required")
    elif problem := name_error(name):
        yield failures.invalid_value("metadata.name", name, problem)
    if not kind.namespaced and metadata.get("namespace"):
        yield failures.forbidden_field("metadata.namespace", "not allowed on this type")
    yield from _label_problems(metadata.get("labels") or {})
    yield from _annotation_problems(metadata.get("annotations") or {})
    for owner in listed(metadata, "ownerReferences"):
        for key in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(key):
                path = f"metadata.ownerReferences.{key}"
                yield failures.invalid_value(path, "", "must not be empty")
    for finalizer in listed(metadata, "finalizers"):
        if problem := label_key_error(finalizer):
            yield failures.invalid_value("metadata.finalizers", finalizer, problem)


def name_error(name: str, *, label: bool = False) -> str | None:
    """Why this is not a valid object name, or None."""
    most = 63 if label else 253
    if len(name) > most:
        return f"must be no more than {most} bytes"
    if label and not re.fullmatch(_LABEL, name):
        return (
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and"
            " must start and end with an alphanumeric character"
        )
    if not _SUBDOMAIN.fullmatch(name):
        return (
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or"
            " '.', and must start and end with an alphanumeric character"
        )
    return None


def _label_problems(labels: Mapping[str, str]) -> Iterator[Cause]:
    for key, value in labels.items():
        for part, problem in ((key, label_key_error(key)), (value, label_value_error(value))):
            if problem:
                yield failures.invalid_value("metadata.labels", part, problem)


def _annotation_problems(annotations: Mapping[str, str]) -> Iterator[Cause]:
    for key in annotations:
        if problem := annotation_key_error(key):
            yield failures.invalid_value("metadata.annotations", key, problem)
    if annotation_bytes(annotations) > MAX_ANNOTATIONS_BYTES:
        yield failures.too_long("metadata.annotations", MAX_ANNOTATIONS_BYTES)


def update_problems(new: Json, old: Json) -> Iterator[Cause]:
    added = sorted(set(new.get("finalizers") or ()) - set(old.get("finalizers") or ()))
    if added and "deletionTimestamp" in old:
        names = ", ".join(f'"{finalizer}"' for finalizer in added)
        yield failures.forbidden_field(
            "metadata.finalizers",
            "no new finalizers can be added if the object is being deleted, found new finalizers"
            f" []string{{{names}}}",
        )
    for key in ("uid", "deletionTimestamp", "deletionGracePeriodSeconds"):
        value: Any = new.get(key)
        if value != old.get(key):
            yield failures.invalid_value(
                f"metadata.{key}",
                value,
                _IMMUTABLE,
            )
