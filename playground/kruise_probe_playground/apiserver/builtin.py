"""The built-in kinds. ConfigMaps, Secrets and Services are stored; nothing acts on them.

Their structure is `core_schemas.json`, read once; their rules are small classes here and in `pods`.

Source: kubernetes pkg/registry/core, pkg/registry/coordination.
Differs: this server's garbage collector deletes namespaces, instead of a controller manager.
"""

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import Any, Final

import msgspec

from kruise_probe_playground.apiserver import failures, pods, printers
from kruise_probe_playground.apiserver.definitions import DefinitionRules
from kruise_probe_playground.apiserver.failures import Cause, invalid_value
from kruise_probe_playground.apiserver.kinds import ALL_VERBS, Kind, Rules
from kruise_probe_playground.apiserver.replica_sets import ReplicaSetRules
from kruise_probe_playground.apiserver.schema import Compiler, Json, Schema
from kruise_probe_playground.apiserver.shaping import apply_defaults

_CORE: Final = "io.k8s.api.core.v1."
_BLANKS: Final[Mapping[str, Json]] = {
    "CustomResourceDefinition": {
        "spec": {"group": "", "names": {"plural": "", "kind": ""}, "scope": "", "versions": None},
        "status": {"conditions": None, "acceptedNames": {}, "storedVersions": None},
    },
    "Event": {"involvedObject": {}},
    "Namespace": {"spec": {}, "status": {}},
    "ReplicaSet": {
        "spec": {"selector": None, "template": {"metadata": {}, "spec": {"containers": None}}},
        "status": {"replicas": 0},
    },
    "Pod": {"spec": {"containers": None}, "status": {}},
    "Service": {"spec": {}, "status": {"loadBalancer": {}}},
}
_EXTENSIONS: Final = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."
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
    def reset_for_create(self, new: Json) -> None:
        new.pop("status", None)

    def default(self, new: Json) -> None:
        metadata = new["metadata"]
        labels = metadata.setdefault("labels", {})
        labels["kubernetes.io/metadata.name"] = metadata["name"]

    def prepare_for_create(self, new: Json) -> None:
        new["spec"] = {"finalizers": ["kubernetes"]}
        new["status"] = {"phase": "Active"}

    def prepare_for_update(self, new: Json, old: Json) -> None:
        new["spec"] = old["spec"]

    def companions(self, new: Json) -> Sequence[tuple[str, Json]]:
        metadata = {"name": "default", "namespace": new["metadata"]["name"]}
        return [("serviceaccounts", {"metadata": metadata})]

    def terminate(self, new: Json, now: datetime) -> bool:
        new["status"] = {**(new.get("status") or {}), "phase": "Terminating"}
        return True


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
    """ConfigMaps and Secrets."""

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
            changed = [
                key
                for key in ("immutable", "data", "binaryData")
                if new.get(key) != old.get(key) and (new.get(key) or old.get(key))
            ]
            found += [failures.forbidden_field(key, why) for key in changed]
        return found


_DATA_KEY: Final = re.compile(r"(?!\.\.?$)[-._a-zA-Z0-9]{1,253}")
_KEYS_OF_SECRETS: Final = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/basic-auth": ("username", "password"),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
}


class SecretRules(DataRules):
    def default(self, new: Json) -> None:
        new.setdefault("type", "Opaque")
        for key, text in (new.pop("stringData", None) or {}).items():
            new.setdefault("data", {})[key] = b64encode(text.encode()).decode()


class ServiceRules(Rules):
    def default(self, new: Json) -> None:
        spec = new.setdefault("spec", {})
        spec.setdefault("type", "ClusterIP")
        spec.setdefault("sessionAffinity", "None")
        spec.setdefault("internalTrafficPolicy", "Cluster")
        for port in spec.get("ports") or ():
            port.setdefault("protocol", "TCP")
            port["targetPort"] = port.get("targetPort") or port.get("port")

    def prepare_for_create(self, new: Json) -> None:
        new["status"] = {"loadBalancer": {}}

    def validate(self, new: Json) -> Sequence[Cause]:
        spec = new["spec"]
        if (
            not spec.get("ports")
            and spec["type"] != "ExternalName"
            and spec.get("clusterIP") != "None"
        ):
            return [failures.required("spec.ports")]
        ports = list(enumerate(spec.get("ports") or ()))
        return [
            *(
                failures.required(f"spec.ports[{index}].name")
                for index, port in ports
                if len(ports) > 1 and not port.get("name")
            ),
            *(
                invalid_value(f"spec.ports[{index}].targetPort", 0, "must be between 1 and 65535")
                for index, port in ports
                if port["targetPort"] == 0
            ),
        ]

    def validate_update(self, new: Json, old: Json) -> Sequence[Cause]:
        return self.validate(new)


def _service_fields(service: Json) -> Mapping[str, str]:
    spec = service.get("spec") or {}
    return {"spec.clusterIP": spec.get("clusterIP", ""), "spec.type": spec.get("type", "")}


