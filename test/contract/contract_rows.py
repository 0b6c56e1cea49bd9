"""Rows of requests with the responses that both servers must give: one line for each request.

`{ns}` is the namespace of the row, `{id}` a unique word for cluster-scoped names, `{node}` a Node that does not exist.
`{0:metadata.uid}` is a value of the response to the first request.
"""

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from contract.contract_api import MERGE, STRATEGIC, Api, ApiResponse, absent_node
from support.wire import Json

ABSENT: Final = "(absent)"
_METHODS: Final = {"MERGE": ("PATCH", MERGE), "STRATEGIC": ("PATCH", STRATEGIC)}


class Part(str):
    """A text that contains this one is expected."""


class Step(NamedTuple):
    """One request. `expected` are values by dotted path; `fields` and `names` are those of causes and items."""

    method: str
    path: str
    body: Any
    code: int
    expected: Json
    options: Json


def step(
    request: str, body: Any = None, code: int = 200, expected: Json | None = None, /, **options: Any
) -> Step:
    """`request` is e.g. `POST pods`, `MERGE pods/p/status` or `GET /version`; `options` are the query, `accept` and `form`."""
    method, _, path = request.partition(" ")
    return Step(method, path, body, code, expected or {}, options)


def made(resource: str, body: Json, expected: Json | None = None, /, **options: Any) -> Step:
    return step(f"POST {resource}", body, 201, expected, **options)


async def run(api: Api, steps: Sequence[Step]) -> list[ApiResponse]:
    """Send the requests, and compare each response with what is expected of it. The responses are returned."""
    answers: list[ApiResponse] = []
    for number, each in enumerate(steps):
        words = {"ns": api.namespace, "id": api.unique, "node": absent_node()}
        method, form = _METHODS.get(each.method, (each.method, "application/json"))
        options = {"content_type": form, **_filled(each.options, words, answers)}
        path = _path(api, _filled(each.path, words, answers))
        answer = await api.send(method, path, _filled(each.body, words, answers), **options)
        answers.append(answer)
        where = f"request {number}: {each.method} {each.path}: {answer}"
        assert answer.code == each.code, where
        for key, value in _filled(each.expected, words, answers).items():
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
