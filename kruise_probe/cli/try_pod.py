"""`kruise-probe try`: runs each probe of a marker once against a live pod."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final

import click
import msgspec

from kruise_probe.api.errors import FatalError
from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.problems import did_you_mean
from kruise_probe.api.times import format_time
from kruise_probe.api.v1alpha1 import PodProbeMarker, ProbeState
from kruise_probe.cli.attempt_text import attempt_lines
from kruise_probe.cli.flag_types import file_flag, flag_command
from kruise_probe.cli.query import QueryFlags, marker_argument, not_found, pod_argument, print_view
from kruise_probe.cli.reading import Reader
from kruise_probe.client.rest import RestClient
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.daemon.probers.prober import Target
from kruise_probe.hints.selectors import why_not
from kruise_probe.inspection.attempts import (
    AttemptsView,
    TrialResult,
    attempts_view,
    blocking_link,
    not_run,
)
from kruise_probe.inspection.link import ProbeContext, in_kubectl
from kruise_probe.inspection.seen_pods import SEEN_PODS, SeenPod
from kruise_probe.inspection.snapshot import Snapshot
from kruise_probe.inspection.traces import contexts_of
from kruise_probe.inspection.trials import run_probe
from kruise_probe.lint.findings import as_text
from kruise_probe.lint.linter import lint, read_sources

MAX_CONCURRENT: Final = 8
EXIT_NOT_SUCCEEDED: Final = 1


@dataclass(frozen=True, kw_only=True)
class TryFlags(QueryFlags):
    """The command line."""

    pod: str = pod_argument("POD", "try takes a pod, and then a marker")
    marker: str = marker_argument(
        "[MARKER]", "the second argument is a marker", required=False, default=""
    )
    filename: str | None = file_flag(
        "File with the marker, or a folder; - is standard input. Without it: the markers of the cluster."
    )


@flag_command(TryFlags, name="try")
def try_pod(flags: TryFlags) -> int:
    """Runs each probe of a PodProbeMarker once against a running pod, and prints its result and the marks that the
    manager would write. Writes nothing.

    \b
    kruise-probe try game-0                  all markers that select the pod
    kruise-probe try game-0 game             the probes of marker game
    kruise-probe try game-0 -f marker.yaml   a marker that is not applied yet
    kruise-probe try game-0 -f - -o json     from standard input, for programs

    It uses your own permissions: exec probes need get and create on pods/exec, the others on pods/portforward. One
    attempt, without thresholds and initial delay. `explain` says why a condition has its status.

    Exit codes: 0 if all probes succeeded; 1 if one is Failed or Unknown, and for a failure; 2 for a wrong command line.
    """
    of_file = None
    if flags.filename is not None:
        of_file = _marker_of_file(
            flags.filename,
            flags.marker,
            flags.allowed_label_keys,
        )
    namespace = (of_file and of_file.metadata.namespace) or flags.namespace
    if flags.namespace and flags.namespace != namespace:
        raise click.UsageError(
            f"the marker of the file is in namespace {namespace}, and -n is {flags.namespace}"
        )
    view = flags.run(
        partial(_try, flags, of_file),
        namespace=namespace,
    )
    print_view(
        view,
        flags.output,
        partial(attempt_lines, view),
    )
    if any(attempt.state != ProbeState.SUCCEEDED for attempt in view.attempts):
        return EXIT_NOT_SUCCEEDED
    return 0


def _marker_of_file(
    filename: str,
    name: str,
    allowed_labels: frozenset[str],
) -> PodProbeMarker:
    """The marker called `name` in the file, or the only one.

    Raises:
        FatalError: the file has no such marker, or several.
        click.exceptions.Exit: the API server would refuse the file; the findings are printed.
    """
    report = lint(read_sources([filename]), allowed_labels=allowed_labels)
    if report.refused:
        click.echo(
            as_text(report._replace(findings=report.refused)),
            err=True,
            nl=False,
        )
        raise click.exceptions.Exit(EXIT_NOT_SUCCEEDED)
    names = [marker.key.name for marker in report.markers]
    found = [marker for marker in report.markers if name in ("", marker.key.name)]
    if not found:
        what = f"PodProbeMarker {name}".rstrip()
        raise FatalError(f"{filename}: there is no {what}.{did_you_mean(name, names)}")
    if len(found) > 1:
        raise FatalError(f"{filename}: has several PodProbeMarkers; name one of {', '.join(names)}")
    if not found[0].key.name:
        raise FatalError(f"{filename}: the PodProbeMarker has no name; set metadata.name")
    return found[0]


async def _try(
    flags: TryFlags,
    of_file: PodProbeMarker | None,
    reader: Reader,
) -> AttemptsView:
    namespace = reader.namespace
    pod, stored = await reader.read_pod(
        flags.pod,
        markers_optional=of_file is not None,
    )
    if pod is None:
        names = [other.key.name for other in await reader.visible(SEEN_PODS, namespace)]
        raise FatalError(
            not_found(
                "pod",
                namespace,
                flags.pod,
                names,
            )
        )
    now = reader.client.server_now()
    name: str | None = flags.marker
    if of_file is not None:
        stored = _applied(of_file, namespace, stored, now)
        name = of_file.metadata.name
    snapshot = Snapshot(
        now=now,
        markers=tuple(stored),
        pods=(pod,),
        allowed_labels=flags.allowed_label_keys,
    )
    contexts = list[ProbeContext]()
    for marker in _chosen(name, snapshot, pod):
        contexts += contexts_of(snapshot, pod, marker)
    results = await _run_all(reader.client, contexts)
    return attempts_view(
        snapshot,
        pod,
        results,
        reader.notes,
    )


def _applied(
    of_file: PodProbeMarker, namespace: str, stored: Sequence[PodProbeMarker], now: datetime
) -> list[PodProbeMarker]:
    """The markers as if the file were applied: an existing marker keeps its age, a new one is the youngest."""
    name = of_file.metadata.name
    others = []
    created: str | None = format_time(now)
    for marker in stored:
        if marker.metadata.name == name:
            created = marker.metadata.creation_timestamp
        else:
            others.append(marker)
    metadata = msgspec.structs.replace(
        of_file.metadata,
        namespace=namespace,
        creation_timestamp=created,
        deletion_timestamp=None,
    )
    return [
        *others,
        msgspec.structs.replace(of_file, metadata=metadata),
    ]


def _chosen(
    name: str | None,
    snapshot: Snapshot,
    pod: SeenPod,
) -> Sequence[CompiledMarker]:
    """The markers whose probes to run; without a name all that select the pod.

    Raises:
        FatalError: there is no such marker, or it does not select the pod.
    """
    selecting = snapshot.matching.markers_of(pod)
    if not name and not selecting:
        raise FatalError(
            f"no PodProbeMarker selects pod {pod.key}; see: kruise-probe explain {in_kubectl(pod.key)}"
        )
    if not name:
        return selecting
    marker = snapshot.compiled.get(NamespacedName(pod.key.namespace, name))
    if marker is None:
        names = [marker.key.name for marker in snapshot.markers]
        raise FatalError(
            not_found(
                "PodProbeMarker",
                pod.key.namespace,
                name,
                names,
            )
        )
    if marker not in selecting:
        why = why_not(marker.selector, pod.labels)
        raise FatalError(f"PodProbeMarker {marker.key} does not select pod {pod.key}: {why}")
    return (marker,)


async def _run_all(
    client: RestClient, contexts: Sequence[ProbeContext]
) -> list[tuple[ProbeContext, TrialResult]]:
    places = asyncio.Semaphore(MAX_CONCURRENT)

    async def one(context: ProbeContext) -> TrialResult:
        if link := blocking_link(context):
            return not_run(f"{link.reason}: {link.text}", link.remedy)
        entry = context.planned(frozenset(found.name for found in context.pod.containers))
        target = Target(
            pod_ip=context.pod.ip,
            container_id=context.probe.container_name,
        )
        async with places:
            return await run_probe(
                client,
                context.pod.key,
                entry,
                target,
            )

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(context)) for context in contexts]
    return list(
        zip(
            contexts,
            [task.result() for task in tasks],
            strict=True,
        )
    )
