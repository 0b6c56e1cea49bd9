"""Kubeconfig files: contexts are chosen here; the official package reads certificates, tokens, exec plugins, proxies.

This is the only module that imports `kubernetes`, and it is imported only when a kubeconfig is used. The package
reports errors as its own exceptions, as KeyErrors, or only in the log. They all become ConfigError.

Source: client-go tools/clientcmd.
Differs: what the official Python package does not support (impersonation, SOCKS) is rejected.
"""

import logging
import os
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml
from kubernetes.client import Configuration
from kubernetes.config import ConfigException, load_kube_config_from_dict
from kubernetes.config.kube_config import _cleanup_temp_files  # type: ignore[attr-defined]  # not in the stubs

from kruise_probe.client.cluster_config import NO_OVERRIDES, ClusterConfig, ConfigOverrides
from kruise_probe.client.credentials import AuthInfo, ConfigError, Credentials, tls_context

_IMPERSONATION = frozenset({"as", "as-uid", "as-groups", "as-user-extra"})
_PATHS: Final = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
"""Keys of clusters and users that are relative to the kubeconfig's folder."""
_FAILED_ON_TERMINAL: Final = "'NoneType' object has no attribute 'strip'"


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
    chosen = _choose(_read_files(paths, where), overrides, where)
    token_file = _take_token_file(chosen)
    configuration = _configuration(chosen, where)
    server = str(configuration.host).rstrip("/")
    ca_file: Path | None = None
    if configuration.ssl_ca_cert:
        ca_file = Path(configuration.ssl_ca_cert)
    tls: ssl.SSLContext | None = None
    if server[:6].lower() == "https:":
        tls = tls_context(ca_file, origin=where, verify=bool(configuration.verify_ssl))

    def reload() -> AuthInfo:
        try:
            renewed = _choose(_read_files(paths, where), overrides, where)
            return _user_of(_configuration(renewed, where), where)
        finally:
            _cleanup_temp_files()

    user = _user_of(configuration, where)
    may_change = bool(user.authorization or (user.certificate and tls is not None))
    try:
        credentials = Credentials(user, tls, reload if may_change else None)
        if token_file:
            credentials.follow_token(Path(token_file))
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    if tls is not None and ca_file is not None:
        credentials.follow_ca(ca_file, tls)
    if tls is not None and user.certificate:
        credentials.follow_certificate(*_certificate_files(configuration))
    return ClusterConfig(
        server=server,
        tls=tls,
        credentials=credentials,
        server_name=configuration.tls_server_name,
        proxy=configuration.proxy or None,
        namespace=chosen["contexts"][0]["context"]["namespace"] or "default",
        source=where,
    )


def _read_files(paths: str, where: str) -> dict[str, Any]:
    """Return `users`, `contexts` and `clusters` by name, and `current-context`. The first file with an entry's name wins.

    Missing files are skipped, unless all are missing.
    """
    merged: dict[str, Any] = {"users": {}, "contexts": {}, "clusters": {}, "current-context": ""}
    is_found = False
    for name in paths.split(os.pathsep):
        path = Path(name).expanduser()
        if not name or not path.exists():
            continue
        is_found = True
        content = _read_file(path, where)
        merged["current-context"] = merged["current-context"] or content.get("current-context")
        for kind in ("users", "contexts", "clusters"):
            for entry in _named(content.get(kind)):
                value = _absolute(entry.get(kind.removesuffix("s")), path.absolute().parent)
                merged[kind].setdefault(entry["name"], value)
    if not is_found:
        raise ConfigError(f"{where}: does not exist; correct the path, or omit it")
    return merged


def _named(entries: Any) -> list[dict[str, Any]]:
    """The entries that have a name."""
    if not isinstance(entries, list):
        return []
    mappings = [entry for entry in entries if isinstance(entry, dict)]
    return [entry for entry in mappings if isinstance(entry.get("name"), str)]


def _absolute(entry: Any, folder: Path) -> Any:
    """The entry, with the paths that are relative to its file made absolute."""
    if not isinstance(entry, dict):
        return entry
    absolute = {**entry}
    for key in _PATHS:
        if isinstance(entry.get(key), str):
            absolute[key] = str(folder / entry[key])
    plugin = entry.get("exec")
    if isinstance(plugin, dict) and os.sep in str(plugin.get("command")):
        absolute["exec"] = {**plugin, "command": str(folder / str(plugin["command"]))}
    return absolute


