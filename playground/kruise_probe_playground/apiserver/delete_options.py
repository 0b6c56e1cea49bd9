"""Reads the DeleteOptions of a request, from its body and its query.

Source: apiserver pkg/endpoints/handlers/delete.go; apimachinery pkg/apis/meta/v1/validation (ValidateDeleteOptions).
Differs: options that the body does not set may be in the query.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
import yaml

from kruise_probe_playground.apiserver import protobuf
from kruise_probe_playground.apiserver.bodies import (
    JSON,
    YAML,
    media_type,
    unknown_format,
    unrecognized,
)
from kruise_probe_playground.apiserver.deleting import DeleteOptions
from kruise_probe_playground.apiserver.failures import (
    Target,
    bad_request,
    invalid,
    invalid_value,
    unsupported,
)

_POLICIES: Final = ("Foreground", "Background", "Orphan")
_DRY_RUN: Final = "All"


class _Preconditions(msgspec.Struct, rename="camel"):
    uid: str | None = None
    resource_version: str | None = None


class _DeleteOptions(msgspec.Struct, rename="camel"):
    kind: str = "DeleteOptions"
    grace_period_seconds: int | None = None
    orphan_dependents: bool | None = None
    propagation_policy: str | None = None
    preconditions: _Preconditions | None = None
    dry_run: list[str] | None = None


_decode_delete_options = msgspec.json.Decoder(_DeleteOptions).decode


def _sent_delete_options(body: bytes, content_type: str) -> _DeleteOptions:
    if not body.strip():
        return _DeleteOptions()
    match media_type(content_type):
        case protobuf.MEDIA_TYPE:
            return msgspec.convert(protobuf.read_delete_options(body), _DeleteOptions)
        case media if media == YAML:
            return msgspec.convert(yaml.safe_load(body), _DeleteOptions)
        case media if media in JSON:
            return _decode_delete_options(body)
        case _:
            raise unknown_format()


def read_delete_options(
    body: bytes, query: Mapping[str, str], content_type: str = ""
) -> DeleteOptions:
    """DeleteOptions of the body; fields that it does not set come from the query."""
    try:
        sent = _sent_delete_options(body, content_type)
        grace = query.get("gracePeriodSeconds")
        if sent.grace_period_seconds is None and grace:
            sent.grace_period_seconds = int(grace)
    except (msgspec.MsgspecError, yaml.YAMLError, ValueError) as error:
        raise unrecognized("DeleteOptions", str(error), body) from error
    if sent.kind not in ("", "DeleteOptions"):
        raise bad_request(
            f'no kind "{sent.kind}" is registered for the internal version of DeleteOptions'
        )
    if sent.propagation_policy is None:
        sent.propagation_policy = query.get("propagationPolicy")
    if not sent.dry_run and query.get("dryRun"):
        sent.dry_run = [query["dryRun"]]
    _check_delete_options(sent)
    policy = sent.propagation_policy or ""
    if sent.orphan_dependents is not None and not policy:
        policy = "Orphan" if sent.orphan_dependents else "Background"
    preconditions = sent.preconditions or _Preconditions()
    return DeleteOptions(
        sent.grace_period_seconds,
        preconditions.uid or "",
        preconditions.resource_version or "",
        policy,
        dry_run=bool(sent.dry_run),
    )


def _check_delete_options(sent: _DeleteOptions) -> None:
    causes = []
    policy, dry_run = sent.propagation_policy, sent.dry_run or []
    if policy is not None and sent.orphan_dependents is not None:
        why = "orphanDependents and deletionPropagation cannot be both set"
        causes.append(invalid_value("propagationPolicy", policy, why))
    if policy is not None and policy not in _POLICIES:
        causes.append(unsupported("propagationPolicy", policy, [*_POLICIES, "nil"]))
    if any(each != _DRY_RUN for each in dry_run):
        causes.append(unsupported("dryRun", dry_run, [_DRY_RUN]))
    if causes:
        raise invalid(Target("meta.k8s.io", "", "DeleteOptions"), causes)
