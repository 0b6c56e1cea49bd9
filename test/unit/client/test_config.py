"""Configuration of the API server, and its errors."""

import asyncio
import base64
import logging
import os
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.cases import cases
from support.certificates import issued
from support.kubeconfig import kubeconfig
from support.pages import ROOT
from support.scripted_http import ScriptedHttpServer, answer
from support.shell import python
from support.tables import load_table
from support.wire import Json

from kruise_probe.client import config
from kruise_probe.client.config import (
    ConfigError,
    ConfigOverrides,
    load_config,
    proxy_from_environment,
)
from kruise_probe.client.credentials import COMPARE_SECONDS
from kruise_probe.client.dialer import Dialer

POD_ENVIRON = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
PROXY = "http://proxy:3128"
NOT_VERIFIED = {"server": "https://x", "insecure-skip-tls-verify": True}
CA = Path(__file__).parents[2] / "data" / "ca.crt"


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A service account as kubelet mounts it."""
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    (folder / "token").write_text("pod-token\n")
    (folder / "ca.crt").write_bytes(CA.read_bytes())
    (folder / "namespace").write_text("kruise-system")
    monkeypatch.setattr(config, "SERVICE_ACCOUNT", folder)
    return folder


async def test_pod_uses_its_service_account(account: Path) -> None:
    found = load_config(None, POD_ENVIRON)

    assert found.server == "https://10.96.0.1:443"
    assert found.namespace == "kruise-system"
    assert found.credentials.authorization() == "Bearer pod-token"
    assert found.tls is not None
    assert found.tls.check_hostname


@pytest.mark.parametrize("content", [None, "", "\n"])
async def test_pod_without_a_namespace_file_is_in_the_default_namespace(
    account: Path, content: str | None
) -> None:
    file = account / "namespace"
    file.unlink()
    if content is not None:
        file.write_text(content)

    assert load_config(None, POD_ENVIRON).namespace == "default"


async def test_ipv6_service_address_is_bracketed(account: Path) -> None:
    environ = {**POD_ENVIRON, "KUBERNETES_SERVICE_HOST": "fd00::1"}

    assert load_config(None, environ).server == "https://[fd00::1]:443"


async def test_pod_uses_proxy_of_environment_unless_no_proxy_matches(account: Path) -> None:
    proxied = POD_ENVIRON | {"HTTPS_PROXY": PROXY}

    assert load_config(None, proxied).proxy == PROXY
    assert load_config(None, proxied | {"NO_PROXY": "10.96.0.0/12"}).proxy is None


@cases(
    "server proxy",
    other=("https://api.example.com:6443", PROXY),
    excluded=("https://10.96.0.1:443", None),
    loopback=("https://127.0.0.1:6443", None),
)
async def test_kubeconfig_without_proxy_url_uses_proxy_of_environment(
    server: str,
    proxy: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environ = {"HTTPS_PROXY": PROXY, "NO_PROXY": "10.96.0.0/12"}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    path = kubeconfig(tmp_path / "k", cluster=NOT_VERIFIED | {"server": server})

    assert load_config(path, environ).proxy == proxy


@pytest.mark.parametrize("overrides", [ConfigOverrides(), ConfigOverrides(context="own")])
async def test_loading_leaves_no_file_that_a_signal_could_leave_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overrides: ConfigOverrides
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    data = base64.b64encode(CA.read_bytes()).decode()
    cluster = {"server": "https://x", "certificate-authority-data": data}
    path = kubeconfig(tmp_path / "k", cluster=cluster)
    found = load_config(path, {}, overrides)
    assert not list(folder.iterdir())
    assert not await found.credentials.renew("Bearer file-token", 0)
    assert not list(folder.iterdir())


@cases(
    "present options used",
    flag=("flag variable account home", {}, "flag"),
    variable=("variable account home", {}, "variable"),
    account=("account home", {}, "account"),
    home=("home", {}, "home"),
    home_first_in_a_command=("account home", {"kubeconfig_first": True}, "home"),
    command_without_home=("account", {"kubeconfig_first": True}, "account"),
    context=("account home", {"overrides": ConfigOverrides(context="own")}, "home"),
)
async def test_the_first_source_of_a_configuration_is_used(
    present: str,
    options: dict[str, Any],
    used: str,
    tmp_path: Path,
    account: Path,
) -> None:
    (tmp_path / ".kube").mkdir()
    paths = {
        "flag": tmp_path / "flag",
        "variable": tmp_path / "variable",
        "home": tmp_path / ".kube" / "config",
    }
    for name, path in paths.items():
        if name in present:
            kubeconfig(path, cluster={"server": f"http://{name}:1"})
    environ = {"HOME": str(tmp_path)}
    if "account" in present:
        environ |= POD_ENVIRON
    else:
        (account / "token").unlink()
    if "variable" in present:
        environ["KUBECONFIG"] = str(paths["variable"])
    flag = str(paths["flag"]) if "flag" in present else None

    found = load_config(flag, environ, **options)
    token = found.credentials.authorization()
    if used == "account":
        expected = ("https://10.96.0.1:443", "kruise-system", "Bearer pod-token")
    else:
        expected = (f"http://{used}:1", "team", "Bearer file-token")
    assert (found.server, found.namespace, token) == expected


async def test_context_without_a_namespace_is_in_the_default_namespace(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "k", context={})

    assert load_config(path, {}).namespace == "default"


@pytest.mark.parametrize("other", ["own", "missing", ""])
async def test_first_current_context_takes_precedence(other: str, tmp_path: Path) -> None:
    cluster = {"server": "http://first:1/prefix/", "proxy-url": PROXY}
    first = kubeconfig(tmp_path / "first", cluster=cluster)
    second = kubeconfig(
        tmp_path / "second",
        cluster={"server": "http://second:1"},
        current=other,
    )

    found = load_config(None, {"KUBECONFIG": f"{first}{os.pathsep}{second}"})

    assert found.server == "http://first:1/prefix"
    assert found.proxy == PROXY


@pytest.fixture
def one_and_two(tmp_path: Path) -> dict[str, str]:
    """Two files, each with a cluster, a user and a context of its name; `one` is current."""
    paths = (
        kubeconfig(
            tmp_path / name,
            name=name,
            cluster={"server": f"http://{name}:1"},
            user={"token": name},
            context={"namespace": f"ns-{name}"},
        )
        for name in ("one", "two")
    )
    return {"KUBECONFIG": os.pathsep.join(paths)}


def test_the_user_to_impersonate_comes_from_the_command_line(tmp_path: Path) -> None:
    overrides = ConfigOverrides(as_user="jane", as_groups=("a",))
    found = load_config(kubeconfig(tmp_path / "k"), {}, overrides)
    assert (found.as_user, found.as_groups) == ("jane", ("a",))


def test_cluster_and_user_replace_a_context_only_together(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "k", current="")
    both = ConfigOverrides(cluster="own", user="own")
    assert load_config(path, {}, both).server == "http://127.0.0.1:8001"
    for half in (ConfigOverrides(cluster="own"), ConfigOverrides(user="own")):
        with pytest.raises(ConfigError, match="has no usable current context"):
            load_config(path, {}, half)


@cases(
    "overrides server token namespace",
    none=(ConfigOverrides(), "one", "one", "ns-one"),
    context=(ConfigOverrides(context="two"), "two", "two", "ns-two"),
    cluster=(ConfigOverrides(cluster="two"), "two", "one", "ns-one"),
    user=(ConfigOverrides(user="two"), "one", "two", "ns-one"),
    all=(ConfigOverrides(context="two", cluster="one", user="one"), "one", "one", "ns-two"),
)
async def test_context_cluster_and_user_can_be_overridden(
    overrides: ConfigOverrides,
    server: str,
    token: str,
    namespace: str,
    one_and_two: dict[str, str],
    account: Path,
) -> None:
    found = load_config(None, one_and_two, overrides)
    assert found.server == f"http://{server}:1"
    assert found.namespace == namespace
    assert found.credentials.authorization() == f"Bearer {token}"


@pytest.mark.parametrize("field", ["context", "cluster", "user"])
async def test_unknown_override_lists_the_existing_names(
    field: str, one_and_two: dict[str, str]
) -> None:
    unknown: dict[str, Any] = {field: "x"}
    with pytest.raises(ConfigError, match=f"has no {field} 'x'; choose from: one, two"):
        load_config(None, one_and_two, ConfigOverrides(**unknown))


async def test_replaced_client_certificate_of_kubeconfig_is_used_within_a_minute(
    tmp_path: Path,
) -> None:
    """No request has to fail before. A new version replaces the connections."""
    certificate = tmp_path / "tls.crt"
    key = tmp_path / "tls.key"

    def issue() -> None:
        pair = issued("me")
        certificate.write_bytes(pair.certificate)
        key.write_bytes(pair.key)

    issue()
    user = {"client-certificate": str(certificate), "client-key": str(key)}
    path = kubeconfig(tmp_path / "k", cluster=NOT_VERIFIED, user=user)
    credentials = load_config(path, {}).credentials
    versions = []
    for _ in range(2):
        credentials.authorization()
        versions.append(credentials.version)
        issue()
        await asyncio.sleep(COMPARE_SECONDS)
    assert versions == [0, 1]


def oidc_user(issuer: str) -> dict[str, object]:
    """A user of an identity provider whose token has expired."""
    claims = base64.urlsafe_b64encode(b'{"exp":1,"more":""}').decode().rstrip("=")
    config = {
        "idp-issuer-url": issuer,
        "client-id": "c",
        "client-secret": "s",
        "id-token": f"e30.{claims}.e30",
        "refresh-token": "r",
    }
    return {"auth-provider": {"name": "oidc", "config": config}}


def content_of(path: str) -> bytes:
    return Path(path).read_bytes()


@pytest.mark.sockets
async def test_kubeconfig_is_never_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be read-only, or shared with kubectl, which writes it too."""
    monkeypatch.setenv("OAUTHLIB_INSECURE_TRANSPORT", "1")
    server = ScriptedHttpServer([])
    async with server.running():
        tokens = {
            "access_token": "a",
            "id_token": "new",
            "refresh_token": "r2",
            "token_type": "b",
        }
        server.script = [
            answer(200, {"token_endpoint": f"{server.url}/token"}, connection="close"),
            answer(200, tokens, connection="close"),
        ]
        path = kubeconfig(tmp_path / "k", user=oidc_user(server.url))
        before = content_of(path)
        found = await asyncio.to_thread(load_config, path)

    assert found.credentials.authorization() == "Bearer new"
    assert content_of(path) == before


