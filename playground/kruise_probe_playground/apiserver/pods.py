"""Pods: defaults, validation, which fields may change, grace periods of deletions.

Source: kubernetes pkg/apis/core/v1/defaults.go, pkg/registry/core/pod/strategy.go,
pkg/apis/core/validation/validation.go (ValidatePodSpec, ValidatePodUpdate).
Differs: no admission plugins, so no priority, default tolerations or token volume. Only the names and images of
containers are validated, beside types, enumerations and limits of numbers. Resources are stored as they are sent, and the class of service is BestEffort: the node has no limits.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from kruise_probe.api.labels import is_deletion_cost
from kruise_probe.api.names import DELETION_COST_ANNOTATION
from kruise_probe_playground.apiserver import failures
from kruise_probe_playground.apiserver.failures import Cause, forbidden_field, invalid_value
from kruise_probe_playground.apiserver.kinds import Rules, fields
from kruise_probe_playground.apiserver.metadata import name_error
from kruise_probe_playground.apiserver.schema import Json, listed, put

CONTAINER_LISTS: Final = ("initContainers", "containers", "ephemeralContainers")
MAX_SECONDS: Final = 1 << 31  # Longer periods are clamped, because Python's time ends in 9999.
select_fields: Final = fields(
    "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "status.phase", "status.podIP"
)


def default_spec(spec: Json) -> None:
    """Set the defaults of pods and pod templates that depend on other fields."""
    for container in _containers(spec):
        image = container.get("image", "")
        if image:
            tag = image.rsplit("/", 1)[-1].partition(":")[2]
            latest = tag in ("", "latest") and "@" not in image
            container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")
    for volume in listed(spec, "volumes"):
        if len(volume) == 1:
            volume["emptyDir"] = {}


def _containers(spec: Json) -> Iterator[Json]:
    return (container for name in CONTAINER_LISTS for container in listed(spec, name))


class PodRules(Rules):
    def default(self, new: Json) -> None:
        spec = new["spec"]
        default_spec(spec)
        spec.setdefault("enableServiceLinks", True)

    def prepare_for_create(self, new: Json) -> None:
        spec = new["spec"]
        account = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
        spec["serviceAccountName"] = spec["serviceAccount"] = account
        new["status"] = {"phase": "Pending", "qosClass": "BestEffort"}

    def reset_for_update(self, new: Json, old: Json, subresource: str) -> None:
        super().reset_for_update(new, old, subresource)
        if subresource != "status":
            return
        new["metadata"].pop("deletionTimestamp", None)
        put(
            new["metadata"],
            "ownerReferences",
            old["metadata"].get("ownerReferences"),
        )

    def prepare_for_update(self, new: Json, old: Json) -> None:
        status, before = new.setdefault("status", {}), old.get("status") or {}
        if not status.get("qosClass") and "qosClass" in before:
            status["qosClass"] = before["qosClass"]

    def validate(self, new: Json) -> Sequence[Cause]:
        return [
            *_cost_problems(new),
            *spec_problems(new.get("spec") or {}),
        ]

    def validate_update(self, new: Json, old: Json) -> Sequence[Cause]:
        costs = [] if list(_cost_problems(old)) else _cost_problems(new)
        spec = new["spec"]
        return [
            *costs,
            *spec_problems(spec),
            *_spec_changes(spec, old["spec"]),
        ]

    def grace_seconds(
        self,
        stored: Json,
        requested: int | None,
    ) -> int | None:
        spec = stored.get("spec") or {}
        finished = (stored.get("status") or {}).get("phase") in ("Failed", "Succeeded")
        if not spec.get("nodeName") or finished:
            return 0
        own = spec.get("terminationGracePeriodSeconds", 0)
        seconds: int = own if requested is None else requested
        return min(seconds, MAX_SECONDS) if seconds >= 0 else 1


def _cost_problems(pod: Json) -> Iterator[Cause]:
    cost = (pod["metadata"].get("annotations") or {}).get(DELETION_COST_ANNOTATION)
    if cost is not None and not is_deletion_cost(cost):
        field = f"metadata.annotations[{DELETION_COST_ANNOTATION}]"
        yield invalid_value(field, cost, "must be a 32bit integer")


def spec_problems(spec: Json) -> Iterator[Cause]:
    """Yield the errors of the spec of a pod or a pod template."""
    if not spec.get("containers"):
        yield failures.required("spec.containers")
    names: set[str] = set()
    for list_name in CONTAINER_LISTS:
        for index, container in enumerate(listed(spec, list_name)):
            yield from _container_problems(
                container,
                f"spec.{list_name}[{index}]",
                names,
            )


def _container_problems(
    container: Json,
    path: str,
    names: set[str],
) -> Iterator[Cause]:
    name = container.get("name") or ""
    if not name:
        yield failures.required(f"{path}.name")
    elif wrong := name_error(name, label=True):
        yield invalid_value(f"{path}.name", name, wrong)
    if name in names:
        yield failures.duplicate(f"{path}.name", name)
    names.add(name)
    if not container.get("image"):
        yield failures.required(f"{path}.image")


def _spec_changes(new: Json, old: Json) -> Iterator[Cause]:
    """The errors of changes that an update may not make."""
    for name in ("containers", "initContainers"):
        if len(new.get(name) or ()) != len(old.get(name) or ()):
            yield forbidden_field(f"spec.{name}", "pod updates may not add or remove containers")
            return
    if _frozen_part(new) != _frozen_part(old):
        yield forbidden_field(
            "spec",
            "pod updates may not change fields other than `spec.containers[*].image`,"
            "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations`"
            " (only additions to existing tolerations)",
        )


def _frozen_part(spec: Json) -> Any:
    """The spec without what an update may change."""
    changeable = ("activeDeadlineSeconds", "tolerations")
    frozen = {key: value for key, value in spec.items() if key not in changeable}
    for name in ("containers", "initContainers"):
        frozen[name] = [
            {key: value for key, value in container.items() if key != "image"}
            for container in listed(spec, name)
        ]
    return frozen
