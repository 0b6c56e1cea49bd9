"""Pods: defaults, validation, which fields may change, grace periods of deletions.

Source: kubernetes pkg/apis/core/v1/defaults.go, pkg/registry/core/pod/strategy.go,
pkg/apis/core/validation/validation.go (ValidatePodSpec, ValidatePodUpdate).
Differs: no admission plugins, so no priority, default tolerations or token volume.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from kruise_probe.api.labels import is_deletion_cost
from kruise_probe.api.names import DELETION_COST_ANNOTATION
from kruise_probe_playground.apiserver.failures import Cause, forbidden_field, invalid_value
from kruise_probe_playground.apiserver.formats import amount
from kruise_probe_playground.apiserver.kinds import Rules, fields
from kruise_probe_playground.apiserver.pod_validation import CONTAINER_LISTS, spec_problems
from kruise_probe_playground.apiserver.schema import Json, put

MAX_SECONDS: Final = 1 << 31  # Longer periods are clamped, because Python's time ends in 9999.
select_fields: Final = fields(
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
    booleans=("spec.hostNetwork",),
)


def default_spec(spec: Json) -> None:
    """Set the defaults of pods and pod templates that depend on other fields."""
    for container in _containers(spec):
        image = container.get("image", "")
        if image:
            tag = image.rsplit("/", 1)[-1].partition(":")[2]
            latest = tag in ("", "latest") and "@" not in image
            container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")
    for volume in spec.get("volumes") or ():
        if len(volume) == 1:
            volume["emptyDir"] = {}


def _containers(spec: Json) -> Iterator[Json]:
    return (each for name in CONTAINER_LISTS for each in spec.get(name) or ())


class PodRules(Rules):
    def default(self, new: Json) -> None:
        spec = new["spec"]
        default_spec(spec)
        spec.setdefault("enableServiceLinks", True)
        for each in _containers(spec):
            limits = each["resources"].get("limits")
            if limits:
                requests = each["resources"].get("requests") or {}
                each["resources"]["requests"] = {**limits, **requests}

    def prepare_for_create(self, new: Json) -> None:
        spec = new["spec"]
        account = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
        spec["serviceAccountName"] = spec["serviceAccount"] = account
        new["status"] = {"phase": "Pending", "qosClass": _quality_of_service(spec)}

    def reset_for_update(self, new: Json, old: Json, subresource: str) -> None:
        super().reset_for_update(new, old, subresource)
        if subresource != "status":
            return
        new["metadata"].pop("deletionTimestamp", None)
        put(new["metadata"], "ownerReferences", old["metadata"].get("ownerReferences"))

    def prepare_for_update(self, new: Json, old: Json) -> None:
        status, before = new.setdefault("status", {}), old.get("status") or {}
        for key in ("qosClass", "observedGeneration"):
            if not status.get(key) and key in before:
                status[key] = before[key]
        _keep_observed_generations(status, before)

    def warnings(self, new: Json) -> Sequence[str]:
        return [
            f'spec.{name}[{at}].env[{place}]: hides previous definition of "{each["name"]}", which may be dropped'
            " when using apply"
            for name in CONTAINER_LISTS
            for at, container in enumerate(new["spec"].get(name) or ())
            for place, each in enumerate(container.get("env") or ())
            if each["name"] in [before["name"] for before in container["env"][:place]]
        ]

    def validate(self, new: Json) -> Sequence[Cause]:
        return [*_cost_problems(new), *spec_problems(new.get("spec") or {})]

    def validate_update(self, new: Json, old: Json) -> Sequence[Cause]:
        costs = [] if list(_cost_problems(old)) else _cost_problems(new)
        spec = new["spec"]
        return [*costs, *spec_problems(spec), *_spec_changes(spec, old["spec"])]

    def grace_seconds(self, stored: Json, requested: int | None) -> int | None:
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


def _keep_observed_generations(status: Json, before: Json) -> None:
    """A condition that comes without its observedGeneration keeps the one it had."""
    known = {
        each["type"]: each.get("observedGeneration") for each in before.get("conditions") or ()
    }
    for each in status.get("conditions") or ():
        generation = known.get(each.get("type"))
        if generation and not each.get("observedGeneration"):
            each["observedGeneration"] = generation


def _quality_of_service(spec: Json) -> str:
    resources = [
        {
            part: {
                name: each
                for name, each in named.items()
                if name in ("cpu", "memory") and amount(each)
            }
            for part, named in (each.get("resources") or {}).items()
            if part in ("requests", "limits")
        }
        for each in spec.get("containers") or ()
    ]
    if not any(each.get("requests") or each.get("limits") for each in resources):
        return "BestEffort"
    guaranteed = all(
        {"cpu", "memory"} <= (each.get("limits") or {}).keys()
        and (each.get("requests") or each["limits"]) == each["limits"]
        for each in resources
    )
    return "Guaranteed" if guaranteed else "Burstable"


def _spec_changes(new: Json, old: Json) -> Iterator[Cause]:
    """The errors of changes that an update may not make."""
    for name in ("containers", "initContainers"):
        if len(new.get(name) or ()) != len(old.get(name) or ()):
            yield forbidden_field(f"spec.{name}", "pod updates may not add or remove containers")
            return
    grace = "terminationGracePeriodSeconds"
    if old[grace] < 0 and new[grace] == 1:
        new = {**new, grace: old[grace]}
    if _frozen_part(new) != _frozen_part(old):
        yield forbidden_field(
            "spec",
            "pod updates may not change fields other than `spec.containers[*].image`,"
            "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations`"
            " (only additions to existing tolerations),`spec.terminationGracePeriodSeconds`"
            " (allow it to be set to 1 if it was previously negative)",
        )


def _frozen_part(spec: Json) -> Any:
    """The spec without what an update may change."""
    changeable = ("activeDeadlineSeconds", "tolerations")
    frozen = {key: value for key, value in spec.items() if key not in changeable}
    for name in ("containers", "initContainers"):
        frozen[name] = [
            {key: value for key, value in each.items() if key != "image"}
            for each in spec.get(name) or ()
        ]
    return frozen
