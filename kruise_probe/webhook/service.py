"""Wiring of the webhook, which a manager runs beside its controllers if `--webhook-addr` is set."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.v1alpha1 import PodProbeMarker
from kruise_probe.manifests.webhook import (
    CONFIGURATION,
    MUTATE_PODS,
    VALIDATE_MARKERS,
    VALIDATE_NODE_POD_PROBES,
    dns_names,
)
from kruise_probe.manifests.workloads import WEBHOOK_SECRET
from kruise_probe.webhook.admission import ALLOWED, Request, Verdict
from kruise_probe.webhook.annotating import annotate_pod
from kruise_probe.webhook.certificates import Pace
from kruise_probe.webhook.given import GivenCertificates
from kruise_probe.webhook.judging import judge_marker, judge_node_pod_probe
from kruise_probe.webhook.keeper import CertificateKeeper, KeeperClient
from kruise_probe.webhook.server import WebhookServer
from kruise_probe.webhook.serving_context import ServingContext

FLAG: Final = "--webhook-addr"
CLIENT_CA_FLAG: Final = "--webhook-client-ca-file"

MarkersOf = Callable[[str], Iterable[PodProbeMarker]]


class Runnable(Protocol):
    """Something that runs until it is cancelled."""

    async def run(self) -> None: ...


class Options(NamedTuple):
    """Options of the webhook.

    Attributes:
        certificate_folder: folder of a certificate pair; empty for self-managed ones in the Secret of the system namespace.
        client_ca_file: PEM file of the CA that clients need a certificate of. Empty: no client certificate is needed.
        serverless: feature gate `EnablePodProbeMarkerOnServerless`; while off, pods are admitted unchanged.
        allowed_labels: reserved label keys that policies may write anyway.
    """

    address: str
    system_namespace: str
    serverless: bool
    certificate_folder: str = ""
    allowed_labels: frozenset[str] = frozenset()
    client_ca_file: str = ""
    pace: Pace = Pace()


class Parts(NamedTuple):
    """Parts of the webhook. Start `services` first; `check` returns why the webhook is not ready, or None."""

    services: Sequence[Runnable]
    check: Callable[[], str | None]
    server: WebhookServer


def build(
    client: KeeperClient, options: Options, *, markers_of: MarkersOf, now: Callable[[], datetime]
) -> Parts:
    """Build the webhook and bind its port, without starting it.

    `client` must be able to write on standbys too, as every replica maintains the certificate. `markers_of` returns
    the markers of a namespace from a cache.

    Raises:
        BindError: the port is in use.
        FatalError: the client CA file cannot be loaded.
    """
    serving = ServingContext()
    if options.client_ca_file:
        serving.require_clients_of(Path(options.client_ca_file), flag=CLIENT_CA_FLAG)
    keeper: CertificateKeeper | GivenCertificates
    if options.certificate_folder:
        keeper = GivenCertificates(Path(options.certificate_folder), serving)
    else:
        keeper = CertificateKeeper(
            client=client,
            serving=serving,
            secret=NamespacedName(options.system_namespace, WEBHOOK_SECRET),
            configuration=CONFIGURATION,
            dns_names=dns_names(options.system_namespace),
            now=now,
            pace=options.pace,
        )

    def judge_pod(request: Request) -> Verdict:
        if not options.serverless:
            return ALLOWED
        return annotate_pod(request, markers_of(request.namespace))

    server = WebhookServer(
        options.address,
        flag=FLAG,
        serving=serving,
        decide={
            VALIDATE_MARKERS: partial(judge_marker, allowed_labels=options.allowed_labels),
            VALIDATE_NODE_POD_PROBES: judge_node_pod_probe,
            MUTATE_PODS: judge_pod,
        },
    )
    server.bind()
    return Parts(
        services=(keeper, server),
        check=lambda: None if serving.loaded.is_set() else keeper.last_error,
        server=server,
    )
