"""Kubeconfig files, read by the official package: contexts, certificates, tokens, exec plugins, proxies.

This is the only module that imports `kubernetes`, and it is imported only when a kubeconfig is used. The package
reports errors as its own exceptions, as KeyErrors, or only in the log. They all become ConfigError.

Source: client-go tools/clientcmd.
Differs: the official Python package reads the files, so what it does not support (impersonation, SOCKS) is rejected.
"""

import logging
import os
import ssl
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml
from kubernetes.client import Configuration
from kubernetes.config import ConfigException, list_kube_config_contexts, load_kube_config
from kubernetes.config.kube_config import _cleanup_temp_files  # type: ignore[attr-defined]  # not in the stubs

from kruise_probe.client.config import NO_OVERRIDES, ClusterConfig, ConfigOverrides
from kruise_probe.client.credentials import (
    ConfigError,
    KubeconfigUser,
    ReloadedCredentials,
    StaticCredentials,
)
from kruise_probe.client.tls import CAFile, tls_context, use_client_certificate

_IMPERSONATION = frozenset({"as", "as-uid", "as-groups", "as-user-extra"})


def load(paths: str, origin: str, overrides: ConfigOverrides = NO_OVERRIDES) -> ClusterConfig:
    """Load a context of `paths`. Several files are merged, as kubectl does with $KUBECONFIG.

    Raises:
        ConfigError: one line that says what is wrong, where, and what to do.
    """
    try:
        return _load_context(paths, f"{origin} {paths}", overrides)
    finally:
        _cleanup_temp_files()


def _load_context(paths: str, where: str, overrides: ConfigOverrides) -> ClusterConfig:
    files = _read_files(paths, where)
    overlay = _overlay(files, overrides, where) if overrides.need_kubeconfig else None
    with _paths_with(overlay, paths, files) as merged:
        context = _current_context(merged, where)
        user_entry = files.entries["users"].get(context.get("user") or "")
        _reject_impersonation(user_entry, where)
        hint = _install_hint(user_entry)
        configuration = _load(merged, where, hint)
    server = str(configuration.host).rstrip("/")
    if not server.startswith(("http://", "https://")):
        raise ConfigError(
            f"{where}: server {server!r} is not an http or https URL; correct it in the cluster's entry"
        )
    proxy = configuration.proxy or None
    if proxy and not proxy.startswith(("http://", "https://")):
        raise ConfigError(
            f"{where}: proxy-url {proxy!r} is not supported; use an http or https proxy"
        )
    tls = _tls(configuration, where) if server.startswith("https") else None

    def reload() -> KubeconfigUser:
        try:
            with _paths_with(overlay, paths, files) as merged:
                renewed = _user_of(_load(merged, where, hint), where)
        finally:
            _cleanup_temp_files()
        # Tried in another context first: an invalid certificate must not replace a valid one.
        _use_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), renewed, where)
        return renewed

    def use_certificate(renewed: KubeconfigUser) -> None:
        if tls is not None:
            _use_certificate(tls, renewed, where)

    user = _user_of(configuration, where)
    if tls is not None:
        _use_certificate(tls, user, where)
    may_change = user.authorization or (user.certificate_file and tls is not None)
    ca_file = configuration.ssl_ca_cert
    return ClusterConfig(
        server=server,
        tls=tls,
        credentials=ReloadedCredentials(user, reload, use_certificate)
        if may_change
        else StaticCredentials(),
        ca_file=CAFile(Path(ca_file), tls) if ca_file and tls is not None else None,
        server_name=configuration.tls_server_name,
        proxy=proxy,
        namespace=context.get("namespace") or "default",
        source=where,
    )


class _Files(NamedTuple):
    """The merged `users`, `contexts` and `clusters` by name, and the first file with a current context."""

    entries: dict[str, dict[str, Any]]
    context_file: str
    current_context: str


def _read_files(paths: str, where: str) -> _Files:
    """Read all files; missing ones are skipped, unless all are missing."""
    merged: dict[str, dict[str, Any]] = {"users": {}, "contexts": {}, "clusters": {}}
    context_file, current_context = "", ""
    found = [name for name in paths.split(os.pathsep) if name and Path(name).expanduser().exists()]
    if not found:
        raise ConfigError(f"{where}: does not exist; correct the path, or omit it")
    for name in found:
        content = _read_file(Path(name).expanduser(), where)
        if content.get("current-context") and not context_file:
            context_file, current_context = name, str(content["current-context"])
        for kind, by_name in merged.items():
            entries = content.get(kind)
            for each in entries if isinstance(entries, list) else ():
                if isinstance(each, dict) and isinstance(each.get("name"), str):
                    by_name.setdefault(each["name"], each.get(kind.removesuffix("s")))
    return _Files(merged, context_file, current_context)


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


