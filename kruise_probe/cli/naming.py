"""Shell completion of marker, pod and namespace names, read from the API server.

Any error results in no completions, because a shell cannot show errors there.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import click
import msgspec

from kruise_probe.api.errors import FatalError, KubeError
from kruise_probe.api.resources import DECODE_ERRORS, MARKERS, PODS
from kruise_probe.cli.reading import client_of
from kruise_probe.client.config import ClusterConfig, load_config

PATIENCE_SECONDS: Final = 2.0
MOST: Final = 500

Completer = Callable[[click.Context, click.Parameter, str], list[str]]


class _Named(msgspec.Struct, frozen=True):
    name: str = ""


class _Object(msgspec.Struct, frozen=True):
    metadata: _Named = _Named()


class _List(msgspec.Struct, frozen=True):
    items: list[_Object] | None = None


def _completer(path_in: Callable[[str], str]) -> Completer:
    """Complete the names in the list at the path that `path_in` returns for a namespace."""

    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
        try:
            config = load_config(ctx.params.get("kubeconfig"))
            path = path_in(ctx.params.get("namespace") or config.namespace)
            names = asyncio.run(_names(config, path))
        except (FatalError, KubeError, TimeoutError, *DECODE_ERRORS):
            return []
        return [each for each in names if each.startswith(incomplete)]

    return complete


async def _names(config: ClusterConfig, path: str) -> list[str]:
    async with asyncio.timeout(PATIENCE_SECONDS), client_of(config) as client:
        listed = msgspec.json.decode(await client.get_raw(f"{path}?limit={MOST}"), type=_List)
    return sorted(each.metadata.name for each in listed.items or ())


complete_markers: Final = _completer(MARKERS.path)
complete_pods: Final = _completer(PODS.path)
complete_namespaces: Final = _completer(lambda _: "/api/v1/namespaces")
