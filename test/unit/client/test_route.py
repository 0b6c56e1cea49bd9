"""The way to a server, out of URLs."""

import ssl

import pytest

from kruise_probe.client.config import ClusterConfig, ConfigError
from kruise_probe.client.credentials import StaticCredentials
from kruise_probe.client.route import Route

TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def route(server: str, proxy: str | None = None, server_name: str | None = None) -> Route:
    return Route.of(
        ClusterConfig(
            server=server,
            tls=TLS if server.startswith("https") else None,
            credentials=StaticCredentials(),
            proxy=proxy,
            server_name=server_name,
        )
    )


@pytest.mark.parametrize(
    ("server", "endpoint", "host", "name"),
    [
        pytest.param("https://10.0.0.1:6443", "10.0.0.1:6443", "10.0.0.1:6443", "10.0.0.1", id="ip"),
        pytest.param("https://[fd00::1]:6443", "[fd00::1]:6443", "[fd00::1]:6443", "fd00::1", id="ip6"),
        pytest.param("https://[fd00::1]", "[fd00::1]:443", "[fd00::1]", "fd00::1", id="ip6-default"),
        pytest.param("https://k8s.example.", "k8s.example.:443", "k8s.example.", "k8s.example", id="dot"),
        pytest.param("http://K8s.example", "k8s.example:80", "k8s.example", "k8s.example", id="plain"),
        pytest.param("https://b\u00fccher.example:1", "xn--bcher-kva.example:1", "xn--bcher-kva.example:1", "xn--bcher-kva.example", id="idna"),
    ],
)  # fmt: skip
def test_a_server_is_found_and_named(server: str, endpoint: str, host: str, name: str) -> None:
    found = route(server)

    assert (str(found.first), found.host, found.server_name) == (endpoint, host, name)


def test_another_name_may_be_asked_of_the_certificate() -> None:
    assert route("https://10.0.0.1", server_name="kubernetes").server_name == "kubernetes"


def test_a_path_stands_before_each_target() -> None:
    assert route("https://r.example/k8s/c-1").target_prefix == "/k8s/c-1"
    assert route("https://r.example/a b\u00e9").target_prefix == "/a%20b%C3%A9"


def test_through_a_proxy_tls_asks_for_a_tunnel() -> None:
    found = route("https://k8s.example:6443/c", "http://us%40er:p%3Ass@proxy:3128")

    assert (str(found.first), found.target_prefix, found.proxy_tls) == ("proxy:3128", "/c", None)
    assert found.connect_request == (
        b"CONNECT k8s.example:6443 HTTP/1.1\r\nHost: k8s.example:6443\r\n"
        b"Proxy-Authorization: Basic dXNAZXI6cDpzcw==\r\n\r\n"
    )


def test_through_a_proxy_plain_http_names_the_server_in_each_request() -> None:
    found = route("http://k8s.example:8080/c", "https://proxy")

    assert (str(found.first), found.target_prefix) == ("proxy:443", "http://k8s.example:8080/c")
    assert found.proxy_tls is not None
    assert found.proxy_header == ""


@pytest.mark.parametrize(
    ("server", "proxy"),
    [
        pytest.param("https://k8s.example:port", None, id="port"),
        pytest.param("https://:6443", None, id="no-host"),
        pytest.param("https://a b:6443", None, id="space"),
        pytest.param("https://k8s.example", "http://me:hidden@proxy:99999", id="proxy-port"),
        pytest.param("https://k8s.example", "http://me:hidden@/", id="no-proxy-host"),
        pytest.param("https://k8s.example", "socks5://me:hidden@proxy", id="socks"),
        pytest.param("k8s.example:6443", None, id="no-scheme"),
    ],
)
def test_what_is_no_url_is_said_without_its_password(server: str, proxy: str | None) -> None:
    with pytest.raises(ConfigError, match=r"write http\(s\)://host:port") as raised:
        route(server, proxy)

    assert "hidden" not in str(raised.value)
