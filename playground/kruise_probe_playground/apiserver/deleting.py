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
from kruise_probe_playground.apiserver.failures import FailureTarget
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
    """metav1.DeleteOptions."""

    kind: Literal["", "DeleteOptions"] = ""
    grace_period_seconds: int | None = None
    orphan_dependents: bool = False
    propagation_policy: str = "Background"
    preconditions: Preconditions = Preconditions()


def read_delete_options(body: bytes, query: Mapping[str, str], content_type: str) -> DeleteOptions:
    """The options of the body; of the query only if there is no body."""
    read: Mapping[str, Any] = read_json(body, content_type, "DeleteOptions") if body else query
    check_no_dry_run(read)
    given = {key: each for key, each in read.items() if each is not None}
    try:
        options = msgspec.convert(given, DeleteOptions, strict=bool(body))
    except msgspec.ValidationError as error:
        raise unrecognized("DeleteOptions", str(error), body) from error
    policy = options.propagation_policy
    only_background = "this server deletes dependents with their owner"
    failures.check(
        FailureTarget("meta.k8s.io", "", "DeleteOptions"),
        (
            options.orphan_dependents,
            failures.invalid_value("orphanDependents", True, only_background),
        ),
        (
            policy != "Background",
            failures.unsupported("propagationPolicy", policy, ["Background", "nil"]),
        ),
    )
    return options


class Deleted(NamedTuple):
    """`gone` is False while a grace period or a finalizer delays the deletion."""

    stored: Stored
    gone: bool


def delete(registry: Registry, kind: Kind, stored: Stored, options: DeleteOptions) -> Deleted:
    """Delete the object, or set its deletionTimestamp."""
    _check_preconditions(kind, stored, options.preconditions)
    if kind.resource == "namespaces" and stored.key.name in _IMMORTAL_NAMESPACES:
        raise failures.forbidden(kind.target(stored.key.name), "this namespace may not be deleted")
    new, now = kind.decode(stored), registry.now()
    if kind.rules.terminate(new):
        if "deletionTimestamp" not in new["metadata"]:
            new["metadata"]["deletionTimestamp"] = format_time(now)
            stored = registry.commit(kind, new, stored)
        return Deleted(stored, gone=False)
    changed, pending = _grace(kind, new, options.grace_period_seconds, now)
    if not pending and new["metadata"].get("finalizers"):
        changed = _mark(new["metadata"], now) or changed
        pending = True
    if changed:
        stored = registry.commit(kind, new, stored)
    if not pending:
        stored = registry.remove(kind, new, stored)
    return Deleted(stored, gone=not pending)


def _check_preconditions(kind: Kind, stored: Stored, wanted: Preconditions) -> None:
    for name, given, found, guess in (
        ("UID", wanted.uid, stored.uid, "deleted and then recreated"),
        ("ResourceVersion", wanted.resource_version, str(stored.revision), "modified"),
    ):
        if given and given != found:
            raise failures.conflict(
                kind.target(stored.key.name)._replace(resource=kind.kind),
                f"the {name} in the precondition ({given}) does not match the {name} in record"
                f" ({found}). The object might have been {guess}",
            )


def _grace(kind: Kind, new: Json, requested: int | None, now: datetime) -> tuple[bool, bool]:
    """Return whether the object was changed, and whether its deletion has to wait for the kubelet."""
    metadata = new["metadata"]
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
    """End the grace period of a deletion, if the request says so."""
    if not metadata.get("deletionGracePeriodSeconds"):
        return False, False
    if requested != 0:
        return False, True
    metadata["deletionTimestamp"] = format_time(now)
    metadata["deletionGracePeriodSeconds"] = 0
    return True, False


def _mark(metadata: Json, now: datetime) -> bool:
    """Set the deletionTimestamp of an object that still has finalizers; return whether that changed it."""
    if metadata.get("deletionTimestamp") and metadata.get("deletionGracePeriodSeconds") == 0:
        return False
    if "deletionTimestamp" not in metadata and metadata.get("generation"):
        metadata["generation"] += 1
    metadata.setdefault("deletionTimestamp", format_time(now))
    metadata["deletionGracePeriodSeconds"] = 0
    return True


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

    def _collect(self, kind: Kind, stored: Stored, present: Mapping[str, Stored]) -> None:
        """Delete an object whose owners are gone."""
        if not stored.owners or any(_is_owner(present.get(each), stored) for each in stored.owners):
            return
        references = kind.decode(stored)["metadata"]["ownerReferences"]
        served = {(each.api_version, each.kind) for each in self._registry.kinds.values()}
        # An owner of another kind may exist elsewhere.
        if served.issuperset((each["apiVersion"], each["kind"]) for each in references):
            delete(self._registry, kind, stored, DeleteOptions())

    def _empty_namespaces(self) -> None:
        """Delete the objects of terminating namespaces, then the namespaces themselves."""
        namespaces = self._registry.kinds["namespaces"]
        for stored in [*self._registry.collection(namespaces).objects.values()]:
            if stored.terminating:
                deletions = [
                    delete(self._registry, kind, each, DeleteOptions())
                    for kind in self._registry.kinds.values()
                    for each in [*self._registry.collection(kind).objects.values()]
                    if each.key.namespace == stored.key.name
                ]
                if all(each.gone for each in deletions):
                    self._registry.remove(namespaces, namespaces.decode(stored), stored)

    def _expire_events(self) -> None:
        kind = self._registry.kinds["events"]
        objects = self._registry.collection(kind).objects
        oldest = sorted(objects.values(), key=lambda each: each.revision)
        for stored in oldest[: max(len(oldest) - MAX_EVENTS, 0)]:
            self._registry.remove(kind, kind.decode(stored), stored)


def _is_owner(owner: Stored | None, dependent: Stored) -> bool:
    """Whether this object may own the dependent: it exists, in the same namespace or in none."""
    return owner is not None and owner.key.namespace in ("", dependent.key.namespace)
