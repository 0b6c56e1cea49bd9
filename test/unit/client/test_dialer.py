"""Addresses and headers that the dialer derives from URLs."""

import ssl

import pytest

from kruise_probe.client.config import ClusterConfig, ConfigError
from kruise_probe.client.credentials import StaticCredentials
from kruise_probe.client.dialer import Dialer

TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def dialer(server: str, proxy: str | None = None, server_name: str | None = None) -> Dialer:
    return Dialer.for_config(
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
def test_server_url_is_parsed(server: str, endpoint: str, host: str, name: str) -> None:
    found = dialer(server)

    assert (str(found.server), found.host_header, found.server_name) == (endpoint, host, name)


def test_server_name_overrides_the_host() -> None:
    assert dialer("https://10.0.0.1", server_name="kubernetes").server_name == "kubernetes"


def test_path_of_the_server_is_the_target_prefix() -> None:
    assert dialer("https://r.example/k8s/c-1").target_prefix == "/k8s/c-1"
    assert dialer("https://r.example/a b\u00e9").target_prefix == "/a%20b%C3%A9"


def test_tls_through_a_proxy_uses_connect() -> None:
    found = dialer("https://k8s.example:6443/c", "http://us%40er:p%3Ass@proxy:3128")

    assert (str(found.proxy), found.target_prefix, found.proxy_tls) == ("proxy:3128", "/c", None)
    assert found.connect_request == (
        b"CONNECT k8s.example:6443 HTTP/1.1\r\nHost: k8s.example:6443\r\n"
        b"Proxy-Authorization: Basic dXNAZXI6cDpzcw==\r\n\r\n"
    )


def test_plain_http_through_a_proxy_has_absolute_targets() -> None:
    found = dialer("http://k8s.example:8080/c", "https://proxy")

    assert (str(found.proxy), found.target_prefix) == ("proxy:443", "http://k8s.example:8080/c")
    assert found.proxy_tls is not None
    assert found.proxy_authorization == ""


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
def test_invalid_url_is_reported_without_its_password(server: str, proxy: str | None) -> None:
    with pytest.raises(ConfigError, match=r"write http\(s\)://host:port") as raised:
        dialer(server, proxy)

    assert "hidden" not in str(raised.value)
