"""`kruise-probe playground`: its flags. `running` has the rest, which takes a while to import."""

import sys
from pathlib import Path

import click

from kruise_probe.cli.flag_types import GO_BOOL, Flag, FlagCommand, duration, number


@click.command(cls=FlagCommand)
@click.option(
    "-f",
    "--filename",
    "files",
    cls=Flag,
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Pods and PodProbeMarkers to apply instead of the sample: a file, a folder with .yaml, .yml and .json files,"
    " or - for standard input; repeatable. A Deployment becomes its ReplicaSet, a StatefulSet single pods.",
)
@click.option(
    "--no-sample",
    cls=Flag,
    type=GO_BOOL,
    default=False,
    help="Do not apply the sample.",
)
@click.option(
    "--check",
    cls=Flag,
    type=GO_BOOL,
    default=False,
    help="Show nothing. Wait until conditions, labels, annotations and events show every probe of the sample in both"
    " states (with -f: a result of every probe). Then print one line of JSON and exit.",
)
@click.option(
    "--check-timeout",
    cls=Flag,
    type=duration(at_least=1),
    default="60s",
    help="Timeout of --check.",
)
@click.option(
    "--kubeconfig-out",
    cls=Flag,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Another file for the kubeconfig with the session's token, mode 0600. It must not exist, and is removed at the end.",
)
@click.option(
    "--nodes",
    cls=Flag,
    type=number(1, 50),
    default=1,
    help="Number of nodes.",
)
def playground(
    files: tuple[Path, ...],
    no_sample: bool,
    check: bool,
    check_timeout: float,
    kubeconfig_out: Path | None,
    nodes: int,
) -> int:
    """Runs an API server, nodes, the manager and the daemons on this machine, without root and without a cluster.

    Applies sample game servers whose state changes every few seconds, and shows the results. When it ends, it deletes
    all of its files.

    \b
    kruise-probe playground                  the sample
    kruise-probe playground -f hello.yaml    pods and markers of your own
    kruise-probe playground --check          for scripts: one line of JSON
    """
    if not sys.platform.startswith("linux"):
        raise click.ClickException(
            "the playground needs Linux: it runs containers as processes with addresses of 127/8"
        )
    if check and no_sample and not files:
        raise click.UsageError("--check with --no-sample has nothing to check; add -f FILE")
    if not check and sys.stdout.isatty():
        click.echo("starting API server, node, manager, daemon …")
    from kruise_probe_playground import running

    return running.run(
        files,
        no_sample=no_sample,
        check_seconds=check_timeout if check else None,
        kubeconfig_out=kubeconfig_out,
        nodes=nodes,
    )
