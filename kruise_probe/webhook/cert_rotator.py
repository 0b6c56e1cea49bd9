"""Rotates the webhook's certificate in a Secret, and publishes its CA bundle in the webhook configurations.

Every replica independently runs the same loop: read the Secret, take the next step if one is due, write the bundle
to the webhook configurations, serve the current certificate. If two replicas take a step at once, the later one gets
a 409 and reads again. The Secret is part of the install, so no replica needs the right to create Secrets.

Each step waits until the previous one has settled, so no call fails: by then every API server has the CA bundle, and
every replica has the certificate.

    one certificate ── near expiry ──▶  + the following one: the bundle has both, the old one is served
                    ── settled     ──▶  the following one is served, the bundle still has both
                    ── settled     ──▶  the old one is removed from the bundle

Source: cert-controller (open-policy-agent) pkg/rotator (CertRotator); Kruise pkg/webhook/util/{writer,controller}.
Differs: needs no leader and no restart, and the bundle always matches the served certificate. Bundle and certificate change in
separate steps. The sources replace both at once, and calls fail meanwhile.
"""

import asyncio
import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Annotated, Any, Final, NamedTuple

import msgspec
import structlog

from kruise_probe.api.errors import Conflict, NotFound
from kruise_probe.api.meta import DECODE_ERRORS, ApiObject, NamespacedName, Resource, as_is
from kruise_probe.client.request import PatchType
from kruise_probe.client.rest import RestClient
from kruise_probe.serving.certificates import IssuedCertificate, issue_certificate
from kruise_probe.serving.server_tls import CertificateLoader, ServerTls


class RotationTimes(NamedTuple):
    """How long a certificate is valid, how long before its expiry it is renewed, and how long a step settles."""

    lifetime: timedelta = timedelta(days=365)
    renew_before: timedelta = timedelta(days=90)
    settle: timedelta = timedelta(seconds=60)


class RotationState(NamedTuple):
    """Content of the Secret; `changed_at` is when it last changed."""

    current: IssuedCertificate
    changed_at: Annotated[datetime, msgspec.Meta(tz=True)]
    following: IssuedCertificate | None = None
    previous: bytes = b""

    @property
    def bundle(self) -> bytes:
        """What API servers trust: the current, the following and the previous certificate."""
        following = self.following.certificate if self.following else b""
        return self.current.certificate + following + self.previous


def next_state(
    state: RotationState | None, *, names: Sequence[str], now: datetime, times: RotationTimes
) -> RotationState:
    """Return the next content of the Secret; `state` itself if no step is due."""
    if state is None or state.current.expires_at <= now or not state.current.names >= {*names}:
        return RotationState(
            issue_certificate(
                names,
                now=now,
                lifetime=times.lifetime,
            ),
            now,
        )
    if state.following or state.previous:
        if now - state.changed_at < times.settle:
            return state
        if state.following is None:
            return RotationState(state.current, now)
        return RotationState(state.following, now, previous=state.current.certificate)
    if state.current.expires_at - now <= times.renew_before:
        following = issue_certificate(names, now=now, lifetime=times.lifetime)
        return RotationState(state.current, now, following=following)
    return state


_STATE: Final = "state.json"


def to_data(state: RotationState) -> dict[str, str]:
    """Encode the Secret's data: the state, and what of it is served, for people."""
    parts = {
        "ca.crt": state.bundle,
        "tls.crt": state.current.certificate,
        _STATE: msgspec.json.encode(state),
    }
    return {name: base64.b64encode(part).decode() for name, part in parts.items()}


def from_data(data: Mapping[str, str] | None) -> RotationState | None:
    """Decode the Secret's data; None if it is empty or invalid."""
    try:
        encoded = base64.b64decode(data.get(_STATE, "") if data else "")
        state = msgspec.json.decode(encoded, type=RotationState)
        for issued in filter(None, (state.current, state.following)):
            issued.check()
    except (ValueError, *DECODE_ERRORS):
        return None
    return state


POLL_SECONDS: Final = 10.0
"""Shorter than the settle time, so that each replica sees every step."""
ROUND_SECONDS: Final = 20.0
"""Deadline of one round, which reads the Secret, takes a step and publishes the bundle."""

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class Secret(ApiObject, frozen=True):
    """Values are base64."""

    data: Mapping[str, str] | None = None


