"""The built-in kinds.

Their structure is `core_schemas.json` and `core_additions.yaml`, read once; their rules are small classes here and in `pods`.

Source: kubernetes pkg/registry/core, pkg/registry/coordination.
Differs: this server's garbage collector deletes namespaces, instead of a controller manager.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Final

import msgspec

from kruise_probe_playground.apiserver import pods, tables
from kruise_probe_playground.apiserver.kinds import Kind, Rules, fields
from kruise_probe_playground.apiserver.replica_sets import ReplicaSetRules
from kruise_probe_playground.apiserver.schema import Compiler, Json, Schema, additions
from kruise_probe_playground.apiserver.tables import Column

_CORE: Final = "io.k8s.api.core.v1."
_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."


@cache
def definitions() -> Mapping[str, Json]:
    """The OpenAPI v3 schemas of the built-in kinds, by name."""
    text = files(__package__).joinpath("core_schemas.json").read_bytes()
    decoded: Mapping[str, Json] = msgspec.json.decode(text)
    return decoded


@cache
def _compiler() -> Compiler:
    return Compiler(definitions(), typed=True)


@cache
def object_meta() -> Schema:
    """The schema of `metadata`, which custom resources share."""
    return _compiler().compile({"$ref": f"{_META}ObjectMeta"})


class NamespaceRules(Rules):
    def default(self, new: Json) -> None:
        if name := new["metadata"].get("name"):
            new["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = name

    def prepare_for_create(self, new: Json) -> None:
        new["spec"] = {"finalizers": ["kubernetes"]}
        new["status"] = {"phase": "Active"}

    def prepare_for_update(self, new: Json, old: Json) -> None:
        new["spec"] = old["spec"]

    def terminate(self, new: Json) -> bool:
        new["status"] = {
            **(new.get("status") or {}),
            "phase": "Terminating",
        }
        return True


class DefinitionRules(Rules):
    """The server creates its definitions at the start; clients only read them."""

    def prepare_for_create(self, new: Json) -> None:
        """Set the status that two controllers of the real server set some moments later."""
        conditions = {"NamesAccepted": "NoConflicts", "Established": "InitialNamesAccepted"}
        new["status"] = {
            "conditions": [
                {
                    "type": kind,
                    "status": "True",
                    "lastTransitionTime": new["metadata"]["creationTimestamp"],
                    "reason": reason,
                    "message": "",
                }
                for kind, reason in conditions.items()
            ],
            "acceptedNames": new["spec"]["names"],
            "storedVersions": [version["name"] for version in new["spec"]["versions"]],
        }


class NodeRules(Rules):
    def reset_for_create(self, new: Json) -> None:
        """A kubelet registers its node with the status."""


def _kind(name: str, columns: Sequence[Column], *, package: str = _CORE, **more: Any) -> Kind:
    values: dict[str, Any] = {
        "group": "",
        "version": "v1",
        "plural": f"{name.lower()}s",
        "singular": name.lower(),
        "kind": name,
        "namespaced": True,
        "schema": _compiler().compile({"$ref": f"{package}{name}"}),
        "columns": columns,
        "blank": {"metadata": {}, **additions()["blank"][name]},
        "openapi": definitions()[f"{package}{name}"],
        "rules": Rules(),
    }
    return Kind(**{**values, **more})


def builtin_kinds() -> list[Kind]:
    """All built-in kinds, in the order of discovery."""
    return [
        _kind(
            "Event",
            tables.EVENTS,
            short_names=("ev",),
            select_fields=fields(
                *(f"involvedObject.{name}" for name in ("kind", "namespace", "name", "uid")),
                *("reason", "type"),
            ),
        ),
        _kind(
            "Namespace",
            tables.NAMESPACES,
            namespaced=False,
            short_names=("ns",),
            rules=NamespaceRules(),
            subresources=("status",),
            returns_deleted=True,
            select_fields=fields("status.phase"),
        ),
        _kind(
            "Node",
            tables.NODES,
            namespaced=False,
            short_names=("no",),
            rules=NodeRules(),
            subresources=("status",),
        ),
        _kind(
            "Pod",
            tables.PODS,
            short_names=("po",),
            rules=pods.PodRules(),
            subresources=("status", "binding", "log", "exec", "portforward"),
            has_generation=True,
            returns_deleted=True,
            select_fields=pods.select_fields,
        ),
        _kind(
            "ReplicaSet",
            tables.REPLICA_SETS,
            package="io.k8s.api.apps.v1.",
            group="apps",
            short_names=("rs",),
            rules=ReplicaSetRules(),
            subresources=("status", "scale"),
            has_generation=True,
        ),
        _kind(
            "Lease",
            tables.LEASES,
            package="io.k8s.api.coordination.v1.",
            group="coordination.k8s.io",
            unconditional_update=False,
        ),
        _kind(
            "CustomResourceDefinition",
            tables.DEFINITIONS,
            package="io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.",
            group="apiextensions.k8s.io",
            namespaced=False,
            short_names=("crd", "crds"),
            rules=DefinitionRules(),
            verbs=("get", "list", "watch"),
            has_generation=True,
        ),
    ]
