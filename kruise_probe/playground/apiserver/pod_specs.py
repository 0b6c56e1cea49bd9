"""What is wrong with the spec of a pod.

Source: kubernetes pkg/apis/core/validation/validation.go (ValidatePodSpec).
Differs: only what a playground can get wrong is validated.
"""

import re
from collections.abc import Iterator
from typing import Final

from kruise_probe.api.labels import label_key_error
from kruise_probe.playground.apiserver.failures import (
    Cause,
    duplicate,
    invalid_value,
    required,
    unsupported,
)
from kruise_probe.playground.apiserver.schema import Json

CONTAINER_LISTS: Final = ("initContainers", "containers", "ephemeralContainers")
_RESTART_POLICIES: Final = ("Always", "Never", "OnFailure")
_CONTAINER_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def spec_problems(spec: Json) -> Iterator[Cause]:
    """What is wrong with the spec of a pod."""
    if not spec.get("containers"):
        yield required("spec.containers")
    names: set[str] = set()
    for list_name in CONTAINER_LISTS:
        for index, each in enumerate(spec.get(list_name) or ()):
            yield from _container_problems(each, f"spec.{list_name}[{index}]", names)
    for index, gate in enumerate(spec.get("readinessGates") or ()):
        condition = gate.get("conditionType") or ""
        wrong = label_key_error(condition)
        if wrong is not None:
            yield invalid_value(f"spec.readinessGates[{index}].conditionType", condition, wrong)
    policy = spec.get("restartPolicy")
    if policy not in _RESTART_POLICIES:
        yield unsupported("spec.restartPolicy", policy, _RESTART_POLICIES)


def _container_problems(container: Json, path: str, names: set[str]) -> Iterator[Cause]:
    name = container.get("name") or ""
    if not name:
        yield required(f"{path}.name")
    elif len(name) > 63 or not _CONTAINER_NAME.fullmatch(name):
        yield invalid_value(
            f"{path}.name",
            name,
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and"
            " must start and end with an alphanumeric character",
        )
    elif name in names:
        yield duplicate(f"{path}.name", name)
    names.add(name)
    if not container.get("image"):
        yield required(f"{path}.image")
    for index, port in enumerate(container.get("ports") or ()):
        number = port.get("containerPort")
        if not number:
            yield required(f"{path}.ports[{index}].containerPort")
        elif not 1 <= number <= 65535:
            detail = "must be between 1 and 65535, inclusive"
            yield invalid_value(f"{path}.ports[{index}].containerPort", number, detail)