class WebhookConfiguration(ApiObject, frozen=True):
    webhooks: tuple[dict[str, Any], ...] = ()


def _configurations(mode: str) -> Resource[WebhookConfiguration]:
    return Resource(
        "admissionregistration.k8s.io",
        "v1",
        f"{mode.lower()}webhookconfigurations",
        f"{mode}WebhookConfiguration",
        wire=WebhookConfiguration,
        project=as_is,
        namespaced=False,
    )


SECRETS: Final = Resource(
    "",
    "v1",
    "secrets",
    "Secret",
    wire=Secret,
    project=as_is,
)
VALIDATING: Final = _configurations("Validating")
MUTATING: Final = _configurations("Mutating")


@dataclass(kw_only=True)
class CertRotator:
    """Takes one step of the rotation at a time. `loader` does so until it is cancelled."""

    client: RestClient
    secret: NamespacedName
    configuration: str
    dns_names: Sequence[str]
    now: Callable[[], datetime]
    times: RotationTimes = field(default_factory=RotationTimes)

    def loader(self, tls: ServerTls) -> CertificateLoader:
        """Loads the current certificate into `tls`."""
        seconds = min(POLL_SECONDS, self.times.settle.total_seconds() / 3)
        source = f"Secret {self.secret}"
        return CertificateLoader(tls, self.rotate, source=source, reload_seconds=seconds)

    async def rotate(self) -> bytes:
        """Take the next step if one is due, publish the bundle, and return the current certificate and its key.

        Raises:
            KubeError: a request failed. A conflict is retried at once: another replica was first.
            TimeoutError: there was no response within `ROUND_SECONDS`.
        """
        async with asyncio.timeout(ROUND_SECONDS):
            try:
                state = await self._next_state()
            except Conflict:
                state = await self._next_state()
            # Bundle first: API servers must trust the certificate before it is served.
            for resource in (VALIDATING, MUTATING):
                await self._publish(resource, state.bundle)
        return state.current.certificate + state.current.key

    async def _next_state(self) -> RotationState:
        secret = await self._get_secret()
        state = from_data(secret.data)
        step = next_state(
            state,
            names=self.dns_names,
            now=self.now(),
            times=self.times,
        )
        if step is not state:
            await self._write(secret, step)
        return step

    async def _get_secret(self) -> Secret:
        """Get the Secret.

        Raises:
            NotFound: the message contains the command to create it.
        """
        try:
            return await self.client.get(SECRETS, self.secret)
        except NotFound as error:
            namespace, name = self.secret
            raise NotFound(
                f"Secret {self.secret} for the webhook's certificates does not exist; "
                f"create it with: kubectl -n {namespace} create secret generic {name} ({error})"
            ) from error

    async def _write(self, secret: Secret, state: RotationState) -> None:
        patch = {
            "metadata": {"resourceVersion": secret.resource_version},
            "data": to_data(state),
        }
        await self.client.patch(
            SECRETS, self.secret, msgspec.json.encode(patch), patch_type=PatchType.MERGE
        )
        _log.info(
            "wrote the webhook's certificates",
            secret=str(self.secret),
            current_expires_at=str(state.current.expires_at),
            following=state.following is not None,
            previous=bool(state.previous),
        )

    async def _publish(self, resource: Resource[WebhookConfiguration], bundle: bytes) -> None:
        """Set the CA bundle on every webhook of the configuration whose bundle differs."""
        key = NamespacedName("", self.configuration)
        try:
            found = await self.client.get(resource, key)
        except NotFound:  # an install may have only one of the two kinds
            return
        text = base64.b64encode(bundle).decode()
        webhooks = [
            {"name": webhook["name"], "clientConfig": {"caBundle": text}}
            for webhook in found.webhooks
            if webhook["clientConfig"].get("caBundle") != text
        ]
        if webhooks:
            await self.client.patch(
                resource,
                key,
                msgspec.json.encode({"webhooks": webhooks}),
                patch_type=PatchType.STRATEGIC_MERGE,
            )
