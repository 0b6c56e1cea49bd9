"""Kubeconfig files: contexts are chosen here; the official package reads certificates, tokens, exec plugins, proxies.

This is the only module that imports `kubernetes`, and it is imported only when a kubeconfig is used. The package
raises many types of exceptions. They all become ConfigError.

Source: client-go tools/clientcmd.
Differs: what the official Python package does not support (impersonation, SOCKS) is rejected.
"""

import base64
import os
import ssl
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
        self.entries: dict[str, dict[str, _Entry]] = {"cluster": {}, "context": {}, "user": {}}

    def add(self, file: _File, folder: Path) -> None:
        """Add what is in a file of this folder."""
        self.current = self.current or file.current
        for kind, entries in self.entries.items():
            named: _NamedEntry
            for named in getattr(file, f"{kind}s"):
                entry = getattr(named, kind)
                entries.setdefault(named.name, _absolute(entry, folder))


def load(paths: str, origin: str, overrides: ConfigOverrides = NO_OVERRIDES) -> ClusterConfig:
    """Load a context of `paths`. Several files are merged, as kubectl does with $KUBECONFIG.

    Raises:
        ConfigError: one line that says what is wrong, where, and what to do.
    """
    try:
        return _load(paths, f"{origin} {paths}", overrides)
    finally:
        _cleanup_temp_files()


def _load(paths: str, where: str, overrides: ConfigOverrides) -> ClusterConfig:
    context, cluster, user = _chosen(_read_files(paths, where), overrides, where)
    configuration = _configuration(cluster, user, where)
    server = str(configuration.host).rstrip("/")
    ca_file: Path | None = None
    if configuration.ssl_ca_cert:
        ca_file = Path(configuration.ssl_ca_cert)
    tls: ssl.SSLContext | None = None
    if server[:6].lower() == "https:":
        tls = tls_context(ca_file, origin=where, verify=bool(configuration.verify_ssl))

    def reload() -> AuthInfo:
        try:
            _, cluster, user = _chosen(_read_files(paths, where), overrides, where)
            return _auth_of(_configuration(cluster, user, where), where)
        finally:
            _cleanup_temp_files()

    auth = _auth_of(configuration, where)
    may_change = bool(auth.authorization or (auth.certificate and tls is not None))
    try:
        credentials = Credentials(auth, tls, reload if may_change else None)
        if "tokenFile" in user and "auth-provider" not in user:
            credentials.follow_token(Path(user["tokenFile"]))
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    if tls is not None and ca_file is not None:
        credentials.follow_ca(ca_file, tls)
    if tls is not None and auth.certificate:
        credentials.follow_certificate(*_certificate_files(configuration))
    return ClusterConfig(
        server=server,
        tls=tls,
        credentials=credentials,
        server_name=configuration.tls_server_name,
        proxy=configuration.proxy or None,
        namespace=str(context.get("namespace") or "default"),
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
            merged.add(_read_file(path, where), path.absolute().parent)
    if not is_found:
        raise ConfigError(f"{where}: does not exist; correct the path, or omit it")
    return merged


def _read_file(path: Path, where: str) -> _File:
    try:
        plain = msgspec.yaml.decode(path.read_bytes())
        return msgspec.convert(without_nulls(plain), _File)
    except OSError as error:
        raise ConfigError(
            f"{where}: cannot be read ({error.strerror}); make it readable for this user"
        ) from error
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: is not a kubeconfig ({error}); correct the file") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: is not YAML ({_one_line(error)}); correct the file") from error


def _absolute(entry: _Entry, folder: Path) -> _Entry:
    """The entry, with the paths that are relative to its file made absolute."""
    absolute = {**entry}
    for key in _PATHS:
        if entry.get(key):
            absolute[key] = str(folder / str(entry[key]))
    plugin = entry.get("exec")
    if isinstance(plugin, dict) and os.sep in str(plugin.get("command")):
        absolute["exec"] = {**plugin, "command": str(folder / str(plugin["command"]))}
    return absolute


def _chosen(
    files: _Merged,
    overrides: ConfigOverrides,
    where: str,
) -> tuple[_Entry, _Entry, _Entry]:
    """Context, cluster and user; an absent user is empty."""
    wanted = {"context": overrides.context, "cluster": overrides.cluster, "user": overrides.user}
    for kind, name in wanted.items():
        if name and name not in files.entries[kind]:
            names = ", ".join(sorted(files.entries[kind])) or "none"
            raise ConfigError(f"{where}: has no {kind} {name!r}; choose from: {names}")
    current = overrides.context or files.current
    context = files.entries["context"].get(current, {})
    if not context and not (overrides.cluster and overrides.user):
        raise ConfigError(
            f"{where}: has no usable current context ({current!r}); choose one with `kubectl config use-context`"
        )
    cluster_name = overrides.cluster or context.get("cluster")
    cluster = files.entries["cluster"].get(str(cluster_name))
    if cluster is None:
        raise ConfigError(f"{where}: has no cluster {cluster_name!r}; correct context {current!r}")
    user = files.entries["user"].get(str(overrides.user or context.get("user")), {})
    # The package would ignore impersonation and use all permissions of the user.
    requested = ", ".join([key for key in _IMPERSONATION if user.get(key)])
    if requested:
        raise ConfigError(
            f"{where}: impersonation ({requested}) is not supported; use the credentials of that user"
        )
    if user.get("tokenFile"):
        user.pop("token", None)  # the file takes precedence, as in client-go
    return context, cluster, user


def _configuration(cluster: _Entry, user: _Entry, where: str) -> Any:
    """Return the package's Configuration as Any, because the stubs lack some of its attributes."""
    if "exec" in user and not any(user.get(key) for key in _BEFORE_PLUGIN):
        user = {**user, **_credentials_of_plugin(user["exec"], cluster, where)}
        del user["exec"]
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
        raise ConfigError(f"{where}: {what} ({_one_line(error)}); {remedy}") from error
    return configuration


def _credentials_of_plugin(plugin: Any, cluster: _Entry, where: str) -> _Entry:
    """Run an exec plugin. Return its credentials as keys of a user."""
    try:
        run: Any = ExecProvider  # it has no annotations
        status = run(ConfigNode("exec", plugin), "", ConfigNode("cluster", cluster)).run()
        if "token" in status:
            return {"token": status["token"]}
        return {
            "client-certificate-data": _encoded(status["clientCertificateData"]),
            "client-key-data": _encoded(status["clientKeyData"]),
        }
    except Exception as error:
        # On a terminal, the plugin writes its error there, and the package fails to read it.
        reason = "its output is above"
        if not isinstance(error, AttributeError):
            reason = _one_line(error)
        remedy = "run its command by hand"
        if isinstance(plugin, dict) and plugin.get("installHint"):
            remedy = " ".join(str(plugin["installHint"]).split())
        raise ConfigError(
            f"{where}: the exec plugin returned no credentials ({reason}); {remedy}"
        ) from error


def _encoded(pem: str) -> str:
    return base64.b64encode(pem.encode()).decode()


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
        content = b"\n".join(file.read_bytes() for file in files)
    except OSError as error:
        raise ConfigError(
            f"{where}: {' or '.join(map(str, files))} cannot be read ({error.strerror}); make both readable for this user"
        ) from error
    return AuthInfo(authorization, content)


def _certificate_files(configuration: Any) -> list[Path]:
    """The files of the client certificate and of its key."""
    return [Path(name) for name in (configuration.cert_file, configuration.key_file) if name]


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split()).removeprefix("Invalid kube-config file. ")
    if isinstance(error, ConfigException):
        return text
    return f"{type(error).__name__}: {text}"
