"""Discovery: versions, groups and resources.

Source: apiserver pkg/endpoints/discovery.
Differs: one version of each kind; no aggregated documents.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from kruise_probe_playground.apiserver.kinds import SUBRESOURCE_VERBS, Kind
from kruise_probe_playground.apiserver.schema import Json

GIT_VERSION: Final = "v1.36.0+playground"

_SUBRESOURCE_KINDS: Final[Mapping[str, Json]] = {
    "binding": {"kind": "Binding"},
    "exec": {"kind": "PodExecOptions"},
    "portforward": {"kind": "PodPortForwardOptions"},
    "scale": {"group": "autoscaling", "version": "v1", "kind": "Scale"},
}


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

    def document(self, path: str) -> Json | None:
        """The document at a path; None if the path has none."""
        match path.strip("/").split("/"):
            case ["api"]:
                versions = {"kind": "APIVersions", "versions": ["v1"]}
                return {**versions, "serverAddressByClientCIDRs": []}
            case ["apis"]:
                described = [self._described(each) for each in self._groups if each]
                return {"kind": "APIGroupList", "apiVersion": "v1", "groups": described}
            case ["api", wanted]:
                return self._resources("", wanted)
            case ["apis", group] if group in self._groups:
                return {"kind": "APIGroup", "apiVersion": "v1", **self._described(group)}
            case ["apis", group, wanted]:
                return self._resources(group, wanted)
            case _:
                return None

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


def _resource_entries(kind: Kind) -> list[Json]:
    entry: Json = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(kind.verbs),
        "shortNames": list(kind.short_names),
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
