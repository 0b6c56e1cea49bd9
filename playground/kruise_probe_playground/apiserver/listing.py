"""Lists: selection, resource versions and pages.

Source: apiserver pkg/storage/{etcd3/store.go,continue.go}, pkg/apis/meta/internalversion/validation.
Differs: no resourceVersionMatch=Exact; an expired list cannot be continued.
"""

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from kruise_probe_playground.apiserver import failures
from kruise_probe_playground.apiserver.failures import (
    FailureTarget,
    check,
    forbidden_field,
    unsupported,
)
from kruise_probe_playground.apiserver.kinds import Kind
from kruise_probe_playground.apiserver.registry import Registry
from kruise_probe_playground.apiserver.requests import ListQuery
from kruise_probe_playground.apiserver.selecting import parse_fields, parse_labels
from kruise_probe_playground.apiserver.store import Scope, Stored

_NOT_OLDER = "NotOlderThan"
_MATCH = "resourceVersionMatch"


class Page(NamedTuple):
    """One page of a list; `remaining` is None if there is a selector."""

    items: Sequence[Stored]
    revision: int
    continue_token: str = ""
    remaining: int | None = None


def scope_of(kind: Kind, namespace: str, query: ListQuery, name: str = "") -> Scope:
    selector = query.field_selector
    if name:
        selector = f"metadata.name={name},{selector}" if selector else f"metadata.name={name}"
    return Scope(
        namespace, parse_labels(query.label_selector), parse_fields(selector, kind.known_fields)
    )


def list_page(registry: Registry, kind: Kind, scope: Scope, query: ListQuery) -> Page:
    check_options(query, watch=False)
    collection, current = registry.collection(kind), registry.store.revision
    after, revision = "", current
    if query.continue_token:
        if query.revision:
            why = "specifying resource version is not allowed when using continue"
            raise failures.bad_request(why)
        revision, after = _decode_token(query.continue_token)
        if revision < collection.floor:
            raise failures.gone("The provided continue parameter is too old; list again without it")
    elif query.revision and query.revision > current:
        raise failures.too_large_version(query.revision, current)
    single = (
        scope.fields.pinned("metadata.name") if scope.namespace or not kind.namespaced else None
    )
    covered = (
        each
        for each in collection.ordered_at(revision, after)
        if scope.covers(each) and single in (None, each.key.name)
    )
    limit = query.limit if query.revision != 0 or query.continue_token else 0  # of the watch cache
    items = list(islice(filter(scope.matches, covered), max(limit, 0) or None))
    remaining = sum(1 for _ in covered)  # also of objects that are not selected
    if not remaining:
        return Page(items, revision)
    token = _encode_token(revision, str(items[-1].key))
    return Page(items, revision, token, None if scope.selects else remaining)


def _encode_token(revision: int, after: str) -> str:
    raw = msgspec.json.encode({"v": "meta.k8s.io/v1", "rv": revision, "start": f"{after}\0"})
    return urlsafe_b64encode(raw).decode().rstrip("=")


def _decode_token(token: str) -> tuple[int, str]:
    try:
        raw = urlsafe_b64decode(token + "=" * (-len(token) % 4))
        decoded = msgspec.json.decode(raw)
        return int(decoded["rv"]), str(decoded["start"]).removesuffix("\0")
    except (binascii.Error, msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        raise failures.bad_request(
            f"invalid continue token: continue key is not valid: {error}"
        ) from error


def check_options(query: ListQuery, *, watch: bool) -> None:
    """Fail for combinations of options that a list or a watch cannot have."""
    match, initial = query.match, query.send_initial_events is not None
    check(
        FailureTarget("meta.k8s.io", "", "ListOptions"),
        (
            initial and not (watch and match == _NOT_OLDER),
            forbidden_field("sendInitialEvents", f"needs a watch with {_MATCH}={_NOT_OLDER}"),
        ),
        (
            match and not initial and query.revision is None,
            forbidden_field(_MATCH, "needs a resourceVersion"),
        ),
        (match not in ("", _NOT_OLDER), unsupported(_MATCH, match, [_NOT_OLDER])),
        (
            query.continue_token and (watch or match),
            forbidden_field("continue", f"is only for lists without {_MATCH}"),
        ),
    )
