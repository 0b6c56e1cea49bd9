"""Which fields of probes the installed CRDs drop: the manager reads both CRDs when it starts, and `status` reads them too.

Source: apiextensions/v1 CustomResourceDefinition, pruning of unknown fields.
"""

from typing import Any, Final, NamedTuple

import msgspec
import structlog

from kruise_probe.api.errors import KubeError, first_line
from kruise_probe.api.fields import shape_of
from kruise_probe.api.meta import ApiObject, NamespacedName, Resource, as_is
from kruise_probe.api.names import VERSION
from kruise_probe.api.resources import MARKERS, NODE_POD_PROBES
from kruise_probe.api.v1alpha1 import CRITERIA, PodContainerProbe
from kruise_probe.client.rest import RestClient

_PRESERVES: Final = "x-kubernetes-preserve-unknown-fields"
_log = structlog.get_logger()

Schema = dict[str, Any]


class _Validation(msgspec.Struct, frozen=True, rename={"schema": "openAPIV3Schema"}):
    schema: Schema = {}


class _Version(msgspec.Struct, frozen=True):
    name: str
    schema: _Validation = _Validation()


class _Spec(msgspec.Struct, frozen=True):
    versions: tuple[_Version, ...] = ()


class Definition(ApiObject, frozen=True):
    """A CustomResourceDefinition."""

    spec: _Spec = _Spec()


DEFINITIONS: Final = Resource(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    wire=Definition,
    project=as_is,
    namespaced=False,
)


class PrunedFields(NamedTuple):
    """The fields of a probe that the API server drops from markers, and from NodePodProbes, by wire name."""

    of_markers: tuple[str, ...] = ()
    of_nodes: tuple[str, ...] = ()


NOTHING_PRUNED: Final = PrunedFields()


async def read_pruned_fields(client: RestClient) -> PrunedFields:
    """Read both CRDs.

    Raises:
        KubeError: one cannot be read.
    """
    markers = await client.get(DEFINITIONS, _key(MARKERS))
    nodes = await client.get(DEFINITIONS, _key(NODE_POD_PROBES))
    return PrunedFields(of_markers(markers), of_nodes(nodes))


def _key(resource: Resource[Any]) -> NamespacedName:
    return NamespacedName("", f"{resource.plural}.{resource.group}")


def of_markers(definition: Definition) -> tuple[str, ...]:
    """The fields of a probe that a CRD of PodProbeMarkers drops."""
    fields = shape_of(PodContainerProbe).properties
    known = [field.name for field in fields.values()]
    return _dropped(definition, ("spec", "probes"), known)


def of_nodes(definition: Definition) -> tuple[str, ...]:
    """The fields of `CRITERIA` that a CRD of NodePodProbes drops."""
    return _dropped(definition, ("spec", "podProbes", "probes"), list(CRITERIA))


def _dropped(
    definition: Definition,
    path: tuple[str, ...],
    names: list[str],
) -> tuple[str, ...]:
    """Those of `names` that the items of the list at `path` lose."""
    for version in definition.spec.versions:
        schema = version.schema.schema
        if version.name != VERSION:
            continue
        for step in path:
            properties = schema.get("properties", {})
            if step not in properties:
                if schema.get(_PRESERVES):
                    return ()
                return tuple(names)
            schema = properties[step]
            schema = schema.get("items", schema)
        if schema.get(_PRESERVES):
            return ()
        known = schema.get("properties", {})
        return tuple([name for name in names if name not in known])
    return ()


async def read_at_start(client: RestClient) -> PrunedFields:
    """Read both CRDs, and log what they drop. If they cannot be read, results still show what daemons do not know."""
    try:
        pruned = await read_pruned_fields(client)
    except KubeError as error:
        _log.warning(
            "the CRDs cannot be read, so dropped fields are not reported; allow get on customresourcedefinitions",
            error=first_line(str(error)),
        )
        return NOTHING_PRUNED
    for kind, fields in (
        (MARKERS.kind, pruned.of_markers),
        (NODE_POD_PROBES.kind, pruned.of_nodes),
    ):
        if fields:
            _log.warning(
                "the CRD drops fields of probes; install the CRDs of this version, then restart the manager",
                kind=kind,
                fields=", ".join(fields),
            )
    return pruned
