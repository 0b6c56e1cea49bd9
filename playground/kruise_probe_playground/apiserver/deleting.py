"""Deletes objects: at once, after a grace period, or when their finalizers are removed; and then their dependents.

The garbage collector deletes the dependents of deleted owners, the contents of terminating namespaces, and old events.

Source: apiserver pkg/registry/rest/delete.go (BeforeDelete), pkg/registry/generic/registry/store.go (Delete),
pkg/endpoints/handlers/delete.go, pkg/admission/plugin/namespace/lifecycle (namespaces that cannot be deleted);
apimachinery pkg/apis/meta/v1/validation (ValidateDeleteOptions); kubernetes pkg/controller/{garbagecollector,namespace}.
Differs: dependents are deleted in the background only; no preconditions in the query; a later deletion can end a grace
period, but not shorten it. A sweep after each deletion instead of a graph: owners are looked up by uid, references to one
of several owners stay, and events have a maximal number instead of a time to live.
"""

import asyncio
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final, Literal, NamedTuple

import msgspec

from kruise_probe.api.times import format_time
from kruise_probe_playground.apiserver import failures
from kruise_probe_playground.apiserver.kinds import Kind
from kruise_probe_playground.apiserver.registry import Registry
from kruise_probe_playground.apiserver.requests import check_no_dry_run, read_json, unrecognized
from kruise_probe_playground.apiserver.schema import Json
from kruise_probe_playground.apiserver.store import Stored

_IMMORTAL_NAMESPACES = frozenset({"default", "kube-system", "kube-public"})


class Preconditions(msgspec.Struct, frozen=True, rename="camel"):
    uid: str = ""
    resource_version: str = ""


class DeleteOptions(msgspec.Struct, frozen=True, rename="camel"):
    """metav1.DeleteOptions; other values of its fields are refused."""

    kind: Literal["", "DeleteOptions"] = ""
    grace_period_seconds: int | None = None
    orphan_dependents: None = None
    propagation_policy: Literal["Background"] = "Background"
    preconditions: Preconditions = Preconditions()


def read_delete_options(
    body: bytes,
    query: Mapping[str, str],
    content_type: str,
) -> DeleteOptions:
    """The options of the body; of the query only if there is no body."""
    read: Mapping[str, Any] = read_json(body, content_type, "DeleteOptions") if body else query
    check_no_dry_run(read)
    given = {key: value for key, value in read.items() if value is not None}
    try:
        return msgspec.convert(given, DeleteOptions, strict=bool(body))
    except msgspec.ValidationError as error:
        why = f"{error}; this playground's API server deletes dependents with their owner"
        raise unrecognized("DeleteOptions", why, body) from error


class Deleted(NamedTuple):
    """`gone` is False while a grace period or a finalizer delays the deletion."""

    stored: Stored
    gone: bool


def delete(
    registry: Registry,
    kind: Kind,
    stored: Stored,
    options: DeleteOptions,
) -> Deleted:
    """Delete the object, or set its deletionTimestamp."""
    _check_preconditions(kind, stored, options.preconditions)
    if kind.resource == "namespaces" and stored.key.name in _IMMORTAL_NAMESPACES:
        raise failures.forbidden(kind.target(stored.key.name), "this namespace may not be deleted")
    new = kind.decode(stored)
    now = registry.now()
    if kind.rules.terminate(new):
        if "deletionTimestamp" not in new["metadata"]:
            new["metadata"]["deletionTimestamp"] = format_time(now)
            stored = registry.commit(kind, new, stored)
        return Deleted(stored, gone=False)
    changed = _mark(kind, new, options.grace_period_seconds, now)
    if changed:
        stored = registry.commit(kind, new, stored)
    metadata = new["metadata"]
    pending = metadata.get("deletionGracePeriodSeconds") or metadata.get("finalizers")
    if not pending:
        stored = registry.remove(kind, new, stored)
    return Deleted(stored, gone=not pending)


