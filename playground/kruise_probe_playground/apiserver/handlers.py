"""One method for each verb: from a request to a response.

Source: apiserver pkg/endpoints/installer.go, pkg/endpoints/handlers.
Differs: only the verbs of this server.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import msgspec

from kruise_probe_playground.apiserver import failures
from kruise_probe_playground.apiserver.deleting import delete, read_delete_options
from kruise_probe_playground.apiserver.failures import FailureTarget
from kruise_probe_playground.apiserver.kinds import SUBRESOURCE_VERBS, Kind
from kruise_probe_playground.apiserver.presenting import Presenter, presenter_for
from kruise_probe_playground.apiserver.registry import Registry
from kruise_probe_playground.apiserver.replica_sets import scale_of, scaled
from kruise_probe_playground.apiserver.requests import (
    ListOptions,
    ResourcePath,
    apply_patch,
    check_no_dry_run,
    parse_path,
    patch_type_of,
    read_binding,
    read_json,
    read_object,
    read_query,
)
from kruise_probe_playground.apiserver.watching import Watch, list_objects, scope_of
from kruise_probe_playground.apiserver.writing import Editor, WriteOptions

_MAX_MANAGER: Final = 128


class Call(NamedTuple):
    """A request for objects of a kind.

    Attributes:
        verb: as in roles: get, list, watch, create, update, patch, delete.
        headers: names in lower case.
    """

    verb: str
    kind: Kind
    path: ResourcePath
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "")


class VerbResponse(NamedTuple):
    code: int
    body: bytes


_VERBS: Final[Mapping[tuple[str, bool], str]] = {
    ("GET", True): "get",
    ("POST", False): "create",
    ("PUT", True): "update",
    ("PATCH", True): "patch",
    ("DELETE", True): "delete",
}
"""By method, and whether the path has the name of an object."""


def verb_of(
    method: str,
    path: ResourcePath,
    query: Mapping[str, str],
) -> str:
    if method == "GET" and not path.name:
        return "watch" if read_query(query, ListOptions).watch else "list"
    if method == "POST" and path.subresource:
        return "create"
    verb = _VERBS.get((method, bool(path.name)))
    if verb is None:
        raise failures.method_not_allowed()
    return verb


def _check_route(kind: Kind, path: ResourcePath, verb: str) -> None:
    if path.subresource and path.subresource not in kind.subresources:
        raise failures.no_such_path()
    if bool(path.namespace) and not kind.namespaced:
        raise failures.no_such_path()
    if kind.namespaced and not path.namespace and verb not in ("list", "watch"):
        raise failures.no_such_path() if path.name else failures.method_not_allowed()
    allowed = SUBRESOURCE_VERBS[path.subresource] if path.subresource else kind.verbs
    if verb not in allowed:
        raise failures.method_not_allowed()


def call_for(
    registry: Registry,
    method: str,
    raw_path: str,
    query: Mapping[str, str],
    headers: Mapping[str, str],
) -> Call:
    """The call of a request, without its body; fails for paths and verbs that the server does not have."""
    path = parse_path(raw_path)
    if path is None:
        raise failures.no_such_path()
    kind = registry.kinds.get(f"{path.plural}.{path.group}" if path.group else path.plural)
    if kind is None or kind.version != path.version:
        raise failures.not_offered(
            path.group,
            path.version,
            path.plural,
            registry.kinds,
        )
    verb = verb_of(method, path, query)
    _check_route(kind, path, verb)
    return Call(verb, kind, path, query, headers)


class VerbHandlers:
    """Serves calls with the objects of one registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._editor = Editor(registry)
        self._verbs: Mapping[str, Callable[[Call], VerbResponse]] = {
            "get": self._get,
            "list": self._list,
            "create": self._create,
            "update": self._update,
            "patch": self._patch,
            "delete": self._delete,
        }

    def respond(self, call: Call) -> VerbResponse:
        """Serve any call except a watch and a log."""
        if call.path.subresource == "scale":
            return self._scale(call)
        return self._verbs[call.verb](call)

    def watch(self, call: Call) -> Watch:
        """Open a watch; the caller closes it."""
        query = read_query(call.query, ListOptions)
        scope = scope_of(call.kind, call.path.namespace, query)
        return Watch(
            self._registry,
            call.kind,
            scope,
            query,
            self._presenter(call),
        )

    def _presenter(self, call: Call) -> Presenter:
        return presenter_for(
            call.kind,
            call.headers.get("accept", ""),
            self._registry.now,
        )

    def _get(self, call: Call) -> VerbResponse:
        stored = self._registry.get(call.kind, call.path.key)
        return VerbResponse(200, self._presenter(call).one(stored))

    def _list(self, call: Call) -> VerbResponse:
        query = read_query(call.query, ListOptions)
        scope = scope_of(call.kind, call.path.namespace, query)
        items = list_objects(self._registry, call.kind, scope, query)
        revision = self._registry.store.revision
        return VerbResponse(200, self._presenter(call).list(items, revision))

    def _create(self, call: Call) -> VerbResponse:
        if call.path.subresource == "binding":
            return self._bind(call)
        options = _options(call)
        sent = read_object(call.kind, call.body, call.content_type)
        stored = self._editor.create(
            call.kind,
            call.path.namespace,
            sent,
            options,
        )
        return VerbResponse(201, self._presenter(call).one(stored))

    def _bind(self, call: Call) -> VerbResponse:
        """Set a pod's node, for a scheduler."""
        node = read_binding(call.body, call.content_type)
        stored = self._registry.get(call.kind, call.path.key)
        pod = call.kind.decode(stored)
        if pod["spec"].get("nodeName"):
            why = f'pod {call.path.name} is already assigned to node "{pod["spec"]["nodeName"]}"'
            raise failures.conflict(
                FailureTarget("", "pods/binding", "Binding", call.path.name), why
            )
        pod["spec"]["nodeName"] = node
        pod["metadata"]["generation"] = pod["metadata"].get("generation", 0) + 1
        self._registry.commit(call.kind, pod, stored)
        return VerbResponse(201, msgspec.json.encode(failures.success({"code": 201})))

    def _update(self, call: Call) -> VerbResponse:
        options = _options(call)
        sent = read_object(call.kind, call.body, call.content_type)
        subresource = call.path.subresource
        stored = self._editor.replace(
            call.kind,
            call.path.key,
            subresource,
            sent,
            options,
        )
        return VerbResponse(200, self._presenter(call).one(stored))

    def _patch(self, call: Call) -> VerbResponse:
        kind = call.kind
        key = call.path.key
        patch_type = patch_type_of(kind, call.content_type)
        options = _options(call)
        stored = self._registry.get(kind, key)
        patched = apply_patch(
            kind,
            kind.decode(stored),
            call.body,
            patch_type,
        )
        stored = self._editor.update(
            kind, stored, call.path.subresource, patched, options, patched=True
        )
        return VerbResponse(200, self._presenter(call).one(stored))

    def _scale(self, call: Call) -> VerbResponse:
        """Get, update or patch the Scale of a ReplicaSet."""
        stored = self._registry.get(call.kind, call.path.key)
        found = call.kind.decode(stored)
        scale = scale_of(found)
        if call.verb != "get":
            if call.verb == "patch":
                form = patch_type_of(call.kind, call.content_type)
                scale = apply_patch(call.kind, scale, call.body, form)
            else:
                scale = read_json(call.body, call.content_type, "Scale")
            options = _options(call)
            stored = self._editor.update(
                call.kind,
                stored,
                "scale",
                scaled(found, scale),
                options,
            )
            scale = scale_of(call.kind.decode(stored))
        return VerbResponse(200, msgspec.json.encode(scale))

    def _delete(self, call: Call) -> VerbResponse:
        options = read_delete_options(call.body, call.query, call.content_type)
        stored = self._registry.get(call.kind, call.path.key)
        deleted = delete(self._registry, call.kind, stored, options)
        if not deleted.gone or call.kind.returns_deleted:
            return VerbResponse(200, call.kind.whole(deleted.stored))
        details = {
            **call.kind.target(call.path.name).details(),
            "uid": stored.uid,
        }
        return VerbResponse(200, msgspec.json.encode(failures.success({"details": details})))


def _options(call: Call) -> WriteOptions:
    check_no_dry_run(call.query)
    manager = call.query.get("fieldManager") or call.headers.get("user-agent", "").partition("/")[0]
    manager = manager[:_MAX_MANAGER] or "unknown"
    return WriteOptions(manager, call.query.get("fieldValidation") == "Strict")
