"""Maintains the webhook's certificate: creates, shares and renews it, and publishes its CA bundle.

Every replica independently runs the same loop: read the Secret, take the next step if one is due, write the bundle
to the webhook configurations, serve the current certificate. If two replicas take a step at once, the later one gets
a 409 and reads again. The Secret is part of the install, so no replica needs the right to create Secrets.

Source: Kruise pkg/webhook/util/{writer,controller}.
Differs: needs no leader and no restart, and the bundle always matches the served certificate.
"""

import asyncio
import base64
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, Protocol, TypeVar

import msgspec
import structlog

from kruise_probe.api.errors import Conflict, KubeError, NotFound
from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.resources import KubeObject, Resource
from kruise_probe.client.request import PatchType
from kruise_probe.webhook.certificates import Kept, Pace, from_data, next_step, to_data
from kruise_probe.webhook.objects import (
    MUTATING,
    SECRETS,
    VALIDATING,
    Secret,
    Webhook,
    WebhookConfiguration,
)
from kruise_probe.webhook.serving_context import ServingContext

T = TypeVar("T", bound=KubeObject)

POLL_SECONDS: Final = 10.0
"""Shorter than the settle time, so that each replica sees every step."""
RETRY_SECONDS: Final = 1.0
DEADLINE_SECONDS: Final = 20.0
"""Deadline of one round."""

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class KeeperClient(Protocol):
    """The API calls of the keeper."""

    async def get(self, resource: Resource[T], key: NamespacedName) -> T: ...

    async def patch(
        self, resource: Resource[T], key: NamespacedName, body: bytes, *, patch_type: PatchType
    ) -> T: ...


class CertificateKeeper:
    """Maintains the certificate until cancelled; then the last one stays in use."""

    name = "webhook certificates"

    def __init__(
        self,
        *,
        client: KeeperClient,
        serving: ServingContext,
        secret: NamespacedName,
        configuration: str,
        dns_names: Sequence[str],
        now: Callable[[], datetime],
        pace: Pace,
    ) -> None:
        self._client = client
        self._serving = serving
        self._secret = secret
        self._configuration = NamespacedName("", configuration)
        self._dns_names = dns_names
        self._now = now
        self._pace = pace
        self.last_error = "no certificate yet"

    async def run(self) -> None:
        """Run rounds until cancelled; retry a failed one after `RETRY_SECONDS`."""
        overtaken = False
        while True:
            try:
                async with asyncio.timeout(DEADLINE_SECONDS):
                    await self._round()
            except (KubeError, TimeoutError, OSError) as error:
                if isinstance(error, Conflict) and not overtaken:  # another replica took the step
                    overtaken, pause = True, 0.0
                else:
                    self._failed(str(error) or type(error).__name__)
                    pause = RETRY_SECONDS
            else:
                self.last_error, overtaken = "", False
                pause = min(POLL_SECONDS, self._pace.settle.total_seconds() / 3)
            await asyncio.sleep(pause)

    async def _round(self) -> None:
        secret = await self._get_secret()
        kept = from_data(secret.data)
        step = next_step(kept, names=self._dns_names, now=self._now(), pace=self._pace)
        if step is not None:
            await self._write(secret, step)
            kept = step
        if kept is None:
            return
        # Bundle first: API servers must trust the certificate before it is served.
        for resource in (VALIDATING, MUTATING):
            await self._publish(resource, kept)
        if self._serving.load(kept.current.certificate, kept.current.key):
            _log.info("serving with a certificate", expires_at=str(kept.current.expires_at))

    async def _get_secret(self) -> Secret:
        """Get the Secret.

        Raises:
            NotFound: the message contains the command to create it.
        """
        try:
            return await self._client.get(SECRETS, self._secret)
        except NotFound as error:
            namespace, name = self._secret
            raise NotFound(
                f"there is no Secret to keep certificates in; make it with: kubectl -n {namespace} create secret generic {name}"
                f" ({error})"
            ) from error

    async def _write(self, secret: Secret, step: Kept) -> None:
        patch = {
            "metadata": {"resourceVersion": secret.resource_version},
            "data": to_data(step),
        }
        await self._client.patch(
            SECRETS, self._secret, msgspec.json.encode(patch), patch_type=PatchType.MERGE
        )
        _log.info(
            "kept certificates",
            current_expires_at=str(step.current.expires_at),
            following=step.following is not None,
            previous=bool(step.previous_authority),
        )

    async def _publish(self, resource: Resource[WebhookConfiguration], kept: Kept) -> None:
        """Set the bundle on every webhook of the configuration whose bundle differs."""
        try:
            found = await self._client.get(resource, self._configuration)
        except NotFound:  # an install may have only one of the two kinds
            return
        bundle = base64.b64encode(kept.bundle).decode()
        outdated = [each for each in found.webhooks if each.client_config.ca_bundle != bundle]
        if not outdated:
            return
        await self._client.patch(
            resource,
            self._configuration,
            msgspec.json.encode({"webhooks": [_with_bundle(each, bundle) for each in outdated]}),
            patch_type=PatchType.STRATEGIC_MERGE,
        )

    def _failed(self, reason: str) -> None:
        if reason != self.last_error:
            _log.warning("cannot keep the webhook's certificate", error=reason)
        self.last_error = reason


def _with_bundle(webhook: Webhook, bundle: str) -> dict[str, object]:
    return {"name": webhook.name, "clientConfig": {"caBundle": bundle}}
