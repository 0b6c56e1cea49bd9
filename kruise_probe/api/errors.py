"""Errors of requests to the API server, one exception per meaning.

    ApiError
    ├── BadRequest 400          ├── Conflict 409          ├── TooManyRequests 429
    ├── Unauthorized 401        │   └── AlreadyExists     └── ServerError 5xx
    ├── Forbidden 403           ├── Expired 410
    ├── NotFound 404            └── Invalid 422
    ConnectionFailed            no usable response: refused, reset, timed out, not HTTP

Source: apimachinery pkg/api/errors; the `Status` object of the server's response.
"""

import random
from typing import ClassVar, Final

import msgspec

MAX_RETRY_AFTER_SECONDS: Final = 60.0
"""Maximum Retry-After that a requeue honors, so that a faulty proxy cannot delay a node's results for a day."""

MAX_LINE: Final = 200

RETRY_AFTER_JITTER: Final = 0.2
"""A Retry-After is extended by up to this share, so that clients do not retry at the same time. It is never shortened,
because it is the minimum."""


class Status(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of metav1.Status that we read."""

    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: "StatusDetails | None" = None


class StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    """Details of a Status. `retryAfterSeconds` accompanies 429 and 503, like the Retry-After header."""

    retry_after_seconds: float | None = None


class FatalError(Exception):
    """Ends the process with exit code 1 and prints its message as one line."""


class KubeError(Exception):
    """A failed request to the API server."""


class ConnectionFailed(KubeError):
    """No usable response: refused, reset, timed out, TLS error, or not HTTP."""


class NoResponse(ConnectionFailed):
    """The server was connected, and sent nothing until the deadline."""


class ResponseTooLarge(ConnectionFailed):
    """The response exceeds the client's limit; a list may fit in smaller pages."""


class ApiError(KubeError):
    """An error response of the API server.

    Attributes:
        code: HTTP status.
        reason: machine-readable reason of the Status object, e.g. `AlreadyExists`; may be empty.
        message: the server's error message.
        request: the failed request, e.g. `PATCH pods/status default/web-0`.
        retry_after_seconds: the least pause before the request is sent again: Retry-After of the response, unless who sent it
            knows better; or None.
    """

    default_code: ClassVar[int] = 0

    def __init__(
        self,
        message: str,
        *,
        code: int = 0,
        reason: str = "",
        request: str = "",
        retry_after_seconds: float | None = None,
    ) -> None:
        self.code = code or self.default_code
        self.reason = reason
        self.message = message
        self.request = request
        self.retry_after_seconds = retry_after_seconds
        text = f"{self.code} {reason}: {message}" if reason else f"{self.code}: {message}"
        if request:
            text = f"{request}: {text}"
        super().__init__(text)


class BadRequest(ApiError):
    default_code = 400


class Unauthorized(ApiError):
    default_code = 401


class Forbidden(ApiError):
    default_code = 403


class NotFound(ApiError):
    """404 of the API server for an object. Any other 404 is an ApiError: it does not show that an object is gone."""

    default_code = 404


class Conflict(ApiError):
    default_code = 409


class AlreadyExists(Conflict):
    """409 with reason AlreadyExists: an object of this name exists."""


class Expired(ApiError):
    """410: the resource version or the continue token is too old; list again."""

    default_code = 410


class Invalid(ApiError):
    """422: validation failed, or a patch has another `metadata.uid` than the object."""

    default_code = 422


class TooManyRequests(ApiError):
    default_code = 429


class ServerError(ApiError):
    default_code = 500


_BY_CODE: Final = {kind.default_code: kind for kind in ApiError.__subclasses__()}


def error_of(
    code: int, status: Status | None, *, request: str = "", retry_after_seconds: float | None = None
) -> ApiError:
    """Return the typed error for a response with HTTP status `code`, or for an ERROR event of a watch."""
    reason = (status and status.reason) or ""
    message = (status and status.message) or "the server gave no message"
    if retry_after_seconds is None and status and status.details:
        retry_after_seconds = status.details.retry_after_seconds
    kind = ServerError if code >= 500 else _BY_CODE.get(code, ApiError)
    if kind is NotFound and reason != "NotFound":
        kind = ApiError  # a proxy's page, or the path of a CRD that is not installed: the object may exist
    if reason == "AlreadyExists":
        kind = AlreadyExists
    return kind(
        message, code=code, reason=reason, request=request, retry_after_seconds=retry_after_seconds
    )


def first_of(error: BaseException) -> BaseException:
    """The error itself, or the first error of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def first_line(text: str) -> str:
    """The first line of an error, shortened to `MAX_LINE` characters: for conditions and one-line messages."""
    return text.partition("\n")[0][:MAX_LINE]


def retry_after_seconds(error: BaseException | None) -> float:
    """Return the Retry-After of `error` with jitter, or 0.0 without one.

    Requeues use it. Heartbeats and leader election do not, because their deadlines are shorter.
    """
    seconds = error.retry_after_seconds if isinstance(error, ApiError) else None
    if seconds is None:
        return 0.0
    return min(seconds, MAX_RETRY_AFTER_SECONDS) * (1 + RETRY_AFTER_JITTER * random.random())
