"""The link of a serverless provider: the annotation that tells it what to probe, and the condition that it writes. Pure.

The webhook writes the annotation when a pod is created, and never later.
"""

from typing import Final

import msgspec

from kruise_probe.api.meta import DECODE_ERRORS
from kruise_probe.api.names import SERVERLESS_PROBES_ANNOTATION
from kruise_probe.inspection.link import Link, ProbeContext, broken, ok
from kruise_probe.inspection.result_links import conflict_text

_CREATE_AGAIN: Final = (
    "create the pod again: the webhook writes the annotation only when a pod is created"
)


class _Injected(msgspec.Struct, frozen=True, rename="camel"):
    """A probe as the webhook writes it: with its own name, not `<marker>#<probe>`."""

    name: str
    container_name: str
    pod_condition_type: str = ""


_decode_injected = msgspec.json.Decoder(tuple[_Injected, ...]).decode


def provider_link(context: ProbeContext) -> Link:
    pod, condition_type = context.seen.pod, context.probe.pod_condition_type
    annotation = pod.annotations.get(SERVERLESS_PROBES_ANNOTATION)
    if annotation is None:
        text = (
            f"the pod on virtual node {pod.node} has no annotation {SERVERLESS_PROBES_ANNOTATION}"
        )
        return broken("provider", "NotInjected", text)
    if not condition_type:
        text = "the probe has no podConditionType, so the provider cannot report its result"
        return broken("provider", "ConditionTypeMissing", text)
    if conflict := conflict_text(context, "condition type"):  # the webhook leaves the probe out
        return broken("provider", "Conflict", conflict)
    if text := _not_injected(context, annotation):
        return broken("provider", "NotInjected", text, _CREATE_AGAIN)
    if context.result is None:
        text = f"the provider has not set condition {condition_type} on the pod"
        return broken("provider", "ProviderSilent", text)
    return ok("provider", "the provider has set the condition")


def _not_injected(context: ProbeContext, annotation: str) -> str:
    """Why the annotation does not tell the provider to run the probe; empty if it does."""
    probe, name = context.probe, f"annotation {SERVERLESS_PROBES_ANNOTATION} of the pod"
    try:
        injected = _decode_injected(annotation)
    except DECODE_ERRORS as error:
        return f"{name} is not a list of probes: {error}"
    if _Injected(probe.name, probe.container_name, probe.pod_condition_type or "") in injected:
        return ""
    return (
        f"{name} does not contain probe {probe.name} of container {probe.container_name}; "
        "the probe was added or edited after the pod was created"
    )
