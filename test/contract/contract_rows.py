"""The rows of test/data/requests.yaml: requests with the responses that both servers must give."""

import re
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple

from contract.contract_api import (
    DATA,
    JSON,
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
_REFERENCE: Final = re.compile(r"\{(?:(ns|id|node)|(\d+):([\w.]+))\}")
"""`{ns}`, `{id}`, `{node}`, or `{NUMBER:PATH}`: a field of an earlier response."""


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
    rows = load_table(DATA / "requests.yaml", tags)
    return {name: [Step(*step) for step in steps] for name, steps in rows.items()}


def _pod(fields: Json) -> Json:
    """`name`, `node`; fields of `spec` and of its one `container`; `status`; the others are metadata."""
    container = fields.pop("container", {})
    spec = fields.pop("spec", {})
    status = _status(fields)
    body = pod(**{"node": "{node}", **fields})
    body["spec"]["containers"][0] |= container
    body["spec"] |= spec
    return body | status


def _marker(fields: Json) -> Json:
    """`name`; fields of `spec` and of its one `probe`, null for none; `status`; the others are metadata."""
    changed = fields.pop("probe", {})
    spec = fields.pop("spec", {})
    status = _status(fields)
    body = marker(fields.pop("name", "m"))
    body["metadata"] |= fields
    (probe,) = body["spec"]["probes"]
    probe |= changed
    for key in [key for key, value in changed.items() if value is None]:
        del probe[key]
    body["spec"] |= spec
    return body | status


def _status(fields: Json) -> Json:
    """Moves the status, if there is one, out of the fields."""
    return {"status": fields.pop("status")} if "status" in fields else {}


def _node_pod_probe(fields: Json) -> Json:
    """Cluster-scoped, so it is removed by its label after the test."""
    return {
        **node_pod_probe("{ns}-n", labels={"contract": "{id}"}),
        **fields,
    }


async def run(api: Api, steps: Sequence[Step]) -> list[ApiResponse]:
    """Send the requests, and compare each response with what is expected of it. The responses are returned."""
    answers: list[ApiResponse] = []
    words = {
        "ns": api.namespace,
        "id": api.unique,
        "node": absent_node(),
    }

    def replacement(match: re.Match[str]) -> str:
        word, number, key = match.groups()
        return words[word] if word else str(_value(answers[int(number)], key))

    for number, step in enumerate(steps):
        request, body, options = _filled([step.request, step.body, step.options], replacement)
        verb, _, path = request.partition(" ")
        method, form = _METHODS.get(verb, (verb, JSON))
        answer = await api.send(
            method,
            _path(api, path),
            body,
            **{"content_type": form, **options},
        )
        answers.append(answer)
        where = f"request {number}: {step.request}: {answer}"
        assert answer.code == step.code, where
        for key, value in _filled(step.expected, replacement).items():
            found = _value(answer, key)
            holds = value in str(found) if isinstance(value, Part) else found == value
            assert holds, f"{key} is {found!r}, not {value!r}; {where}"
    return answers


def _path(api: Api, path: str) -> str:
    if path.startswith("/"):
        return path
    resource, _, rest = path.partition("/")
    return "/".join(filter(None, (api.path(resource), rest)))


def _filled(value: Any, replacement: Callable[[re.Match[str]], str]) -> Any:
    """The value with all of its references replaced."""
    if isinstance(value, dict):
        return {
            _filled(key, replacement): _filled(field, replacement) for key, field in value.items()
        }
    if isinstance(value, list):
        return [_filled(item, replacement) for item in value]
    if not isinstance(value, str):
        return value
    return type(value)(_REFERENCE.sub(replacement, value))


def _value(answer: ApiResponse, key: str) -> Any:
    """What is at a dotted path of the body; ABSENT without it."""
    match key:
        case "text":
            return answer.text
        case "fields":
            return sorted({field for _, field in answer.causes})
        case "names":
            return [item["metadata"]["name"] for item in answer.body["items"]]
        case _:
            found: Any = answer.body
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
        return {
            normalised(key, api): _normalised_field(key, field, api)
            for key, field in value.items()
            if key not in _ADMITTED
        }
    if isinstance(value, list):
        return [normalised(item, api) for item in value]
    if isinstance(value, str):
        text = value.replace(api.unique, "id")
        return _TIME.sub("time", _UUID.sub("uid", text))
    return value


def _normalised_field(key: str, value: Any, api: Api) -> Any:
    if not value:
        return value
    if key in _OF_A_SERVER:
        return key
    if key == "managedFields":  # ordered by whole seconds, so by when the requests came
        value = sorted(value, key=_writer)
    elif key == "conditions":  # a real server puts new ones first
        value = sorted(value, key=itemgetter("type"))
    return normalised(value, api)


def compared(real: Any, embedded: Any, path: str = "") -> list[str]:
    """Where two responses differ, path by path."""
    pairs: list[Any]
    if isinstance(real, dict) and isinstance(embedded, dict):
        keys = sorted(real.keys() | embedded.keys())
        pairs = [(key, real.get(key, ABSENT), embedded.get(key, ABSENT)) for key in keys]
    elif _are_lists_of_one_length(real, embedded):
        pairs = list(zip(range(len(real)), real, embedded, strict=True))
    elif real == embedded:
        return []
    else:
        return [f"{path}: {real!r} != {embedded!r}"]
    differences = []
    for key, one, other in pairs:
        differences += compared(one, other, f"{path}.{key}")
    return differences


def _are_lists_of_one_length(one: Any, other: Any) -> bool:
    are_lists = isinstance(one, list) and isinstance(other, list)
    return are_lists and len(one) == len(other)
