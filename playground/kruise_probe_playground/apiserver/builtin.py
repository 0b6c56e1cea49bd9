"""The built-in kinds. ConfigMaps, Secrets and Services are stored; nothing acts on them.

Their structure is `core_schemas.json`, read once; their rules are small classes here and in `pods`.

Source: kubernetes pkg/registry/core, pkg/registry/coordination.
Differs: this server's garbage collector deletes namespaces, instead of a controller manager.
"""

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Final

import msgspec

from kruise_probe_playground.apiserver import failures, pods, printers
from kruise_probe_playground.apiserver.columns import Column
from kruise_probe_playground.apiserver.failures import Cause, invalid_value
from kruise_probe_playground.apiserver.kinds import ALL_VERBS, Kind, Rules, fields
from kruise_probe_playground.apiserver.replica_sets import ReplicaSetRules
from kruise_probe_playground.apiserver.schema import ABSENT_VALUES, Compiler, Json, Schema

_CORE: Final = "io.k8s.api.core.v1."
_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."
_BLANKS: Final[Mapping[str, Json]] = {
    "CustomResourceDefinition": {
        "spec": {"group": "", "names": {"plural": "", "kind": ""}, "scope": "", "versions": None},
        "status": {"conditions": None, "acceptedNames": {}, "storedVersions": None},
    },
    "Event": {"involvedObject": {}, **ABSENT_VALUES[f"{_CORE}Event"]},
    "Lease": {"spec": {}},
    "Namespace": {"spec": {}, "status": {}},
    "Node": {"spec": {}, "status": ABSENT_VALUES[f"{_CORE}NodeStatus"]},
    "ReplicaSet": {
        "spec": {"selector": None, "template": {"metadata": {}, "spec": {"containers": None}}},
        "status": {"replicas": 0},
    },
    "Pod": {"spec": {"containers": None}, "status": {}},
    "Service": {"spec": {}, "status": {"loadBalancer": {}}},
}
"""Objects with no field set, without their metadata."""


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

    def companions(self, new: Json) -> Sequence[tuple[str, Json]]:
        metadata = {"name": "default", "namespace": new["metadata"]["name"]}
        return [("serviceaccounts", {"metadata": metadata})]

    def terminate(self, new: Json) -> bool:
        new["status"] = {**(new.get("status") or {}), "phase": "Terminating"}
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
            "storedVersions": [each["name"] for each in new["spec"]["versions"]],
        }


class NodeRules(Rules):
    def reset_for_create(self, new: Json) -> None:
        """A kubelet registers its node with the status."""


class EventRules(Rules):
    def validate(self, new: Json) -> Sequence[Cause]:
        namespace = new["metadata"].get("namespace") or ""
        involved = (new.get("involvedObject") or {}).get("namespace") or ""
        # Events of cluster-scoped objects are in the namespace default.
        if involved == namespace or (not involved and namespace == "default"):
            return ()
        why = "does not match event.namespace"
        return [invalid_value("involvedObject.namespace", involved, why)]


class DataRules(Rules):
    """ConfigMaps; SecretRules extend them. `defaults` are those that Go does not encode."""

    defaults: Mapping[str, Json] = {"data": {}}

    def validate(self, new: Json) -> Sequence[Cause]:
        data, binary = new.get("data") or {}, new.get("binaryData") or {}
        why = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
        wanted = _KEYS_OF_SECRETS.get(new.get("type", ""), ())
        if "username" in wanted and data.keys() & set(wanted):  # one of them is enough
            wanted = ()
        return [
            *(
                invalid_value(f"{part}[{key}]", key, why)
                for part in ("data", "binaryData")
                for key in new.get(part) or ()
                if not _DATA_KEY.fullmatch(key)
            ),
            *(
                invalid_value(f"data[{key}]", key, "duplicate of key present in binaryData")
                for key in sorted(data.keys() & binary.keys())
            ),
            *(failures.required(f"data[{key}]") for key in wanted if key not in data),
        ]

    def validate_update(self, new: Json, old: Json) -> Sequence[Cause]:
        found = list(self.validate(new))
        if new.get("type") != old.get("type"):
            found.append(invalid_value("type", new.get("type"), "field is immutable"))
        if old.get("immutable"):
            why = "field is immutable when `immutable` is set"
            found += [
                failures.forbidden_field(key, why)
                for key in ("immutable", "data", "binaryData")
                if {**self.defaults, **new}.get(key) != {**self.defaults, **old}.get(key)
            ]
        return found


_DATA_KEY: Final = re.compile(r"(?!\.\.?$)[-._a-zA-Z0-9]{1,253}")
_KEYS_OF_SECRETS: Final = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/basic-auth": ("username", "password"),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
}


