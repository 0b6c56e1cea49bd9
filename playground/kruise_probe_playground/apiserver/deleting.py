"""Deletes objects: at once, after a grace period, or when their finalizers are removed.

Source: apiserver pkg/registry/rest/delete.go (BeforeDelete), pkg/registry/generic/registry/store.go (Delete),
pkg/admission/plugin/namespace/lifecycle (namespaces that cannot be deleted).
Differs: dependents are deleted in the background only.
"""

from datetime import datetime, timedelta
from typing import NamedTuple

from kruise_probe.api.times import format_time, parse_time
from kruise_probe_playground.apiserver.failures import conflict, forbidden
from kruise_probe_playground.apiserver.kinds import Kind
from kruise_probe_playground.apiserver.registry import Registry
from kruise_probe_playground.apiserver.schema import Json
from kruise_probe_playground.apiserver.store import Stored

_IMMORTAL_NAMESPACES = frozenset({"default", "kube-system", "kube-public"})


class DeleteOptions(NamedTuple):
    """metav1.DeleteOptions, without the propagation policy: dependents are deleted in the background."""

    grace_seconds: int | None = None
    uid: str = ""
    resource_version: str = ""
    dry_run: bool = False


class Deleted(NamedTuple):
    """`gone` is False while a grace period or a finalizer delays the deletion."""

    stored: Stored
    gone: bool


class Remover:
    """Deletes objects of all kinds of one registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def delete(self, kind: Kind, stored: Stored, options: DeleteOptions) -> Deleted:
        """Delete the object, or set its deletionTimestamp."""
        _check_preconditions(kind, stored, options)
        if kind.resource == "namespaces" and stored.key.name in _IMMORTAL_NAMESPACES:
            raise forbidden(kind.target(stored.key.name), "this namespace may not be deleted")
        new = kind.decode(stored)
        now = self._registry.now()
        if kind.rules.terminate(new):
            if "deletionTimestamp" not in new["metadata"]:
                new["metadata"]["deletionTimestamp"] = format_time(now)
                stored = self._registry.commit(kind, new, stored, dry_run=options.dry_run)
            return Deleted(stored, gone=False)
        changed, pending = _grace(kind, new, options, now)
        if not pending and new["metadata"].get("finalizers"):
            changed = _mark(new["metadata"], now) or changed
            pending = True
        if changed:
            stored = self._registry.commit(kind, new, stored, dry_run=options.dry_run)
        if not pending:
            stored = self._registry.remove(kind, new, stored, dry_run=options.dry_run)
        return Deleted(stored, gone=not pending)


def _check_preconditions(kind: Kind, stored: Stored, options: DeleteOptions) -> None:
    version = str(stored.revision)
    for name, wanted, found, guess in (
        ("UID", options.uid, stored.uid, "deleted and then recreated"),
        ("ResourceVersion", options.resource_version, version, "modified"),
    ):
        if wanted and wanted != found:
            raise conflict(
                kind.target(stored.key.name)._replace(resource=kind.kind),
                f"the {name} in the precondition ({wanted}) does not match the {name} in record"
                f" ({found}). The object might have been {guess}",
            )


def _grace(kind: Kind, new: Json, options: DeleteOptions, now: datetime) -> tuple[bool, bool]:
    """Return whether the object was changed, and whether its deletion has to wait for the kubelet."""
    metadata = new["metadata"]
    requested = options.grace_seconds
    if requested is not None and requested < 0:
        requested = 1
    if "deletionTimestamp" in metadata:
        return _shorten(metadata, requested, now)
    seconds = kind.rules.grace_seconds(new, requested)
    if seconds is None:
        return False, False
    metadata["deletionTimestamp"] = format_time(now + timedelta(seconds=seconds))
    metadata["deletionGracePeriodSeconds"] = seconds
    if metadata.get("generation"):
        metadata["generation"] += 1
    return True, seconds > 0


def _shorten(metadata: Json, requested: int | None, now: datetime) -> tuple[bool, bool]:
    current = metadata.get("deletionGracePeriodSeconds") or 0
    if not current:
        return False, False
    if requested is None or requested >= current:
        return False, True
    at = parse_time(metadata["deletionTimestamp"]) or now
    moved = max(at + timedelta(seconds=requested - current), now)
    if moved == now and requested:
        requested = 1
    metadata["deletionTimestamp"] = format_time(moved)
    metadata["deletionGracePeriodSeconds"] = requested
    return True, requested > 0


def _mark(metadata: Json, now: datetime) -> bool:
    """Set the deletionTimestamp of an object that still has finalizers; return whether that changed it."""
    if metadata.get("deletionTimestamp") and metadata.get("deletionGracePeriodSeconds") == 0:
        return False
    if "deletionTimestamp" not in metadata and metadata.get("generation"):
        metadata["generation"] += 1
    metadata.setdefault("deletionTimestamp", format_time(now))
    metadata["deletionGracePeriodSeconds"] = 0
    return True
