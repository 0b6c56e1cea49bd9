"""Discovery: versions, groups and resources.

Source: apiserver pkg/endpoints/discovery; apidiscovery.k8s.io/v2.
Differs: one version of each kind.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from kruise_probe_playground.apiserver.kinds import SUBRESOURCE_VERBS, Kind
from kruise_probe_playground.apiserver.schema import Json

GIT_VERSION: Final = "v1.36.0+playground"

_SUBRESOURCE_KINDS: Final[Mapping[str, Json]] = {
    "binding": {"kind": "Binding"},
    "scale": {"group": "autoscaling", "version": "v1", "kind": "Scale"},
}
AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def version() -> Json:
    unknown = ("gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler")
    known = {"major": "1", "minor": "36", "gitVersion": GIT_VERSION, "platform": "linux/amd64"}
    return {**known, **dict.fromkeys(unknown, "")}


class Discovery:
    """The documents at `/api` and `/apis`."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self._groups: dict[str, dict[str, list[Kind]]] = {}
        for kind in kinds:
            self._groups.setdefault(kind.group, {}).setdefault(kind.version, []).append(kind)

    def document(self, path: str, accept: str) -> tuple[Json, str] | None:
        """The document at a path and its content type; None if the path has no document."""
        parts = path.strip("/").split("/")
        aggregated = "as=APIGroupDiscoveryList" in accept and "v=v2" in accept
        match parts:
            case ["api"] if aggregated:
                return self._aggregated([""]), AGGREGATED
            case ["apis"] if aggregated:
                return self._aggregated([each for each in self._groups if each]), AGGREGATED
            case ["api"]:
                versions = {"kind": "APIVersions", "versions": ["v1"]}
                document: Json | None = {**versions, "serverAddressByClientCIDRs": []}
            case ["apis"]:
                described = [self._described(each) for each in self._groups if each]
                document = {"kind": "APIGroupList", "apiVersion": "v1", "groups": described}
            case ["api", wanted]:
                document = self._resources("", wanted)
            case ["apis", group] if group in self._groups:
                document = {"kind": "APIGroup", "apiVersion": "v1", **self._described(group)}
            case ["apis", group, wanted]:
                document = self._resources(group, wanted)
            case _:
                document = None
        return None if document is None else (document, "application/json")

    def _described(self, group: str) -> Json:
        versions = [
            {"groupVersion": f"{group}/{each}", "version": each} for each in self._groups[group]
        ]
        return {"name": group, "versions": versions, "preferredVersion": versions[0]}

    def _resources(self, group: str, wanted: str) -> Json | None:
        kinds = self._groups.get(group, {}).get(wanted)
        if kinds is None:
            return None
        return {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": kinds[0].api_version,
            "resources": [each for kind in kinds for each in _resource_entries(kind)],
        }

    def _aggregated(self, groups: list[str]) -> Json:
        return {
            "kind": "APIGroupDiscoveryList",
            "apiVersion": "apidiscovery.k8s.io/v2",
            "metadata": {},
            "items": [
                {
                    "metadata": {"name": group, "creationTimestamp": None} if group else {},
                    "versions": [
                        {
                            "version": each,
                            "resources": [_discovered(kind) for kind in kinds],
                            "freshness": "Current",
                        }
                        for each, kinds in self._groups[group].items()
                    ],
                }
                for group in groups
            ],
        }


def _resource_entries(kind: Kind) -> list[Json]:
    entry: Json = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        **_common(kind),
    }
    below = [
        {
            "name": f"{kind.plural}/{each}",
            "singularName": "",
            "namespaced": kind.namespaced,
            **_SUBRESOURCE_KINDS.get(each, {"kind": kind.kind}),
            "verbs": list(SUBRESOURCE_VERBS[each]),
        }
        for each in kind.subresources
    ]
    return [entry, *below]


def _common(kind: Kind) -> Json:
    optional = {"shortNames": list(kind.short_names), "categories": list(kind.categories)}
    return {"verbs": list(kind.verbs), **{key: each for key, each in optional.items() if each}}


def _discovered(kind: Kind) -> Json:
    own: Json = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    entry: Json = {
        "resource": kind.plural,
        "responseKind": own,
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        **_common(kind),
    }
    if kind.subresources:
        entry["subresources"] = [
            {
                "subresource": each,
                "responseKind": own | _SUBRESOURCE_KINDS.get(each, {}),
                "verbs": list(SUBRESOURCE_VERBS[each]),
            }
            for each in kind.subresources
        ]
    return entry
