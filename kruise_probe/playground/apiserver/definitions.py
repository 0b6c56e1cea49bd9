"""CustomResourceDefinitions as objects that clients may read.

Source: apiextensions-apiserver pkg/apiserver, pkg/controller/{establish,status}.
Differs: they come with the server and cannot be changed.
"""

from typing import Final

from kruise_probe.api.times import format_time
from kruise_probe.playground.apiserver.kinds import READ_VERBS, Kind, Rules
from kruise_probe.playground.apiserver.metadata import stamp_new
from kruise_probe.playground.apiserver.printers import DEFINITIONS
from kruise_probe.playground.apiserver.registry import Registry
from kruise_probe.playground.apiserver.schema import UNTYPED, Json

DEFINITION_KIND: Final = Kind(
    group="apiextensions.k8s.io",
    version="v1",
    plural="customresourcedefinitions",
    singular="customresourcedefinition",
    kind="CustomResourceDefinition",
    namespaced=False,
    schema=UNTYPED,
    openapi={"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    columns=DEFINITIONS,
    rules=Rules(),
    short_names=("crd", "crds"),
    categories=("api-extensions",),
    verbs=READ_VERBS,
    has_generation=True,
)


def store_definition(registry: Registry, crd: Json) -> None:
    """Stores a definition as established."""
    now = registry.now()
    metadata = {**crd["metadata"], "generation": 1}
    stamp_new(metadata, now)
    spec = {"conversion": {"strategy": "None"}, **crd["spec"]}
    conditions = [
        {
            "type": kind,
            "status": "True",
            "lastTransitionTime": format_time(now),
            "reason": reason,
            "message": message,
        }
        for kind, reason, message in (
            ("NamesAccepted", "NoConflicts", "no conflicts found"),
            ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        )
    ]
    stored_versions = [each["name"] for each in spec["versions"] if each["storage"]]
    status = {
        "conditions": conditions,
        "acceptedNames": spec["names"],
        "storedVersions": stored_versions,
    }
    registry.commit(DEFINITION_KIND, {"metadata": metadata, "spec": spec, "status": status}, None)