def plugin(path: Path, body: str) -> dict[str, object]:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(path)}}


TABLE = load_table(
    Path(__file__).parents[2] / "data" / "configs.yaml",
    {"ca": lambda _: str(CA), "oidc": oidc_user},
)


def kubeconfig_of(folder: Path, row: Json) -> str | None:
    """The file of a row, or the path that is given instead."""
    if "path" in row:
        return str(row["path"]).format(folder=folder)
    if "file" in row:
        (folder / "k").write_text(row["file"])
        return str(folder / "k")
    parts = {part: row[part] for part in ("cluster", "user", "context", "current") if part in row}
    if "plugin" in row:
        parts["user"] = plugin(folder / "p", row["plugin"])
    return kubeconfig(folder / "k", **parts) if parts else None


@pytest.mark.parametrize("row", TABLE["errors"].values(), ids=TABLE["errors"])
async def test_config_error_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    row: Json,
) -> None:
    monkeypatch.setattr(config, "SERVICE_ACCOUNT", tmp_path / "none")
    environ = {"HOME": str(tmp_path)}
    if "pod" in row:
        environ |= POD_ENVIRON
    if "variable" in row:
        environ["KUBECONFIG"] = row["variable"].format(folder=tmp_path)

    path = kubeconfig_of(tmp_path, row)
    with pytest.raises(ConfigError, match=row["says"]) as raised:
        Dialer(load_config(path, environ))
    assert "\n" not in str(raised.value)
    assert all(record.levelno < logging.ERROR for record in caplog.records)


