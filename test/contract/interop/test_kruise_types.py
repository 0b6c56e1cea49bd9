"""What we write is read by a Go program with the fields that Kruise's types have, and Kubernetes' own types inside.

Kruise's types are declared there by the facts of their schema: its module is not used. Objects come from the real
manager and the real daemon on the playground.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from support.hollow import marker_object
from support.kruise_corpus import CORPUS, corpus, written
from support.playground import ControlledPlayground
from support.target import Target, condition, marker_path
from support.wire import Json, typed

from kruise_probe.api.names import SERVERLESS_PROBES_ANNOTATION
from kruise_probe.api.resources import MARKERS
from kruise_probe.webhook.admission import AdmissionRequest, annotate_pod

HERE = Path(__file__).parent
BUILD_SECONDS = 600
NAMESPACE = "default"
pytestmark = [pytest.mark.timeout(BUILD_SECONDS), pytest.mark.asyncio(loop_scope="module")]
"""The first test here waits for the build."""

IDLE = "game.kruise.io/idle"
WEB = "game.kruise.io/web"
OURS_IN_A_REPORT = {
    "spec.podProbes[].probes[].probe.grpc.mode",
    "status.lastProbeTime",
    "status.pods",
    "status.podProbeStatuses[].probeStates[].probeHash",
}
OURS_IN_A_MARKER = {
    "spec.probes[].probe.grpc.mode",
    *(f"status.{each}" for each in ("succeeded", "failed", "unknown", "nodesBehind", "conditions")),
}
"""What our definitions add to Kruise's, all of it; `mode` is Kubernetes' own addition of a later version."""


class Go:
    """The program."""

    def __init__(self, program: Path) -> None:
        self._program = program

    def record(self) -> bytes:
        return subprocess.run([self._program, "record"], capture_output=True, check=True).stdout

    def check(self, kind: str, objects: list[Any]) -> list[Json]:
        lines = "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in objects)
        answer = subprocess.run(
            [self._program, "check", kind], input=lines.encode(), capture_output=True, check=True
        )
        verdicts = [json.loads(line) for line in answer.stdout.splitlines()]
        assert len(verdicts) == len(objects)
        return verdicts


@pytest.fixture(scope="module")
def go(tmp_path_factory: pytest.TempPathFactory) -> Go:
    if not shutil.which("go"):
        pytest.skip("what Go makes of our objects is asked of a Go program, and there is no Go")
    program = tmp_path_factory.mktemp("interop") / "kruise"
    build = ["go", "build", "-trimpath", "-buildvcs=false", "-o", str(program), "."]
    static = os.environ | {"CGO_ENABLED": "0"}
    subprocess.run(build, cwd=HERE / "kruise", check=True, timeout=BUILD_SECONDS, env=static)
    return Go(program)


def names_of(extra: list[str]) -> set[str]:
    """The paths in `unknown field "a[0].b"`, without numbers."""
    found = [re.fullmatch(r'unknown field "(.*)"', each) for each in extra]
    assert all(found), extra
    return {re.sub(r"\[\d+\]", "[]", each[1]) for each in found if each}


def bare(value: Any, without: set[str], path: str = "") -> Any:
    """Without these fields, and without what Go leaves out or fills in: null, empty, zero."""
    if isinstance(value, dict):
        fields = {
            key: bare(each, without, f"{path}.{key}".lstrip("."))
            for key, each in value.items()
            if f"{path}.{key}".lstrip(".") not in without
        }
        return {key: each for key, each in fields.items() if each not in (None, {}, [], 0, "")}
    if isinstance(value, list):
        return [bare(each, without, f"{path}[]") for each in value]
    return value


def probe(name: str, handler: Json, **more: Any) -> Json:
    return {
        "name": name,
        "containerName": "main",
        "probe": {"periodSeconds": 1, **handler},
        **more,
    }


PROBES = [
    probe(
        "idle",
        {"exec": {"command": ["sh", "-c", "printf 'ä <b> & \\\\ \\t'; echo; echo more; cat ok"]}},
        podConditionType=IDLE,
        markerPolicy=[
            {"state": "Succeeded", "labels": {"idle": "true"}, "annotations": {"cost": "-10"}},
            {"state": "Failed", "annotations": {"cost": "10"}},
        ],
    ),
    probe("web", {"httpGet": {"port": "http"}, "timeoutSeconds": 1}, podConditionType=WEB),
    probe("door", {"tcpSocket": {"port": 1}}, podConditionType="game.kruise.io/door"),
    probe(
        "rpc", {"grpc": {"port": 1, "mode": "TLS"}}, podConditionType="game.kruise.io/rpc"
    ),
]  # fmt: skip
POD = typed(
    "Pod",
    metadata={"name": "web", "labels": {"app": "web"}},
    spec={
        "readinessGates": [{"conditionType": WEB}],
        "containers": [
            {
                "name": "main",
                "image": "none",
                "command": ["sh", "-c", "touch ok; while :; do sleep 1; done"],
                "ports": [{"name": "http", "containerPort": 1}],
            }
        ],
    },
)


class Seen:
    """Every state of every object, of a run in which a marker comes, is edited, a result flips, and it goes."""

    def __init__(self, api: Target) -> None:
        self.markers = _all(api.markers.history)
        self.reports = _all(api.node_pod_probes.history)
        self.pods = _all(api.pods.history)
        self.events = _all(api.events.history)


def _all(history: dict[Any, list[Json]]) -> list[Json]:
    return [each for states in history.values() for each in states]


async def _live_through(playground: ControlledPlayground) -> None:
    api = playground.api
    await api.create(f"/api/v1/namespaces/{NAMESPACE}/pods", POD)
    await api.create(marker_path("", NAMESPACE).rstrip("/"), marker_object(*PROBES, name="game"))

    async def shows(kind: str, status: str) -> None:
        await api.pods.until(
            f"{kind} is {status}",
            lambda pod: condition(pod, kind).get("status") == status,
            name="web",
            namespace=NAMESPACE,
        )

    await shows(IDLE, "True")
    await shows(WEB, "False")
    await shows("game.kruise.io/rpc", "False")
    (playground.container(NAMESPACE, "web", "main").folder / "ok").unlink()
    await shows(IDLE, "False")
    await api.markers.until(
        "counts",
        lambda marker: marker.get("status", {}).get("failed") == 1,
        name="game",
        namespace=NAMESPACE,
    )
    await api.delete(marker_path("game", NAMESPACE))
    await api.markers.until_gone("game", NAMESPACE)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def seen(go: Go) -> AsyncIterator[Seen]:
    """`go` first: without it there is nothing to run this for."""
    async with ControlledPlayground() as playground:
        await _live_through(playground)
        yield Seen(playground.api)


async def test_the_corpus_is_what_the_program_makes(go: Go) -> None:
    """Whoever changes either runs `go run . record` there, into this file."""
    assert go.record() == CORPUS.read_bytes()


@pytest.mark.parametrize("kind", ["NodePodProbe", "PodProbeMarker", "Pod"])
async def test_the_corpus_holds_nothing_that_go_does_not_know(go: Go, kind: str) -> None:
    objects = [each.object for each in corpus().values() if each.kind == kind]
    assert objects
    for wire, verdict in zip(objects, go.check(kind, objects), strict=True):
        assert (verdict["error"], verdict["extra"]) == ("", [])
        assert verdict["object"] == wire


async def test_go_reads_every_report_of_our_manager_and_daemon(go: Go, seen: Seen) -> None:
    extra = read_all(go, "NodePodProbe", seen.reports, OURS_IN_A_REPORT)
    assert extra == OURS_IN_A_REPORT


async def test_go_reads_every_marker_that_our_manager_wrote_to(go: Go, seen: Seen) -> None:
    extra = read_all(go, "PodProbeMarker", seen.markers, OURS_IN_A_MARKER)
    assert extra == OURS_IN_A_MARKER


def read_all(go: Go, kind: str, objects: list[Json], ours: set[str]) -> set[str]:
    """What Go did not know in any of them; all else it has to know, and keep."""
    assert objects
    extra: set[str] = set()
    for wire, verdict in zip(objects, go.check(kind, objects), strict=True):
        assert verdict["error"] == ""
        extra |= names_of(verdict["extra"])
        for part in ("spec", "status"):
            kept = bare(verdict["object"].get(part), set(), part)
            assert kept == bare(wire.get(part) or {}, ours, part)
    return extra


async def test_go_reads_every_pod_that_our_manager_marked(go: Go, seen: Seen) -> None:
    """Nothing on them that core/v1 does not have; conditions and marks as they stand there."""
    assert any(IDLE in json.dumps(each["status"]) for each in seen.pods)
    for wire, verdict in zip(seen.pods, go.check("Pod", seen.pods), strict=True):
        assert (verdict["error"], verdict["extra"]) == ("", [])
        read = verdict["object"]
        for each in ("labels", "annotations"):
            assert read["metadata"].get(each) == wire["metadata"].get(each)
        kept, there = (each["status"].get("conditions") for each in (read, wire))
        assert bare(kept, set()) == bare(there, set())


async def test_go_reads_every_event_of_our_daemon(go: Go, seen: Seen) -> None:
    events = [each for each in seen.events if each["reason"].startswith("KruiseProbe")]
    assert events
    for verdict in go.check("Event", events):
        assert (verdict["error"], verdict["extra"]) == ("", [])
        assert verdict["object"]["source"]["component"] == "kruise-daemon-podprobe"


async def test_go_reads_what_our_webhook_tells_a_provider(go: Go) -> None:
    pod = written("pod-annotated")
    theirs = json.loads(pod["metadata"].pop("annotations")[SERVERLESS_PROBES_ANNOTATION])
    markers = [
        MARKERS.decode(msgspec.json.encode(written(each))) for each in ("marker", "marker-late")
    ]
    request = AdmissionRequest("u", "CREATE", object=msgspec.Raw(msgspec.json.encode(pod)))
    (addition,) = annotate_pod(request, markers).patch
    (verdict,) = go.check("podprobe", [json.loads(addition["value"][SERVERLESS_PROBES_ANNOTATION])])

    assert (verdict["error"], verdict["extra"]) == ("", [])
    assert verdict["object"] == theirs


async def test_go_tells_names_apart_by_case_and_names_what_it_does_not_know(go: Go) -> None:
    """Else the tests here would show nothing."""
    wire = written("report-asked")
    for entry in wire["spec"]["podProbes"]:
        entry["ip"] = entry.pop("IP")
    (verdict,) = go.check("NodePodProbe", [wire])

    assert names_of(verdict["extra"]) == {"spec.podProbes[].ip"}
    wire["spec"]["podProbes"] = {}
    (verdict,) = go.check("NodePodProbe", [wire])
    assert "cannot unmarshal" in verdict["error"]
