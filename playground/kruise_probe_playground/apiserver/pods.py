"""Pods: defaults, validation, which fields may change, grace periods of deletions.

Source: kubernetes pkg/apis/core/v1/defaults.go, pkg/registry/core/pod/strategy.go,
pkg/apis/core/validation/validation.go (ValidatePodSpec, ValidatePodUpdate).
Differs: no admission plugins, so no priority, default tolerations or token volume.
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, Final

from kruise_probe.api.labels import is_deletion_cost
from kruise_probe.api.names import DELETION_COST_ANNOTATION
from kruise_probe_playground.apiserver.failures import Cause, forbidden_field, invalid_value
from kruise_probe_playground.apiserver.formats import amount
from kruise_probe_playground.apiserver.kinds import Rules
from kruise_probe_playground.apiserver.pod_validation import CONTAINER_LISTS, spec_problems
from kruise_probe_playground.apiserver.schema import Json

_SPEC_DEFAULTS: Final[Json] = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "schedulerName": "default-scheduler",
}
_CONTAINER_DEFAULTS: Final[Json] = {
    "resources": {},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
_PROBE_DEFAULTS: Final[Json] = {
    "timeoutSeconds": 1,
    "periodSeconds": 10,
    "successThreshold": 1,
    "failureThreshold": 3,
}


def select_fields(pod: Json) -> Mapping[str, str]:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    return {
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.restartPolicy": spec.get("restartPolicy", ""),
        "spec.schedulerName": spec.get("schedulerName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", ""),
        "spec.hostNetwork": str(bool(spec.get("hostNetwork"))).lower(),
        "status.phase": status.get("phase", ""),
        "status.podIP": status.get("podIP", ""),
        "status.nominatedNodeName": status.get("nominatedNodeName", ""),
    }


def default_spec(spec: Json) -> None:
    """Set the defaults of pods and pod templates."""
    for key, value in _SPEC_DEFAULTS.items():
        spec.setdefault(key, deepcopy(value))
    for name in CONTAINER_LISTS:
        for each in spec.get(name) or ():
            _default_container(each)
    for volume in spec.get("volumes") or ():
        if len(volume) == 1:
            volume["emptyDir"] = {}


class PodRules(Rules):
    def default(self, new: Json) -> None:
        spec = new.setdefault("spec", {})
        default_spec(spec)
        spec.setdefault("enableServiceLinks", True)
        for name in CONTAINER_LISTS:
            for each in spec.get(name) or ():
                _default_requests(each)

    def reset_for_create(self, new: Json) -> None:
        new.pop("status", None)

    def prepare_for_create(self, new: Json) -> None:
        spec = new["spec"]
        account = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
        spec["serviceAccountName"] = spec["serviceAccount"] = account
        new["metadata"]["generation"] = 1
        new["status"] = {"phase": "Pending", "qosClass": _quality_of_service(spec)}

    def reset_for_update(self, new: Json, old: Json, subresource: str) -> None:
        super().reset_for_update(new, old, subresource)
        if subresource != "status":
            return
        metadata, before = new["metadata"], old["metadata"]
        metadata.pop("deletionTimestamp", None)
        if "ownerReferences" in before:
            metadata["ownerReferences"] = before["ownerReferences"]
        else:
            metadata.pop("ownerReferences", None)

    def prepare_for_update(self, new: Json, old: Json) -> None:
        status, before = new.setdefault("status", {}), old.get("status") or {}
        for key in ("qosClass", "observedGeneration"):
            if not status.get(key) and key in before:
                status[key] = before[key]
        _keep_observed_generations(status, before)
        if new.get("spec") != old.get("spec"):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1

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
        if _frozen_part(new["spec"]) == _frozen_part(old["spec"]):
            return [*costs, *spec_problems(new["spec"])]
        return [
            *costs,
            forbidden_field(
                "spec",
                "pod updates may not change fields other than `spec.containers[*].image`,"
                "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations`"
                " (only additions to existing tolerations),`spec.terminationGracePeriodSeconds`"
                " (allow it to be set to 1 if it was previously negative)",
            ),
        ]

    def grace_seconds(self, stored: Json, requested: int | None) -> int | None:
        spec = stored.get("spec") or {}
        finished = (stored.get("status") or {}).get("phase") in ("Failed", "Succeeded")
        if not spec.get("nodeName") or finished:
            return 0
        seconds: int = (
            spec.get("terminationGracePeriodSeconds", 0) if requested is None else requested
        )
        return seconds if seconds >= 0 else 1


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


def _default_container(container: Json) -> None:
    for key, value in _CONTAINER_DEFAULTS.items():
        container.setdefault(key, deepcopy(value))
    image = container.get("image", "")
    if image:
        tag = image.rsplit("/", 1)[-1].partition(":")[2]
        latest = tag in ("", "latest") and "@" not in image
        container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
    for variable in container.get("env") or ():
        reference = (variable.get("valueFrom") or {}).get("fieldRef")
        if reference is not None:
            reference.setdefault("apiVersion", "v1")
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if name in container:
            default_probe(container[name])


def _default_requests(container: Json) -> None:
    limits = container["resources"].get("limits")
    if limits:
        requests = container["resources"].setdefault("requests", {})
        for name, quantity in limits.items():
            requests.setdefault(name, quantity)


def default_probe(probe: Json) -> None:
    """As core/v1 does it."""
    for key, value in _PROBE_DEFAULTS.items():
        probe[key] = probe.get(key) or value
    if "httpGet" in probe:
        probe["httpGet"].setdefault("path", "/")
        probe["httpGet"].setdefault("scheme", "HTTP")
    if "grpc" in probe:
        probe["grpc"].setdefault("service", "")


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


def _frozen_part(spec: Json) -> Any:
    """The spec without what an update may change."""
    changeable = ("activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds")
    frozen = {key: value for key, value in spec.items() if key not in changeable}
    for name in ("containers", "initContainers"):
        frozen[name] = [
            {key: value for key, value in each.items() if key != "image"}
            for each in spec.get(name) or ()
        ]
    return frozen
