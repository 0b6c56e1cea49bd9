"""What a list of pods costs: CPU to decode, memory to keep. Each decoder runs in a process of its own."""

import asyncio
import gc
import importlib.util
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from benchmarks import hollow, machine, procfs
from benchmarks.reporting import Row, emit, interpreter

PAGE = 500


def stored_pod(number: int, nodes: int) -> dict[str, Any]:
    """A pod as the API server stores it: with what it recorded of three managers."""
    pod = hollow.pod_object(number, nodes)
    pod["metadata"] |= {
        "uid": f"6d1c0d3e-0000-4000-8000-{number:012d}",
        "resourceVersion": str(1_000_000 + number),
        "creationTimestamp": hollow.STAMP,
        "managedFields": [
            _recorded("kube-controller-manager", "", _paths(pod["spec"])),
            _recorded("kubelet", "status", {"f:status": _paths(pod["status"])}),
            _recorded("kruise-probe-manager", "status", _OURS),
        ],
    }
    pod["metadata"]["labels"] = pod["metadata"]["labels"] | {hollow.LABEL: "true"}
    pod["metadata"]["annotations"][hollow.ANNOTATION] = "-10"
    pod["status"]["conditions"] += [
        {
            "type": hollow.condition_type(probe),
            "status": "True",
            "lastProbeTime": hollow.STAMP,
            "lastTransitionTime": hollow.STAMP,
            "message": f"{probe}: succeeded",
        }
        for probe in hollow.PROBES
    ]
    return pod


_OURS = {
    "f:metadata": {
        "f:annotations": {f"f:{hollow.ANNOTATION}": {}},
        "f:labels": {f"f:{hollow.LABEL}": {}},
    },
    "f:status": {
        "f:conditions": {
            f'k:{{"type":"{hollow.condition_type(probe)}"}}': {
                ".": {},
                "f:lastProbeTime": {},
                "f:lastTransitionTime": {},
                "f:message": {},
                "f:status": {},
                "f:type": {},
            }
            for probe in hollow.PROBES
        }
    },
}


def _recorded(manager: str, subresource: str, fields: dict[str, Any]) -> dict[str, Any]:
    entry = {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": hollow.STAMP,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    return entry | ({"subresource": subresource} if subresource else {})


def _paths(value: Any) -> dict[str, Any]:
    """The leaves of an object in the notation of managedFields, roughly."""
    if isinstance(value, dict):
        return {f"f:{key}": _paths(item) for key, item in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        key = next((k for k in ("type", "name") if k in value[0]), None)
        if key:
            return {f'k:{{"{key}":"{each[key]}"}}': {".": {}} | _paths(each) for each in value}
    return {}


def _ours() -> Callable[[bytes], list[Any]]:
    from kruise_probe.api.resources import PODS
    from kruise_probe.cli.process import tune_garbage_collector

    tune_garbage_collector()
    return lambda page: PODS.decode_list(page).items


def _official_models() -> Callable[[bytes], list[Any]]:
    from kubernetes.client import ApiClient, V1PodList

    client = ApiClient()

    class Answer:
        def __init__(self, data: bytes) -> None:
            self.data = data.decode()

    def decode(page: bytes) -> list[Any]:
        try:
            found = client.deserialize(Answer(page), V1PodList)
        except TypeError:  # newer releases ask for the text and its type
            found = client.deserialize(page.decode(), V1PodList, "application/json")
        items: list[Any] = found.items
        return items

    return decode


DECODERS: dict[str, Callable[[], Callable[[bytes], list[Any]]]] = {
    "kruise-probe": _ours,
    "msgspec into dicts": lambda: lambda page: msgspec.json.decode(page)["items"],
    "json into dicts": lambda: lambda page: json.loads(page)["items"],
    "official models": _official_models,
}


def decode_alone(name: str, file: Path) -> Row:
    """In this process: the figures of one decoder, over pages of `PAGE` pods, one per line."""
    decode = DECODERS[name]()
    pages = file.read_bytes().splitlines()
    decode(pages[0])
    gc.collect()
    before, kept = procfs.resident_mb(os.getpid()), []
    started_at = time.process_time()
    for page in pages:
        kept += decode(page)
    spent = time.process_time() - started_at
    gc.collect()
    return {
        "us_per_pod": round(spent / len(kept) * 1e6, 1),
        "kb_per_pod": round((procfs.resident_mb(os.getpid()) - before) * 1024 / len(kept), 2),
    }


async def measure(pods: int, *, peers: bool) -> list[Row]:
    rows: list[Row] = [machine.speed()]
    emit(rows[0])
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pages"
        size = _write_pages(file, pods)
        for name in DECODERS if peers else ["kruise-probe"]:
            if name == "official models" and importlib.util.find_spec("kubernetes") is None:
                continue
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "benchmarks.decode",
                name,
                str(file),
                stdout=asyncio.subprocess.PIPE,
            )
            output, _ = await process.communicate()
            row = {
                "benchmark": "decode",
                "label": name,
                "pods": pods,
                "bytes_per_pod": size,
                **msgspec.json.decode(output),
                "python": interpreter(),
            }
            rows.append(row)
            emit(row)
    return rows


def _write_pages(file: Path, pods: int) -> int:
    """One page of a list per line; returns the mean size of a pod."""
    with file.open("wb") as target:
        for start in range(0, pods, PAGE):
            items = [stored_pod(n, 500) for n in range(start, min(start + PAGE, pods))]
            target.write(
                msgspec.json.encode({"metadata": {"resourceVersion": "1"}, "items": items})
            )
            target.write(b"\n")
    return file.stat().st_size // pods


if __name__ == "__main__":
    print(json.dumps(decode_alone(sys.argv[1], Path(sys.argv[2]))))
