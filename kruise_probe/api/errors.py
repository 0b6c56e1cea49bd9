"""What the API server can answer instead of the object, as one exception per meaning.

    ApiError
    ├── BadRequest 400          ├── Conflict 409          ├── TooManyRequests 429
    ├── Unauthorized 401        │   └── AlreadyExists     └── ServerError 5xx
    ├── Forbidden 403           ├── Expired 410
    ├── NotFound 404            └── Invalid 422
    ConnectionFailed            no usable answer at all: refused, reset, timed out, not HTTP

Source: apimachinery pkg/api/errors; the `Status` object of the server's answer.
"""

import random
from contextlib import suppress
from typing import ClassVar, Final

import msgspec

MAX_WISH_SECONDS: Final = 60.0
"""So long at most is a Retry-After obeyed after the request that it answered: no proxy holds a node's results back
for a day."""

WISH_JITTER: Final = 0.2
"""A wait that the server asked for is stretched by up to this share, so that refused clients do not come back
together; never shortened, the server named the least."""


class Status(msgspec.Struct, frozen=True, rename="camel"):
    """The part of metav1.Status that we read."""

    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: "StatusDetails | None" = None


class StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    """`retryAfterSeconds` is the server's wish for 429 and 503, beside the header."""

    retry_after_seconds: int | None = None


class FatalError(Exception):
    """Ends the process with exit code 1; its message is the one line that a person gets to read."""


class KubeError(Exception):
    """Anything that kept a request to the API server from succeeding."""


class ConnectionFailed(KubeError):
    """No usable answer: refused, reset, timed out, TLS refused, or not HTTP."""


class ResponseTooLarge(ConnectionFailed):
    """The answer has more bytes than the client takes; a list may fit in smaller pages."""


class ApiError(KubeError):
    """The server's refusal.

    Attributes:
        code: HTTP status.
        reason: machine-readable reason of the Status object, e.g. `AlreadyExists`; may be empty.
        message: the server's sentence.
        request: what was asked, e.g. `PATCH pods/status default/web-0`.
        retry_after_seconds: the server's wish, or None.
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
        answer = f"{self.code} {reason}: {message}" if reason else f"{self.code}: {message}"
        super().__init__(f"{request}: {answer}" if request else answer)


class BadRequest(ApiError):
    default_code = 400


class Unauthorized(ApiError):
    default_code = 401


class Forbidden(ApiError):
    default_code = 403


class NotFound(ApiError):
    default_code = 404


class Conflict(ApiError):
    default_code = 409


class AlreadyExists(Conflict):
    """409 with reason AlreadyExists: a create found the name taken."""


class Expired(ApiError):
    """410: the resource version, or the continue token, is too old; list again."""

    default_code = 410


class Invalid(ApiError):
    """422: refused by validation; also a patch whose `metadata.uid` is not the object's."""

    default_code = 422


class TooManyRequests(ApiError):
    default_code = 429


class ServerError(ApiError):
    default_code = 500


_BY_CODE: dict[int, type[ApiError]] = {
    kind.default_code: kind
    for kind in (
        BadRequest,
        Unauthorized,
        Forbidden,
        NotFound,
        Conflict,
        Expired,
        Invalid,
        TooManyRequests,
    )
}


def error_of(
    code: int, status: Status | None, *, request: str = "", retry_after_seconds: float | None = None
) -> ApiError:
    """The typed error of an answer with HTTP status `code` (or of a watch's ERROR event)."""
    reason = (status and status.reason) or ""
    message = (status and status.message) or "the server gave no message"
    if (
        retry_after_seconds is None
        and status
        and status.details
        and status.details.retry_after_seconds
    ):
        with suppress(OverflowError):  # hundreds of digits are no wish
            retry_after_seconds = float(status.details.retry_after_seconds)
    kind = ServerError if code >= 500 else _BY_CODE.get(code, ApiError)
    if reason == "AlreadyExists":
        kind = AlreadyExists
    elif reason == "Expired":
        kind = Expired
    return kind(
        message, code=code, reason=reason, request=request, retry_after_seconds=retry_after_seconds
    )


def wish_seconds(error: BaseException | None) -> float:
    """How long the server asked to be left alone by `error`, jittered; 0.0 when it did not.

    For whoever tries again later. Heartbeats and leader election do not ask: their deadlines are shorter than a wish
    that outlives its request.
    """
    wish = error.retry_after_seconds if isinstance(error, ApiError) else None
    if wish is None:
        return 0.0
    return min(wish, MAX_WISH_SECONDS) * (1 + WISH_JITTER * random.random())
