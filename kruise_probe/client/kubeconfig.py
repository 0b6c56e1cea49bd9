"""Kubeconfig files: contexts are chosen here; the official package reads certificates, tokens, exec plugins, proxies.

This is the only module that imports `kubernetes`, and it is imported only when a kubeconfig is used. The package
raises many types of exceptions. They all become ConfigError.

Source: client-go tools/clientcmd.
Differs: what the official Python package does not support (impersonation, SOCKS) is rejected.
"""

import base64
import os
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
from kubernetes.client import Configuration
from kubernetes.config import ConfigException, load_kube_config_from_dict
from kubernetes.config.exec_provider import ExecProvider
from kubernetes.config.kube_config import (  # type: ignore[attr-defined]  # not in the stubs
    ConfigNode,
    _cleanup_temp_files,
)

from kruise_probe.api.meta import without_nulls
from kruise_probe.client.cluster_config import NO_OVERRIDES, ClusterConfig, ConfigOverrides
from kruise_probe.client.credentials import AuthInfo, ConfigError, Credentials, tls_context

_IMPERSONATION: Final = ("as", "as-groups", "as-uid", "as-user-extra")
_PATHS: Final = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
"""Keys of clusters and users that are relative to the kubeconfig's folder."""
_BEFORE_PLUGIN: Final = ("auth-provider", "token", "tokenFile")
"""Keys of a user that take precedence over an exec plugin."""

_Entry = dict[str, Any]
_Entries = dict[str, _Entry]


class _NamedEntry(msgspec.Struct):
    """An entry of one of the lists."""

    name: str
    cluster: _Entry = {}
    context: _Entry = {}
    user: _Entry = {}


class _File(msgspec.Struct, rename={"current": "current-context"}):
    """A kubeconfig as it is written."""

    current: str = ""
    clusters: tuple[_NamedEntry, ...] = ()
    contexts: tuple[_NamedEntry, ...] = ()
    users: tuple[_NamedEntry, ...] = ()


class _Merged:
    """The entries of all files by name. The first file with a name wins."""

    def __init__(self) -> None:
        self.current = ""
        self.clusters: _Entries = {}
        self.contexts: _Entries = {}
        self.users: _Entries = {}

    def add(self, file: _File, folder: Path) -> None:
        """Add what is in a file of this folder."""
        self.current = self.current or file.current
        for named in file.clusters:
            cluster = _absolute(named.cluster, folder)
            self.clusters.setdefault(named.name, cluster)
        for named in file.contexts:
            self.contexts.setdefault(named.name, named.context)
        for named in file.users:
            user = _absolute(named.user, folder)
            self.users.setdefault(named.name, user)


def load(paths: str, origin: str, overrides: ConfigOverrides = NO_OVERRIDES) -> ClusterConfig:
    """Load a context of `paths`. Several files are merged, as kubectl does with $KUBECONFIG.

    Raises:
        ConfigError: one line that says what is wrong, where, and what to do.
    """
    where = f"{origin} {paths}"
    try:
        return _load(paths, where, overrides)
    finally:
        _cleanup_temp_files()