class SecretRules(DataRules):
    defaults: Mapping[str, Json] = {}

    def default(self, new: Json) -> None:
        for key, text in (new.pop("stringData", None) or {}).items():
            new.setdefault("data", {})[key] = b64encode(text.encode()).decode()


class ServiceRules(Rules):
    def default(self, new: Json) -> None:
        for port in new["spec"].get("ports") or ():
            port["targetPort"] = port.get("targetPort") or port.get("port")

    def prepare_for_create(self, new: Json) -> None:
        new["status"] = {"loadBalancer": {}}

    def prepare_for_update(self, new: Json, old: Json) -> None:
        if "clusterIP" in old["spec"]:
            new["spec"].setdefault("clusterIP", old["spec"]["clusterIP"])

    def validate(self, new: Json) -> Sequence[Cause]:
        return list(_service_problems(new["spec"]))


def _service_problems(spec: Json) -> Iterator[Cause]:
    ports = spec.get("ports") or ()
    if not ports and spec["type"] != "ExternalName" and spec.get("clusterIP") != "None":
        yield failures.required("spec.ports")
    for index, port in enumerate(ports):
        if len(ports) > 1 and not port.get("name"):
            yield failures.required(f"spec.ports[{index}].name")
        if port["targetPort"] == 0:
            path = f"spec.ports[{index}].targetPort"
            yield invalid_value(path, 0, "must be between 1 and 65535")


_INVOLVED: Final = (
    *("kind", "namespace", "name", "uid"),
    *("apiVersion", "resourceVersion", "fieldPath"),
)
_read_event_fields: Final = fields(
    *(f"involvedObject.{each}" for each in _INVOLVED), "reason", "reportingComponent", "type"
)


def _event_fields(event: Json) -> Mapping[str, str]:
    component = (event.get("source") or {}).get("component")
    return {
        **_read_event_fields(event),
        "source": component or event.get("reportingComponent") or "",
    }


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
        "blank": {"metadata": {}, **_BLANKS.get(name, {})},
        "openapi": definitions()[f"{package}{name}"],
        "rules": Rules(),
    }
    return Kind(**{**values, **more})


def builtin_kinds() -> list[Kind]:
    """All built-in kinds, in the order of discovery."""
    return [
        _kind("ConfigMap", printers.CONFIG_MAPS, short_names=("cm",), rules=DataRules()),
        _kind(
            "Event",
            printers.EVENTS,
            short_names=("ev",),
            rules=EventRules(),
            plain_finalizers=True,
            metadata_last=True,
            create_on_update=True,
            select_fields=_event_fields,
        ),
        _kind(
            "Namespace",
            printers.NAMESPACES,
            namespaced=False,
            short_names=("ns",),
            rules=NamespaceRules(),
            verbs=tuple(each for each in ALL_VERBS if each != "deletecollection"),
            subresources=("status", "finalize"),
            dns_label_name=True,
            returns_deleted=True,
            select_fields=fields("status.phase"),
        ),
        _kind(
            "Node",
            printers.NODES,
            namespaced=False,
            short_names=("no",),
            rules=NodeRules(),
            subresources=("status",),
            select_fields=fields(booleans=("spec.unschedulable",)),
        ),
        _kind(
            "Pod",
            printers.PODS,
            short_names=("po",),
            categories=("all",),
            rules=pods.PodRules(),
            subresources=("status", "binding", "log"),
            has_generation=True,
            returns_deleted=True,
            select_fields=pods.select_fields,
        ),
        _kind("Secret", printers.SECRETS, rules=SecretRules(), select_fields=fields("type")),
        _kind(
            "Service",
            printers.SERVICES,
            short_names=("svc",),
            categories=("all",),
            rules=ServiceRules(),
            create_on_update=True,
            subresources=("status",),
            returns_deleted=True,
            select_fields=fields("spec.clusterIP", "spec.type"),
        ),
        _kind(
            "ServiceAccount", printers.SERVICE_ACCOUNTS, short_names=("sa",), returns_deleted=True
        ),
        _kind(
            "ReplicaSet",
            printers.REPLICA_SETS,
            package="io.k8s.api.apps.v1.",
            group="apps",
            short_names=("rs",),
            categories=("all",),
            rules=ReplicaSetRules(),
            subresources=("status", "scale"),
            has_generation=True,
        ),
        _kind(
            "Lease",
            printers.LEASES,
            package="io.k8s.api.coordination.v1.",
            group="coordination.k8s.io",
            plain_finalizers=True,
            create_on_update=True,
            unconditional_update=False,
        ),
        _kind(
            "CustomResourceDefinition",
            printers.DEFINITIONS,
            package="io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.",
            group="apiextensions.k8s.io",
            namespaced=False,
            short_names=("crd", "crds"),
            categories=("api-extensions",),
            rules=DefinitionRules(),
            verbs=("get", "list", "watch"),
            has_generation=True,
        ),
    ]
