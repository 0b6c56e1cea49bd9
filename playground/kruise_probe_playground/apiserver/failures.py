"""Failures of requests, as metav1.Status.

Source: apimachinery pkg/api/errors/errors.go and pkg/util/validation/field/errors.go.
Differs: only the failures of this server.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from kruise_probe_playground.apiserver.schema import Json


class Cause(NamedTuple):
    """One invalid field.

    Attributes:
        reason: e.g. FieldValueInvalid.
        message: e.g. `Invalid value: "x": must be …`.
        field: e.g. `spec.probes[0].name`.
    """

    reason: str
    message: str
    field: str


class FailureTarget(NamedTuple):
    """The object of a failure. `resource` is the plural; only 422 uses `kind`."""

    group: str
    resource: str
    kind: str
    name: str = ""

    @property
    def qualified_resource(self) -> str:
        return f"{self.resource}.{self.group}" if self.group else self.resource

    @property
    def qualified_kind(self) -> str:
        return f"{self.kind}.{self.group}" if self.group else self.kind

    def details(self, *, kind: str = "") -> Json:
        """StatusDetails; `kind` is the resource unless it is given."""
        details = {
            "name": self.name,
            "group": self.group,
            "kind": kind or self.resource,
        }
        return {key: value for key, value in details.items() if value}


class Failure(Exception):
    """A failed request: `status` is the body of the response, `code` its HTTP status."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Json | None = None,
    ) -> None:
        self.code = code
        self.status: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            **({"reason": reason} if reason else {}),
            **({"details": details} if details is not None else {}),
            "code": code,
        }
        super().__init__(f"{code} {reason}: {message}")


def success(more: Json) -> Json:
    """A metav1.Status for a request that has no object to return."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        **more,
    }


def bad_request(message: str) -> Failure:
    return Failure(400, "BadRequest", message)


def not_found(target: FailureTarget) -> Failure:
    message = f'{target.qualified_resource} "{target.name}" not found'
    return Failure(404, "NotFound", message, details=target.details())


def no_such_path() -> Failure:
    message = "the server could not find the requested resource"
    return Failure(404, "NotFound", message, details={})


def not_offered(
    group: str,
    version: str,
    plural: str,
    offered: Iterable[str],
) -> Failure:
    """The failure for a kind that only a real cluster has."""
    group_version = f"{group}/{version}" if group else version
    message = (
        "the server could not find the requested resource: the playground's API server offers no"
        f" {plural!r} of {group_version}; it offers {', '.join(sorted(offered))}"
    )
    return Failure(404, "NotFound", message, details={})


def method_not_allowed() -> Failure:
    message = "the server does not allow this method on the requested resource"
    return Failure(405, "MethodNotAllowed", message, details={})


def already_exists(target: FailureTarget) -> Failure:
    message = f'{target.qualified_resource} "{target.name}" already exists'
    return Failure(409, "AlreadyExists", message, details=target.details())


def conflict(target: FailureTarget, why: str = "") -> Failure:
    why = why or (
        "the object has been modified; please apply your changes to the latest version and try again"
    )
    message = f'Operation cannot be fulfilled on {target.qualified_resource} "{target.name}": {why}'
    return Failure(409, "Conflict", message, details=target.details())


def forbidden(
    target: FailureTarget,
    why: str,
    causes: Sequence[Cause] = (),
) -> Failure:
    name = f' "{target.name}"' if target.name else ""
    message = f"{target.qualified_resource}{name} is forbidden: {why}"
    details = target.details()
    if causes:
        details["causes"] = [cause._asdict() for cause in causes]
    return Failure(403, "Forbidden", message, details=details)


def gone(message: str) -> Failure:
    return Failure(410, "Expired", message)


def unsupported_media_type(message: str) -> Failure:
    return Failure(415, "UnsupportedMediaType", message, details={})


def undecodable_patch(patched: Any, why: str) -> Failure:
    cause = invalid_value(
        "patch",
        msgspec.json.encode(patched).decode(),
        why,
    )
    return invalid(FailureTarget("", "", ""), [cause])


def invalid(target: FailureTarget, causes: Sequence[Cause]) -> Failure:
    seen = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in causes))
    listed = seen[0] if len(seen) == 1 else f"[{', '.join(seen)}]"
    message = f'{target.qualified_kind} "{target.name}" is invalid: {listed}'
    details = target.details(kind=target.kind)
    details["causes"] = [cause._asdict() for cause in causes]
    return Failure(422, "Invalid", message, details=details)


def required(field: str, detail: str = "") -> Cause:
    message = f"Required value: {detail}" if detail else "Required value"
    return Cause("FieldValueRequired", message, field)


def invalid_value(field: str, value: Any, detail: str) -> Cause:
    return Cause(
        "FieldValueInvalid",
        f"Invalid value: {show(value)}: {detail}",
        field,
    )


def unsupported(
    field: str,
    value: Any,
    supported: Sequence[Any],
) -> Cause:
    listed = ", ".join(show(name) for name in supported)
    message = f"Unsupported value: {show(value)}: supported values: {listed}"
    return Cause("FieldValueNotSupported", message, field)


def too_long(field: str, most: int) -> Cause:
    return Cause("FieldValueTooLong", f"Too long: may not be more than {most} bytes", field)


def forbidden_field(field: str, detail: str) -> Cause:
    return Cause("FieldValueForbidden", f"Forbidden: {detail}", field)


def duplicate(field: str, value: Any) -> Cause:
    return Cause(
        "FieldValueDuplicate",
        f"Duplicate value: {show(value)}",
        field,
    )


def show(value: Any) -> str:
    """A value as Go prints it in error messages: strings in quotes, numbers without, `null`."""
    return msgspec.json.encode(value).decode()