def _load(paths: str, where: str, overrides: ConfigOverrides) -> ClusterConfig:
    files = _read_files(paths, where)
    context, cluster, user = _chosen(files, overrides, where)
    configuration = _configuration(cluster, user, where)
    host = str(configuration.host)
    server = host.rstrip("/")
    ca_file: Path | None = None
    if configuration.ssl_ca_cert:
        ca_file = Path(configuration.ssl_ca_cert)
    tls: ssl.SSLContext | None = None
    if server[:6].lower() == "https:":
        verify = bool(configuration.verify_ssl)
        tls = tls_context(ca_file, origin=where, verify=verify)

    def reload() -> AuthInfo:
        try:
            files = _read_files(paths, where)
            _, cluster, user = _chosen(files, overrides, where)
            configuration = _configuration(cluster, user, where)
            return _auth_of(configuration, where)
        finally:
            _cleanup_temp_files()

    auth = _auth_of(configuration, where)
    sends_certificate = tls is not None and bool(auth.certificate)
    load: Callable[[], AuthInfo] | None = None
    if auth.authorization or sends_certificate:
        load = reload
    try:
        credentials = Credentials(auth, tls, load)
        if "tokenFile" in user and "auth-provider" not in user:
            token_file = Path(user["tokenFile"])
            credentials.follow_token(token_file)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    if tls is not None and ca_file is not None:
        credentials.follow_ca(ca_file, tls)
    if sends_certificate:
        files_of_certificate = _certificate_files(configuration)
        credentials.follow_certificate(*files_of_certificate)
    namespace = context.get("namespace") or "default"
    return ClusterConfig(
        server=server,
        tls=tls,
        credentials=credentials,
        server_name=configuration.tls_server_name,
        proxy=configuration.proxy or None,
        namespace=str(namespace),
        source=where,
    )


def _read_files(paths: str, where: str) -> _Merged:
    """Missing files are skipped, unless all are missing."""
    merged = _Merged()
    is_found = False
    for name in paths.split(os.pathsep):
        path = Path(name).expanduser()
        if name and path.exists():
            is_found = True
            folder = path.absolute().parent
            merged.add(_read_file(path, where), folder)
    if not is_found:
        raise ConfigError(f"{where}: does not exist; correct the path, or omit it")
    return merged


def _read_file(path: Path, where: str) -> _File:
    try:
        content = path.read_bytes()
        plain = without_nulls(msgspec.yaml.decode(content))
        return msgspec.convert(plain, _File)
    except OSError as error:
        raise ConfigError(
            f"{where}: cannot be read ({error.strerror}); make it readable for this user"
        ) from error
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: is not a kubeconfig ({error}); correct the file") from error
    except (ValueError, RecursionError) as error:
        reason = _one_line(error)
        raise ConfigError(f"{where}: is not YAML ({reason}); correct the file") from error


def _absolute(entry: _Entry, folder: Path) -> _Entry:
    """The entry, with the paths that are relative to its file made absolute."""
    absolute = {**entry}
    for key in _PATHS:
        relative = entry.get(key)
        if relative:
            path = folder / str(relative)
            absolute[key] = str(path)
    plugin = entry.get("exec")
    if not isinstance(plugin, dict):
        return absolute
    command = str(plugin.get("command"))
    if os.sep in command:
        program = folder / command
        absolute["exec"] = {**plugin, "command": str(program)}
    return absolute


def _chosen(
    files: _Merged,
    overrides: ConfigOverrides,
    where: str,
) -> tuple[_Entry, _Entry, _Entry]:
    """Context, cluster and user; an absent user is empty."""
    _check_exists("context", overrides.context, files.contexts, where)
    _check_exists("cluster", overrides.cluster, files.clusters, where)
    _check_exists("user", overrides.user, files.users, where)
    current = overrides.context or files.current
    context = files.contexts.get(current, {})
    needs_context = not overrides.cluster or not overrides.user
    if needs_context and not context:
        raise ConfigError(
            f"{where}: has no usable current context ({current!r}); choose one with `kubectl config use-context`"
        )
    cluster_name = overrides.cluster or context.get("cluster")
    cluster = files.clusters.get(str(cluster_name))
    if cluster is None:
        raise ConfigError(f"{where}: has no cluster {cluster_name!r}; correct context {current!r}")
    user_name = overrides.user or context.get("user")
    user = files.users.get(str(user_name), {})
    # The package would ignore impersonation and use all permissions of the user.
    requested = [key for key in _IMPERSONATION if user.get(key)]
    if requested:
        keys = ", ".join(requested)
        raise ConfigError(
            f"{where}: impersonation ({keys}) is not supported; use the credentials of that user"
        )
    if user.get("tokenFile"):
        user.pop("token", None)  # the file takes precedence, as in client-go
    return context, cluster, user


