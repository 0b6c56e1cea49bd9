"""Which handler a path has."""

import pytest

from kruise_probe.serving.http_messages import HttpRequest, HttpResponse
from kruise_probe.serving.server import Router


async def exact(request: HttpRequest) -> HttpResponse:
    return HttpResponse.of_text("exact")


async def prefix(request: HttpRequest) -> HttpResponse:
    return HttpResponse.of_text("prefix")


HANDLERS = {"/readyz": exact, "/readyz/": prefix, "/metrics": exact}


@pytest.mark.parametrize(
    ("served", "method", "path", "status", "body"),
    [
        pytest.param("GET", "GET", "/readyz", 200, b"exact", id="exact"),
        pytest.param("GET", "HEAD", "/readyz", 200, b"exact", id="head"),
        pytest.param("GET", "GET", "/readyz/", 200, b"prefix", id="prefix"),
        pytest.param("GET", "GET", "/readyz/a/b", 200, b"prefix", id="below-prefix"),
        pytest.param("GET", "POST", "/readyz/a", 405, b"405: Method Not Allowed", id="other-method"),
        pytest.param("GET", "GET", "/metrics/", 404, b"404: Not Found", id="no-prefix"),
        pytest.param("GET", "GET", "/readyzz", 404, b"404: Not Found", id="longer"),
        pytest.param("GET", "OPTIONS", "*", 404, b"404: Not Found", id="star"),
        pytest.param("POST", "POST", "/metrics", 200, b"exact", id="post"),
        pytest.param("POST", "GET", "/metrics", 405, b"405: Method Not Allowed", id="post-only"),
        pytest.param("POST", "HEAD", "/metrics", 405, b"405: Method Not Allowed", id="no-head"),
    ],
)  # fmt: skip
async def test_the_router_selects_a_handler_by_path_and_method(
    served: str, method: str, path: str, status: int, body: bytes
) -> None:
    response = await Router(served, HANDLERS)(HttpRequest(method, path))

    assert (response.status, response.body) == (status, body)


@pytest.mark.parametrize(("method", "allowed"), [("GET", "GET, HEAD"), ("POST", "POST")])
async def test_a_wrong_method_is_refused_with_the_allowed_ones(method: str, allowed: str) -> None:
    response = await Router(method, HANDLERS)(HttpRequest("PUT", "/metrics"))

    assert response.headers == {"Allow": allowed}