def _read_file(path: Path, where: str) -> dict[Any, Any]:
    """Read one file. Malformed files are rejected here, because the package would report them unclearly."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"{where}: cannot be read ({error.strerror}); make it readable for this user"
        ) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: is not YAML ({_one_line(error)}); correct the file") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{where}: is empty or not a mapping; replace it with a kubeconfig")
    return content


def _choose(
    files: dict[str, Any],
    overrides: ConfigOverrides,
    where: str,
) -> dict[str, Any]:
    """Return a kubeconfig of the chosen context alone."""
    wanted = {"context": overrides.context, "cluster": overrides.cluster, "user": overrides.user}
    for kind, chosen in wanted.items():
        if chosen and chosen not in files[f"{kind}s"]:
            names = ", ".join(sorted(files[f"{kind}s"])) or "none"
            raise ConfigError(f"{where}: has no {kind} {chosen!r}; choose from: {names}")
    name = overrides.context or str(files["current-context"] or "")
    context = files["contexts"].get(name)
    if not isinstance(context, dict):
        context = {}
        if not (overrides.cluster and overrides.user):
            raise ConfigError(
                f"{where}: has no usable current context ({name!r}); choose one with `kubectl config use-context`"
            )
    cluster = overrides.cluster or str(context.get("cluster") or "")
    if cluster not in files["clusters"]:
        raise ConfigError(f"{where}: has no cluster {cluster!r}; correct context {name!r}")
    user = files["users"].get(overrides.user or str(context.get("user") or ""))
    _refuse_impersonation(user, where)
    chosen_context = {"cluster": "chosen", "namespace": context.get("namespace")}
    if user:
        chosen_context["user"] = "chosen"
    return {
        "clusters": [{"name": "chosen", "cluster": files["clusters"][cluster]}],
        "users": [{"name": "chosen", "user": user}],
        "contexts": [{"name": "chosen", "context": chosen_context}],
        "current-context": "chosen",
    }


def _refuse_impersonation(user: Any, where: str) -> None:
    """The package would ignore impersonation and use all permissions of the user."""
    if not isinstance(user, dict):
        return
    requested = ", ".join(sorted(key for key in _IMPERSONATION if user.get(key)))
    if requested:
        raise ConfigError(
            f"{where}: impersonation ({requested}) is not supported; use the credentials of that user"
        )


def _take_token_file(chosen: dict[str, Any]) -> str:
    """Remove `tokenFile` from the chosen user, and return it: the package would read it once.

    It takes precedence over `token`, as in client-go.
    """
    user = chosen["users"][0]["user"]
    if not isinstance(user, dict) or "auth-provider" in user:
        return ""
    path = user.get("tokenFile")
    if not isinstance(path, str) or not path:
        return ""
    others = {**user}
    others.pop("token", None)
    del others["tokenFile"]
    chosen["users"][0]["user"] = others
    return path


def _configuration(content: dict[str, Any], where: str) -> Any:
    """Return the package's Configuration as Any, because the stubs lack some of its attributes."""
    configuration: Any = Configuration()
    # The package also reads a proxy from the environment, with its own rules; `config` has Go's rules.
    configuration.proxy = None
    try:
        with _captured_errors() as messages:
            load_kube_config_from_dict(
                content, client_configuration=configuration, persist_config=False
            )
    except ConfigException as error:
        raise ConfigError(f"{where}: {_one_line(error)}; correct the file") from error
    except (OSError, KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"{where}: cannot be used ({type(error).__name__}: {_one_line(error)}); correct the file"
        ) from error
    except Exception as error:  # the libraries of an auth provider raise many types
        raise ConfigError(
            f"{where}: the auth provider returned no credentials ({type(error).__name__}: {_one_line(error)}); log in "
            "again, or check that its server responds"
        ) from error
    if messages:
        # On a terminal, the plugin writes its error there, and the package fails to read it.
        reason = "; ".join(messages).replace(_FAILED_ON_TERMINAL, "its output is above")
        raise ConfigError(
            f"{where}: the exec plugin returned no credentials ({reason}); "
            f"{_install_hint(content['users'][0]['user']) or 'run its command by hand'}"
        )
    return configuration


def _install_hint(user: Any) -> str:
    try:
        return " ".join(user["exec"]["installHint"].split())
    except (TypeError, KeyError, AttributeError):
        return ""


@contextmanager
def _captured_errors() -> Iterator[list[str]]:
    """Collect the errors that the package logs: it raises none for a failed exec plugin.

    Only lines of this thread are collected, because the event loop logs in another thread.
    """
    messages: list[str] = []
    thread = threading.get_ident()

    def collect(record: logging.LogRecord) -> bool:
        if record.thread != thread or record.levelno < logging.ERROR:
            return True
        messages.append(" ".join(record.getMessage().split()))
        return False

    root = logging.getLogger()
    handler = logging.NullHandler()
    root.addHandler(handler)  # otherwise the package's first line would configure the root logger
    root.addFilter(collect)
    try:
        yield messages
    finally:
        root.removeFilter(collect)
        root.removeHandler(handler)


def _user_of(configuration: Any, where: str) -> AuthInfo:
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
    return " ".join(str(error).split()).removeprefix("Invalid kube-config file. ")
