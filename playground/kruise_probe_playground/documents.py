"""Files of Kubernetes objects: read completely before anything starts, then applied in order.

Every error is one line: file, line or document, what is wrong. The only controller of the playground is that of
ReplicaSets. A Deployment becomes its ReplicaSet. Other workloads become the pods that their template describes. These
have no owner: nothing recreates or scales them.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from kruise_probe.api.errors import AlreadyExists, ApiError
from kruise_probe.client.request import PatchType
from kruise_probe.client.rest import RestClient
from kruise_probe.lint.findings import Position
from kruise_probe.lint.linter import Source, read_sources
from kruise_probe.lint.linter import documents as documents_of
from kruise_probe.lint.nodes import Malformed, value_of
from kruise_probe.manifests.crds import all_crds
from kruise_probe_playground.apiserver.builtin import builtin_kinds
from kruise_probe_playground.apiserver.custom import custom_kind
from kruise_probe_playground.apiserver.schema import Json
from kruise_probe_playground.replicas import MOST_REPLICAS

WORKLOADS: Final = frozenset(
    {
        ("apps", "StatefulSet"),
        ("apps", "DaemonSet"),
        ("batch", "Job"),
        ("apps.kruise.io", "CloneSet"),
        ("apps.kruise.io", "StatefulSet"),
        ("apps.kruise.io", "DaemonSet"),
        ("game.kruise.io", "GameServerSet"),
        ("argoproj.io", "Rollout"),
    }
)
"""By API group and kind."""


def objects_for(document: Json) -> list[Json]:
    """The objects to create for one of a file.

    Raises:
        ValueError: a workload has no valid template or number of replicas; the text says what to write.
    """
    kind = document["apiVersion"].rpartition("/")[0], document["kind"]
    if kind == ("apps", "Deployment"):
        spec = _spec_of(document)
        kept = {key: spec[key] for key in ("replicas", "selector", "template") if key in spec}
        return [{**document, "kind": "ReplicaSet", "spec": kept}]
    if kind in WORKLOADS:
        return _pods_of(document)
    return [document]


def _spec_of(workload: Json) -> Json:
    found = workload.get("spec")
    spec: Json = found if isinstance(found, dict) else {}
    template = spec.get("template")
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        raise ValueError("has no spec.template.spec; write the pod's containers there")
    if not isinstance(template.get("metadata") or {}, dict):
        raise ValueError("spec.template.metadata is not a mapping; write the pod's labels there")
    replicas = spec.get("replicas")
    if replicas is not None and not (isinstance(replicas, int) and 0 <= replicas <= MOST_REPLICAS):
        raise ValueError(f"spec.replicas is {replicas!r}; write 0 to {MOST_REPLICAS}")
    return spec


def _pods_of(workload: Json) -> list[Json]:
    """The pods of a workload, `<name>-0` and so on."""
    spec = _spec_of(workload)
    replicas = 1 if workload["kind"] == "DaemonSet" else spec.get("replicas", 1)
    metadata = workload["metadata"]
    template = spec["template"]
    place = {"namespace": metadata["namespace"]} if "namespace" in metadata else {}
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                **(template.get("metadata") or {}),
                **place,
                "name": f"{metadata['name']}-{number}",
            },
            "spec": template["spec"],
        }
        for number in range(1 if replicas is None else replicas)
    ]


SAMPLE = Path(__file__).parent / "samples" / "game-servers.yaml"

_STRICT = "?fieldValidation=Strict"
"""As kubectl requests: an unknown field is an error instead of being dropped."""


class BadFile(Exception):
    """A file cannot be read or applied; the text says which, where, and what to do."""


class LoadedObject(NamedTuple):
    """One object of a file; `place` describes it in messages."""

    place: str
    object: Json


def load(files: Sequence[Path]) -> list[LoadedObject]:
    """The objects of all files: items of lists, the pods or ReplicaSets of workloads.

    Raises:
        BadFile: a file cannot be read, is not YAML, or contains something other than objects.
    """
    documents = [
        document for source in read_sources(map(str, files)) for document in _load_one(source)
    ]
    if files and not documents:
        raise BadFile(
            f"{files[0]}: contains no object; write a PodProbeMarker and the Pods that it selects"
        )
    return documents


def _load_one(source: Source) -> Iterator[LoadedObject]:
    file = source.name
    try:
        parsed = list(documents_of(source))
    except Malformed as error:
        raise _at(
            file,
            error.finding.position,
            error.finding.message,
        ) from error
    for number, document in enumerate(parsed, start=1):
        if document.flaws:
            raise _at(
                file,
                document.flaws[0].position,
                document.flaws[0].message,
            )
        value = value_of(document.root)
        if value is not None:
            yield from _objects(f"{file}, document {number}", value)


def _at(file: str, position: Position, message: str) -> BadFile:
    return BadFile(f"{file}, line {position.line}, column {position.column}: {message}")


def _objects(place: str, value: Any) -> Iterator[LoadedObject]:
    if not isinstance(value, dict):
        raise BadFile(f"{place}: is not an object; write apiVersion, kind and metadata.name")
    missing = [key for key in ("apiVersion", "kind") if not isinstance(value.get(key), str)]
    if missing:
        raise BadFile(f"{place}: has no {' and no '.join(missing)}; add it")
    if value["kind"] == "List" or (value["kind"].endswith("List") and "items" in value):
        items = value.get("items") or []
        if not isinstance(items, list):
            raise BadFile(
                f"{place}: items of the {value['kind']} is not a list; write objects there"
            )
        for number, item in enumerate(items, start=1):
            yield from _objects(f"{place}, item {number}", item)
        return
    metadata = value.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        raise BadFile(f"{place}: the {value['kind']} has no metadata.name; add it")
    place = f"{place} ({value['kind']} {metadata['name']})"
    try:
        yield from (LoadedObject(place, document) for document in objects_for(value))
    except ValueError as error:
        raise BadFile(f"{place}: {error}") from error


class Applier:
    """Applies documents as `kubectl apply` does: creates objects, or patches existing ones."""

    def __init__(
        self,
        client: RestClient,
        on_note: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._client = client
        self._on_note = on_note
        kinds = [
            *builtin_kinds(),
            *map(custom_kind, all_crds()),
        ]
        self._served = {(kind.api_version, kind.kind): kind for kind in kinds}

    async def apply(self, documents: Sequence[LoadedObject]) -> None:
        """Apply documents one after the other. Kinds that the server does not serve are skipped with a note.

        Raises:
            BadFile: the server rejects the object.
            KubeError: the server is unavailable.
        """
        for document in documents:
            try:
                await self._apply(document)
            except ApiError as error:
                raise BadFile(f"{document.place}: {error.message}") from error

    async def _apply(self, document: LoadedObject) -> None:
        wanted = document.object
        kind = self._served.get((wanted["apiVersion"], wanted["kind"]))
        if kind is None:
            self._on_note(f"{document.place}: skipped: the playground has no {wanted['kind']}")
            return
        namespace = wanted["metadata"].get("namespace") or "default"
        scope = f"/namespaces/{namespace}" if kind.namespaced else ""
        path = f"/{kind.root}{scope}/{kind.plural}"
        body = msgspec.json.encode(wanted)
        try:
            await self._client.request_raw(
                "POST",
                path + _STRICT,
                body,
            )
        except AlreadyExists:
            path += f"/{wanted['metadata']['name']}"
            await self._client.request_raw(
                "PATCH",
                path + _STRICT,
                body,
                PatchType.MERGE,
            )
