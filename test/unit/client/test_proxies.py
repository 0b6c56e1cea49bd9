"""Which proxy leads to the API server: as Go programs read the environment."""

import pytest

from kruise_probe.client.proxies import proxy_from_environment

PROXY = "http://proxy:3128"


@pytest.mark.parametrize(
    ("server", "environ", "proxy"),
    [
        pytest.param("https://api:6443", {}, None, id="nothing-set"),
        pytest.param("https://api:6443", {"HTTPS_PROXY": PROXY}, PROXY, id="upper-case"),
        pytest.param("https://api:6443", {"https_proxy": PROXY}, PROXY, id="lower-case"),
        pytest.param("https://api:6443", {"HTTPS_PROXY": "proxy:3128"}, PROXY, id="bare-host"),
        pytest.param("https://api:6443", {"HTTP_PROXY": PROXY}, None, id="other-scheme"),
        pytest.param("http://api:8080", {"HTTP_PROXY": PROXY}, PROXY, id="plain"),
    ],
)
def test_the_scheme_chooses_the_variable(
    server: str, environ: dict[str, str], proxy: str | None
) -> None:
    assert proxy_from_environment(server, environ) == proxy


@pytest.mark.parametrize(
    ("server", "no_proxy", "proxied"),
    [
        pytest.param("https://127.0.0.1:6443", "", False, id="loopback"),
        pytest.param("https://[::1]:6443", "", False, id="loopback-v6"),
        pytest.param("https://localhost:6443", "", False, id="localhost"),
        pytest.param("https://10.96.0.1:443", "10.96.0.0/12", False, id="cidr"),
        pytest.param("https://10.200.0.1:443", "10.96.0.0/12", True, id="outside-of-cidr"),
        pytest.param("https://10.96.0.1:443", "10.96.0.1", False, id="address"),
        pytest.param("https://[fd00::1]:443", "fd00::/8", False, id="cidr-v6"),
        pytest.param("https://api.corp.com", "corp.com", False, id="domain-and-below"),
        pytest.param("https://corp.com", "corp.com", False, id="domain-itself"),
        pytest.param("https://corp.com", ".corp.com", True, id="suffix-without-itself"),
        pytest.param("https://api.corp.com", "*.corp.com", False, id="star-suffix"),
        pytest.param("https://notcorp.com", "corp.com", True, id="no-substring"),
        pytest.param("https://API.corp.com", "api.CORP.com", False, id="case"),
        pytest.param("https://api.x:6443", "api.x:6443", False, id="port"),
        pytest.param("https://api.x:6443", "api.x:443", True, id="other-port"),
        pytest.param("https://api.x", "api.x:443", False, id="default-port"),
        pytest.param("https://api.x", "a, b ,*", False, id="star"),
        pytest.param("https://api.x", " , ,", True, id="empty-entries"),
    ],
)
def test_no_proxy_names_what_is_reached_directly(server: str, no_proxy: str, proxied: bool) -> None:
    found = proxy_from_environment(server, {"HTTPS_PROXY": PROXY, "no_proxy": no_proxy})

    assert (found is not None) is proxied
