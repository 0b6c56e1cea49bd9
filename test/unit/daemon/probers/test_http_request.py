"""What is sent. Expected bytes were compared with what kubelet 1.36's own prober sends."""

import socket

import pytest
from support.probing import result_of

from kruise_probe.api.core import HTTPGetAction, HTTPHeader
from kruise_probe.api.host_port import HostPort
from kruise_probe.daemon.probers.dialing import ProbeDialFailed
from kruise_probe.daemon.probers.http import HttpProber
from kruise_probe.daemon.probers.http_request import Headers
from kruise_probe.daemon.probers.prober import CouldNotProbe, Target
from kruise_probe.daemon.probers.urls import InvalidRequest, Url

POD = HostPort("10.0.0.1", 80)


def url(path: str = "/", *, scheme: str | None = None) -> Url:
    return Url.of_action(scheme, POD, path)


def headers(*given: tuple[str, str]) -> Headers:
    return Headers(
        [HTTPHeader(name=name, value=value) for name, value in given], user_agent="kruise-probe/1"
    )


def sent(*given: tuple[str, str], path: str = "/") -> list[str]:
    request = headers(*given).request(url(path))
    assert request.endswith(b"\r\n\r\n")
    return request.decode().removesuffix("\r\n\r\n").split("\r\n")


def test_defaults_are_kubelets() -> None:
    assert sent() == [
        "GET / HTTP/1.1",
        "Host: 10.0.0.1:80",
        "User-Agent: kruise-probe/1",
        "Accept: */*",
        "Connection: close",
    ]


@pytest.mark.parametrize(
    ("given", "lines"),
    [
        pytest.param(
            [("x-foo", "1"), ("X-FOO", " 2 ")],
            ["User-Agent: kruise-probe/1", "Accept: */*", "X-Foo: 1", "X-Foo: 2"],
            id="names-become-canonical-and-repeat",
        ),
        pytest.param(
            [("user-agent", ""), ("accept", "")], [], id="empty-user-agent-and-accept-are-left-out"
        ),
        pytest.param(
            [("User-Agent", "me"), ("Accept", "x")],
            ["User-Agent: me", "Accept: x"],
            id="defaults-can-be-overridden",
        ),
        pytest.param(
            [("Accept-Encoding", "gzip")],
            ["User-Agent: kruise-probe/1", "Accept: */*", "Accept-Encoding: gzip"],
            id="only-a-given-header-asks-for-compression",
        ),
        pytest.param(
            [("Content-Length", "7"), ("Transfer-Encoding", "chunked"), ("Trailer", "x")],
            ["User-Agent: kruise-probe/1", "Accept: */*"],
            id="headers-of-a-body-are-not-sent",
        ),
        pytest.param(
            [("A", "xü")],
            ["User-Agent: kruise-probe/1", "A: xü", "Accept: */*"],
            id="utf-8-values-are-sent",
        ),
    ],
)
def test_headers(given: list[tuple[str, str]], lines: list[str]) -> None:
    assert sent(*given)[2:-1] == lines


@pytest.mark.parametrize(
    ("given", "lines"),
    [
        pytest.param([("connection", "Close")], ["Connection: Close"], id="closes"),
        pytest.param([("Connection", "x, close")], ["Connection: x, close"], id="closes-too"),
        pytest.param(
            [("Connection", "keep-alive")],
            ["Connection: keep-alive", "Connection: close"],
            id="keep-alive",
        ),
        pytest.param(
            [("Connection", "Upgrade"), ("Upgrade", "h2c")],
            ["Connection: Upgrade", "Upgrade: h2c"],
            id="upgrade",
        ),
        pytest.param(
            [("Connection", "Upgrade")],
            ["Connection: Upgrade", "Connection: close"],
            id="upgrade-to-nothing",
        ),
        pytest.param(
            [("Upgrade", "h2c")], ["Upgrade: h2c", "Connection: close"], id="upgrade-not-announced"
        ),
    ],
)
def test_the_connection_is_closed_unless_the_headers_do_it_or_upgrade_it(
    given: list[tuple[str, str]], lines: list[str]
) -> None:
    assert sent(*given)[4:] == lines


