"""Paths, queries and bodies of requests.

Source: apiserver pkg/endpoints/request/requestinfo.go, pkg/endpoints/handlers/{create,update,patch}.go; metav1.ListOptions.
Differs: only the options of this server; JSON only; no JSON patch, no server-side apply, no dry run.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple, TypeVar
from urllib.parse import unquote

import msgspec

from kruise_probe.api.meta import NamespacedName
from kruise_probe.client.request import PatchType
from kruise_probe_playground.apiserver.failures import (
    Failure,
    bad_request,
    undecodable_patch,
    unsupported_media_type,
)
from kruise_probe_playground.apiserver.kinds import Kind
from kruise_probe_playground.apiserver.schema import Json
from kruise_probe_playground.apiserver.strategic import strategic_merge_patch


class ResourcePath(NamedTuple):
    """The parts of `/apis/<group>/<version>/namespaces/<namespace>/<plural>/<name>/<subresource>`."""

    group: str
    version: str
    namespace: str
    plural: str
    name: str
    subresource: str

    @property
    def key(self) -> NamespacedName:
        return NamespacedName(self.namespace, self.name)

    @property
    def resource(self) -> str:
        """`pods/status`, as in roles."""
        return f"{self.plural}/{self.subresource}" if self.subresource else self.plural


def parse_path(raw_path: str) -> ResourcePath | None:
    """Parse the path of a resource; None for other paths."""
    parts = [unquote(part) for part in raw_path.strip("/").split("/")]
    if parts[0] == "api" and len(parts) > 2:
        group = ""
        version = parts[1]
        rest = parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group = parts[1]
        version = parts[2]
        rest = parts[3:]
    else:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] != "status":
        namespace = rest[1]
        rest = rest[2:]
    if len(rest) > 3:
        return None
    plural, name, subresource = [*rest, "", ""][:3]
    return ResourcePath(group, version, namespace, plural, name, subresource)


class ListOptions(msgspec.Struct, frozen=True, rename="camel"):
    """metav1.ListOptions; other values of its fields are refused."""

    watch: bool = False
    resource_version: int = 0
    resource_version_match: Literal["NotOlderThan"] | None = None
    continue_token: str = msgspec.field(default="", name="continue")
    label_selector: str = ""
    field_selector: str = ""
    allow_watch_bookmarks: bool = False
    send_initial_events: bool | None = None
    timeout_seconds: int = 0


Options = TypeVar("Options")


def read_query(query: Mapping[str, str], options: type[Options]) -> Options:
    """Decode the options of a query; empty ones count as absent."""
    try:
        return msgspec.convert(
            {key: value for key, value in query.items() if value}, options, strict=False
        )
    except msgspec.ValidationError as error:
        raise bad_request(f"the query is invalid: {error}") from error


_JSON: Final = "application/json"
_REFUSED: Final = {
    "application/vnd.kubernetes.protobuf": "reads no protobuf; use kubectl create -f or kubectl apply -f, which send JSON",
    "application/apply-patch+yaml": "has no server-side apply; use kubectl apply without --server-side",
    "application/json-patch+json": "has no JSON patch; use kubectl patch --type=merge",
}


def media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def read_object(kind: Kind, body: bytes, content_type: str) -> Json:
    """Decode the object of a create or an update."""
    sent = read_json(body, content_type, kind.kind)
    if not isinstance(sent.get("metadata") or {}, dict):
        raise unrecognized(kind.kind, "json: cannot unmarshal metadata into an object", body)
    version = sent.get("apiVersion") or ("" if kind.custom else kind.api_version)
    name = sent.get("kind") or ("" if kind.custom else kind.kind)
    # The rules of custom resources check the name.
    if version != kind.api_version or not name or (name != kind.kind and not kind.custom):
        raise bad_request(
            f'{name} in version "{version}" cannot be handled as a {kind.kind}: expected'
            f" {kind.kind} of version {kind.api_version}"
        )
    return sent


def read_json(body: bytes, content_type: str, kind: str) -> Json:
    """Decode an object; `kind` is for messages."""
    media = media_type(content_type)
    if media not in (_JSON, ""):
        raise _unknown_format(media, _JSON)
    try:
        sent: Json = msgspec.json.decode(body, type=dict)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise unrecognized(
            kind, f"couldn't get version/kind; json parse error: {error}", body
        ) from error
    return sent


def check_no_dry_run(options: Mapping[str, Any]) -> None:
    """Refuse a dry run, instead of doing what it asks for."""
    if options.get("dryRun"):
        raise bad_request(
            "this playground's API server has no dry run; leave out --dry-run=server, or use --dry-run=client"
        )


def _unknown_format(media: str, *accepted: str) -> Failure:
    if media in _REFUSED:
        return unsupported_media_type(f"this playground's API server {_REFUSED[media]}")
    return unsupported_media_type(
        "the body of the request was in an unknown format - accepted media types include:"
        f" {', '.join(accepted)}"
    )


def unrecognized(kind: str, why: str, body: bytes) -> Failure:
    shown = body[:1024].decode(errors="replace")
    return bad_request(
        f"the object provided is unrecognized (must be of type {kind}): {why} ({shown})"
    )


def apply_patch(
    kind: Kind,
    old: Json,
    body: bytes,
    patch_type: PatchType,
) -> Json:
    """Apply a patch to a copy of `old`."""
    try:
        patch: Json = msgspec.json.decode(body, type=dict)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_request(f"error decoding patch: {error}") from error
    if patch_type is PatchType.STRATEGIC_MERGE:
        patched = strategic_merge_patch(old, patch, kind.schema)
    else:
        patched = merge_patch(old, patch)
    if not isinstance(patched.get("metadata") or {}, dict):
        raise undecodable_patch(patched, "json: cannot unmarshal into an object")
    return (
        patched
        if kind.custom
        else {
            **patched,
            "kind": kind.kind,
            "apiVersion": kind.api_version,
        }
    )


def patch_type_of(kind: Kind, content_type: str) -> PatchType:
    """The patch type of a Content-Type. Checked before the object is looked up."""
    accepted = [PatchType.MERGE]
    if not kind.custom:
        accepted.append(PatchType.STRATEGIC_MERGE)
    media = media_type(content_type)
    if media not in accepted:
        raise _unknown_format(media, *accepted)
    return PatchType(media)


def read_binding(body: bytes, content_type: str) -> str:
    """The node of a Binding."""
    target = read_json(body, content_type, "Binding").get("target")
    if not isinstance(target, dict) or not isinstance(target.get("name"), str):
        raise unrecognized("Binding", "it has no target.name", body)
    return str(target["name"])


def merge_patch(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7386). `target` does not change; parts are shared."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged
