"""What is wrong with the spec of a pod. Enumerations and limits of numbers are in the schema.

Source: kubernetes pkg/apis/core/validation/validation.go (ValidatePodSpec).
Differs: affinity, tolerations, volumes, security contexts and lifecycle hooks are not validated.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kruise_probe.api.labels import label_key_error
from kruise_probe_playground.apiserver import failures
from kruise_probe_playground.apiserver.failures import Cause, invalid_value
from kruise_probe_playground.apiserver.formats import amount
from kruise_probe_playground.apiserver.metadata import label_problems, name_error
from kruise_probe_playground.apiserver.schema import Json

CONTAINER_LISTS: Final = ("initContainers", "containers", "ephemeralContainers")
_PORT_NAME = re.compile(r"(?=.{1,15}$)(?=.*[a-z])(?!.*--)[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_RESOURCES: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
_HANDLERS: Final = ("exec", "httpGet", "tcpSocket", "grpc")
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_OUT_OF_RANGE = "must be between 1 and 65535, inclusive"


def spec_problems(spec: Json) -> Iterator[Cause]:
    """Yield the errors of the spec of a pod or a pod template."""
    if not spec.get("containers"):
        yield failures.required("spec.containers")
    names: set[str] = set()
    volumes = {each.get("name") for each in spec.get("volumes") or ()}
    for list_name in CONTAINER_LISTS:
        for index, each in enumerate(spec.get(list_name) or ()):
            yield from _container_problems(each, f"spec.{list_name}[{index}]", names, volumes)
    for index, gate in enumerate(spec.get("readinessGates") or ()):
        if wrong := label_key_error(gate.get("conditionType") or ""):
            path = f"spec.readinessGates[{index}].conditionType"
            yield invalid_value(path, gate.get("conditionType") or "", wrong)
    for key in ("nodeName", "hostname", "subdomain"):
        value = spec.get(key)
        if value and (wrong := name_error(value, label=key != "nodeName")):
            yield invalid_value(f"spec.{key}", value, wrong)
    yield from label_problems(spec.get("nodeSelector") or {}, "spec.nodeSelector")
    if spec.get("schedulingGates") and spec.get("nodeName"):
        why = "cannot be set until all schedulingGates have been cleared"
        yield failures.forbidden_field("spec.nodeName", why)


def _container_problems(
    container: Json, path: str, names: set[str], volumes: set[Any]
) -> Iterator[Cause]:
    yield from _name_problems(container, path, names)
    yield from _port_problems(container.get("ports") or (), path)
    for index, variable in enumerate(container.get("env") or ()):
        if not variable.get("name"):
            yield failures.required(f"{path}.env[{index}].name")
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        if mount.get("name") not in volumes:
            message = f"Not found: {failures.show(mount.get('name'))}"
            yield Cause("FieldValueNotFound", message, f"{path}.volumeMounts[{index}].name")
    yield from _resource_problems(container.get("resources") or {}, f"{path}.resources")
    for kind in _PROBES:
        if kind in container:
            yield from _probe_problems(container[kind], f"{path}.{kind}", kind)


def _name_problems(container: Json, path: str, names: set[str]) -> Iterator[Cause]:
    name, image = container.get("name") or "", container.get("image") or ""
    if not name:
        yield failures.required(f"{path}.name")
    elif wrong := name_error(name, label=True):
        yield invalid_value(f"{path}.name", name, wrong)
    if name in names:
        yield failures.duplicate(f"{path}.name", name)
    names.add(name)
    if not image:
        yield failures.required(f"{path}.image")
    elif image != image.strip():
        yield invalid_value(f"{path}.image", image, "must not have leading or trailing whitespace")


def _port_problems(ports: Sequence[Json], path: str) -> Iterator[Cause]:
    names: set[str] = set()
    for index, port in enumerate(ports):
        where, name, number = f"{path}.ports[{index}]", port.get("name"), port.get("containerPort")
        if name and not _PORT_NAME.fullmatch(name):
            yield invalid_value(f"{where}.name", name, "must be an IANA_SVC_NAME")
        elif name in names:
            yield failures.duplicate(f"{where}.name", name)
        elif name:
            names.add(name)
        if not number:
            yield failures.required(f"{where}.containerPort")
        elif not 1 <= number <= 65535:
            yield invalid_value(f"{where}.containerPort", number, _OUT_OF_RANGE)


def _resource_problems(resources: Json, path: str) -> Iterator[Cause]:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for part, quantities in (("limits", limits), ("requests", requests)):
        for name, quantity in quantities.items():
            if "/" not in name and name not in _RESOURCES and not name.startswith("hugepages-"):
                why = "must be a standard resource for containers"
                yield invalid_value(f"{path}.{part}[{name}]", name, why)
            if amount(quantity) < 0:
                why = "must be greater than or equal to 0"
                yield invalid_value(f"{path}.{part}[{name}]", quantity, why)
    for name, quantity in requests.items():
        if name in limits and amount(quantity) > amount(limits[name]):
            why = f"must be less than or equal to {name} limit of {limits[name]}"
            yield invalid_value(f"{path}.requests", quantity, why)
        elif "/" in name and name not in limits:
            why = "Limit must be set for non overcommitable resources"
            yield failures.required(f"{path}.limits", why)


def _probe_problems(probe: Json, path: str, kind: str) -> Iterator[Cause]:
    handlers = [each for each in _HANDLERS if each in probe]
    if not handlers:
        yield failures.required(path, "must specify a handler type")
    for each in handlers[1:]:
        why = "may not specify more than 1 handler type"
        yield failures.forbidden_field(f"{path}.{each}", why)
    for each in handlers[:1]:
        yield from _handler_problems(probe[each], f"{path}.{each}", each)
    if kind == "readinessProbe" and probe.get("terminationGracePeriodSeconds"):
        why = "must not be set for readinessProbes"
        grace = probe["terminationGracePeriodSeconds"]
        yield invalid_value(f"{path}.terminationGracePeriodSeconds", grace, why)
    if kind != "readinessProbe" and probe.get("successThreshold") != 1:
        yield invalid_value(f"{path}.successThreshold", probe.get("successThreshold"), "must be 1")


def _handler_problems(handler: Mapping[str, Any], path: str, kind: str) -> Iterator[Cause]:
    if kind == "exec":
        if not handler.get("command"):
            yield failures.required(f"{path}.command")
        return
    port = handler.get("port")
    if isinstance(port, str):
        if not _PORT_NAME.fullmatch(port):
            yield invalid_value(f"{path}.port", port, "must be an IANA_SVC_NAME")
    elif not port or not 1 <= port <= 65535:
        yield invalid_value(f"{path}.port", port, _OUT_OF_RANGE)