def _event_fields(event: Json) -> Mapping[str, str]:
    involved, source = event.get("involvedObject") or {}, event.get("source") or {}
    return {
        "involvedObject.kind": involved.get("kind", ""),
        "involvedObject.namespace": involved.get("namespace", ""),
        "involvedObject.name": involved.get("name", ""),
        "involvedObject.uid": involved.get("uid", ""),
        "involvedObject.apiVersion": involved.get("apiVersion", ""),
        "involvedObject.resourceVersion": involved.get("resourceVersion", ""),
        "involvedObject.fieldPath": involved.get("fieldPath", ""),
        "reason": event.get("reason", ""),
        "reportingComponent": event.get("reportingComponent", ""),
        "source": source.get("component") or event.get("reportingComponent", ""),
        "type": event.get("type", ""),
    }


def _node_fields(node: Json) -> Mapping[str, str]:
    unschedulable = bool((node.get("spec") or {}).get("unschedulable"))
    return {"spec.unschedulable": str(unschedulable).lower()}


def _namespace_fields(namespace: Json) -> Mapping[str, str]:
    return {"status.phase": (namespace.get("status") or {}).get("phase", "")}


def _kind(definition: str, plural: str, **more: Any) -> Kind:
    openapi = definitions()[definition]
    schema = _compiler().compile({"$ref": definition})
    name = definition.rsplit(".", 1)[1]
    values: dict[str, Any] = {
        "group": "",
        "version": "v1",
        "plural": plural,
        "singular": name.lower(),
        "kind": name,
        "namespaced": True,
        "schema": schema,
        "blank": _blank(schema, _BLANKS.get(name, {})),
        "openapi": openapi,
        "rules": Rules(),
    }
    return Kind(**{**values, **more})


def _blank(schema: Schema, more: Json) -> Json:
    blank: Json = {"metadata": {}, **more}
    apply_defaults(blank, schema)
    return blank


def builtin_kinds() -> list[Kind]:
    """All built-in kinds, in the order of discovery."""
    return [
        _kind(
            f"{_CORE}ConfigMap",
            "configmaps",
            short_names=("cm",),
            columns=printers.CONFIG_MAPS,
            rules=DataRules(),
        ),
        _kind(
            f"{_CORE}Event",
            "events",
            short_names=("ev",),
            columns=printers.EVENTS,
            rules=EventRules(),
            plain_finalizers=True,
            metadata_last=True,
            create_on_update=True,
            select_fields=_event_fields,
        ),
        _kind(
            f"{_CORE}Namespace",
            "namespaces",
            namespaced=False,
            short_names=("ns",),
            columns=printers.NAMESPACES,
            rules=NamespaceRules(),
            verbs=tuple(each for each in ALL_VERBS if each != "deletecollection"),
            subresources=("status", "finalize"),
            dns_label_name=True,
            returns_deleted=True,
            select_fields=_namespace_fields,
        ),
        _kind(
            f"{_CORE}Node",
            "nodes",
            namespaced=False,
            short_names=("no",),
            columns=printers.NODES,
            subresources=("status",),
            select_fields=_node_fields,
        ),
        _kind(
            f"{_CORE}Pod",
            "pods",
            short_names=("po",),
            categories=("all",),
            columns=printers.PODS,
            rules=pods.PodRules(),
            subresources=("status", "binding", "log"),
            has_generation=True,
            returns_deleted=True,
            select_fields=pods.select_fields,
        ),
        _kind(
            f"{_CORE}Secret",
            "secrets",
            columns=printers.SECRETS,
            rules=SecretRules(),
            select_fields=lambda secret: {"type": secret.get("type", "")},
        ),
        _kind(
            f"{_CORE}Service",
            "services",
            short_names=("svc",),
            categories=("all",),
            columns=printers.SERVICES,
            rules=ServiceRules(),
            create_on_update=True,
            subresources=("status",),
            returns_deleted=True,
            select_fields=_service_fields,
        ),
        _kind(
            f"{_CORE}ServiceAccount",
            "serviceaccounts",
            short_names=("sa",),
            columns=printers.SERVICE_ACCOUNTS,
            returns_deleted=True,
        ),
        _kind(
            "io.k8s.api.apps.v1.ReplicaSet",
            "replicasets",
            group="apps",
            short_names=("rs",),
            categories=("all",),
            columns=printers.REPLICA_SETS,
            rules=ReplicaSetRules(),
            subresources=("status", "scale"),
            has_generation=True,
        ),
        _kind(
            "io.k8s.api.coordination.v1.Lease",
            "leases",
            group="coordination.k8s.io",
            columns=printers.LEASES,
            plain_finalizers=True,
            create_on_update=True,
            unconditional_update=False,
        ),
        _kind(
            f"{_EXTENSIONS}CustomResourceDefinition",
            "customresourcedefinitions",
            group="apiextensions.k8s.io",
            namespaced=False,
            short_names=("crd", "crds"),
            categories=("api-extensions",),
            columns=printers.DEFINITIONS,
            rules=DefinitionRules(),
            subresources=("status",),
            has_generation=True,
            unconditional_update=False,
        ),
    ]
