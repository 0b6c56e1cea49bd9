"""Reads the bodies of requests.

Source: apiserver pkg/endpoints/handlers/{create,update,patch}.go.
Differs: only the protobuf that kubectl sends; no JSON patch, no server-side apply.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
import yaml

from kruise_probe.client.request import PatchType
from kruise_probe_playground.apiserver import protobuf
from kruise_probe_playground.apiserver.failures import (
    Failure,
    bad_request,
    patch_failed,
    undecodable_patch,
    unsupported_media_type,
)
from kruise_probe_playground.apiserver.kinds import Kind
from kruise_probe_playground.apiserver.schema import Json
from kruise_probe_playground.apiserver.strategic import PatchFailed, strategic_merge_patch

_YAML: Final = "application/yaml"
_JSON: Final = "application/json"


def media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def read_object(kind: Kind, body: bytes, content_type: str) -> Json:
    """Decode the object of a create or an update."""
    if media_type(content_type) == protobuf.MEDIA_TYPE:
        return _read_protobuf(kind.kind, body)
    sent = read_json(body, content_type, kind.kind)
    if not isinstance(sent.get("metadata") or {}, dict):
        raise unrecognized(kind.kind, "json: cannot unmarshal metadata into an object", body)
    if kind.custom and not sent.get("kind"):
        raise unrecognized(kind.kind, f"Object 'Kind' is missing in '{_shown(body)}'", body)
    version = sent.get("apiVersion") or ("" if kind.custom else kind.api_version)
    name = sent.get("kind") or kind.kind
    if version != kind.api_version and kind.custom:
        raise bad_request(
            f"the API version in the data ({version}) does not match the expected API version"
            f" ({kind.api_version})"
        )
    if not kind.custom and (version, name) != (kind.api_version, kind.kind):
        raise bad_request(
            f'{name} in version "{version}" cannot be handled as a {kind.kind}: expected'
            f" {kind.kind} of version {kind.api_version}"
        )
    return sent


def read_json(body: bytes, content_type: str, kind: str) -> Json:
    """Decode an object in JSON or YAML; `kind` is for messages."""
    sent = _decode(body, content_type, kind)
    if not isinstance(sent, dict):
        raise unrecognized(kind, "json: cannot unmarshal into an object", body)
    return sent


def _decode(body: bytes, content_type: str, kind: str) -> Any:
    media = media_type(content_type)
    try:
        if media in (_JSON, ""):
            return msgspec.json.decode(body)
        if media == _YAML:
            return msgspec.json.decode(msgspec.json.encode(yaml.safe_load(body)))
    except (msgspec.DecodeError, yaml.YAMLError, TypeError, ValueError) as error:
        raise unrecognized(
            kind, f"couldn't get version/kind; json parse error: {error}", body
        ) from error
    raise _unknown_format(_JSON, _YAML)


def duplicate_fields(body: bytes) -> Sequence[str]:
    """The paths of keys that a JSON object has twice; none for other bodies."""
    found: list[tuple[Json, str]] = []

    def collect(pairs: Sequence[tuple[str, Any]]) -> Json:
        made = dict(pairs)
        if len(made) < len(pairs):
            names = [name for name, _ in pairs]
            found.extend((made, name) for name in made if names.count(name) > 1)
        return made

    try:
        document = json.loads(body, object_pairs_hook=collect)
    except (ValueError, RecursionError):
        return ()
    return [f"{path}{name}" for made, name in found for path in _paths_to(document, made)]


def _paths_to(value: Any, wanted: Json, path: str = "") -> Iterator[str]:
    if value is wanted:
        yield path
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from _paths_to(each, wanted, f"{path}{key}.")
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _paths_to(each, wanted, f"{path[:-1]}[{index}].")


def _unknown_format(*accepted: str) -> Failure:
    return unsupported_media_type(
        "the body of the request was in an unknown format - accepted media types include:"
        f" {', '.join(accepted)}"
    )


def read_review(kind: str, body: bytes, content_type: str) -> Json:
    """Decode a review such as a SelfSubjectAccessReview."""
    if media_type(content_type) != protobuf.MEDIA_TYPE:
        return read_json(body, content_type, kind)
    return _read_protobuf(kind, body)


def _read_protobuf(kind: str, body: bytes) -> Json:
    """Decode it completely, or refuse it with what the client can do about it."""
    try:
        return protobuf.read_object(kind, body)
    except (ValueError, KeyError) as error:
        raise unsupported_media_type(
            f"the playground's API server cannot decode this protobuf ({error}); send application/json: in Go,"
            ' rest.Config.ContentType = "application/json"'
        ) from error


def unrecognized(kind: str, why: str, body: bytes) -> Failure:
    return bad_request(
        f"the object provided is unrecognized (must be of type {kind}): {why} ({_shown(body)})"
    )


def _shown(body: bytes) -> str:
    return body[:1024].decode(errors="replace")


def apply_patch(kind: Kind, old: Json, body: bytes, patch_type: PatchType) -> Json:
    """Apply a patch to a copy of `old`."""
    try:
        patch: Json = msgspec.json.decode(body, type=dict)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_request(f"error decoding patch: {error}") from error
    try:
        if patch_type is PatchType.STRATEGIC_MERGE:
            patched = strategic_merge_patch(old, patch, kind.schema)
        else:
            patched = merge_patch(old, patch)
    except PatchFailed as error:
        raise patch_failed(error.code, str(error)) from error
    if not isinstance(patched.get("metadata") or {}, dict):
        raise undecodable_patch(patched, "json: cannot unmarshal into an object")
    return patched if patch_type is PatchType.STRATEGIC_MERGE else _with_type(kind, old, patched)


def _with_type(kind: Kind, old: Json, patched: Json) -> Json:
    """Check the type of a patched object. Go decodes it again, except after a strategic merge patch."""
    name, version = patched.get("kind"), patched.get("apiVersion")
    if kind.custom and not name:
        raise undecodable_patch(patched, "Object 'Kind' is missing")
    if kind.custom and not version:
        raise patch_failed(500, "Internal error occurred: Object 'apiVersion' is missing")
    if not version:  # Go decodes it as the internal type, whose fields have other names
        return {**patched, "metadata": {}}
    if not kind.custom and (version, name or old["kind"]) != (old["apiVersion"], old["kind"]):
        raise undecodable_patch(patched, f'no kind "{name}" is registered for version "{version}"')
    return patched


def patch_type_of(kind: Kind, content_type: str) -> PatchType:
    """The patch type of a Content-Type. Checked before the object is looked up."""
    accepted = [PatchType.MERGE]
    if not kind.custom:
        accepted.append(PatchType.STRATEGIC_MERGE)
    media = media_type(content_type)
    if media == "application/apply-patch+yaml":
        raise unsupported_media_type(
            "this playground's API server has no server-side apply; use kubectl apply without"
            " --server-side"
        )
    if media == "application/json-patch+json":
        raise unsupported_media_type(
            "this playground's API server has no JSON patch; use kubectl patch --type=merge"
        )
    if media not in accepted:
        raise _unknown_format(*accepted)
    return PatchType(media)


class _BindingTarget(msgspec.Struct):
    name: str


class _Binding(msgspec.Struct):
    target: _BindingTarget


def read_binding(body: bytes) -> str:
    """The node of a Binding."""
    try:
        return msgspec.json.decode(body, type=_Binding).target.name
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise unrecognized("Binding", str(error), body) from error


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
