"""The certificate rotator over a scripted API server: two replicas, one Secret, and requests that fail."""

import asyncio
import base64
import json
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs
from support.background import background
from support.wire import Json

from kruise_probe.api.errors import Conflict, Forbidden, NotFound
from kruise_probe.api.meta import NamespacedName, Resource
from kruise_probe.client.request import PatchType
from kruise_probe.serving.certificates import IssuedCertificate
from kruise_probe.serving.server_tls import POLL_SECONDS, CertificateLoader, ServerTls
from kruise_probe.webhook.cert_rotator import (
    MUTATING,
    VALIDATING,
    CertRotator,
    RotationState,
    RotationTimes,
    from_data,
)

SECRET = NamespacedName("kruise-system", "certs")
START = datetime(2026, 1, 1, tzinfo=UTC)
TIMES = RotationTimes(
    timedelta(minutes=60),
    timedelta(minutes=50),
    timedelta(seconds=60),
)
ROTATED_SECONDS = 630
"""Half a minute after the first step of a rotation."""


class Store:
    """One Secret with resource versions, and webhook configurations by their kind.

    `forbidden` refuses all requests, `bare` has no Secret. The next `conflicts` writes of the Secret conflict. An install has both configurations, or one of the two.
    """

    def __init__(self) -> None:
        self.data: dict[str, str] = {}
        self.version = 1
        self.configurations: dict[str, dict[str, str]] = {VALIDATING.kind: {"w": "", "w2": ""}}
        self.writes: list[tuple[str, list[str]]] = []
        self.forbidden = False
        self.bare = False
        self.conflicts = 0.0
        self.patches = 0

    async def get(self, resource: Resource[Any], key: NamespacedName) -> Any:
        await asyncio.sleep(0)
        if self.forbidden:
            raise Forbidden("forbidden")
        document: Json = {"metadata": {"name": key.name, "resourceVersion": str(self.version)}}
        if key == SECRET:
            if self.bare:
                raise NotFound('secrets "certs" not found')
            document["data"] = self.data
        else:
            if resource.kind not in self.configurations or key.name != "kruise-probe":
                raise NotFound("no such configuration")
            bundles = self.configurations[resource.kind]
            document["webhooks"] = [
                {"name": name, "clientConfig": {"caBundle": bundle}}
                for name, bundle in bundles.items()
            ]
        return resource.decode(msgspec.json.encode(document))

    async def patch(
        self,
        resource: Any,
        key: NamespacedName,
        body: bytes,
        *,
        patch_type: PatchType,
    ) -> None:
        await asyncio.sleep(0)
        patch = json.loads(body)
        self.patches += 1
        if key != SECRET:
            assert patch_type is PatchType.STRATEGIC_MERGE
            bundles = {}
            for webhook in patch["webhooks"]:
                bundles[webhook["name"]] = webhook["clientConfig"]["caBundle"]
            self.configurations[resource.kind].update(bundles)
            self.writes.append((resource.kind, list(bundles)))
            return
        if self.conflicts or patch["metadata"]["resourceVersion"] != str(self.version):
            self.conflicts = max(self.conflicts - 1, 0)
            raise Conflict("the object has been modified")
        self.version += 1
        merged = {**self.data, **patch["data"]}
        self.data = {name: text for name, text in merged.items() if text is not None}

    @property
    def bundle(self) -> bytes:
        """The bundle that all webhooks have."""
        found: set[str] = set()
        for bundles in self.configurations.values():
            found.update(bundles.values())
        (only,) = found
        return base64.b64decode(only)

    @property
    def stored_bundle(self) -> bytes:
        """The bundle in the Secret."""
        return base64.b64decode(self.data["ca.crt"])

    @property
    def state(self) -> RotationState:
        state = from_data(self.data)
        assert state is not None
        return state


@asynccontextmanager
async def rotating(store: Store) -> AsyncIterator[tuple[CertificateLoader, ServerTls]]:
    """A replica, which rotates the certificates."""
    client: Any = store
    tls = ServerTls()
    loop = asyncio.get_running_loop()
    started = loop.time()
    rotator = CertRotator(
        client=client,
        secret=SECRET,
        configuration="kruise-probe",
        dns_names=["w.svc"],
        now=lambda: START + timedelta(seconds=loop.time() - started),
        times=TIMES,
    )
    loader = rotator.loader(tls)
    async with background(loader.run()):
        yield loader, tls


