"""`kruise-probe explain`: why a pod is or is not probed and marked."""

from collections.abc import Sequence
from typing import Any

import click

from kruise_probe.api.errors import FatalError
from kruise_probe.api.keys import NamespacedName
from kruise_probe.cli.completion import complete_pods
from kruise_probe.cli.flag_types import FlagCommand
from kruise_probe.cli.query_client import client_of, run_query
from kruise_probe.cli.query_options import (
    POD_KINDS,
    SelectingFlags,
    document_text,
    name_of,
    not_found,
    query_flags,
    show,
)
from kruise_probe.cli.tables import explanation_text
from kruise_probe.cli.terminal import Terminal
from kruise_probe.client.config import ClusterConfig
from kruise_probe.inspection.explanation import ExplanationsView, ExplanationView, explanation
from kruise_probe.inspection.seen_pods import SeenPod
from kruise_probe.inspection.snapshot import Snapshot, natural_order
from kruise_probe.inspection.views import JSON_VERSION

_HELP = """Explains which PodProbeMarkers select a pod and why others do not. For each probe it checks every link from the
marker through NodePodProbe and daemon to the result and the marks.

\b
kruise-probe explain game-0
kruise-probe explain game-0 game-1 -o wide   also the links that work
kruise-probe explain -l app=game             all pods with this label
kruise-probe explain -n games game-0 -o json

It names the first broken link and what to do. Reads only. The exit code is 0 even if a link is broken; -o json has it
as firstBroken.
"""


@click.command(cls=FlagCommand, help=_HELP)
@click.argument("pods", metavar="[POD]...", nargs=-1, shell_complete=complete_pods)
@query_flags(SelectingFlags, "text", "wide", "json", "yaml")
def explain(pods: tuple[str, ...], **options: Any) -> None:
    flags = SelectingFlags(**options)
    hint = "explain takes pods; for a marker run: kruise-probe status MARKER"
    names = [name_of(each, POD_KINDS, hint) for each in pods]
    if bool(names) == bool(flags.selector):
        raise click.UsageError("name pods, or select them with -l")
    config = flags.load_config()
    views = run_query(_explain(config, flags, names), config)
    if flags.output in ("json", "yaml"):
        single = len(names) == 1
        document = views[0] if single else ExplanationsView(version=JSON_VERSION, items=views)
        click.echo(document_text(document, flags.output), nl=False)
        return
    terminal = Terminal.of_stdout()._replace(height=0)
    texts = [explanation_text(each, terminal, wide=flags.output == "wide") for each in views]
    show("\n".join(texts))
    if not views:
        where = flags.namespace or config.namespace
        click.echo(f"No pods of namespace {where} have these labels.", err=True)


async def _explain(
    config: ClusterConfig, flags: SelectingFlags, names: Sequence[str]
) -> list[ExplanationView]:
    namespace = flags.namespace or config.namespace
    async with client_of(config) as client:
        reader = flags.reader(client, namespace)
        snapshot = await reader.read()
        found = _select(snapshot, flags, namespace, names)
        unmatched = any(not snapshot.markers_of(each.pod) for each in found)
        others = await reader.markers_everywhere() if unmatched else []
    return [explanation(snapshot, each, reader.notes, others=others) for each in found]


def _select(
    snapshot: Snapshot, flags: SelectingFlags, namespace: str, names: Sequence[str]
) -> list[SeenPod]:
    """The pods to explain: the named ones, or those that the selector matches.

    Raises:
        FatalError: a named pod does not exist.
    """
    if flags.selector:
        found = [each for each in snapshot.pods if flags.selector.matches(each.pod.labels)]
        return sorted(found, key=lambda each: natural_order(each.pod.name))
    for name in names:
        if NamespacedName(namespace, name) not in snapshot.pods_by_key:
            existing = [each.key.name for each in snapshot.pods]
            raise FatalError(not_found("pod", namespace, name, existing))
    return [snapshot.pods_by_key[NamespacedName(namespace, each)] for each in names]
