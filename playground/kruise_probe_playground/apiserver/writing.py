"""Creates, replaces and patches objects.

The order is the same for all kinds: prune and default, restore what this endpoint may not write, managed fields, fields
that the server sets, validation, commit. There is no await, so a write is atomic.

Source: apiserver pkg/endpoints/handlers/{create,update,patch}.go, pkg/registry/rest/{create,update}.go.
Differs: no admission, no conversion, no warnings.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from kruise_probe.api.meta import NamespacedName
from kruise_probe_playground.apiserver import failures
from kruise_probe_playground.apiserver import metadata as meta
from kruise_probe_playground.apiserver.failures import Cause, Failure
from kruise_probe_playground.apiserver.kinds import Kind
from kruise_probe_playground.apiserver.managed_fields import (
    ManagerIdentifier,
    same_but_for_times,
    track,
)
from kruise_probe_playground.apiserver.registry import Registry
from kruise_probe_playground.apiserver.schema import Json
from kruise_probe_playground.apiserver.shaping import WrongType, apply_defaults, prune
from kruise_probe_playground.apiserver.store import Stored
from kruise_probe_playground.apiserver.validation import validate

_NO_VERSION: Final = (None, "", "0")


class WriteOptions(NamedTuple):
    """`strict` refuses unknown fields, which are dropped otherwise."""

    manager: str = "unknown"
    strict: bool = False


class Editor:
    """Writes objects of all kinds to one registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def create(
        self,
        kind: Kind,
        namespace: str,
        sent: Json,
        options: WriteOptions,
    ) -> Stored:
        """Store a new object."""
        new = _pruned(kind, sent, options)
        metadata = new.setdefault("metadata", {})
        _set_namespace(kind, metadata, namespace)
        self._registry.check_namespace(kind, namespace)
        now = self._registry.now()
        meta.stamp_new(metadata, now, self._registry.random)
        kind.rules.default(new)
        kind.rules.reset_for_create(new)
        blank = {key: new.get(key) for key in ("apiVersion", "kind")} | kind.blank
        writer = ManagerIdentifier(options.manager, "Update", kind.api_version, "")
        track(
            {},
            new,
            kind.schema,
            writer,
            now,
            blank=blank,
        )
        if kind.has_generation:
            metadata["generation"] = 1
        kind.rules.prepare_for_create(new)
        _check(
            kind,
            new,
            [
                *meta.problems(metadata, kind),
                *_by_schema(kind, new, {}),
                *kind.rules.validate(new),
            ],
        )
        if metadata.get("resourceVersion") not in _NO_VERSION:
            why = "resourceVersion should not be set on objects to be created"
            raise Failure(500, "", why)
        key = NamespacedName(namespace, metadata["name"])
        if key in self._registry.collection(kind).objects:
            raise failures.already_exists(kind.target(key.name))
        return self._registry.commit(kind, new, None)

    def replace(
        self, kind: Kind, key: NamespacedName, subresource: str, sent: Json, options: WriteOptions
    ) -> Stored:
        """Replace a stored object or its status."""
        metadata = sent.get("metadata") or {}
        _check_name(metadata.get("name"), key)
        stored = self._registry.get(kind, key)
        uid = metadata.get("uid")
        if uid and uid != stored.uid:
            why = (
                f"Precondition failed: UID in precondition: {uid}, UID in object meta: {stored.uid}"
            )
            raise failures.conflict(kind.target(key.name), why)
        return self.update(kind, stored, subresource, sent, options)

    def update(
        self,
        kind: Kind,
        stored: Stored,
        subresource: str,
        sent: Json,
        options: WriteOptions,
        *,
        patched: bool = False,
    ) -> Stored:
        """Store `sent`, a whole or patched object, in place of `stored`."""
        old = kind.decode(stored)
        new = _pruned(kind, sent, options, old, patched=patched)
        metadata = new.setdefault("metadata", {})
        _check_name(metadata.get("name"), stored.key)
        _set_namespace(kind, metadata, stored.key.namespace)
        _check_revision(kind, metadata, stored)
        metadata["resourceVersion"] = str(stored.revision)
        kind.rules.default(new)
        kind.rules.reset_for_update(new, old, subresource)
        metadata = new["metadata"]
        meta.carry_over(metadata, old["metadata"])
        writer = ManagerIdentifier(options.manager, "Update", kind.api_version, subresource)
        now = self._registry.now()
        track(old, new, kind.schema, writer, now)
        if kind.has_generation and kind.counted(new) != kind.counted(old):
            metadata["generation"] = old["metadata"].get("generation", 0) + 1
        kind.rules.prepare_for_update(new, old)
        _check(
            kind,
            new,
            _update_problems(kind, new, old, sent),
        )
        # The real server sets the default of the status whenever it reads a new object, and stores it with the first update.
        stores_default = stored.new and kind.custom and "status" in old
        if stores_default or not same_but_for_times(old, new):
            ended = "deletionTimestamp" in metadata and not metadata.get("finalizers")
            waits = metadata.get("deletionGracePeriodSeconds") or kind.plural == "namespaces"
            store = self._registry.remove if ended and not waits else self._registry.commit
            stored = store(kind, new, stored)
        return stored