def test_a_plugin_that_fails_on_a_terminal_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        sys.stdout,
        "isatty",
        lambda: True,
        raising=False,
    )
    user = plugin(tmp_path / "p", "echo no >&2; exit 3")
    path = kubeconfig(tmp_path / "k", user=user)
    output = tmp_path / "terminal"
    with output.open("w+") as terminal, monkeypatch.context() as patched:
        patched.setattr(sys, "stdin", terminal)
        patched.setattr(sys, "stderr", terminal)
        with pytest.raises(ConfigError, match=r"no credentials \(its output is above\); run its"):
            load_config(path, {})
    assert output.read_text() == "no\n"


@cases(
    "name replace words",
    empty_token=(
        "token",
        lambda token: token.write_text(" "),
        "token is empty",
    ),
    unreadable_token=(
        "token",
        Path.mkdir,
        r"token cannot be read \(Is a directory\)",
    ),
    token_with_other_characters=(
        "token",
        lambda token: token.write_bytes(b"\xff"),
        r"token cannot be read \('ascii' codec can't decode",
    ),
    no_ca=(
        "ca.crt",
        lambda _: None,
        "ca.crt cannot be used",
    ),
    bad_ca=(
        "ca.crt",
        lambda authority: authority.write_text("x"),
        "readable PEM",
    ),
)
async def test_broken_service_account_names_its_file(
    account: Path,
    name: str,
    replace: Callable[[Path], object],
    words: str,
) -> None:
    file = account / name
    file.unlink()
    replace(file)

    with pytest.raises(ConfigError, match=words):
        load_config(None, POD_ENVIRON)


