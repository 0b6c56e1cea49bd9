"""Kubernetes objects of the webhook's own: its Secret and its configurations."""

from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from kruise_probe.api.meta import ApiObject
from kruise_probe.api.resources import Resource

T = TypeVar("T")

REGISTRATION: Final = "admissionregistration.k8s.io"


class Secret(ApiObject, frozen=True):
    """Values are base64."""

    data: Mapping[str, str] | None = None


class ClientConfig(msgspec.Struct, frozen=True, rename="camel"):
    ca_bundle: str = ""


class Webhook(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    client_config: ClientConfig


class WebhookConfiguration(ApiObject, frozen=True):
    webhooks: tuple[Webhook, ...] = ()


def _as_is(decoded: T) -> T:
    return decoded


def _configurations(plural: str, kind: str) -> Resource[WebhookConfiguration]:
    return Resource(
        REGISTRATION,
        "v1",
        plural,
        kind,
        wire=WebhookConfiguration,
        project=_as_is,
        namespaced=False,
    )


SECRETS: Final = Resource("", "v1", "secrets", "Secret", wire=Secret, project=_as_is)
VALIDATING: Final = _configurations(
    "validatingwebhookconfigurations", "ValidatingWebhookConfiguration"
)
MUTATING: Final = _configurations("mutatingwebhookconfigurations", "MutatingWebhookConfiguration")
