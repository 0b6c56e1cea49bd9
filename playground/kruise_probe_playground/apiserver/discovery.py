"""Discovery: versions, groups and resources, and the OpenAPI v3 documents for kubectl explain and apply.

Source: apiserver pkg/endpoints/discovery, pkg/server/routes/openapi.go; kubectl's use of `/openapi/v3`.
Differs: one version of each kind; no aggregated documents; only the operations that kubectl reads; OpenAPI v2 has no
definitions.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from hashlib import sha256
from typing import Final

import msgspec
from aiohttp import web

from kruise_probe_playground.apiserver.builtin import definitions
from kruise_probe_playground.apiserver.kinds import SUBRESOURCE_VERBS, Kind
from kruise_probe_playground.apiserver.schema import Json

GIT_VERSION: Final = "v1.36.0+playground"

_VERSION: Final = {
    **{"major": "1", "minor": "36", "gitVersion": GIT_VERSION, "platform": "linux/amd64"},
    **dict.fromkeys(("gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler"), ""),
}
_API: Final = {
    "kind": "APIVersions",
    "versions": ["v1"],
    "serverAddressByClientCIDRs": [],
}
_SCALE: Final = {"group": "autoscaling", "version": "v1", "kind": "Scale"}


def discovery(kinds: Iterable[Kind]) -> Mapping[str, Json]:
    """The documents by path, without slashes at its ends."""
    documents: dict[str, Json] = {"version": _VERSION, "api": _API}
    groups = {}
    for kind in kinds:
        resources = documents.setdefault(kind.root, _resource_list(kind))["resources"]
        resources += _resource_entries(kind)
        if kind.group:
            version = {"groupVersion": kind.api_version, "version": kind.version}
            group = {
                "name": kind.group,
                "versions": [version],
                "preferredVersion": version,
            }
            groups[kind.group] = group
            documents[f"apis/{kind.group}"] = {"kind": "APIGroup", "apiVersion": "v1", **group}
    listed = {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": list(groups.values()),
    }
    return {**documents, "apis": listed}


def _resource_list(kind: Kind) -> Json:
    head = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": kind.api_version}
    return {**head, "resources": []}


def _resource_entries(kind: Kind) -> Iterator[Json]:
    yield {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(kind.verbs),
        "shortNames": list(kind.short_names),
    }
    for subresource in kind.subresources:
        yield {
            "name": f"{kind.plural}/{subresource}",
            "singularName": "",
            "namespaced": kind.namespaced,
            **(_SCALE if subresource == "scale" else {"kind": kind.kind}),
            "verbs": list(SUBRESOURCE_VERBS[subresource]),
        }


_INFO = {"title": "Kubernetes", "version": GIT_VERSION}
_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_REFERENCE = "#/components/schemas/"
_FIELD_VALIDATION = {
    "name": "fieldValidation",
    "in": "query",
    "schema": {"type": "string"},
}


class Documents:
    """The documents; those of OpenAPI v3 are encoded on first use."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self._discovery = discovery(kinds)
        self._by_root: dict[str, list[Kind]] = {}
        for kind in kinds:
            self._by_root.setdefault(f"openapi/v3/{kind.root}", []).append(kind)

    @cached_property
    def _openapi(self) -> dict[str, bytes]:
        found = {
            path: msgspec.json.encode(_document(value)) for path, value in self._by_root.items()
        }
        urls = {
            path.removeprefix("openapi/v3/"): {
                "serverRelativeURL": f"/{path}?hash={sha256(body).hexdigest().upper()}"
            }
            for path, body in found.items()
        }
        return {
            **found,
            "openapi/v3": msgspec.json.encode({"paths": urls}),
        }

    def respond(self, request: web.Request) -> web.Response | None:
        """Respond to a request for version, discovery or OpenAPI; None for other paths."""
        path = request.path.strip("/")
        if path in self._discovery:
            return web.json_response(self._discovery[path])
        if (
            path == "openapi/v2"
        ):  # kubectl reads it before it applies a List, and then validates less
            return web.Response(body=b"", content_type=_PROTOBUF)
        if path.startswith("openapi/") and (body := self._openapi.get(path)):
            return web.Response(body=body, content_type="application/json")
        return None


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
        schema["properties"] = {
            **schema.get("properties", {}),
            "metadata": meta,
        }
    return schema


def _group_version_kind(kind: Kind) -> Json:
    return {
        "group": kind.group,
        "version": kind.version,
        "kind": kind.kind,
    }


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
