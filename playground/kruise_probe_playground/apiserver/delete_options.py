"""Reads the DeleteOptions of a request, from its body and its query.

Source: apiserver pkg/endpoints/handlers/delete.go; apimachinery pkg/apis/meta/v1/validation (ValidateDeleteOptions).
Differs: no preconditions in the query; no policy but Background.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from kruise_probe_playground.apiserver.bodies import read_json, unrecognized
from kruise_probe_playground.apiserver.deleting import DeleteOptions
from kruise_probe_playground.apiserver.failures import (
    FailureTarget,
    bad_request,
    check,
    invalid_value,
    unsupported,
)
from kruise_probe_playground.apiserver.schema import Json

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


def read_delete_options(
    body: bytes, query: Mapping[str, str], content_type: str = ""
) -> DeleteOptions:
    """DeleteOptions of the body; of the query only if there is no body."""
    try:
        read = _decoded(body, content_type) if body else _of_query(query)
        given = {key: each for key, each in read.items() if each is not None}
        sent = msgspec.convert(given, _DeleteOptions, strict=bool(body))
    except (msgspec.MsgspecError, ValueError) as error:
        raise unrecognized("DeleteOptions", str(error), body) from error
    if sent.kind not in ("", "DeleteOptions"):
        raise bad_request(
            f'no kind "{sent.kind}" is registered for the internal version of DeleteOptions'
        )
    _check_delete_options(sent)
    preconditions = sent.preconditions or _Preconditions()
    return DeleteOptions(
        sent.grace_period_seconds,
        preconditions.uid or "",
        preconditions.resource_version or "",
        dry_run=bool(sent.dry_run),
    )


def _of_query(query: Mapping[str, str]) -> Json:
    return {
        "gracePeriodSeconds": query.get("gracePeriodSeconds"),
        "orphanDependents": query.get("orphanDependents"),
        "propagationPolicy": query.get("propagationPolicy"),
        "dryRun": [query["dryRun"]] if "dryRun" in query else None,
    }


def _decoded(body: bytes, content_type: str) -> Json:
    return read_json(body, content_type, "DeleteOptions")


def _check_delete_options(sent: _DeleteOptions) -> None:
    policy, dry_run = sent.propagation_policy, sent.dry_run or []
    check(
        FailureTarget("meta.k8s.io", "", "DeleteOptions"),
        (
            bool(sent.orphan_dependents),
            invalid_value(
                "orphanDependents", True, "this server deletes dependents with their owner"
            ),
        ),
        (
            policy not in (None, "Background"),
            unsupported("propagationPolicy", policy, ["Background", "nil"]),
        ),
        (any(each != _DRY_RUN for each in dry_run), unsupported("dryRun", dry_run, [_DRY_RUN])),
    )
