"""The webhook behind a real API server: the table of markers on CRDs without rules, certificates that change, pods."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple

import aiohttp
import msgspec
import pytest
from contract.contract_api import Api, ApiResponse, named, pod, target_of
from contract.marker_copies import PLURAL, MarkerCopy
from support import programs
from support.background import background
from support.builders import marker_wire, probe_wire
from support.cases import cases
from support.kruise_crds import kruise_crds
from support.marker_table import GOOD
from support.patience import PATIENCE_SECONDS
from support.wire import Json

from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.names import (
    MUTATE_PODS,
    SERVERLESS_MARKERS_ANNOTATION,
    SERVERLESS_PROBES_ANNOTATION,
)
from kruise_probe.api.resources import MARKERS
from kruise_probe.api.times import utc_now
from kruise_probe.client.config import load_config
from kruise_probe.client.rest import RestClient
from kruise_probe.serving.http_server import HttpServer
from kruise_probe.serving.server_tls import CertificateLoader
from kruise_probe.serving.sockets import BindAddress
from kruise_probe.webhook.admission import annotate_pod, review_marker
from kruise_probe.webhook.cert_rotator import CertRotator, RotationTimes
from kruise_probe.webhook.server import AdmissionHandler, WebhookTls, review_server

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
MUTATING_CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
PATH = "/validate"
DRY = {"dryRun": "All"}
CALLS_A_SECOND = 100
CERTIFICATES = 3


@asynccontextmanager
async def plain_cluster(real_kubeconfig: str) -> AsyncIterator[MarkerCopy]:
    """Markers with Kruise's definition: only the webhook refuses a value."""
    async with aiohttp.ClientSession() as session:
        api = Api(session, target_of(Path(real_kubeconfig)))
        copy = MarkerCopy(api)
        marker_crd, _ = kruise_crds()
        await api.begin_namespace()
        try:
            async with copy.installed(marker_crd):
                await copy.until(GOOD, 201, **DRY)
                yield copy
        finally:
            await api.delete(f"{CONFIGURATIONS}/{api.unique}")
            await api.end_namespace()


class Replica(NamedTuple):
    certificates: CertificateLoader
    server: HttpServer

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.certificates.run())
            group.create_task(self.server.run())


@asynccontextmanager
async def replicas(
    copy: MarkerCopy, real_kubeconfig: str, *, count: int, times: RotationTimes
) -> AsyncIterator[list[Replica]]:
    """Webhooks that share one Secret, each called for every marker; called by address, as there is no Service."""
    api = copy.api
    async with client_with_secret(api, real_kubeconfig) as client:
        made = [replica(client, api, times) for _ in range(count)]
        webhooks = [
            webhook(copy.group, number, replica.server) for number, replica in enumerate(made)
        ]
        await configure(CONFIGURATIONS, api, webhooks)
        async with background(run_all(made)):
            # Only the webhook refuses an empty selector: before that the server may not know of it yet.
            await copy.until({**GOOD, "selector": {}}, 422, **DRY)
            await copy.until(GOOD, 201, **DRY)
            yield made


@asynccontextmanager
async def client_with_secret(api: Api, real_kubeconfig: str) -> AsyncIterator[RestClient]:
    """A client of webhooks, and their Secret in the namespace of the test."""
    await api.create("secrets", named("Secret", "certs"))
    config = load_config(real_kubeconfig)
    agent = f"contract-{api.unique}"
    async with RestClient(config=config, field_manager=agent, user_agent=agent) as client:
        yield client


async def configure(path: str, api: Api, webhooks: list[Json]) -> None:
    configuration = {"metadata": {"name": api.unique}, "webhooks": webhooks}
    answer = await api.post(path, configuration)
    assert answer.code == 201, answer


async def run_all(made: list[Replica]) -> None:
    async with asyncio.TaskGroup() as group:
        for replica in made:
            group.create_task(replica.run())


def replica(client: RestClient, api: Api, times: RotationTimes) -> Replica:
    tls = WebhookTls()
    rotator = CertRotator(
        client=client,
        secret=NamespacedName(api.namespace, "certs"),
        configuration=api.unique,
        dns_names=["localhost"],
        now=utc_now,
        times=times,
    )
    reviews: dict[str, AdmissionHandler] = {
        PATH: review_marker,
        MUTATE_PODS: partial(annotate_pod, markers=[SERVERLESS]),
    }
    server = review_server(BindAddress("127.0.0.1", 0), tls, reviews)
    server.bind()
    return Replica(rotator.loader(tls), server)


