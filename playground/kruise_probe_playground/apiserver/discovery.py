"""Discovery: versions, groups and resources.

Source: apiserver pkg/endpoints/discovery.
Differs: one version of each kind; no aggregated documents.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from kruise_probe_playground.apiserver.kinds import SUBRESOURCE_VERBS, Kind
from kruise_probe_playground.apiserver.schema import Json

GIT_VERSION: Final = "v1.36.0+playground"

_VERSION: Final = {
    **{"major": "1", "minor": "36", "gitVersion": GIT_VERSION, "platform": "linux/amd64"},
    **dict.fromkeys(("gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler"), ""),
}
_API: Final = {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
_PATHS: Final = {"paths": ["/api", "/api/v1", "/apis", "/healthz", "/openapi/v3", "/version"]}
_SUBRESOURCE_KINDS: Final[Mapping[str, Json]] = {
    "binding": {"kind": "Binding"},
    "exec": {"kind": "PodExecOptions"},
    "portforward": {"kind": "PodPortForwardOptions"},
    "scale": {"group": "autoscaling", "version": "v1", "kind": "Scale"},
}


def discovery(kinds: Iterable[Kind]) -> Mapping[str, Json]:
    """The documents by path, without slashes at its ends."""
    documents: dict[str, Json] = {"": _PATHS, "version": _VERSION, "api": _API}
    groups = {}
    for kind in kinds:
        resources = documents.setdefault(kind.root, _resource_list(kind))["resources"]
        resources += _resource_entries(kind)
        if kind.group:
            version = {"groupVersion": kind.api_version, "version": kind.version}
            group = {"name": kind.group, "versions": [version], "preferredVersion": version}
            groups[kind.group] = group
            documents[f"apis/{kind.group}"] = {"kind": "APIGroup", "apiVersion": "v1", **group}
    listed = {"kind": "APIGroupList", "apiVersion": "v1", "groups": list(groups.values())}
    return {**documents, "apis": listed}


def _resource_list(kind: Kind) -> Json:
    head = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": kind.api_version}
    return {**head, "resources": []}


def _resource_entries(kind: Kind) -> Iterator[Json]:
    yield {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(kind.verbs),
        "shortNames": list(kind.short_names),
    }
    for each in kind.subresources:
        yield {
            "name": f"{kind.plural}/{each}",
            "singularName": "",
            "namespaced": kind.namespaced,
            **_SUBRESOURCE_KINDS.get(each, {"kind": kind.kind}),
            "verbs": list(SUBRESOURCE_VERBS[each]),
        }
