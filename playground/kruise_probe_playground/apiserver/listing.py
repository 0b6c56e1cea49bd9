"""Lists: selection, resource versions and pages.

Source: apiserver pkg/storage/{etcd3/store.go,continue.go}, pkg/apis/meta/internalversion/validation.
Differs: every version of the history can be listed exactly.
"""

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from kruise_probe_playground.apiserver import failures
from kruise_probe_playground.apiserver.failures import (
    Cause,
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

_EXACT, _NOT_OLDER = "Exact", "NotOlderThan"
_MATCH = "resourceVersionMatch"
_INCONSISTENT = -1
_OPTIONS = FailureTarget("meta.k8s.io", "", "ListOptions")


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
    _check(query)
    collection, current = registry.collection(kind), registry.store.revision
    after, revision = "", current
    if query.continue_token:
        if query.revision:
            why = "specifying resource version is not allowed when using continue"
            raise failures.bad_request(why)
        revision, after = _decode_token(query.continue_token)
        if revision == _INCONSISTENT:
            revision = current
        elif revision < collection.floor:
            raise failures.expired_list(_encode_token(_INCONSISTENT, after))
    elif query.revision:
        if query.revision > current:
            raise failures.too_large_version(query.revision, current)
        if query.match == _EXACT:
            revision = query.revision
            if revision < collection.floor:
                raise failures.gone(f"too old resource version: {revision} ({collection.floor})")
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


def _check(query: ListQuery) -> None:
    """Fail for combinations of options that a list cannot have."""
    match = query.match
    initial = forbidden_field("sendInitialEvents", "sendInitialEvents is forbidden for list")
    exact = '"exact" is forbidden for resourceVersion "0"'
    check(
        _OPTIONS,
        (query.send_initial_events is not None, initial),
        (
            match and query.revision is None,
            _no_match("is forbidden unless resourceVersion is provided"),
        ),
        (match and query.continue_token, _no_match("is forbidden when continue is provided")),
        (
            match not in ("", _EXACT, _NOT_OLDER),
            unsupported(_MATCH, match, [_EXACT, _NOT_OLDER, ""]),
        ),
        (match == _EXACT and query.revision == 0, _no_match(exact)),
    )


def _no_match(why: str) -> Cause:
    return forbidden_field(_MATCH, f"{_MATCH} {why}")


def check_watch(query: ListQuery) -> None:
    """Fail for combinations of options that a watch cannot have."""
    match, initial = query.match, query.send_initial_events
    required = f"sendInitialEvents requires setting {_MATCH} to {_NOT_OLDER}"
    unless = "is forbidden for watch unless sendInitialEvents is provided"
    check(
        _OPTIONS,
        (initial is not None and match != _NOT_OLDER, forbidden_field(_MATCH, required)),
        (match and initial is None, _no_match(unless)),
        (query.continue_token, _no_match("is forbidden when continue is provided")),
        (match not in ("", _NOT_OLDER), unsupported(_MATCH, match, [_NOT_OLDER])),
    )