@pytest.mark.parametrize(
    ("host", "line"),
    [
        ("example.com", "Host: example.com"),
        ("x:99999", "Host: x:99999"),
        ("", "Host: 10.0.0.1:80"),
        ("bad host", "Host: "),
        ("a/b", "Host: "),
        ("ü.com", "Host: xn--tda.com"),
        ("ü.com:80", "Host: xn--tda.com:80"),
        ("faß.de", "Host: xn--fa-hia.de"),
        ("[fe80::1%eth0]:80", "Host: [fe80::1]:80"),
        ("a%b]", "Host: a%b]"),
    ],
)
def test_host_header_is_sent_as_given_unless_it_is_no_host(host: str, line: str) -> None:
    assert sent(("Host", host))[1] == line


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("a b", "x", 'net/http: invalid header field name "a b"'),
        ("", "x", 'net/http: invalid header field name ""'),
        ("a", "x\r\ny: z", 'net/http: invalid header field value for "A"'),
        ("Host", "x\r\ny: z", 'net/http: invalid header field value for "Host"'),
        ("user-agent", "x\n", 'net/http: invalid header field value for "User-Agent"'),
    ],
)
def test_headers_cannot_carry_another_request(name: str, value: str, problem: str) -> None:
    assert headers((name, value)).problem == problem


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("", "/"),
        ("foo", "/foo"),
        ("/a b?x=ü", "/a%20b?x=ü"),
        ("/ä", "/%C3%A4"),
        ("/a%2fb", "/a%2fb"),
        ("/a\\b", "/a%5Cb"),
        ('/{}|^`"<>', "/%7B%7D%7C%5E%60%22%3C%3E"),
        ("*", "/*"),
        ("/a;b&c", "/a;b&c"),
        ("?x=1", "/?x=1"),
        ("/a#fragment", "/a"),
        ("/%zz", "/%25zz"),
        ("/a\r\nHost: evil", "/a%0D%0AHost:%20evil"),
        ("//evil/x", "/x"),
        ("http://evil:1/x", "/x"),
        ("http://[evil/x", "/http://%5Bevil/x"),
        ("///x", "///x"),
        ("//evil:port/x", "//evil:port/x"),
        (" /a", "/%20/a"),
        ("/a?", "/a?"),
    ],
)
def test_path_is_escaped_and_never_names_another_host(path: str, target: str) -> None:
    built = url(path)

    assert built.target == target
    assert built.address == POD


@pytest.mark.parametrize(
    ("location", "host", "port", "target"),
    [
        ("/next", "10.0.0.1", 80, "/next"),
        ("next", "10.0.0.1", 80, "/a/next"),
        ("?q=1", "10.0.0.1", 80, "/a/b?q=1"),
        ("../../x", "10.0.0.1", 80, "/x"),
        ("/a b", "10.0.0.1", 80, "/a%20b"),
        ("http://10.0.0.1:81/x", "10.0.0.1", 81, "/x"),
        ("https://10.0.0.1", "10.0.0.1", 443, "/"),
        ("HTTP://10.0.0.1/x", "10.0.0.1", 80, "/x"),
        ("http://user:secret@10.0.0.1/x", "10.0.0.1", 80, "/x"),
        ("//10.0.0.2/x", "10.0.0.2", 80, "/x"),
        ("//10.0.0.1:81:80/x", "10.0.0.1:81", 80, "/x"),
        ("http:///x", "", 80, "/x"),
        ("javascript:alert(1)", "", 80, "/alert(1)"),
        ("http://[::1]:8080/x", "::1", 8080, "/x"),
        ("http://10.0.0.1//a//b", "10.0.0.1", 80, "//a//b"),
        ("http://10.0.0.1/a/../b/.", "10.0.0.1", 80, "/b/"),
        ("///x", "10.0.0.1", 80, "///x"),
        ("?", "10.0.0.1", 80, "/a/b?"),
        ("..", "10.0.0.1", 80, "/"),
        ("c/d/../e", "10.0.0.1", 80, "/a/c/e"),
        ("http://[::1]/x", "::1", 80, "/x"),
        ("http://10.0.0.1:/x", "10.0.0.1", 80, "/x"),
        ("http://10.0.0.1:0/x", "10.0.0.1", 0, "/x"),
        ("http://10.0.0.1:0081/x", "10.0.0.1", 81, "/x"),
        pytest.param(f"http://10.0.0.1:{'9' * 5000}/x", "10.0.0.1", 999_999, "/x", id="huge-port"),
    ],
)
def test_location_is_resolved_as_in_go(location: str, host: str, port: int, target: str) -> None:
    joined = url("/a/b").join(location)

    assert (joined.host, joined.port, joined.target) == (host, port, target)
    assert "secret" not in joined.text