@pytest.mark.parametrize("name", POD_ENVIRON)
async def test_without_the_address_of_the_service_the_account_is_not_used(
    account: Path, name: str
) -> None:
    environ = {name: POD_ENVIRON[name], "HOME": str(account)}
    with pytest.raises(ConfigError, match=r"or \$KUBERNETES_SERVICE_PORT is not set"):
        load_config(None, environ)


def test_pod_does_not_import_the_official_package(account: Path) -> None:
    """The package uses 40 MB."""
    program = (
        "import sys, pathlib; from kruise_probe.client import config, rest;"
        f"config.SERVICE_ACCOUNT = pathlib.Path({str(account)!r});"
        f"config.load_config(None, {POD_ENVIRON!r});"
        "print(sorted(m for m in sys.modules if m.split('.')[0] in ('kubernetes', 'yaml', 'requests')))"
    )
    assert python("-c", program, cwd=ROOT).stdout == "[]\n"


@cases(
    "server environ proxy",
    nothing_set=("https://api:6443", {}, None),
    upper_case=("https://api:6443", {"HTTPS_PROXY": PROXY}, PROXY),
    lower_case=("https://api:6443", {"https_proxy": PROXY}, PROXY),
    bare_host=("https://api:6443", {"HTTPS_PROXY": "proxy:3128"}, PROXY),
    other_scheme=("https://api:6443", {"HTTP_PROXY": PROXY}, None),
    plain=("http://api:8080", {"HTTP_PROXY": PROXY}, PROXY),
)
def test_scheme_selects_the_proxy_variable(
    server: str, environ: dict[str, str], proxy: str | None
) -> None:
    assert proxy_from_environment(server, environ) == proxy


@cases("server no_proxy proxied", **TABLE["no-proxy"])
def test_no_proxy_excludes_servers(server: str, no_proxy: str, proxied: bool) -> None:
    environ = {"HTTPS_PROXY": PROXY, "no_proxy": no_proxy}
    found = proxy_from_environment(server, environ)

    assert (found is not None) is proxied
