"""The rows of test/data/requests.yaml: requests with the responses that both servers must give."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from contract.contract_api import (
    MERGE,
    STRATEGIC,
    Api,
    ApiResponse,
    absent_node,
    marker,
    node_pod_probe,
    pod,
    replica_set,
)
from support.tables import load_table
from support.wire import Json

ABSENT: Final = "(absent)"
NOTHING: Final[Json] = {}
_METHODS: Final = {"MERGE": ("PATCH", MERGE), "STRATEGIC": ("PATCH", STRATEGIC)}
_TABLE: Final = Path(__file__).parents[1] / "data" / "requests.yaml"


class Part(str):
    """A text that contains this one is expected."""


class Step(NamedTuple):
    """One request."""

    request: str
    body: Any = None
    code: int = 200
    expected: Json = NOTHING
    options: Json = NOTHING


def load_rows() -> dict[str, list[Step]]:
    """The steps of each row, by its name."""
    tags: dict[str, Callable[[Any], Any]] = {
        "part": Part,
        "bytes": str.encode,
        "pod": _pod,
        "marker": _marker,
        "marker-spec": lambda _: marker()["spec"],
        "node-pod-probe": _node_pod_probe,
        "replica-set": lambda spec: replica_set(**spec),
    }
    rows = load_table(_TABLE, tags)
    return {name: [Step(*step) for step in steps] for name, steps in rows.items()}


def _pod(of: Json) -> Json:
    """`name`, `node`; fields of `spec` and of its one `container`; `status`; the others are metadata."""
    container = of.pop("container", {})
    spec = of.pop("spec", {})
    status = {"status": of.pop("status")} if "status" in of else {}
    body = pod(**{"node": "{node}", **of})
    body["spec"]["containers"][0] |= container
    body["spec"] |= spec
    return body | status


def _marker(of: Json) -> Json:
    """`name`; fields of `spec` and of its one `probe`, null for none; `status`; the others are metadata."""
    probe = marker()["spec"]["probes"][0] | of.pop("probe", {})
    spec = of.pop("spec", {})
    status = {"status": of.pop("status")} if "status" in of else {}
    body = marker(of.pop("name", "m"))
    body["metadata"] |= of
    body["spec"]["probes"] = [{key: value for key, value in probe.items() if value is not None}]
    body["spec"] |= spec
    return body | status


def _node_pod_probe(of: Json) -> Json:
    """Cluster-scoped, so it is removed by its label after the test."""
    metadata = {"name": "{ns}-n", "labels": {"contract": "{id}"}}
    return {**node_pod_probe(""), "metadata": metadata, **of}


async def run(api: Api, steps: Sequence[Step]) -> list[ApiResponse]:
    """Send the requests, and compare each response with what is expected of it. The responses are returned."""
    answers: list[ApiResponse] = []
    words = {"ns": api.namespace, "id": api.unique, "node": absent_node()}
    for number, step in enumerate(steps):
        verb, _, path = step.request.partition(" ")
        method, form = _METHODS.get(verb, (verb, "application/json"))
        options = {"content_type": form, **_filled(step.options, words, answers)}
        path = _path(api, _filled(path, words, answers))
        answer = await api.send(method, path, _filled(step.body, words, answers), **options)
        answers.append(answer)
        where = f"request {number}: {step.request}: {answer}"
        assert answer.code == step.code, where
        for key, value in _filled(step.expected, words, answers).items():
            found = _value(answer, key)
            holds = value in str(found) if isinstance(value, Part) else found == value
            assert holds, f"{key} is {found!r}, not {value!r}; {where}"
    return answers


def _path(api: Api, path: str) -> str:
    if path.startswith("/"):
        return path
    resource, name, subresource = [*path.split("/"), "", ""][:3]
    return api.path(resource, name) + (f"/{subresource}" if subresource else "")


def _filled(value: Any, words: dict[str, str], answers: list[ApiResponse]) -> Any:
    if isinstance(value, dict):
        return {_filled(k, words, answers): _filled(v, words, answers) for k, v in value.items()}
    if isinstance(value, list):
        return [_filled(each, words, answers) for each in value]
    if not isinstance(value, str):
        return value

    def word(match: re.Match[str]) -> str:
        return words[match[1]] if match[1] else str(_value(answers[int(match[2])], match[3]))

    return type(value)(re.sub(r"\{(?:(ns|id|node)|(\d+):([\w.]+))\}", word, value))


def _value(answer: ApiResponse, key: str) -> Any:
    """What is at a dotted path of the body; ABSENT without it."""
    match key:
        case "text":
            return answer.text
        case "fields":
            return sorted({field for _, field in answer.causes})
        case "names":
            return [each["metadata"]["name"] for each in answer.body["items"]]
        case _:
            return _at(answer.body, key)


def _at(found: Any, key: str) -> Any:
    for part in key.split("."):
        if isinstance(found, list) and part.isdigit() and int(part) < len(found):
            found = found[int(part)]
        elif isinstance(found, dict) and part in found:
            found = found[part]
        else:
            return ABSENT
    return found


_ADMITTED: Final = ("tolerations", "priority", "preemptionPolicy", "volumes", "volumeMounts")
"""What the real server's admission plugins add to a pod."""
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_OF_A_SERVER: Final = ("resourceVersion", "continue")
_TIME: Final = re.compile(r"(?!2026-01-02)\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


def _writer(entry: Json) -> tuple[str, str]:
    return entry["manager"], entry.get("subresource", "")


def normalised(value: Any, api: Api) -> Any:
    """Without what differs between any two servers: identity, versions, and times that the test did not give."""
    if isinstance(value, dict):
        if value.get("managedFields"):  # ordered by whole seconds, so by when the requests came
            value = {**value, "managedFields": sorted(value["managedFields"], key=_writer)}
        if value.get("conditions"):  # a real server puts new ones first
            value = {
                **value,
                "conditions": sorted(value["conditions"], key=lambda each: each["type"]),
            }
        return {
            normalised(key, api): key if key in _OF_A_SERVER and each else normalised(each, api)
            for key, each in value.items()
            if key not in _ADMITTED
        }
    if isinstance(value, list):
        return [normalised(each, api) for each in value]
    if isinstance(value, str):
        return _TIME.sub("time", _UUID.sub("uid", value.replace(api.unique, "id")))
    return value


def compared(real: Any, embedded: Any, path: str = "") -> list[str]:
    """Where two responses differ, path by path."""
    if isinstance(real, dict) and isinstance(embedded, dict):
        keys = sorted(real.keys() | embedded.keys())
        pairs = [
            (f"{path}.{key}", real.get(key, ABSENT), embedded.get(key, ABSENT)) for key in keys
        ]
    elif isinstance(real, list) and isinstance(embedded, list) and len(real) == len(embedded):
        pairs = [
            (f"{path}.{at}", *pair) for at, pair in enumerate(zip(real, embedded, strict=True))
        ]
    else:
        return [] if real == embedded else [f"{path}: {real!r} != {embedded!r}"]
    return [found for where, one, other in pairs for found in compared(one, other, where)]
