"""CustomResourceDefinitions as objects: a stored one adds its kind to the registry.

Source: apiextensions-apiserver pkg/registry/customresourcedefinition, pkg/apis/apiextensions/validation,
pkg/controller/{establish,status,finalizer}.
Differs: a definition is established at once; the storage version alone is served; schemas are not checked for being structural.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final

from kruise_probe.api.times import format_time, utc_now
from kruise_probe_playground.apiserver import failures
from kruise_probe_playground.apiserver.columns import cell_of
from kruise_probe_playground.apiserver.failures import Cause, invalid_value
from kruise_probe_playground.apiserver.kinds import Rules
from kruise_probe_playground.apiserver.schema import Json

CLEANUP: Final = "customresourcecleanup.apiextensions.k8s.io"
_SCOPES: Final = ("Cluster", "Namespaced")
_ESTABLISHED: Final = (
    ("NamesAccepted", "NoConflicts", "no conflicts found"),
    ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
)
_TERMINATING: Final = (
    "Terminating",
    "InstanceDeletionInProgress",
    "CustomResource deletion is in progress",
)
"""Type, reason and message of conditions."""


def storage_version(crd: Json) -> Json:
    found: Json = next(each for each in crd["spec"]["versions"] if each["storage"])
    return found


class DefinitionRules(Rules):
    def default(self, new: Json) -> None:
        names = new["spec"]["names"]
        if names.get("kind"):
            names.setdefault("singular", names["kind"].lower())
            names.setdefault("listKind", f"{names['kind']}List")

    def prepare_for_create(self, new: Json) -> None:
        _establish(new)

    def prepare_for_update(self, new: Json, old: Json) -> None:
        if new["spec"] != old.get("spec"):
            _establish(new)

    def validate(self, new: Json) -> Sequence[Cause]:
        return list(_problems(new))

    def validate_update(self, new: Json, old: Json) -> Sequence[Cause]:
        changed = [
            invalid_value(f"spec.{key}", new["spec"].get(key), "field is immutable")
            for key in ("group", "scope")
            if new["spec"].get(key) != old["spec"].get(key)
        ]
        return [*_problems(new), *changed]

    def warnings(self, new: Json) -> Sequence[str]:
        version = storage_version(new)
        found = [
            f"the playground's API server serves only the storage version {version['name']!r}"
            for each in new["spec"]["versions"]
            if each.get("served") and not each["storage"]
        ]
        for each in version.get("additionalPrinterColumns") or ():
            try:
                cell_of(each["jsonPath"], each["type"])
            except ValueError as error:
                found.append(f"the column {each['name']!r} stays empty in the playground: {error}")
        if "scale" in (version.get("subresources") or {}):
            found.append(
                "the playground's API server does not serve the subresource scale of your kinds"
            )
        if _has_rules(version):
            found.append(
                "the playground's API server does not evaluate x-kubernetes-validations (CEL)"
            )
        return found

    def terminate(self, new: Json, now: datetime) -> bool:
        metadata = new["metadata"]
        metadata["finalizers"] = list(dict.fromkeys([*(metadata.get("finalizers") or ()), CLEANUP]))
        conditions = new["status"]["conditions"]
        if len(conditions) == len(_ESTABLISHED):
            conditions.append(_condition(*_TERMINATING, now))
        return True


def _establish(crd: Json) -> None:
    """Set the status that two controllers of the real server set some moments later."""
    now = utc_now()
    conditions = (crd.get("status") or {}).get("conditions") or [
        _condition(*each, now) for each in _ESTABLISHED
    ]
    crd["status"] = {
        "conditions": conditions,
        "acceptedNames": crd["spec"]["names"],
        "storedVersions": [
            each["name"] for each in crd["spec"].get("versions") or () if each.get("storage")
        ],
    }


def _condition(kind: str, reason: str, message: str, now: datetime) -> Json:
    return {
        "type": kind,
        "status": "True",
        "lastTransitionTime": format_time(now),
        "reason": reason,
        "message": message,
    }


def _has_rules(value: Any) -> bool:
    if isinstance(value, dict):
        return "x-kubernetes-validations" in value or any(map(_has_rules, value.values()))
    return isinstance(value, list) and any(map(_has_rules, value))


def _problems(crd: Json) -> Iterator[Cause]:
    spec, name = crd["spec"], crd["metadata"].get("name")
    names = spec["names"]
    if name != f"{names.get('plural', '')}.{spec.get('group', '')}":
        why = 'must be spec.names.plural+"."+spec.group'
        yield invalid_value("metadata.name", name, why)
    if not spec.get("group"):
        yield failures.required("spec.group")
    for key in ("plural", "kind"):
        if not names.get(key):
            yield failures.required(f"spec.names.{key}")
    if spec.get("scope") not in _SCOPES:
        yield failures.unsupported("spec.scope", spec.get("scope") or "", _SCOPES)
    versions = spec.get("versions") or []
    if sum(bool(each.get("storage")) for each in versions) != 1:
        why = "must have exactly one version marked as storage version"
        yield invalid_value("spec.versions", versions, why)
    for index, each in enumerate(versions):
        path = f"spec.versions[{index}].schema.openAPIV3Schema"
        schema = (each.get("schema") or {}).get("openAPIV3Schema")
        if not schema:
            yield failures.required(path)
        elif schema.get("type") != "object":
            yield invalid_value(f"{path}.type", schema.get("type"), "must be object at the root")
