"""`kruise-probe manifests`: prints the YAML to install."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import click

from kruise_probe.api.names import SYSTEM_NAMESPACE
from kruise_probe.cli.flag_types import (
    NAMESPACE,
    flag,
    flag_command,
    label_keys_flag,
    number,
    switch,
)
from kruise_probe.cli.gates import SERVERLESS, gates_flag
from kruise_probe.manifests import yaml_of
from kruise_probe.manifests.crds import all_crds, marker_json_schema
from kruise_probe.manifests.install import DEFAULT_IMAGE, Install, default_install

_both = partial(flag, group="Manager and daemon")
_webhook = partial(switch, group="Webhook")
_security = partial(switch, group="Security", default=True)
_DOCKERFILE = Path(__file__).parents[2] / "Dockerfile"  # only a checkout has it


@dataclass(frozen=True, kw_only=True)
class ManifestFlags(Install):
    """The command line: the options of an install, and what to print of it."""

    crds_only: bool = switch("Print only the CustomResourceDefinitions.")
    json_schema: bool = switch(
        "Print only the JSON Schema of PodProbeMarker, which editors use for completion and checks."
    )
    namespace: str = _both(
        "Namespace of manager and daemon.",
        NAMESPACE,
        SYSTEM_NAMESPACE,
    )
    image: str = _both("Image of manager and daemon.", default=DEFAULT_IMAGE)
    image_pull_policy: str = _both(
        "Pull policy of the image; Never for an image that was loaded onto the nodes.",
        click.Choice(["Always", "IfNotPresent", "Never"]),
        "IfNotPresent",
    )
    replicas: int = _both("Number of managers; one is active.", number(1), 2)
    feature_gates: Mapping[str, bool] = gates_flag(
        "Feature gates of manager and daemon.", group="Manager and daemon"
    )
    allowed_label_keys: frozenset[str] = label_keys_flag(
        "Reserved label keys that policies may write: for the CRD's rules and the manager.",
        group="Manager and daemon",
    )
    cri_socket: str = _both(
        "Socket of the container runtime on the nodes. The daemon mounts its folder.",
        default="",
        metavar="PATH",
        show_default="in /run/containerd",
    )
    metrics_secure: bool = _security(
        "Serve /metrics only to users with permission to get it; false: to everyone who can connect."
    )
    admission_policy: bool = _security(
        "Limit the writes of each daemon's token to its own node; set to false before Kubernetes 1.30."
    )
    own_node_reads: bool = switch(
        "Limit also the reads of each daemon's token to its own node; needs Kubernetes 1.36.",
        group="Security",
    )
    webhook: bool = _webhook(
        "Install the manager's webhook, which Kruise's own CRDs and serverless pods need."
    )
    cert_manager: bool = _webhook("Use cert-manager for the webhook's certificate.")


@flag_command(ManifestFlags)
def manifests(flags: ManifestFlags) -> None:
    """Prints the YAML to install, in the order in which to apply it, or the JSON Schema of a PodProbeMarker for editors.

    \b
    kruise-probe manifests | kubectl apply --server-side -f -
    kruise-probe manifests --crds-only | kubectl apply --server-side -f -
    kruise-probe manifests --cri-socket=/run/crio/crio.sock > install.yaml
    kruise-probe manifests --json-schema > podprobemarker.schema.json
    """
    if flags.cri_socket and not _is_socket_path(flags.cri_socket):
        raise click.UsageError(
            f"--cri-socket {flags.cri_socket!r} is not the path of a socket in a folder below /; "
            "write its absolute path, such as /run/containerd/containerd.sock"
        )
    if not flags.image.strip() or flags.image != "".join(flags.image.split()):
        raise click.UsageError(
            f"--image {flags.image!r}: write a name and a tag, such as {DEFAULT_IMAGE}"
        )
    if flags.cert_manager and not flags.webhook:
        raise click.UsageError("--cert-manager needs --webhook, whose certificate it issues")
    if flags.json_schema and flags.crds_only:
        raise click.UsageError("--json-schema and --crds-only exclude each other")
    if flags.json_schema:
        click.echo(json.dumps(marker_json_schema(), indent=2))
        return
    serverless = SERVERLESS.enabled(flags.feature_gates)
    if serverless and not flags.webhook and not flags.crds_only:
        _warn(
            f"the gate {SERVERLESS.name} is on, but without the webhook no pod gets the annotation for its provider; "
            "add --webhook"
        )
    if flags.image == DEFAULT_IMAGE and not flags.crds_only and _DOCKERFILE.exists():
        _warn(
            f"this is a checkout, and {DEFAULT_IMAGE} may not exist or may have other code; "
            "build an image with 'docker build --tag IMAGE .', push it, and add --image=IMAGE"
        )
    install = replace(flags, serverless=serverless)
    documents = (
        all_crds(flags.allowed_label_keys)
        if flags.crds_only
        else default_install(install, admission_policy=flags.admission_policy)
    )
    click.echo(yaml_of(documents), nl=False)


def _warn(text: str) -> None:
    click.echo(f"kruise-probe manifests: {text}", err=True)


def _is_socket_path(path: str) -> bool:
    """Whether the path may be that of a socket. Its folder is mounted, so it must not be the root of the node."""
    root, *names = path.split("/")
    return not root and len(names) > 1 and not {"", ".", ".."} & set(names)
