"""`kruise-probe manifests`: prints the YAML to install."""

import json

import click
import yaml

from kruise_probe.api.names import SYSTEM_NAMESPACE
from kruise_probe.cli.feature_gates import SERVERLESS, FeatureGates
from kruise_probe.cli.flag_types import GATES, LABEL_KEYS, NAMESPACE, Count, bool_flag
from kruise_probe.manifests.crds import all_crds
from kruise_probe.manifests.install import default_install
from kruise_probe.manifests.json_schema import marker_json_schema
from kruise_probe.manifests.workloads import DEFAULT_IMAGE, Install

_HELP = """Prints the YAML to install, in the order in which to apply it, or the JSON Schema of a PodProbeMarker for editors.

\b
kruise-probe manifests | kubectl apply --server-side -f -
kruise-probe manifests --crds-only | kubectl apply --server-side -f -
kruise-probe manifests --cri-socket=/run/k3s/containerd/containerd.sock > install.yaml
kruise-probe manifests --json-schema > podprobemarker.schema.json
"""


@click.command(help=_HELP, short_help="Print the YAML to install.")
@bool_flag("--crds-only", default=False, help="Print only the CustomResourceDefinitions.")
@bool_flag(
    "--json-schema",
    default=False,
    help="Print only the JSON Schema of PodProbeMarker, which editors use for completion and checks.",
)
@click.option(
    "--namespace",
    type=NAMESPACE,
    default=SYSTEM_NAMESPACE,
    show_default=True,
    help="Namespace of manager and daemon.",
)
@click.option(
    "--image", default=DEFAULT_IMAGE, show_default=True, help="Image of manager and daemon."
)
@click.option(
    "--image-pull-policy",
    type=click.Choice(["Always", "IfNotPresent", "Never"]),
    default="IfNotPresent",
    show_default=True,
    help="Pull policy of the image; Never for an image that was loaded onto the nodes.",
)
@click.option(
    "--replicas",
    type=Count(min=1),
    default=2,
    show_default=True,
    help="Number of managers; one is active.",
)
@click.option(
    "--feature-gates",
    type=GATES,
    default="",
    metavar="NAME=BOOL,…",
    help="Feature gates of manager and daemon.",
)
@click.option(
    "--allowed-label-keys",
    type=LABEL_KEYS,
    default="",
    metavar="KEY,…",
    help="Reserved label keys that policies may write: for the CRD's rules and the manager.",
)
@click.option(
    "--cri-socket",
    default="",
    metavar="PATH",
    help="Socket of the container runtime on the nodes. The daemon mounts its folder.  [default: in /run/containerd]",
)
@bool_flag(
    "--admission-policy",
    default=True,
    help="Limit the writes of each daemon's token to its own node; set to false before Kubernetes 1.30.",
)
@bool_flag(
    "--webhook",
    default=False,
    help="Install the manager's webhook, which Kruise's own CRDs and serverless pods need.",
)
@bool_flag("--cert-manager", default=False, help="Use cert-manager for the webhook's certificate.")
@bool_flag(
    "--metrics-secure",
    default=True,
    help="Serve /metrics only to users with permission to get it; false: to everyone who can connect.",
)
def manifests(
    *,
    crds_only: bool,
    json_schema: bool,
    namespace: str,
    image: str,
    image_pull_policy: str,
    replicas: int,
    feature_gates: FeatureGates,
    allowed_label_keys: frozenset[str],
    cri_socket: str,
    admission_policy: bool,
    webhook: bool,
    cert_manager: bool,
    metrics_secure: bool,
) -> None:
    if cri_socket and not _is_socket_path(cri_socket):
        raise click.UsageError(
            f"--cri-socket {cri_socket!r} is not the path of a socket in a folder below /; "
            "write its absolute path, such as /run/containerd/containerd.sock"
        )
    if not image.strip() or image != "".join(image.split()):
        raise click.UsageError(
            f"--image {image!r}: write a name and a tag, such as {DEFAULT_IMAGE}"
        )
    if cert_manager and not webhook:
        raise click.UsageError("--cert-manager needs --webhook, whose certificate it issues")
    if json_schema and crds_only:
        raise click.UsageError("--json-schema and --crds-only exclude each other")
    if json_schema:
        click.echo(json.dumps(marker_json_schema(allowed_label_keys), indent=2))
        return
    serverless = feature_gates.enabled(SERVERLESS)
    if serverless and not webhook and not crds_only:
        click.echo(
            f"kruise-probe manifests: the gate {SERVERLESS.name} is on, but without the webhook no pod gets the "
            "annotation for its provider; add --webhook",
            err=True,
        )
    gates = ",".join(f"{name}={str(on).lower()}" for name, on in feature_gates.overrides.items())
    install = Install(
        namespace=namespace,
        image=image,
        image_pull_policy=image_pull_policy,
        replicas=replicas,
        feature_gates=gates,
        allowed_label_keys=allowed_label_keys,
        cri_socket=cri_socket,
        webhook=webhook,
        cert_manager=cert_manager,
        serverless=serverless,
        metrics_secure=metrics_secure,
    )
    documents = (
        all_crds(allowed_label_keys)
        if crds_only
        else default_install(install, admission_policy=admission_policy)
    )
    click.echo(yaml.safe_dump_all(documents, sort_keys=False, width=120), nl=False)


def _is_socket_path(path: str) -> bool:
    """Whether the path may be that of a socket. Its folder is mounted, so it must not be the root of the node."""
    root, *names = path.split("/")
    return not root and len(names) > 1 and not {"", ".", ".."} & set(names)