def _check_preconditions(kind: Kind, stored: Stored, wanted: Preconditions) -> None:
    for given, found in (
        (wanted.uid, stored.uid),
        (wanted.resource_version, str(stored.revision)),
    ):
        if given not in ("", found):
            raise failures.conflict(
                kind.target(stored.key.name)._replace(resource=kind.kind),
                f"the precondition ({given}) does not match the object ({found})",
            )


def _mark(
    kind: Kind,
    new: Json,
    requested: int | None,
    now: datetime,
) -> bool:
    """Set the times of the deletion if it has to wait, or ends a grace period; return whether it changed the object."""
    metadata = new["metadata"]
    if "deletionTimestamp" in metadata:
        seconds: int | None = 0
        changed = requested == 0 and metadata.get("deletionGracePeriodSeconds", 0) > 0
    else:
        seconds = kind.rules.grace_seconds(new, requested)
        changed = seconds is not None or bool(metadata.get("finalizers"))
        if changed and metadata.get("generation"):
            metadata["generation"] += 1
    if changed:
        metadata["deletionTimestamp"] = format_time(now + timedelta(seconds=seconds or 0))
        metadata["deletionGracePeriodSeconds"] = seconds or 0
    return changed


MAX_EVENTS: Final = 20_000
SETTLE_SECONDS: Final = 0.1
"""Delay between a deletion and the sweep, because deletions come in bursts."""
SWEEP_INTERVAL_SECONDS: Final = 60.0
"""Interval of sweeps without deletions."""


class GarbageCollector:
    """Sweeps one registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def run(self) -> None:
        """Sweep after every deletion and at an interval, until cancelled."""
        while True:
            self.sweep()
            try:
                async with asyncio.timeout(SWEEP_INTERVAL_SECONDS):
                    await self._registry.sweep_due.wait()
            except TimeoutError:
                continue
            await asyncio.sleep(SETTLE_SECONDS)

    def sweep(self) -> None:
        """Make one pass over all objects. Its deletions may trigger another one."""
        self._registry.sweep_due.clear()
        present = {
            stored.uid: stored
            for collection in self._registry.store.collections.values()
            for stored in collection.objects.values()
        }
        for kind in self._registry.kinds.values():
            for stored in [*self._registry.collection(kind).objects.values()]:
                self._collect(kind, stored, present)
        self._empty_namespaces()
        self._expire_events()

    def _collect(
        self,
        kind: Kind,
        stored: Stored,
        present: Mapping[str, Stored],
    ) -> None:
        """Delete an object whose owners are gone."""
        if not stored.owners or any(
            _is_owner(present.get(owner), stored) for owner in stored.owners
        ):
            return
        references = kind.decode(stored)["metadata"]["ownerReferences"]
        served = {(kind.api_version, kind.kind) for kind in self._registry.kinds.values()}
        # An owner of another kind may exist elsewhere.
        if served.issuperset(
            (reference["apiVersion"], reference["kind"]) for reference in references
        ):
            delete(self._registry, kind, stored, DeleteOptions())

    def _empty_namespaces(self) -> None:
        """Delete the objects of terminating namespaces, then the namespaces themselves."""
        namespaces = self._registry.kinds["namespaces"]
        for stored in [*self._registry.collection(namespaces).objects.values()]:
            if stored.terminating:
                deletions = [
                    delete(self._registry, kind, item, DeleteOptions())
                    for kind in self._registry.kinds.values()
                    for item in [*self._registry.collection(kind).objects.values()]
                    if item.key.namespace == stored.key.name
                ]
                if all(deletion.gone for deletion in deletions):
                    self._registry.remove(
                        namespaces,
                        namespaces.decode(stored),
                        stored,
                    )

    def _expire_events(self) -> None:
        kind = self._registry.kinds["events"]
        objects = self._registry.collection(kind).objects
        oldest = sorted(
            objects.values(),
            key=lambda each: each.revision,
        )
        for stored in oldest[: max(len(oldest) - MAX_EVENTS, 0)]:
            self._registry.remove(
                kind,
                kind.decode(stored),
                stored,
            )


def _is_owner(owner: Stored | None, dependent: Stored) -> bool:
    """Whether this object may own the dependent: it exists, in the same namespace or in none."""
    return owner is not None and owner.key.namespace in ("", dependent.key.namespace)
