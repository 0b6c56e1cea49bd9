"""The keeper over a scripted API server: two replicas, one Secret, and answers that fail."""

import asyncio
import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from support.background import background

from kruise_probe.api.errors import Conflict, Forbidden, NotFound
from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.resources import Resource
from kruise_probe.client.request import PatchType
from kruise_probe.webhook.certificates import Pace
from kruise_probe.webhook.keeper import CertificateKeeper
from kruise_probe.webhook.objects import VALIDATING
from kruise_probe.webhook.serving_context import ServingContext

SECRET = NamespacedName("kruise-system", "certs")
START = datetime(2026, 1, 1, tzinfo=UTC)
PACE = Pace(timedelta(minutes=60), timedelta(minutes=50), timedelta(seconds=60))


class Store:
    """One Secret and one validating configuration, with resource versions; `refusing` refuses everything, `bare` has no Secret."""

    def __init__(self) -> None:
        self.data: dict[str, str] = {}
        self.version = 1
        self.bundle = ""
        self.bundles: list[str] = []
        self.refusing = False
        self.bare = False
        self.always_in_conflict = False
        self.patches = 0

    async def get(self, resource: Resource[Any], key: NamespacedName) -> Any:
        await asyncio.sleep(0)
        if self.refusing:
            raise Forbidden("no")
        metadata = {"name": key.name, "resourceVersion": str(self.version)}
        if key == SECRET and self.bare:
            raise NotFound('secrets "certs" not found')
        if key == SECRET:
            return resource.decode(msgspec.json.encode({"metadata": metadata, "data": self.data}))
        if resource is not VALIDATING:
            raise NotFound("no such configuration")
        webhook = {"name": "w", "clientConfig": {"caBundle": self.bundle}}
        return resource.decode(msgspec.json.encode({"metadata": metadata, "webhooks": [webhook]}))

    async def patch(
        self, resource: Resource[Any], key: NamespacedName, body: bytes, *, patch_type: PatchType
    ) -> Any:
        await asyncio.sleep(0)
        patch = json.loads(body)
        self.patches += 1
        if key != SECRET:
            assert patch_type is PatchType.STRATEGIC_MERGE
            self.bundle = patch["webhooks"][0]["clientConfig"]["caBundle"]
            self.bundles.append(self.bundle)
            return None
        if self.always_in_conflict or patch["metadata"]["resourceVersion"] != str(self.version):
            raise Conflict("somebody was faster")
        self.version += 1
        merged = {**self.data, **patch["data"]}
        self.data = {name: text for name, text in merged.items() if text is not None}
        return None


def keeper(store: Store) -> tuple[CertificateKeeper, ServingContext]:
    serving = ServingContext()
    loop = asyncio.get_running_loop()
    started = loop.time()
    made = CertificateKeeper(
        client=store,
        serving=serving,
        secret=SECRET,
        configuration="kruise-probe",
        dns_names=["w.svc"],
        now=lambda: START + timedelta(seconds=loop.time() - started),
        pace=PACE,
    )
    return made, serving


@pytest.fixture
def store() -> Store:
    return Store()


def served_by(store: Store) -> bytes:
    return base64.b64decode(store.data["tls.crt"])


async def test_two_replicas_agree_on_one_certificate(store: Store) -> None:
    one, first = keeper(store)
    two, second = keeper(store)
    async with background(one.run()), background(two.run()):
        await asyncio.sleep(5)

        assert store.version == 2, "the Secret was written once"
        assert first._served == second._served == served_by(store)
        assert base64.b64decode(store.bundle) == base64.b64decode(store.data["ca.crt"])
        assert one.last_error == ""


async def test_a_bundle_is_told_before_what_it_vouches_for_is_served(store: Store) -> None:
    made, serving = keeper(store)
    async with background(made.run()):
        await asyncio.sleep(timedelta(minutes=10, seconds=30).total_seconds())
        assert "following.crt" in store.data
        old = serving._served
        told = base64.b64decode(store.bundle)
        following = base64.b64decode(store.data["following-ca.crt"])

        assert following in told
        await asyncio.sleep(120)
        assert serving._served != old
        await asyncio.sleep(120)
        assert base64.b64decode(store.bundle) == following
        assert "following.crt" not in store.data
        assert "previous-ca.crt" not in store.data


async def test_a_missing_secret_is_told_with_the_command_that_makes_it(store: Store) -> None:
    store.bare = True
    made, serving = keeper(store)
    async with background(made.run()):
        await asyncio.sleep(1)
        assert "kubectl -n kruise-system create secret generic certs" in made.last_error
        store.bare = False
        await asyncio.sleep(20)
        assert (made.last_error, serving._served) == ("", served_by(store))


async def test_an_edited_bundle_is_put_right(store: Store) -> None:
    made, _ = keeper(store)
    async with background(made.run()):
        await asyncio.sleep(5)
        right, store.bundle = store.bundle, "AAAA"
        await asyncio.sleep(15)

        assert store.bundle == right


async def test_a_refusal_is_said_and_tried_again(store: Store) -> None:
    made, serving = keeper(store)
    store.refusing = True
    async with background(made.run()):
        await asyncio.sleep(5)
        assert "no" in made.last_error
        assert not serving.loaded.is_set()

        store.refusing = False
        await asyncio.sleep(5)
        assert made.last_error == ""
        assert serving.loaded.is_set()


async def test_who_is_always_in_conflict_is_told_and_does_not_write_without_a_pause(
    store: Store,
) -> None:
    made, serving = keeper(store)
    store.always_in_conflict = True
    async with background(made.run()):
        await asyncio.sleep(4.5)
        assert store.patches == 6, "one at once after the first, then one a second"
        assert "somebody was faster" in made.last_error

        store.always_in_conflict = False
        await asyncio.sleep(1)
        assert made.last_error == ""
        assert serving.loaded.is_set()


async def test_a_secret_of_no_use_is_replaced(store: Store) -> None:
    store.data = {"tls.crt": "AAAA"}
    made, serving = keeper(store)
    async with background(made.run()):
        await asyncio.sleep(5)

        assert serving.loaded.is_set()
