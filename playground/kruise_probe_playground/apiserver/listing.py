"""Lists: selection and resource versions.

Source: apiserver pkg/storage/{etcd3/store.go,continue.go}, pkg/apis/meta/internalversion/validation.
Differs: a list is always whole: it ignores `limit`, as the API allows; no resourceVersionMatch=Exact.
"""

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


def scope_of(kind: Kind, namespace: str, query: ListQuery, name: str = "") -> Scope:
    selector = query.field_selector
    if name:
        selector = f"metadata.name={name},{selector}" if selector else f"metadata.name={name}"
    return Scope(
        namespace, parse_labels(query.label_selector), parse_fields(selector, kind.known_fields)
    )


def list_objects(registry: Registry, kind: Kind, scope: Scope, query: ListQuery) -> list[Stored]:
    """All selected objects, in order."""
    check_options(query, watch=False)
    return [each for each in registry.collection(kind).ordered() if scope.matches(each)]


def check_options(query: ListQuery, *, watch: bool) -> None:
    """Fail for options that this server does not have."""
    match, initial = query.match, query.send_initial_events is not None
    check(
        FailureTarget("meta.k8s.io", "", "ListOptions"),
        (
            initial and not (watch and match == _NOT_OLDER),
            forbidden_field("sendInitialEvents", f"needs a watch with {_MATCH}={_NOT_OLDER}"),
        ),
        (match not in ("", _NOT_OLDER), unsupported(_MATCH, match, [_NOT_OLDER])),
        (
            query.continue_token,
            forbidden_field("continue", "this playground's API server sends whole lists"),
        ),
    )
