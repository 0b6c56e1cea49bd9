"""`kruise-probe explain`: why a pod is or is not probed and marked."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import click

from kruise_probe.api.errors import FatalError
from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.resources import MARKERS
from kruise_probe.cli.explanation_text import explanation_lines
from kruise_probe.cli.flag_types import flag_command
from kruise_probe.cli.query import SelectingFlags, not_found, output_flag, pod_argument, print_view
from kruise_probe.cli.reading import Reader
from kruise_probe.cli.terminal import Terminal
from kruise_probe.inspection.explanation import ExplanationsView, ExplanationView, explanation
from kruise_probe.inspection.seen_pods import SeenPod
from kruise_probe.inspection.snapshot import Snapshot, natural_order


@dataclass(frozen=True, kw_only=True)
class ExplainFlags(SelectingFlags):
    """The command line."""

    pods: tuple[str, ...] = pod_argument(
        "[POD]...", "explain takes pods; for a marker run: kruise-probe status MARKER", nargs=-1
    )
    output: str = output_flag("text", "wide", "json", "yaml")


@flag_command(ExplainFlags)
def explain(flags: ExplainFlags) -> None:
    """Explains which PodProbeMarkers select a pod and why others do not. For each probe it checks every link from the
    marker through NodePodProbe and daemon to the result and the marks.

    \b
    kruise-probe explain game-0
    kruise-probe explain game-0 game-1 -o wide   also the links that work
    kruise-probe explain -l app=game             all pods with this label
    kruise-probe explain -n games game-0 -o json

    It names the first broken link, its reason in parentheses, and what to do. Reads only. The exit code is 0 even if a
    link is broken; -o json has it as firstBroken. All reasons:

    \b
    https://github.com/kruise-probe/kruise-probe/blob/main/docs/reasons.md
    """
    if bool(flags.pods) == bool(flags.selector):
        raise click.UsageError("name pods, or select them with -l")
    views = flags.run(partial(_explain, flags))
    one_or_all = views[0] if len(flags.pods) == 1 else ExplanationsView(items=views)
    print_view(
        one_or_all,
        flags.output,
        partial(_lines, views, flags.output == "wide"),
    )


def _lines(
    views: Sequence[ExplanationView],
    wide: bool,
    terminal: Terminal,
) -> Iterator[str]:
    for number, view in enumerate(views):
        if number:
            yield ""
        yield from explanation_lines(view, terminal, wide=wide)


async def _explain(flags: ExplainFlags, reader: Reader) -> list[ExplanationView]:
    snapshot = await reader.read()
    found = _select(snapshot, flags, reader.namespace)
    unmatched = any(not snapshot.matching.markers_of(pod) for pod in found)
    notes = list(reader.notes)  # without those on markers of other namespaces
    others = await reader.visible(MARKERS, "") if unmatched else []
    if not found and flags.output in ("text", "wide"):
        click.echo(
            f"No pods of namespace {reader.namespace} have these labels.",
            err=True,
        )
    return [explanation(snapshot, pod, notes, others=others) for pod in found]


def _select(
    snapshot: Snapshot,
    flags: ExplainFlags,
    namespace: str,
) -> list[SeenPod]:
    """The pods to explain: the named ones, or those that the selector matches.

    Raises:
        FatalError: a named pod does not exist.
    """
    if flags.selector:
        found = [pod for pod in snapshot.pods if flags.selector.matches(pod.labels)]
        return sorted(
            found,
            key=lambda pod: natural_order(pod.name),
        )
    for name in flags.pods:
        if NamespacedName(namespace, name) not in snapshot.pods_by_key:
            existing = [pod.key.name for pod in snapshot.pods]
            raise FatalError(not_found("pod", namespace, name, existing))
    return [snapshot.pods_by_key[NamespacedName(namespace, name)] for name in flags.pods]