@pytest.mark.parametrize(
    ("location", "target"),
    [
        pytest.param("#top", "/a/b?x=1", id="fragment"),
        pytest.param("?", "/a/b?", id="empty-query"),
        pytest.param("c", "/a/c", id="path"),
        pytest.param("http://10.0.0.1", "/", id="host"),
    ],
)
def test_a_query_is_kept_only_with_its_path(location: str, target: str) -> None:
    assert url("/a/b?x=1").join(location).target == target


@pytest.mark.parametrize(
    ("location", "text"),
    [
        ("/next?y", "http://10.0.0.1:80/next?y"),
        ("https://10.0.0.1", "https://10.0.0.1"),
        ("https://10.0.0.1?y", "https://10.0.0.1?y"),
        ("https://10.0.0.1/", "https://10.0.0.1/"),
    ],
)
def test_the_text_of_a_url_is_as_in_go(location: str, text: str) -> None:
    assert url("/a").join(location).text == text


@pytest.mark.parametrize(
    "location",
    ["http://[bad/", "/%zz", "/\x01", ":x", "1:x", "http://a b/", "http://%31/", "http://a\\@b/"],
)
def test_invalid_location_is_an_error(location: str) -> None:
    with pytest.raises(InvalidRequest, match="failed to parse Location header"):
        url().join(location)


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        (":x", "missing protocol scheme"),
        ("1:x", "first path segment in URL cannot contain colon"),
        ("/\x01", "net/url: invalid control character in URL"),
        ("http://[bad/", "missing ']' in host"),
        ("/a#\x01", "net/url: invalid control character in URL"),
        ("/%zz", 'invalid URL escape "%zz"'),
        ("/a#%zz", 'invalid URL escape "%zz"'),
        ("http://a\\@b/", "net/url: invalid userinfo"),
        ("http://a:%zz@b/", "net/url: invalid userinfo"),
        ("http://10.0.0.1:80:80/", 'invalid port ":80:80" after host'),
        ("http://10.0.0.1:x/", 'invalid port ":x" after host'),
        ("http://[::1]x/", 'invalid port "x" after host'),
        ("http://%31/", 'invalid URL escape "%31"'),
        ("http://a b/", 'invalid character " " in host name'),
    ],
)
def test_invalid_location_has_the_reason_of_go(location: str, reason: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        url().join(location)
    assert str(raised.value).endswith(f": {reason}")


@pytest.mark.parametrize(
    "location", ["http://user:secret@[bad/", "//user:se cret:%zz@10.0.0.1/?a@b"]
)
def test_invalid_location_is_shown_without_its_credentials(location: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        url().join(location)
    assert "cret" not in str(raised.value)


@pytest.mark.parametrize(
    ("locations", "line"),
    [
        (["http://user:pw@10.0.0.1/"], "Authorization: Basic dXNlcjpwdw=="),
        (["http://user@10.0.0.1/"], "Authorization: Basic dXNlcjo="),
        (["http://@10.0.0.1/"], "Authorization: Basic Og=="),
        (["http://a%3a:b%40:c@d+@10.0.0.1/"], "Authorization: Basic YTo6YkA6Y0BkKw=="),
        (["//user:pw@10.0.0.1/", "/x"], "Authorization: Basic dXNlcjpwdw=="),
        (["//user:pw@10.0.0.1/", "http://10.0.0.1/"], None),
        (["http://10.0.0.1/user:pw@10.0.0.1"], None),
    ],
)
def test_credentials_of_a_location_are_sent(locations: list[str], line: str | None) -> None:
    joined = url()
    for location in locations:
        joined = joined.join(location)
    lines = headers().redirected(joined, previous=url(), relative=False).decode().split("\r\n")

    assert [each for each in lines if each.startswith("Authorization")] == [line] * bool(line)


@pytest.mark.parametrize(("given", "sent"), [("Bearer x", "Bearer x"), ("", "Basic dXNlcjpwdw==")])
def test_credentials_of_a_location_replace_no_configured_header(given: str, sent: str) -> None:
    destination = url().join("http://user:pw@10.0.0.1/")
    request = headers(("authorization", given)).redirected(
        destination, previous=url(), relative=False
    )

    assert request.count(b"Authorization:") == 1
    assert f"\r\nAuthorization: {sent}\r\n".encode() in request


def test_credentials_of_a_path_are_sent_as_by_kubelet() -> None:
    assert "Authorization: Basic dXNlcjpwdw==" in sent(path="//user:pw@h/x")


def test_referer_has_no_credentials() -> None:
    previous = url().join("http://user:pw@10.0.0.1/a")
    request = headers(("X-A", "1")).redirected(url("/b"), previous=previous, relative=True)

    assert b"\r\nAccept: */*\r\nReferer: http://10.0.0.1/a\r\nX-A: 1\r\n" in request


def test_text_after_a_scheme_without_a_slash_is_no_path() -> None:
    with pytest.raises(InvalidRequest, match='Get "http:b/c": http: no Host in request URL'):
        url("a:b/c")


def test_a_redirect_keeps_the_given_host_only_while_it_is_relative() -> None:
    ours = headers(("Host", "my.host"))

    relative = ours.redirected(url("/b"), previous=url("/a"), relative=True)
    absolute = ours.redirected(url().join("http://10.0.0.1:81/b"), previous=url(), relative=False)

    assert b"\r\nHost: my.host\r\n" in relative
    assert b"\r\nHost: 10.0.0.1:81\r\n" in absolute
    assert b"\r\nReferer: http://10.0.0.1:80/a\r\n" in relative


def test_an_empty_referer_is_replaced_by_that_of_a_redirect() -> None:
    request = headers(("Referer", "")).redirected(url("/b"), previous=url("/a"), relative=True)

    assert request.count(b"Referer:") == 1
    assert b"\r\nReferer: http://10.0.0.1:80/a\r\n" in request


def test_a_given_referer_is_kept_after_a_redirect() -> None:
    request = headers(("Referer", "me")).redirected(url("/b"), previous=url("/a"), relative=True)

    assert request.count(b"Referer:") == 1
    assert b"\r\nReferer: me\r\n" in request


def test_https_sends_no_referer_to_http() -> None:
    request = headers().redirected(url(), previous=url(scheme="HTTPS"), relative=False)

    assert b"Referer" not in request


def test_ipv6_addresses_are_in_brackets() -> None:
    assert Url.of_action("HTTP", HostPort("fd00::1", 80), "/x").text == "http://[fd00::1]:80/x"


async def test_a_prepared_request_does_not_outlive_the_ip_of_its_pod() -> None:
    """Address and Host header follow the pod; nothing is sent to the old address, which another pod may have now."""
    dialled: list[str] = []

    def refuse(address: HostPort) -> socket.socket:
        dialled.append(str(address))
        raise ProbeDialFailed(f"dial tcp {address}: connect: connection refused")

    action = HTTPGetAction(port=80, path="/ready")
    prober = HttpProber(action, timeout_seconds=1, user_agent="u", open_socket=refuse)
    for ip in ("10.0.0.1", "10.0.0.1", "10.0.0.2", "fd00::1", "10.0.0.1"):
        result = await result_of(prober, Target(ip, "c"))
        host = str(HostPort(ip, 80))
        assert dialled.pop() == host
        assert host in result.message
        _, request = prober._prepare(Target(ip, "c"))
        assert f"\r\nHost: {host}\r\n".encode() in request
    with pytest.raises(CouldNotProbe):
        prober.probe(Target("", "c"))
    assert not dialled


async def test_a_request_is_prepared_once_for_each_ip() -> None:
    prober = HttpProber(HTTPGetAction(port=80), timeout_seconds=1, user_agent="u")
    first = prober._prepare(Target("10.0.0.1", "c1"))

    assert prober._prepare(Target("10.0.0.1", "c2"))[1] is first[1]
    assert prober._prepare(Target("10.0.0.2", "c2"))[1] is not first[1]
