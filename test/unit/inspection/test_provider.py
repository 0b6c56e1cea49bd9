"""The link of a serverless provider: the annotation that the webhook wrote when the pod was created."""

import msgspec
import pytest
from support.builders import container_wire, node_wire, pod_wire, probe_wire
from support.cases import cases
from support.snapshots import healthy_pod, marker, snapshot
from support.wire import Json

from kruise_probe.api.meta import NamespacedName
from kruise_probe.inspection.link import Link
from kruise_probe.inspection.traces import traces_of
from kruise_probe.webhook.admission import AdmissionRequest, annotate_pod

SECOND = probe_wire("second", condition="example.com/second")
OTHER_CONTAINER = probe_wire(container="side", condition="example.com/second")


def created_with(marker: Json) -> Json:
    """The annotations of a pod that was created when this marker existed, as the webhook writes them."""
    request = AdmissionRequest(
        uid="u",
        operation="CREATE",
        namespace="default",
        object=msgspec.Raw(msgspec.json.encode(pod_wire())),
    )
    markers = snapshot(markers=[marker]).markers
    (addition,) = annotate_pod(request, markers).patch
    found: Json = addition["value"]
    return found


def provider_link(annotations: Json, *markers: Json, of: str = "web") -> Link:
    """The link of the last probe of the marker `of`."""
    containers = [container_wire(), container_wire("side")]
    there = snapshot(
        markers=markers,
        pods=[healthy_pod(annotations=annotations, containers=containers)],
        node=node_wire(labels={"type": "virtual-kubelet"}),
        renewed=None,
    )
    compiled = there.compiled[NamespacedName("default", of)]
    *_, trace = traces_of(there, there.pods[0], compiled)
    return next(link for link in trace.links if link.name == "provider")


def test_probe_of_the_annotation_is_injected() -> None:
    annotations = created_with(marker())
    assert provider_link(annotations, marker()).text == "the provider has set the condition"


@cases(
    "now of",
    probe=([marker(probes=[probe_wire(), SECOND])], "web"),
    marker=([marker(), marker(name="new", probes=[SECOND])], "new"),
    same_name_of_another_container=(
        [marker(), marker(name="new", probes=[OTHER_CONTAINER])],
        "new",
    ),
)
def test_probe_added_after_the_pod_was_created_is_not_injected(now: list[Json], of: str) -> None:
    found = provider_link(created_with(marker()), *now, of=of)

    assert found.reason == "NotInjected"
    assert "was created without probe" in found.text
    assert found.remedy.startswith("create the pod again")


@pytest.mark.parametrize("text", ["[]", "null", "", "{}", "[1]", "["])
def test_annotation_without_the_probe_is_not_injected(text: str) -> None:
    assert provider_link({"kruise.io/podprobe": text}, marker()).reason == "NotInjected"


def test_probe_whose_condition_belongs_to_another_is_a_conflict() -> None:
    """The webhook leaves it out, so a new pod would not have it either."""
    older = marker(name="a")
    younger = marker(probes=[probe_wire("other")], created="2026-01-01T00:00:10Z")

    found = provider_link(created_with(older), older, younger)

    assert found.reason == "ClaimedByAnother"


def test_remedy_of_a_missing_annotation_names_gate_and_webhook() -> None:
    remedy = provider_link({}, marker()).remedy

    assert "EnablePodProbeMarkerOnServerless=true" in remedy
    assert "--webhook" in remedy