def webhook(group: str, number: int, server: HttpServer, path: str = PATH) -> Json:
    rule = {
        "apiGroups": [group],
        "apiVersions": ["*"],
        "resources": [PLURAL],
        "operations": ["CREATE", "UPDATE"],
    }
    return {
        "name": f"w{number}.contract.example.com",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": f"https://localhost:{server.port}{path}"},
        "rules": [rule],
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "timeoutSeconds": 30,
    }


@pytest.mark.timeout(10 * PATIENCE_SECONDS)  # longer than its own limits
async def test_certificates_change_under_load_and_no_call_fails(real_kubeconfig: str) -> None:
    """Two replicas share the Secret; a certificate lives so shortly that several follow one another.

    A step settles in a minute as shipped; here in twelve seconds, which is what a busy machine needs for it.
    """
    times = RotationTimes(
        timedelta(seconds=600),
        timedelta(seconds=596),
        timedelta(seconds=12),
    )
    async with (
        plain_cluster(real_kubeconfig) as copy,
        replicas(copy, real_kubeconfig, count=2, times=times) as made,
    ):
        served = {await certificate_of(replica.server.port) for replica in made}
        calls: list[asyncio.Task[ApiResponse]] = []
        async with asyncio.timeout(6 * PATIENCE_SECONDS), asyncio.TaskGroup() as group:
            while len(served) < CERTIFICATES:
                for _ in range(CALLS_A_SECOND):
                    calls.append(group.create_task(copy.create(GOOD, **DRY)))
                    await asyncio.sleep(1 / CALLS_A_SECOND)
                served |= {await certificate_of(replica.server.port) for replica in made}

    failed = [call.result() for call in calls if call.result().code != 201]
    assert not failed, failed[:3]


SERVERLESS = MARKERS.decode(
    msgspec.json.encode(marker_wire("web", probes=[probe_wire(container="c")]))
)


@cases("annotations", none=None, empty={}, some={"a": "b"})
async def test_a_new_pod_is_annotated_for_a_serverless_provider(
    real_kubeconfig: str, annotations: Json | None
) -> None:
    """The API server trusts the CA bundle of the MutatingWebhookConfiguration, calls, and applies the patch."""
    async with (
        aiohttp.ClientSession() as session,
        pod_webhook(
            Api(session, target_of(Path(real_kubeconfig))),
            real_kubeconfig,
        ) as api,
    ):
        wire = pod(labels={"app": "web"})
        if annotations is not None:
            wire["metadata"]["annotations"] = annotations
        added: Json = {}

        async def annotated() -> bool:
            nonlocal added
            answer = await api.post(api.path("pods"), wire, dryRun="All")
            if answer.code != 201:  # refused until the namespace has its service account
                return False
            added = answer.meta.get("annotations") or {}
            return added != (annotations or {})

        await programs.until("a pod is annotated", annotated)
        unmatched = await api.post(
            api.path("pods"),
            pod(labels={"app": "db"}),
            dryRun="All",
        )

    assert added.pop(SERVERLESS_MARKERS_ANNOTATION) == "web"
    (probe,) = msgspec.json.decode(added.pop(SERVERLESS_PROBES_ANNOTATION))
    assert (probe["name"], probe["podConditionType"]) == ("healthy", "example.com/healthy")
    assert added == (annotations or {})
    assert unmatched.meta.get("annotations") is None


@asynccontextmanager
async def pod_webhook(api: Api, real_kubeconfig: str) -> AsyncIterator[Api]:
    """A webhook for the pods of a namespace of its own, and its certificate rotator."""
    await api.begin_namespace()
    try:
        async with client_with_secret(api, real_kubeconfig) as client:
            made = replica(client, api, RotationTimes())
            called = webhook("", 0, made.server, MUTATE_PODS)
            called["rules"][0] |= {"resources": ["pods"], "operations": ["CREATE"]}
            labels = {"kubernetes.io/metadata.name": api.namespace}
            called |= {"failurePolicy": "Ignore", "namespaceSelector": {"matchLabels": labels}}
            await configure(MUTATING_CONFIGURATIONS, api, [called])
            async with background(made.run()):
                yield api
    finally:
        await api.delete(f"{MUTATING_CONFIGURATIONS}/{api.unique}")
        await api.end_namespace()


async def certificate_of(port: int) -> bytes:
    """The certificate that is served now; it is not verified."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    served: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    return served
