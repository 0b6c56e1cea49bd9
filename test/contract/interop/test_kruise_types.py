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
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from support.hollow import marker_object
from support.kruise_corpus import CORPUS, corpus, written
from support.playground import ControlledPlayground
from support.target import Target, WatchedKind, marker_path, status_of
from support.wire import Json, typed

from kruise_probe.api.names import SERVERLESS_PROBES_ANNOTATION
from kruise_probe.api.resources import MARKERS
from kruise_probe.webhook.admission import AdmissionRequest, annotate_pod

HERE = Path(__file__).parent
BUILD_SECONDS = 600
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
    "status.succeeded",
    "status.failed",
    "status.unknown",
    "status.nodesBehind",
    "status.conditions",
}
"""What our definitions add to Kruise's, all of it; `mode` is Kubernetes' own addition of a later version."""


class Go:
    """The program."""

    def __init__(self, program: Path) -> None:
        self._program = program

    def record(self) -> bytes:
        return subprocess.run([self._program, "record"], capture_output=True, check=True).stdout

    def check(self, kind: str, objects: list[Any]) -> list[Json]:
        """What the program reads of each object; the list may not be empty."""
        assert objects
        lines = [json.dumps(wire, ensure_ascii=False) + "\n" for wire in objects]
        answer = subprocess.run(
            [self._program, "check", kind],
            input="".join(lines).encode(),
            capture_output=True,
            check=True,
        )
        verdicts = [json.loads(line) for line in answer.stdout.splitlines()]
        assert len(verdicts) == len(objects)
        return verdicts

    def read(self, kind: str, objects: list[Any]) -> list[Json]:
        """The objects as the program has read them: it knows all of their fields."""
        verdicts = self.check(kind, objects)
        for verdict in verdicts:
            assert (verdict["error"], verdict["extra"]) == ("", [])
        return [verdict["object"] for verdict in verdicts]


@pytest.fixture(scope="module")
def go(tmp_path_factory: pytest.TempPathFactory) -> Go:
    if not shutil.which("go"):
        pytest.skip("a Go program reads the objects, and Go is not installed")
    program = tmp_path_factory.mktemp("interop") / "kruise"
    build = ["go", "build", "-trimpath", "-buildvcs=false", "-o", str(program), "."]
    static = os.environ | {"CGO_ENABLED": "0"}
    subprocess.run(
        build,
        cwd=HERE / "kruise",
        check=True,
        timeout=BUILD_SECONDS,
        env=static,
    )
    return Go(program)


def names_of(extra: list[str]) -> set[str]:
    """The paths in `unknown field "a[0].b"`, without numbers."""
    names = set()
    for text in extra:
        found = re.fullmatch(r'unknown field "(.*)"', text)
        assert found, text
        names.add(re.sub(r"\[\d+\]", "[]", found[1]))
    return names


def bare(value: Any, without: set[str], path: str = "") -> Any:
    """Without these fields, and without what Go leaves out or fills in: null, empty, zero."""
    if isinstance(value, list):
        return [bare(item, without, f"{path}[]") for item in value]
    if not isinstance(value, dict):
        return value
    fields = {}
    for key, field in value.items():
        own_path = f"{path}.{key}".lstrip(".")
        kept = None if own_path in without else bare(field, without, own_path)
        if kept not in (None, {}, [], 0, ""):
            fields[key] = kept
    return fields


def probe(name: str, handler: Json, **more: Any) -> Json:
    return {
        "name": name,
        "containerName": "main",
        "probe": {"periodSeconds": 1, **handler},
        "podConditionType": f"game.kruise.io/{name}",
        **more,
    }


OUTPUT = "printf 'ä <b> & \\\\ \\t'; echo; echo more; cat ok"
PROBES = [
    probe(
        "idle",
        {"exec": {"command": ["sh", "-c", OUTPUT]}},
        markerPolicy=[
            {
                "state": "Succeeded",
                "labels": {"idle": "true"},
                "annotations": {"cost": "-10"},
            },
            {"state": "Failed", "annotations": {"cost": "10"}},
        ],
    ),
    probe("web", {"httpGet": {"port": "http"}, "timeoutSeconds": 1}),
    probe("door", {"tcpSocket": {"port": 1}}),
    probe("rpc", {"grpc": {"port": 1, "mode": "TLS"}}),
]
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


