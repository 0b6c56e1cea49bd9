"""OpenAPI v3 documents for kubectl explain, apply and server-side validation.

Source: apiserver pkg/server/routes/openapi.go; kubectl's use of `/openapi/v3`.
Differs: only the operations that clients read; OpenAPI v2 has no definitions.
"""

from collections.abc import Iterable
from hashlib import sha256

import msgspec
from aiohttp import web

from kruise_probe_playground.apiserver.builtin import definitions
from kruise_probe_playground.apiserver.discovery import GIT_VERSION
from kruise_probe_playground.apiserver.kinds import Kind
from kruise_probe_playground.apiserver.schema import Json

_PROTOBUF_PART = "proto-openapi.spec.v2"
_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_REFERENCE = "#/components/schemas/"
_FIELD_VALIDATION = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}


class OpenApi:
    """The documents, encoded on first use."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self._kinds: dict[str, list[Kind]] = {}
        for kind in kinds:
            root = "apis" if kind.group else "api"
            self._kinds.setdefault(f"{root}/{kind.api_version}", []).append(kind)
        self._encoded: dict[str, bytes] = {}

    def respond(self, request: web.Request) -> web.Response | None:
        """Serve `/openapi/v2`, `/openapi/v3` and its documents; None for other paths."""
        path = request.path.strip("/")
        if path == "openapi/v2":
            return _version_2(request.headers.get("Accept", ""))
        if path == "openapi/v3":
            return _json(msgspec.json.encode(self._index()))
        group_version = path.removeprefix("openapi/v3/")
        if group_version not in self._kinds:
            return None
        return _json(self._document(group_version))

    def _index(self) -> Json:
        paths = {}
        for each in self._kinds:
            digest = sha256(self._document(each)).hexdigest().upper()
            paths[each] = {"serverRelativeURL": f"/openapi/v3/{each}?hash={digest}"}
        return {"paths": paths}

    def _document(self, group_version: str) -> bytes:
        if group_version not in self._encoded:
            self._encoded[group_version] = msgspec.json.encode(
                _document(self._kinds[group_version])
            )
        return self._encoded[group_version]


def _version_2(accept: str) -> web.Response:
    """A document without definitions. kubectl reads it before it applies a List, and then validates less."""
    if _PROTOBUF_PART in accept:
        return web.Response(body=b"", content_type=_PROTOBUF)
    empty = {
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": GIT_VERSION},
        "paths": {},
        "definitions": {},
    }
    return _json(msgspec.json.encode(empty))


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")


def _document(kinds: list[Kind]) -> Json:
    paths: Json = {}
    schemas: Json = dict(definitions())
    for kind in kinds:
        schemas[_schema_name(kind)] = _schema(kind)
        paths |= _paths(kind)
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": GIT_VERSION},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _schema_name(kind: Kind) -> str:
    if kind.custom:
        reversed_group = ".".join(reversed(kind.group.split(".")))
        return f"{reversed_group}.{kind.version}.{kind.kind}"
    package = kind.group.partition(".")[0] or "core"
    return f"io.k8s.api.{package}.{kind.version}.{kind.kind}"


def _schema(kind: Kind) -> Json:
    schema = {**kind.openapi, "x-kubernetes-group-version-kind": [_group_version_kind(kind)]}
    if kind.custom:
        meta = {"$ref": f"{_REFERENCE}io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}
        schema["properties"] = {**schema.get("properties", {}), "metadata": meta}
    return schema


def _group_version_kind(kind: Kind) -> Json:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _paths(kind: Kind) -> Json:
    root = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.api_version}"
    scope = "/namespaces/{namespace}" if kind.namespaced else ""
    collection = f"{root}{scope}/{kind.plural}"
    content = {"application/json": {"schema": {"$ref": f"{_REFERENCE}{_schema_name(kind)}"}}}

    def operation(action: str, *parameters: Json) -> Json:
        return {
            "operationId": f"{action}{kind.group.title().replace('.', '')}{kind.kind}",
            "parameters": list(parameters),
            "responses": {"200": {"description": "OK", "content": content}},
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": _group_version_kind(kind),
        }

    return {
        collection: {"get": operation("list"), "post": operation("post", _FIELD_VALIDATION)},
        f"{collection}/{{name}}": {
            "get": operation("get"),
            "put": operation("put", _FIELD_VALIDATION),
            "patch": operation("patch", _FIELD_VALIDATION),
            "delete": operation("delete"),
        },
    }
