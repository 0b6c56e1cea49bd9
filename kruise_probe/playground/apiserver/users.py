"""Who sends a request: the bearer tokens that the API server accepts, and the user that each of them names.

Source: apiserver pkg/authentication/token/tokenfile (`--token-auth-file`).
Differs: the table is fixed when the server is made; every authenticated user is in `system:authenticated`.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

AUTHENTICATED: Final = "system:authenticated"


class User(NamedTuple):
    """A user as TokenReview describes one."""

    name: str
    groups: tuple[str, ...] = ()

    @property
    def all_groups(self) -> tuple[str, ...]:
        """The groups with `system:authenticated`, which the API server adds."""
        return (*self.groups, AUTHENTICATED)


Tokens = Mapping[str, User]
"""The token table: bearer token to user."""

NO_TOKENS: Final[Tokens] = {}
"""For tests of a bare server: it accepts every request, without a token."""


def user_of(authorization: str, tokens: Tokens) -> User | None:
    """The user that an `Authorization` header names; None when it carries no token of the table."""
    scheme, _, token = authorization.partition(" ")
    return tokens.get(token.strip()) if scheme.lower() == "bearer" else None
