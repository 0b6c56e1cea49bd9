"""ReplicaSets and their scale subresource.

Source: kubernetes pkg/apis/apps/validation (ValidateReplicaSet), pkg/registry/apps/replicaset/storage (ScaleREST).
Differs: the selector's own syntax is checked only as far as it can be read.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from kruise_probe.api.labels import LabelSelector, compile_selector
from kruise_probe_playground.apiserver import failures
from kruise_probe_playground.apiserver.failures import Cause, FailureTarget, invalid_value
from kruise_probe_playground.apiserver.kinds import Rules
from kruise_probe_playground.apiserver.pods import default_spec, spec_problems
from kruise_probe_playground.apiserver.schema import Json

_NOT_NEGATIVE: Final = "must be greater than or equal to 0"
_SCALED_METADATA: Final = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


class ReplicaSetRules(Rules):
    def default(self, new: Json) -> None:
        default_spec(new["spec"]["template"]["spec"])

    def prepare_for_create(self, new: Json) -> None:
        new["status"] = {"replicas": 0}

    def validate(self, new: Json) -> Sequence[Cause]:
        return list(_problems(new["spec"]))

    def validate_update(self, new: Json, old: Json) -> Sequence[Cause]:
        selector = new["spec"].get("selector")
        changed = selector != old["spec"].get("selector")
        immutable = invalid_value("spec.selector", selector, "field is immutable")
        return [
            *_problems(new["spec"]),
            *([immutable] if changed else []),
        ]


def _problems(spec: Json) -> Iterator[Cause]:
    if spec["replicas"] < 0:
        yield invalid_value("spec.replicas", spec["replicas"], _NOT_NEGATIVE)
    selector = spec.get("selector")
    labels = spec["template"]["metadata"].get("labels") or {}
    if selector is None:
        yield failures.required("spec.selector")
    elif not any(selector.values()):
        why = "empty selector is invalid for deployment"
        yield invalid_value("spec.selector", selector, why)
    elif not _matches(selector, labels):
        why = "`selector` does not match template `labels`"
        yield invalid_value("spec.template.metadata.labels", labels, why)
    for problem in spec_problems(spec["template"]["spec"]):
        yield problem._replace(field=f"spec.template.{problem.field}")


def _matches(selector: Json, labels: Json) -> bool:
    try:
        return compile_selector(msgspec.convert(selector, LabelSelector)).matches(labels)
    except ValueError:
        return False


def scale_of(replica_set: Json) -> Json:
    """Its autoscaling/v1 Scale."""
    selector = replica_set["spec"]["selector"].get("matchLabels") or {}
    metadata = replica_set["metadata"]
    replicas = replica_set["spec"]["replicas"]
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: metadata[key] for key in _SCALED_METADATA},
        "spec": {"replicas": replicas} if replicas else {},
        "status": {
            "replicas": replica_set["status"]["replicas"],
            "selector": ",".join(f"{key}={selector[key]}" for key in sorted(selector)),
        },
    }


def scaled(replica_set: Json, scale: Json) -> Json:
    """The ReplicaSet with the replicas of an updated Scale, and its resourceVersion as precondition."""
    name = replica_set["metadata"]["name"]
    spec, metadata = (scale.get(key) or {} for key in ("spec", "metadata"))
    if not isinstance(spec, dict) or not isinstance(metadata, dict):
        raise failures.bad_request(f"json: spec or metadata of the Scale {name} is not an object")
    replicas = spec.get("replicas", 0)
    if not isinstance(replicas, int):
        raise failures.bad_request(f"json: spec.replicas of the Scale {name} is not an integer")
    if replicas < 0:
        problem = invalid_value("spec.replicas", replicas, _NOT_NEGATIVE)
        raise failures.invalid(FailureTarget("autoscaling", "", "Scale", name), [problem])
    return {
        **replica_set,
        "metadata": {**replica_set["metadata"], "resourceVersion": metadata.get("resourceVersion")},
        "spec": {**replica_set["spec"], "replicas": replicas},
    }
