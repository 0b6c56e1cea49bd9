"""Which handler answers which path."""

import pytest

from kruise_probe.serving.http_messages import Request, Response
from kruise_probe.serving.routing import Router


async def exact(request: Request) -> Response:
    return Response.of_text("exact")


async def below(request: Request, name: str) -> Response:
    return Response.of_text(f"below {name!r}")


@pytest.mark.parametrize(
    ("method", "path", "status", "body"),
    [
        pytest.param("GET", "/readyz", 200, b"exact", id="get"),
        pytest.param("HEAD", "/readyz", 200, b"exact", id="head"),
        pytest.param("GET", "/readyz/", 200, b"below ''", id="below-without-a-name"),
        pytest.param("GET", "/readyz/a/b", 200, b"below 'a/b'", id="below"),
        pytest.param("POST", "/readyz/a", 405, b"405: Method Not Allowed", id="below-other-method"),
        pytest.param("POST", "/review", 200, b"exact", id="post"),
        pytest.param("GET", "/review", 405, b"405: Method Not Allowed", id="no-get"),
        pytest.param("HEAD", "/review", 405, b"405: Method Not Allowed", id="no-head"),
        pytest.param("GET", "/review/", 404, b"404: Not Found", id="nothing-below"),
        pytest.param("GET", "/readyzz", 404, b"404: Not Found", id="longer"),
        pytest.param("OPTIONS", "*", 404, b"404: Not Found", id="star"),
    ],
)
async def test_a_path_finds_its_handler(method: str, path: str, status: int, body: bytes) -> None:
    router = Router()
    router.add("GET", "/readyz", exact)
    router.add_below("GET", "/readyz", below)
    router.add("POST", "/review", exact)

    response = await router(Request(method, path))

    assert (response.status, response.body) == (status, body)


@pytest.mark.parametrize(("path", "allowed"), [("/get", "GET, HEAD"), ("/post", "POST")])
async def test_another_method_is_told_which_one(path: str, allowed: str) -> None:
    router = Router()
    router.add("GET", "/get", exact)
    router.add("POST", "/post", exact)

    assert (await router(Request("PUT", path))).headers == {"Allow": allowed}