def states(kind: WatchedKind) -> list[Json]:
    """Every state of every object of a kind."""
    return list(chain.from_iterable(kind.history.values()))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def seen(go: Go) -> AsyncIterator[Target]:
    """A cluster in which a marker was created, a result has changed, and the marker was deleted.

    Requests `go` first, so that the cluster does not start without Go.
    """
    async with ControlledPlayground() as playground:
        api = playground.api
        await api.create("/api/v1/namespaces/default/pods", POD)
        marker = marker_object(*PROBES, name="game")
        await api.create(marker_path("").rstrip("/"), marker)

        async def shows(kind: str, status: str) -> None:
            await api.pods.until(
                f"{kind} is {status}",
                lambda pod: status_of(pod, kind) == status,
                name="web",
                namespace="default",
            )

        await shows(IDLE, "True")
        await shows(WEB, "False")
        await shows("game.kruise.io/rpc", "False")
        (playground.container("default", "web", "main").folder / "ok").unlink()
        await shows(IDLE, "False")
        await api.markers.until(
            "counts",
            lambda marker: marker.get("status", {}).get("failed") == 1,
            name="game",
            namespace="default",
        )
        await api.delete(marker_path("game"))
        await api.markers.until_gone("game", "default")
        yield api


async def test_the_corpus_is_what_the_program_makes(go: Go) -> None:
    """Whoever changes either runs `go run . record` there, into this file."""
    assert go.record() == CORPUS.read_bytes()


@pytest.mark.parametrize("kind", ["NodePodProbe", "PodProbeMarker", "Pod"])
async def test_the_corpus_holds_nothing_that_go_does_not_know(go: Go, kind: str) -> None:
    objects = [entry.object for entry in corpus().values() if entry.kind == kind]
    assert go.read(kind, objects) == objects


async def test_go_reads_every_report_of_our_manager_and_daemon(go: Go, seen: Target) -> None:
    assert_reads_all_but(OURS_IN_A_REPORT, go, "NodePodProbe", states(seen.node_pod_probes))


async def test_go_reads_every_marker_that_our_manager_wrote_to(go: Go, seen: Target) -> None:
    assert_reads_all_but(OURS_IN_A_MARKER, go, "PodProbeMarker", states(seen.markers))


def assert_reads_all_but(ours: set[str], go: Go, kind: str, objects: list[Json]) -> None:
    """Go does not know our fields, each of which is in an object; it knows and keeps all others."""
    extra: set[str] = set()
    for wire, verdict in zip(objects, go.check(kind, objects), strict=True):
        assert verdict["error"] == ""
        extra |= names_of(verdict["extra"])
        for part in ("spec", "status"):
            kept = bare(verdict["object"].get(part), set(), part)
            assert kept == bare(wire.get(part) or {}, ours, part)
    assert extra == ours


async def test_go_reads_every_pod_that_our_manager_marked(go: Go, seen: Target) -> None:
    """core/v1 has all of their fields, and conditions, labels and annotations are read as they are."""
    pods = states(seen.pods)
    assert any(IDLE in json.dumps(pod["status"]) for pod in pods)
    for wire, read in zip(pods, go.read("Pod", pods), strict=True):
        assert read["metadata"].get("labels") == wire["metadata"].get("labels")
        assert read["metadata"].get("annotations") == wire["metadata"].get("annotations")
        kept = bare(read["status"].get("conditions"), set())
        assert kept == bare(wire["status"].get("conditions"), set())


async def test_go_reads_every_event_of_our_daemon(go: Go, seen: Target) -> None:
    events = [event for event in states(seen.events) if event["reason"].startswith("KruiseProbe")]
    for event in go.read("Event", events):
        assert event["source"]["component"] == "kruise-daemon-podprobe"


async def test_go_reads_what_our_webhook_tells_a_provider(go: Go) -> None:
    pod = written("pod-annotated")
    theirs = json.loads(pod["metadata"].pop("annotations")[SERVERLESS_PROBES_ANNOTATION])
    markers = [
        MARKERS.decode(msgspec.json.encode(written(name))) for name in ("marker", "marker-late")
    ]
    request = AdmissionRequest(
        "u",
        "CREATE",
        object=msgspec.Raw(msgspec.json.encode(pod)),
    )
    (addition,) = annotate_pod(request, markers).patch
    ours = json.loads(addition["value"][SERVERLESS_PROBES_ANNOTATION])

    assert go.read("podprobe", [ours]) == [theirs]


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
