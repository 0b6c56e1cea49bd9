"""The connection of `status`, `explain` and `try`: configuration, client, and errors with a remedy."""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, Final, TypeVar

import click

from kruise_probe import version
from kruise_probe.api.errors import (
    ApiError,
    ConnectionFailed,
    FatalError,
    Forbidden,
    KubeError,
    NotFound,
    Unauthorized,
    first_of,
)
from kruise_probe.client.config import ClusterConfig, ConfigOverrides, load_config
from kruise_probe.client.rest import RestClient
from kruise_probe.serving.logs import configure_logs

R = TypeVar("R")

DEADLINE_SECONDS: Final = 30.0
"""Deadline for all initial lists together."""


def run_query(work: Coroutine[Any, Any, R], config: ClusterConfig) -> R:
    """Run `work`; turn API errors into one line with a remedy.

    Warnings of the informers are not logged, to keep them out of the output. `Following.notes` returns them instead.

    Raises:
        FatalError: the API server failed, refused a request, or exceeded the deadline.
    """
    configure_logs(format="text", level="error")
    try:
        return asyncio.run(work)
    except (KubeError, TimeoutError, BaseExceptionGroup) as error:
        first = first_of(error)
        if isinstance(first, KubeError):
            raise user_error(first, config) from None
        if isinstance(first, TimeoutError):
            raise FatalError(
                f"the API server of {config.source or config.server} did not send all objects within "
                f"{DEADLINE_SECONDS:g} s; try again, or read one namespace with -n"
            ) from None
        if isinstance(first, FatalError):
            raise first from None
        raise


def user_error(error: KubeError, config: ClusterConfig) -> FatalError:
    """The error with what the user can do about it."""
    source = config.source or config.server
    match error:
        case ConnectionFailed():
            return FatalError(
                f"{error}; check that the API server of {source} runs, and that it is the right one"
            )
        case Unauthorized():
            return FatalError(
                f"{error}; log in again: the API server refused the credentials of {source}"
            )
        case Forbidden():
            narrower = ", or read one namespace with -n" if "cluster scope" in error.message else ""
            return FatalError(f"{error.message}; ask for this permission{narrower}")
        case ApiError() if error.code == 404 and "podprobemarkers" in error.request:
            return FatalError(
                "the CRDs are not installed in this cluster; install them: "
                "kruise-probe manifests --crds-only | kubectl apply --server-side -f -"
            )
        case ApiError():
            return FatalError(error.message if isinstance(error, NotFound) else str(error))
        case _:
            return FatalError(str(error))


def config_of(params: Mapping[str, Any]) -> ClusterConfig:
    """The configuration for the parsed options of `query_flags`.

    Raises:
        click.UsageError: --as-group without --as.
        ConfigError: the kubeconfig is missing or malformed.
    """
    overrides = ConfigOverrides(
        context=params.get("context") or "",
        cluster=params.get("cluster") or "",
        user=params.get("user") or "",
        as_user=params.get("as_user") or "",
        as_groups=tuple(params.get("as_group") or ()),
    )
    if overrides.as_groups and not overrides.as_user:
        raise click.UsageError("--as-group needs --as")
    return load_config(params.get("kubeconfig"), overrides=overrides, kubeconfig_first=True)


def client_of(config: ClusterConfig) -> RestClient:
    return RestClient(
        config=config,
        field_manager="kruise-probe",
        user_agent=f"kruise-probe/{version.TEXT}",
        max_in_flight=8,
    )
