"""`kruise-probe explain`: why a pod is or is not probed and marked."""

import sys

import click

from kruise_probe.api.errors import FatalError
from kruise_probe.api.keys import NamespacedName
from kruise_probe.cli.completion import complete_pods
from kruise_probe.cli.query_options import (
    document_text,
    not_found,
    output_option,
    query_flags,
    terminal_width,
)
from kruise_probe.cli.reading import Reader, client_of, run
from kruise_probe.cli.tables import explanation_text
from kruise_probe.client.config import ClusterConfig, load_config
from kruise_probe.inspection.explanation import ExplanationView, explanation

_HELP = """Explains which PodProbeMarkers select a pod and why others do not. For each probe it checks every link from the
marker through NodePodProbe and daemon to the result and the marks.

\b
kruise-probe explain game-0
kruise-probe explain -n games game-0 -o json

It names the first broken link and what to do. Reads only. The exit code is 0 even if a link is broken; -o json has it
as firstBroken.
"""


@click.command(help=_HELP, short_help="Show why a pod is or is not probed.")
@click.argument("pod", shell_complete=complete_pods)
@query_flags
@output_option("text", "json", "yaml")
def explain(
    pod: str,
    namespace: str | None,
    kubeconfig: str | None,
    system_namespace: str,
    allowed_label_keys: frozenset[str],
    output: str,
) -> None:
    config = load_config(kubeconfig)
    name = pod.removeprefix("pods/").removeprefix("pod/")
    key = NamespacedName(namespace or config.namespace, name)
    view = run(_explain(config, key, system_namespace, allowed_label_keys), config)
    if output in ("json", "yaml"):
        click.echo(document_text(view, output), nl=False)
    else:
        text = explanation_text(view, width=terminal_width(), color=sys.stdout.isatty())
        click.echo(text, nl=False)


async def _explain(
    config: ClusterConfig,
    key: NamespacedName,
    system_namespace: str,
    allowed_labels: frozenset[str],
) -> ExplanationView:
    async with client_of(config) as client:
        reader = Reader(
            client,
            namespace=key.namespace,
            system_namespace=system_namespace,
            allowed_labels=allowed_labels,
        )
        snapshot = await reader.read()
        seen = snapshot.pods_by_key.get(key)
        if seen is None:
            names = [each.key.name for each in snapshot.pods]
            raise FatalError(not_found("pod", key.namespace, key.name, names))
        others = [] if snapshot.markers_of(seen.pod) else await reader.markers_everywhere()
    return explanation(snapshot, seen, reader.notes, others=others)
