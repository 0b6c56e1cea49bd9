"""OpenAPI v3 documents for kubectl explain and apply.

Source: apiserver pkg/server/routes/openapi.go; kubectl's use of `/openapi/v3`.
Differs: only the operations that kubectl reads; OpenAPI v2 has no definitions.
"""

from collections.abc import Iterable
from functools import cached_property
from hashlib import sha256

import msgspec
from aiohttp import web

from kruise_probe_playground.apiserver.builtin import definitions
from kruise_probe_playground.apiserver.discovery import GIT_VERSION
from kruise_probe_playground.apiserver.kinds import Kind
from kruise_probe_playground.apiserver.schema import Json

_INFO = {"title": "Kubernetes", "version": GIT_VERSION}
_EMPTY_V2 = {"swagger": "2.0", "info": _INFO, "paths": {}, "definitions": {}}
_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_REFERENCE = "#/components/schemas/"
_FIELD_VALIDATION = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}


class OpenApi:
    """The documents, encoded on first use."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self._kinds: dict[str, list[Kind]] = {}
        for kind in kinds:
            self._kinds.setdefault(f"openapi/v3/{kind.root}", []).append(kind)

    @cached_property
    def _encoded(self) -> dict[str, bytes]:
        found = {path: msgspec.json.encode(_document(each)) for path, each in self._kinds.items()}
        urls = {
            path.removeprefix("openapi/v3/"): {
                "serverRelativeURL": f"/{path}?hash={sha256(body).hexdigest().upper()}"
            }
            for path, body in found.items()
        }
        return {**found, "openapi/v3": msgspec.json.encode({"paths": urls})}

    def respond(self, request: web.Request) -> web.Response | None:
        """Serve `/openapi/v2`, `/openapi/v3` and its documents; None for other paths."""
        path = request.path.strip("/")
        if (
            path == "openapi/v2"
        ):  # kubectl reads it before it applies a List, and then validates less
            if "proto-openapi.spec.v2" in request.headers.get("Accept", ""):
                return web.Response(body=b"", content_type=_PROTOBUF)
            return web.json_response(_EMPTY_V2)
        body = self._encoded.get(path)
        return web.Response(body=body, content_type="application/json") if body else None


def _document(kinds: list[Kind]) -> Json:
    paths: Json = {}
    schemas: Json = dict(definitions())
    for kind in kinds:
        schemas[_schema_name(kind)] = _schema(kind)
        paths |= _paths(kind)
    return {
        "openapi": "3.0.0",
        "info": _INFO,
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
    """The operations: `get` leads `kubectl explain` to the schema; `patch` says that the server validates fields."""
    scope = "/namespaces/{namespace}" if kind.namespaced else ""
    content = {"application/json": {"schema": {"$ref": f"{_REFERENCE}{_schema_name(kind)}"}}}
    operation = {
        "parameters": [_FIELD_VALIDATION],
        "responses": {"200": {"description": "OK", "content": content}},
        "x-kubernetes-group-version-kind": _group_version_kind(kind),
    }
    return {
        f"/{kind.root}{scope}/{kind.plural}{below}": {
            action: {**operation, "x-kubernetes-action": action} for action in actions
        }
        for below, actions in (("", ("get", "post")), ("/{name}", ("get", "patch")))
    }
