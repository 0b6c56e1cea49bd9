"""Lists: which objects, at which version, which page.

Source: apiserver pkg/storage/{etcd3/store.go,continue.go}, pkg/apis/meta/internalversion/validation.
Differs: every version within the history can be listed exactly.
"""

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from kruise_probe.playground.apiserver.failures import (
    Cause,
    Target,
    bad_request,
    expired_list,
    forbidden_field,
    gone,
    invalid,
    too_large_version,
    unsupported,
)
from kruise_probe.playground.apiserver.kinds import Kind
from kruise_probe.playground.apiserver.registry import Registry
from kruise_probe.playground.apiserver.requests import ListQuery
from kruise_probe.playground.apiserver.selecting import parse_fields, parse_labels
from kruise_probe.playground.apiserver.store import Scope, Stored

_EXACT, _NOT_OLDER = "Exact", "NotOlderThan"
_INCONSISTENT = -1
_OPTIONS = Target("meta.k8s.io", "", "ListOptions")


class Page(NamedTuple):
    """What a list answers; `remaining` is None where a selector keeps it unknown."""

    items: Sequence[Stored]
    revision: int
    continue_token: str = ""
    remaining: int | None = None


def scope_of(kind: Kind, namespace: str, query: ListQuery, name: str = "") -> Scope:
    """What a list or watch looks at.

    Raises:
        Failure: 400, a selector cannot be read.
    """
    selector = query.field_selector
    if name:
        selector = f"metadata.name={name},{selector}" if selector else f"metadata.name={name}"
    return Scope(
        namespace,
        parse_labels(query.label_selector),
        parse_fields(selector, kind.known_fields),
    )


def list_page(registry: Registry, kind: Kind, scope: Scope, query: ListQuery) -> Page:
    """One page.

    Raises:
        Failure: 400, 410, 422 or 504.
    """
    _check(query)
    collection, current = registry.collection(kind), registry.store.revision
    after, revision = "", current
    if query.continue_token:
        revision, after = _decode_token(query.continue_token)
        if revision == _INCONSISTENT:
            revision = current
        elif revision < collection.floor:
            raise expired_list(_encode_token(_INCONSISTENT, after))
    elif query.revision:
        if query.revision > current:
            raise too_large_version(query.revision, current)
        if query.match == _EXACT:
            revision = query.revision
            if revision < collection.floor:
                raise gone(f"too old resource version: {revision} ({collection.floor})")
    found = (each for each in collection.ordered_at(revision, after) if scope.holds(each))
    return _cut(found, query.limit, revision, selects=scope.selects)


def _cut(found: Iterator[Stored], limit: int, revision: int, *, selects: bool) -> Page:
    if limit <= 0:
        return Page(list(found), revision)
    items = list(islice(found, limit))
    remaining = sum(1 for _ in found)
    if not remaining:
        return Page(items, revision)
    token = _encode_token(revision, str(items[-1].key))
    return Page(items, revision, token, None if selects else remaining)


def _encode_token(revision: int, after: str) -> str:
    raw = msgspec.json.encode({"v": "meta.k8s.io/v1", "rv": revision, "start": f"{after}\0"})
    return urlsafe_b64encode(raw).decode().rstrip("=")


def _decode_token(token: str) -> tuple[int, str]:
    try:
        raw = urlsafe_b64decode(token + "=" * (-len(token) % 4))
        decoded = msgspec.json.decode(raw)
        return int(decoded["rv"]), str(decoded["start"]).removesuffix("\0")
    except (binascii.Error, msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from error


def _check(query: ListQuery) -> None:
    problems = list(_problems(query))
    if problems:
        raise invalid(_OPTIONS, problems)


def _problems(query: ListQuery) -> Iterator[Cause]:
    field = "resourceVersionMatch"
    if query.send_initial_events is not None:
        yield forbidden_field("sendInitialEvents", "sendInitialEvents is forbidden for list")
    if not query.match:
        return
    if query.revision is None:
        yield forbidden_field(field, f"{field} is forbidden unless resourceVersion is provided")
    if query.continue_token:
        yield forbidden_field(field, f"{field} is forbidden when continue is provided")
    if query.match not in (_EXACT, _NOT_OLDER):
        yield unsupported(field, query.match, [_EXACT, _NOT_OLDER, ""])
    if query.match == _EXACT and query.revision == 0:
        yield forbidden_field(field, f'{field} "exact" is forbidden for resourceVersion "0"')


def check_watch(query: ListQuery) -> None:
    """Refuses combinations of options that a watch cannot have.

    Raises:
        Failure: 422.
    """
    field = "resourceVersionMatch"
    problems = []
    if query.send_initial_events is not None and query.match != _NOT_OLDER:
        why = f"sendInitialEvents requires setting resourceVersionMatch to {_NOT_OLDER}"
        problems.append(forbidden_field(field, why))
    if query.match and query.send_initial_events is None:
        why = f"{field} is forbidden for watch unless sendInitialEvents is provided"
        problems.append(forbidden_field(field, why))
    if query.match and query.match != _NOT_OLDER:
        problems.append(unsupported(field, query.match, [_NOT_OLDER]))
    if problems:
        raise invalid(_OPTIONS, problems)
