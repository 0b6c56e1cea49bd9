"""Sends requests with a bearer token. kubectl is not used, because it reads an object before it patches it. `wait_until` needs no event loop."""

import base64
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import NamedTuple

from support.kubectl import Kubectl
from support.patience import PATIENCE_SECONDS
from support.wire import Json

SECONDS = 30.0


class TextResponse(NamedTuple):
    """HTTP status and the body as text."""

    code: int
    text: str


def bound_to(kind: str, name: str) -> tuple[str, str]:
    """Flags of `kubectl create token`, for a token that ends with this object."""
    return f"--bound-object-kind={kind}", f"--bound-object-name={name}"


def wait_until(what: str, holds: Callable[[], bool], *, seconds: float = PATIENCE_SECONDS) -> None:
    give_up = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < give_up, f"not within {seconds:g} s: {what}"


class TokenClient:
    """Sends requests with a token to the API server of `admin`'s kubeconfig."""

    def __init__(self, admin: Kubectl, token: str) -> None:
        view = admin.run("config", "view", "--raw", "--flatten", "--minify", "-o", "json")
        cluster = json.loads(view)["clusters"][0]["cluster"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._server = cluster["server"]
        self._tls = ssl.create_default_context(cadata=authority)
        self._token = token.strip()

    def send(
        self, method: str, path: str, body: Json | None = None, *, as_user: str = ""
    ) -> TextResponse:
        """One request, also as another user; a PATCH is a merge patch."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        request = urllib.request.Request(
            self._server + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self._token}", "Content-Type": kind},
        )
        if as_user:
            request.add_header("Impersonate-User", as_user)
        # Without the proxy of the environment, because the cluster is on this machine.
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}),
            urllib.request.HTTPSHandler(context=self._tls),
        )
        try:
            with opener.open(request, timeout=SECONDS) as response:
                return TextResponse(response.status, response.read().decode())
        except urllib.error.HTTPError as error:
            return TextResponse(error.code, error.read().decode())
