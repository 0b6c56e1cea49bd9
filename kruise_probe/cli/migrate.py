"""`kruise-probe migrate --check`: reports what changes if kruise-probe replaces Kruise's PodProbeMarker."""

import asyncio
from typing import Any, Final, TypeVar

import click

from kruise_probe.api.errors import NotFound
from kruise_probe.api.kinds import KubeObject, Resource
from kruise_probe.api.names import LEADER_ELECTION_ID
from kruise_probe.api.resources import LEASES, MARKERS, NODE_POD_PROBES
from kruise_probe.cli.query_client import DEADLINE_SECONDS, client_of, run_query
from kruise_probe.cli.query_options import QueryCommand, QueryFlags, document_text, query_flags
from kruise_probe.cli.reading import Reader
from kruise_probe.cli.tables import plural, printable
from kruise_probe.client.config import ClusterConfig
from kruise_probe.inspection.kruise_objects import (
    DAEMON,
    DAEMON_SETS,
    DEFINITIONS,
    DEPLOYMENTS,
    MANAGER,
    MARKER_CRD,
    WEBHOOK_CONFIGURATION,
    WEBHOOK_CONFIGURATIONS,
    KruiseCluster,
)
from kruise_probe.inspection.migration import MigrationView, migration_view

T = TypeVar("T", bound=KubeObject)

EXIT_REFUSED: Final = 1

_HELP = """Reports what changes if kruise-probe replaces the PodProbeMarker of Kruise in this cluster.

\b
kruise-probe migrate --check             all namespaces
kruise-probe migrate --check -n games    the markers of one namespace
kruise-probe migrate --check -o json     for programs; a documented and stable format

It shows what is installed, what differs for each marker, which markers kruise-probe would refuse, and the steps in order. It
reads only. The exit code is 0 if no marker is refused, 1 if one is, and 2 for a wrong command line.
"""


@click.command(
    cls=QueryCommand, help=_HELP, short_help="Report what a migration from Kruise changes."
)
@click.option(
    "--check", is_flag=True, help="Required: there is no other mode, and nothing is changed."
)
@query_flags("text", "json", "yaml", namespace="all")
def migrate(check: bool, **options: Any) -> int:
    if not check:
        raise click.UsageError("add --check; migrate only reports, the steps are yours")
    flags = QueryFlags(**options)
    config = flags.load_config()
    view = run_query(_read(config, flags), config)
    click.echo(
        migration_text(view) if flags.output == "text" else document_text(view, flags.output),
        nl=False,
    )
    return EXIT_REFUSED if any(each.refused for each in view.markers) else 0


async def _read(config: ClusterConfig, flags: QueryFlags) -> MigrationView:
    async with client_of(config) as client, asyncio.timeout(DEADLINE_SECONDS):
        reader = Reader(
            client, namespace=flags.namespace or "", system_namespace=flags.system_namespace
        )
        leases = await _named(reader, LEASES, LEADER_ELECTION_ID, flags.system_namespace)
        cluster = KruiseCluster(
            markers=[
                each
                for each in await reader.list_all(MARKERS, flags.namespace or "")
                if flags.selector is None or flags.selector.matches(each.metadata.labels or {})
            ],
            node_pod_probes=await reader.list_if_allowed(NODE_POD_PROBES),
            definitions=await _named(reader, DEFINITIONS, MARKER_CRD),
            managers=await _named(reader, DEPLOYMENTS, MANAGER),
            daemons=await _named(reader, DAEMON_SETS, DAEMON),
            webhooks=await _named(reader, WEBHOOK_CONFIGURATIONS, WEBHOOK_CONFIGURATION),
            kruise_probe_leads=None if leases is None else bool(leases),
        )
        return migration_view(cluster, allowed_labels=flags.allowed_label_keys, notes=reader.notes)


async def _named(
    reader: Reader, resource: Resource[T], name: str, namespace: str = ""
) -> list[T] | None:
    """The objects of that name in all namespaces; none if the server does not serve the kind."""
    try:
        return await reader.list_if_allowed(resource, namespace, name=name)
    except NotFound:
        return []


def migration_text(view: MigrationView) -> str:
    """The output for people."""
    lines = ["In this cluster", *(f"  {each}" for each in view.found), ""]
    lines += [
        "For every marker",
        *(f"  {each.subject}: {each.message}" for each in view.every_marker),
        "",
    ]
    refused = 0
    for marker in view.markers:
        refused += bool(marker.refused)
        lines.append(f"{marker.namespace}/{marker.name}: {'refused' if marker.refused else 'ok'}")
        lines += [f"  refused  {each}" for each in marker.refused]
        lines += [f"  differs  {each.subject}: {each.message}" for each in marker.differences]
    lines += [
        "",
        "Steps",
        *(f"  {number}. {each}" for number, each in enumerate(view.steps, 1)),
        "",
    ]
    lines += [f"Note: {each}" for each in view.notes]
    lines.append(f"{plural(len(view.markers), 'marker')}, {refused} refused.")
    return "".join(f"{printable(each)}\n" for each in lines)