@pytest.fixture
def store() -> Store:
    return Store()


def pem(issued: IssuedCertificate) -> bytes:
    return issued.certificate + issued.key


async def test_two_replicas_agree_on_one_certificate(store: Store) -> None:
    async with rotating(store) as (loader, first), rotating(store) as (_, second):
        await asyncio.sleep(5)

        assert store.version == 2, "the Secret was written once"
        assert first._loaded_pem == second._loaded_pem == pem(store.state.current)
        assert store.bundle == store.stored_bundle
        assert loader.last_error == ""


async def test_a_ca_is_published_before_and_after_its_certificate_is_served(store: Store) -> None:
    async with rotating(store) as (_, tls):
        await asyncio.sleep(ROTATED_SECONDS)
        old = store.state.current
        following = store.state.following
        assert following is not None
        assert tls._loaded_pem == pem(old)
        assert store.bundle == old.certificate + following.certificate
        await asyncio.sleep(60)
        assert tls._loaded_pem == pem(following)
        assert store.bundle == following.certificate + old.certificate
        await asyncio.sleep(60)
        assert store.bundle == following.certificate


async def test_the_error_of_a_missing_secret_has_the_command_that_creates_it(store: Store) -> None:
    store.bare = True
    async with rotating(store) as (loader, tls):
        await asyncio.sleep(1)
        assert "kubectl -n kruise-system create secret generic certs" in loader.last_error
        store.bare = False
        await asyncio.sleep(20)
        assert loader.last_error == ""
        assert tls._loaded_pem == pem(store.state.current)


async def test_an_edited_bundle_is_corrected(store: Store) -> None:
    async with rotating(store):
        await asyncio.sleep(5)
        right = store.bundle
        store.configurations[VALIDATING.kind]["w2"] = "AAAA"
        store.writes.clear()
        await asyncio.sleep(15)

        assert store.bundle == right
        assert store.writes == [(VALIDATING.kind, ["w2"])], "the other webhook was right"


@pytest.mark.parametrize("kinds", [[VALIDATING], [MUTATING], [VALIDATING, MUTATING]])
async def test_every_webhook_of_both_kinds_trusts_the_ca(
    store: Store, kinds: list[Resource[Any]]
) -> None:
    """The mutating one too, which calls the webhook for serverless pods: without a bundle each call would fail."""
    store.configurations = {kind.kind: {"w": "", "w2": ""} for kind in kinds}
    async with rotating(store) as (loader, _):
        await asyncio.sleep(60)

        assert store.bundle == store.stored_bundle
        assert store.writes == [(kind.kind, ["w", "w2"]) for kind in kinds], "once each"
        assert loader.last_error == ""


async def test_a_failed_round_is_logged_once_reported_and_retried(store: Store) -> None:
    """It recovers with a Secret that is malformed."""
    store.forbidden = True
    store.data = {"tls.crt": "AAAA"}
    with capture_logs() as logs:
        async with rotating(store) as (loader, tls):
            await asyncio.sleep(30)
            assert "forbidden" in loader.last_error
            assert not tls.loaded.is_set()

            store.forbidden = False
            await asyncio.sleep(5)
            assert loader.last_error == ""
            assert tls.loaded.is_set()
    levels = [log["log_level"] for log in logs]
    assert levels.count("warning") == 1


async def test_repeated_conflicts_are_reported_and_retried_with_a_pause(store: Store) -> None:
    store.conflicts = math.inf
    async with rotating(store) as (loader, tls):
        await asyncio.sleep(4.5 * POLL_SECONDS)
        assert store.patches == 10, "each round tries twice"
        assert "the object has been modified" in loader.last_error

        store.conflicts = 0
        await asyncio.sleep(POLL_SECONDS)
        assert loader.last_error == ""
        assert tls.loaded.is_set()


async def test_single_conflicts_are_retried_at_once_and_not_reported(store: Store) -> None:
    """Another replica was first. Each step of the rotation may meet one."""
    with capture_logs() as logs:
        async with rotating(store) as (loader, _):
            for patches in (2, 4):
                store.conflicts = 1
                await asyncio.sleep(ROTATED_SECONDS)
                assert store.conflicts == 0
                assert loader.last_error == ""
                assert store.patches >= patches
    assert "warning" not in [log["log_level"] for log in logs]