def _check_name(name: Any, key: NamespacedName) -> None:
    if not name:
        why = f"({key.name} based on URL) was undeterminable: name must be provided"
        raise failures.bad_request(f"the name of the object {why}")
    if name != key.name:
        raise failures.bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({key.name})"
        )


def _check_revision(kind: Kind, sent: Json, stored: Stored) -> None:
    """Fail if an update with the metadata `sent` is of an older version of the object."""
    version = sent.get("resourceVersion")
    target = kind.target(stored.key.name)
    if version in _NO_VERSION and not kind.unconditional_update:
        why = "must be specified for an update"
        cause = failures.invalid_value("metadata.resourceVersion", 0, why)
        raise failures.invalid(target._replace(kind=kind.plural), [cause])
    if version not in (*_NO_VERSION, str(stored.revision)):
        raise failures.conflict(target)


def _update_problems(
    kind: Kind,
    new: Json,
    old: Json,
    sent: Json,
) -> list[Cause]:
    # Go drops an empty map when it encodes the object, which is after its validation.
    empty = {key: value for key, value in sent.items() if value == {}}
    return [
        *meta.problems(new["metadata"], kind),
        *meta.update_problems(new["metadata"], old["metadata"]),
        *_by_schema(kind, new, old),
        *kind.rules.validate_update({**empty, **new}, old),
    ]


def _by_schema(kind: Kind, new: Json, old: Json) -> Iterator[Cause]:
    """The errors of a built-in kind's parts that have changed; rules validate custom resources."""
    if not kind.custom:
        changed = {
            key: value
            for key, value in new.items()
            if key not in ("metadata", "status") and value not in (None, old.get(key))
        }
        yield from validate(changed, kind.schema, "")


def _check(
    kind: Kind,
    new: Json,
    causes: Sequence[Cause],
) -> None:
    if causes:
        target = kind.target(new["metadata"].get("name") or "")
        raise failures.invalid(target._replace(kind=new.get("kind") or kind.kind), causes)


def _set_namespace(kind: Kind, metadata: Json, namespace: str) -> None:
    sent = metadata.get("namespace") or ""
    if kind.namespaced and sent and sent != namespace:
        raise failures.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if namespace:
        metadata["namespace"] = namespace


def _pruned(
    kind: Kind, sent: Json, options: WriteOptions, old: Json | None = None, *, patched: bool = False
) -> Json:
    """Prune and default.

    Parts that equal those of `old` are used as they are, because a patch usually changes one part.
    """
    unknown: list[str] = []
    same = {key: value for key, value in sent.items() if old and key in old and old[key] == value}
    changed = {key: value for key, value in sent.items() if key not in same}
    try:
        new: Json = prune(changed, kind.schema, unknown)
    except WrongType as error:
        raise _undecodable(
            kind,
            sent,
            str(error),
            patched=patched,
        ) from error
    if unknown and options.strict:
        why = ", ".join(f'unknown field "{field}"' for field in unknown)
        why = f"strict decoding error: {why}"
        raise _undecodable(kind, sent, why, patched=patched)
    apply_defaults(new, kind.schema)
    new |= same
    new.setdefault("kind", kind.kind)
    new.setdefault("apiVersion", kind.api_version)
    return new


def _undecodable(
    kind: Kind,
    sent: Json,
    why: str,
    *,
    patched: bool,
) -> Failure:
    if patched:
        return failures.undecodable_patch(sent, why)
    return failures.bad_request(
        f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {why}'
    )