def _check_exists(kind: str, name: str, entries: _Entries, where: str) -> None:
    """Raises ConfigError: there is no entry of this name. An empty name is none."""
    if not name or name in entries:
        return
    names = ", ".join(sorted(entries)) or "none"
    raise ConfigError(f"{where}: has no {kind} {name!r}; choose from: {names}")


def _configuration(cluster: _Entry, user: _Entry, where: str) -> Any:
    """Return the package's Configuration as Any, because the stubs lack some of its attributes."""
    has_credentials = any(user.get(key) for key in _BEFORE_PLUGIN)
    if "exec" in user and not has_credentials:
        user = {**user}
        plugin = user.pop("exec")
        user.update(_credentials_of_plugin(plugin, cluster, where))
    content = {
        "clusters": [{"name": "chosen", "cluster": cluster}],
        "users": [{"name": "chosen", "user": user}],
        "contexts": [{"name": "chosen", "context": {"cluster": "chosen", "user": "chosen"}}],
        "current-context": "chosen",
    }
    configuration: Any = Configuration()
    # The package also reads a proxy from the environment, with its own rules; `config` has Go's rules.
    configuration.proxy = None
    try:
        load_kube_config_from_dict(
            content, client_configuration=configuration, persist_config=False
        )
    except Exception as error:  # the libraries of an auth provider raise many types
        what = "cannot be used"
        remedy = "correct the file"
        if "auth-provider" in user:
            what = "the auth provider returned no credentials"
            remedy = "log in again, or check that its server responds"
        reason = _one_line(error)
        raise ConfigError(f"{where}: {what} ({reason}); {remedy}") from error
    return configuration


def _credentials_of_plugin(plugin: Any, cluster: _Entry, where: str) -> _Entry:
    """Run an exec plugin. Return its credentials as keys of a user."""
    try:
        run: Any = ExecProvider  # it has no annotations
        of_plugin = ConfigNode("exec", plugin)
        of_cluster = ConfigNode("cluster", cluster)
        status = run(of_plugin, "", of_cluster).run()
        if "token" in status:
            return {"token": status["token"]}
        certificate = _encoded(status["clientCertificateData"])
        key = _encoded(status["clientKeyData"])
        return {"client-certificate-data": certificate, "client-key-data": key}
    except Exception as error:
        # On a terminal, the plugin writes its error there, and the package fails to read it.
        reason = "its output is above"
        if not isinstance(error, AttributeError):
            reason = _one_line(error)
        remedy = "run its command by hand"
        if isinstance(plugin, dict) and plugin.get("installHint"):
            words = str(plugin["installHint"]).split()
            remedy = " ".join(words)
        raise ConfigError(
            f"{where}: the exec plugin returned no credentials ({reason}); {remedy}"
        ) from error


def _encoded(pem: str) -> str:
    encoded = base64.b64encode(pem.encode())
    return encoded.decode()


def _auth_of(configuration: Any, where: str) -> AuthInfo:
    keys: dict[str, str] = configuration.api_key
    # The package renamed its key in release 36.
    authorization = keys.get("BearerToken") or keys.get("authorization")
    if authorization:  # without the newline at the end of a token file
        authorization = authorization.strip()
    if not configuration.cert_file:
        return AuthInfo(authorization)
    files = _certificate_files(configuration)
    try:
        contents = [file.read_bytes() for file in files]
    except OSError as error:
        names = " or ".join(map(str, files))
        raise ConfigError(
            f"{where}: {names} cannot be read ({error.strerror}); make both readable for this user"
        ) from error
    certificate = b"\n".join(contents)
    return AuthInfo(authorization, certificate)


def _certificate_files(configuration: Any) -> list[Path]:
    """The files of the client certificate and of its key."""
    names = (configuration.cert_file, configuration.key_file)
    return [Path(name) for name in names if name]


def _one_line(error: Exception) -> str:
    words = str(error).split()
    text = " ".join(words).removeprefix("Invalid kube-config file. ")
    if isinstance(error, ConfigException):
        return text
    return f"{type(error).__name__}: {text}"
