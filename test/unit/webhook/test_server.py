"""What the webhook answers to reviews, without its sockets, and which parts a manager gets."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.certificates import issued
from support.marker_table import GOOD
from support.metrics import counted
from support.wire import Json

from kruise_probe.api.errors import FatalError
from kruise_probe.api.names import MUTATE_PODS, VALIDATE_MARKERS
from kruise_probe.api.times import utc_now
from kruise_probe.api.v1alpha1 import PodProbeMarker
from kruise_probe.serving.sockets import BindAddress
from kruise_probe.webhook.server import LIMITS, Webhook, build_webhook
from kruise_probe.wire.requests import HttpRequest, HttpResponse

POD = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "main"}]}}
PROBE = {
    "name": "p",
    "containerName": "main",
    "podConditionType": "a.example/p",
    "probe": {"exec": {"command": ["x"]}},
}
SELECTOR = {"matchLabels": {"app": "a"}}


def marker_of(spec: Json) -> Json:
    return {"metadata": {"name": "m", "namespace": "n"}, "spec": spec}


MARKER = msgspec.convert(
    marker_of({"selector": SELECTOR, "probes": [PROBE]}),
    PodProbeMarker,
)


class Built:
    """A webhook whose cache has one marker, in namespace n."""

    def __init__(self, *, serverless: bool = True, **options: Any) -> None:
        self.webhook: Webhook = build_webhook(
            None,  # type: ignore[arg-type]  # sends no request before it runs
            BindAddress("127.0.0.1", 0),
            "kruise-system",
            markers=lambda: [MARKER],
            now=utc_now,
            serverless=serverless,
            **options,
        )

    async def post(self, path: str, body: bytes) -> HttpResponse:
        return await self.webhook.server._respond(HttpRequest("POST", path, body=body))

    async def review(self, path: str, document: Json, **more: str) -> Json:
        request = {
            "uid": "u-1",
            "operation": "CREATE",
            "object": document,
            **more,
        }
        response = await self.post(
            path,
            json.dumps({"request": request}).encode(),
        )
        assert (response.status, response.content_type) == (200, "application/json")
        found: Json = json.loads(response.body)["response"]
        assert found["uid"] == "u-1"
        return found

    async def review_pod(self, namespace: str = "n") -> Json:
        return await self.review(MUTATE_PODS, POD, namespace=namespace)

    async def allows(self, spec: Json) -> bool:
        """Whether the webhook allows a marker with this spec."""
        response = await self.review(VALIDATE_MARKERS, marker_of(spec))
        return bool(response["allowed"])


@pytest.fixture
def built() -> Iterator[Built]:
    yield from running()


def running(**options: Any) -> Iterator[Built]:
    made = Built(**options)
    try:
        yield made
    finally:
        made.webhook.server.close()


async def test_each_path_reviews_its_own_kind(built: Built) -> None:
    assert await built.allows(GOOD)
    assert not await built.allows({**GOOD, "probes": []})
    assert "patch" in await built.review_pod()


async def test_a_pod_gets_the_markers_of_its_own_namespace_only(built: Built) -> None:
    response = await built.review_pod("other")
    assert response == {"uid": "u-1", "allowed": True}


@pytest.mark.parametrize("serverless", [True, False])
async def test_pods_are_unchanged_without_the_feature_gate(serverless: bool) -> None:
    for built in running(serverless=serverless):
        response = await built.review_pod()
        assert ("patch" in response) == serverless


def test_a_client_ca_that_cannot_be_loaded_stops_the_manager(tmp_path: Path) -> None:
    with pytest.raises(FatalError, match="--webhook-client-ca-file"):
        Built(client_ca_file=str(tmp_path / "none.crt"))


async def test_an_allowed_label_key_is_allowed() -> None:
    labels = {"app.kubernetes.io/x": "y", "kubernetes.io/x": "y"}
    probe = {**PROBE, "markerPolicy": [{"state": "Succeeded", "labels": labels}]}
    spec = {"selector": SELECTOR, "probes": [probe]}
    for allowed in (frozenset[str](), frozenset({"kubernetes.io/x"})):
        for built in running(allowed_labels=allowed):
            assert await built.allows(spec) == bool(allowed)


async def test_requests_and_their_latency_are_counted(built: Built) -> None:
    name = "controller_runtime_webhook_"
    cases = {MUTATE_PODS: "200", VALIDATE_MARKERS: "400"}
    for path, code in cases.items():
        requests = counted(f"{name}requests_total", webhook=path, code=code)
        observed = counted(f"{name}latency_seconds_count", webhook=path)
        seconds = counted(f"{name}latency_seconds_sum", webhook=path)
        if code == "200":
            await built.review_pod()
        else:
            assert (await built.post(path, b"{}")).status == 400
        assert requests() == 1
        assert observed() == 1
        assert 0 <= seconds() < 60


def test_certificates_come_from_a_folder_or_from_the_secret(tmp_path: Path) -> None:
    for built in running():
        assert "Secret kruise-system/" in built.webhook.certificates.last_error
    for built in running(certificate_folder=str(tmp_path)):
        assert str(tmp_path) in built.webhook.certificates.last_error


def test_not_ready_before_there_is_a_certificate(built: Built) -> None:
    assert built.webhook.check() == built.webhook.certificates.last_error
    pair = issued()
    built.webhook.tls.load(pair.certificate + pair.key)

    assert built.webhook.check() is None


def test_the_server_has_room_for_the_requests_of_an_api_server() -> None:
    """An API server closes an idle connection after 90 s and sends up to 3 MiB; bodies use at most 12 MiB together."""
    assert 90 < LIMITS.idle_seconds <= 180
    assert LIMITS.max_body_bytes == 3_145_728
    assert LIMITS.all_bodies_bytes == 12_582_912
    assert LIMITS.max_connections == 512