def _overlay(files: _Files, overrides: ConfigOverrides, where: str) -> dict[str, Any]:
    """Return a kubeconfig with a context of the overridden names.

    The package has no other way to combine a context with another cluster or user.
    """
    name = overrides.context or files.current_context
    base = files.entries["contexts"].get(name)
    context = dict(base) if isinstance(base, dict) else {}
    if overrides.context and base is None:
        raise _missing("context", name, files, where)
    for kind, chosen in (("cluster", overrides.cluster), ("user", overrides.user)):
        if chosen and chosen not in files.entries[f"{kind}s"]:
            raise _missing(kind, chosen, files, where)
        if chosen:
            context[kind] = chosen
    return {
        "contexts": [{"name": _OVERLAY_CONTEXT, "context": context}],
        "current-context": _OVERLAY_CONTEXT,
    }


@contextmanager
def _paths_with(overlay: dict[str, Any] | None, paths: str, files: _Files) -> Iterator[str]:
    """The paths for the package. The last file's current context takes precedence; in kubectl, it is the first's."""
    if overlay is None:
        yield os.pathsep.join((paths, files.context_file))
        return
    with tempfile.NamedTemporaryFile("w", prefix="kruise-probe-") as file:
        yaml.safe_dump(overlay, file)
        file.flush()
        yield os.pathsep.join((paths, file.name))


_FAILED_ON_TERMINAL: Final = "'NoneType' object has no attribute 'strip'"
_OVERLAY_CONTEXT: Final = "kruise-probe: overridden by flags"


def _missing(kind: str, name: str, files: _Files, where: str) -> ConfigError:
    names = ", ".join(sorted(files.entries[f"{kind}s"])) or "none"
    return ConfigError(f"{where}: has no {kind} {name!r}; choose from: {names}")


def _reject_impersonation(user: Any, where: str) -> None:
    """Reject impersonation, because the package would ignore it and use all permissions of the user."""
    requested = sorted(_IMPERSONATION.intersection(user)) if isinstance(user, dict) else []
    if any(user[key] for key in requested):
        raise ConfigError(
            f"{where}: impersonation ({', '.join(requested)}) is not supported; use the credentials of that user"
        )


def _current_context(paths: str, where: str) -> dict[str, Any]:
    try:
        _, active = list_kube_config_contexts(paths)
    except (ConfigException, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(
            f"{where}: has no usable current context ({_one_line(error)}); choose one with "
            "`kubectl config use-context`"
        ) from error
    context: dict[str, Any] = active["context"]
    return context


def _install_hint(user: Any) -> str:
    plugin = user.get("exec") if isinstance(user, dict) else None
    hint = plugin.get("installHint") if isinstance(plugin, dict) else None
    return " ".join(hint.split()) if isinstance(hint, str) else ""


def _load(paths: str, where: str, hint: str) -> Any:
    """Return the package's Configuration as Any, because the stubs lack some of its attributes."""
    configuration: Any = Configuration()
    # The package also reads a proxy from the environment, with its own rules; `config` has Go's rules.
    configuration.proxy = None
    try:
        with _captured_errors() as messages:
            load_kube_config(paths, client_configuration=configuration, persist_config=False)
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
            f"{hint or 'run its command by hand'}"
        )
    return configuration


@contextmanager
def _captured_errors() -> Iterator[list[str]]:
    """Collect the errors that the package logs: it raises none for a failed exec plugin.

    Only lines of this thread are collected, because the event loop logs in another thread.
    """
    messages: list[str] = []
    thread = threading.get_ident()

    def ours(record: logging.LogRecord) -> bool:
        return record.thread == thread and record.levelno >= logging.ERROR

    def not_ours(record: logging.LogRecord) -> bool:
        return not ours(record)

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(" ".join(record.getMessage().split()))

    root, collector = logging.getLogger(), Collector()
    collector.addFilter(ours)
    others = tuple(root.handlers)
    for handler in others:
        handler.addFilter(not_ours)
    root.addHandler(collector)
    try:
        yield messages
    finally:
        root.removeHandler(collector)
        for handler in others:
            handler.removeFilter(not_ours)


def _user_of(configuration: Any, where: str) -> KubeconfigUser:
    keys: dict[str, str] = configuration.api_key
    # The package renamed its key in release 36.
    authorization = keys.get("BearerToken") or keys.get("authorization")
    if authorization:  # without the newline at the end of a token file
        authorization = authorization.strip()
    certificate, key = configuration.cert_file, configuration.key_file
    if not certificate:
        return KubeconfigUser(authorization)
    try:
        return KubeconfigUser.read(authorization, certificate, key)
    except OSError as error:
        names = " or ".join(filter(None, (certificate, key)))
        raise ConfigError(
            f"{where}: {names} cannot be read ({error.strerror}); make both readable for this user"
        ) from error


def _tls(configuration: Any, where: str) -> ssl.SSLContext:
    ca_file = configuration.ssl_ca_cert
    return tls_context(
        Path(ca_file) if ca_file else None,
        origin=where,
        verify=bool(configuration.verify_ssl),
    )


def _use_certificate(context: ssl.SSLContext, user: KubeconfigUser, where: str) -> None:
    if user.certificate_file:
        named = f"{user.certificate_file} with key {user.key_file}"
        use_client_certificate(context, user.content, named=named, origin=where)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()).removeprefix("Invalid kube-config file. ")
