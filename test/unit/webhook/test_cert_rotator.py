"""The certificate rotator over a scripted API server: two replicas, one Secret, and requests that fail."""

import asyncio
import base64
import json
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs
from support.background import background

from kruise_probe.api.errors import Conflict, Forbidden, NotFound
from kruise_probe.api.meta import NamespacedName, Resource
from kruise_probe.client.request import PatchType
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
TIMES = RotationTimes(timedelta(minutes=60), timedelta(minutes=50), timedelta(seconds=60))


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
        metadata = {"name": key.name, "resourceVersion": str(self.version)}
        if key == SECRET and self.bare:
            raise NotFound('secrets "certs" not found')
        if key == SECRET:
            return resource.decode(msgspec.json.encode({"metadata": metadata, "data": self.data}))
        if resource.kind not in self.configurations or key.name != "kruise-probe":
            raise NotFound("no such configuration")
        webhooks = [
            {"name": name, "clientConfig": {"caBundle": bundle}}
            for name, bundle in self.configurations[resource.kind].items()
        ]
        return resource.decode(msgspec.json.encode({"metadata": metadata, "webhooks": webhooks}))

    async def patch(
        self, resource: Any, key: NamespacedName, body: bytes, *, patch_type: PatchType
    ) -> None:
        await asyncio.sleep(0)
        patch = json.loads(body)
        self.patches += 1
        if key != SECRET:
            assert patch_type is PatchType.STRATEGIC_MERGE
            written = {each["name"]: each["clientConfig"]["caBundle"] for each in patch["webhooks"]}
            self.configurations[resource.kind].update(written)
            self.writes.append((resource.kind, list(written)))
            return
        if self.conflicts or patch["metadata"]["resourceVersion"] != str(self.version):
            self.conflicts = max(self.conflicts - 1, 0)
            raise Conflict("the object has been modified")
        self.version += 1
        merged = {**self.data, **patch["data"]}
        self.data = {name: text for name, text in merged.items() if text is not None}

    @property
    def bundle(self) -> str:
        """The bundle that all webhooks have."""
        (only,) = {text for each in self.configurations.values() for text in each.values()}
        return only


def rotator(store: Store) -> tuple[CertificateLoader, ServerTls]:
    client: Any = store
    tls = ServerTls()
    loop = asyncio.get_running_loop()
    started = loop.time()
    made = CertRotator(
        client=client,
        secret=SECRET,
        configuration="kruise-probe",
        dns_names=["w.svc"],
        now=lambda: START + timedelta(seconds=loop.time() - started),
        times=TIMES,
    )
    return made.loader(tls), tls


@pytest.fixture
def store() -> Store:
    return Store()


def stored(store: Store) -> RotationState:
    state = from_data(store.data)
    assert state is not None
    return state


def stored_pem(store: Store) -> bytes:
    current = stored(store).current
    return current.certificate + current.key


async def test_two_replicas_agree_on_one_certificate(store: Store) -> None:
    one, first = rotator(store)
    two, second = rotator(store)
    async with background(one.run()), background(two.run()):
        await asyncio.sleep(5)

        assert store.version == 2, "the Secret was written once"
        assert first._loaded_pem == second._loaded_pem == stored_pem(store)
        assert base64.b64decode(store.bundle) == base64.b64decode(store.data["ca.crt"])
        assert one.last_error == ""


async def test_a_ca_is_published_before_and_after_its_certificate_is_served(store: Store) -> None:
    made, tls = rotator(store)
    async with background(made.run()):
        await asyncio.sleep(timedelta(minutes=10, seconds=30).total_seconds())
        old = stored(store).current
        following = stored(store).following
        assert following is not None
        assert tls._loaded_pem == old.certificate + old.key
        assert base64.b64decode(store.bundle) == old.certificate + following.certificate
        await asyncio.sleep(60)
        assert tls._loaded_pem == following.certificate + following.key
        assert base64.b64decode(store.bundle) == following.certificate + old.certificate
        await asyncio.sleep(60)
        assert base64.b64decode(store.bundle) == following.certificate


async def test_the_error_of_a_missing_secret_has_the_command_that_creates_it(store: Store) -> None:
    store.bare = True
    made, tls = rotator(store)
    async with background(made.run()):
        await asyncio.sleep(1)
        assert "kubectl -n kruise-system create secret generic certs" in made.last_error
        store.bare = False
        await asyncio.sleep(20)
        assert (made.last_error, tls._loaded_pem) == ("", stored_pem(store))


async def test_an_edited_bundle_is_corrected(store: Store) -> None:
    made, _ = rotator(store)
    async with background(made.run()):
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
    made, _ = rotator(store)
    async with background(made.run()):
        await asyncio.sleep(60)

        assert base64.b64decode(store.bundle) == base64.b64decode(store.data["ca.crt"])
        assert store.writes == [(kind.kind, ["w", "w2"]) for kind in kinds], "once each"
        assert made.last_error == ""


async def test_a_failed_round_is_logged_once_reported_and_retried(store: Store) -> None:
    """It recovers with a Secret that is malformed."""
    made, tls = rotator(store)
    store.forbidden = True
    store.data = {"tls.crt": "AAAA"}
    with capture_logs() as logs:
        async with background(made.run()):
            await asyncio.sleep(30)
            assert "forbidden" in made.last_error
            assert not tls.loaded.is_set()

            store.forbidden = False
            await asyncio.sleep(5)
            assert made.last_error == ""
            assert tls.loaded.is_set()
    assert [entry["log_level"] for entry in logs].count("warning") == 1


async def test_repeated_conflicts_are_reported_and_retried_with_a_pause(store: Store) -> None:
    made, tls = rotator(store)
    store.conflicts = math.inf
    async with background(made.run()):
        await asyncio.sleep(4.5 * POLL_SECONDS)
        assert store.patches == 10, "each round tries twice"
        assert "the object has been modified" in made.last_error

        store.conflicts = 0
        await asyncio.sleep(POLL_SECONDS)
        assert made.last_error == ""
        assert tls.loaded.is_set()


async def test_single_conflicts_are_retried_at_once_and_not_reported(store: Store) -> None:
    """Another replica was first. Each step of the rotation may meet one."""
    made, _ = rotator(store)
    with capture_logs() as logs:
        async with background(made.run()):
            for patches in (2, 4):
                store.conflicts = 1
                await asyncio.sleep(timedelta(minutes=10, seconds=30).total_seconds())
                assert (store.conflicts, made.last_error) == (0, "")
                assert store.patches >= patches
    assert "warning" not in {entry["log_level"] for entry in logs}
