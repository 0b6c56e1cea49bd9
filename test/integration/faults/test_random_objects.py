"""Random objects of the right types stop no process and delay no other object.

The CRDs are ours without rules and bounds, so the API server accepts any value of the right type.
"""

import copy
import secrets
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from support.embedded_cluster import EmbeddedCluster, embedded_cluster
from support.fake_runtime import ScriptedRuntime, succeed
from support.hollow import CONDITION, node_name, pod_name, probe
from support.kruise_crds import kruise_crds
from support.target import condition, node_pod_probe_path, results_of

from kruise_probe.api.errors import ApiError
from kruise_probe.manifests.crds import all_crds, marker_crd

Json = dict[str, Any]

BATCHES = 5
EACH = 15
BOUNDS = frozenset(
    {
        "x-kubernetes-validations",
        *("maxLength", "minLength", "maxItems", "minItems", "maxProperties", "pattern"),
        *("minimum", "maximum", "enum"),
    }
)
TEXTS = (
    *("", "#", "a#b", "way#", "#p", "Ready", "/", "//", "a/b/c", "..", "%00", "null", "{{"),
    *("main", "healthy", "web", "Succeeded", "Failed", "In", "HTTP", "https", "http", "80", "-1"),
    *("$(HOME)", "a b", "A=B", "127.0.0.1", "localhost", "::1", "[::1]:80", "ключ", "\ud7ff"),
    *("Host", "Content-Length", "Transfer-Encoding", " ", "\n", "\x00", "\x7f"),
    *("x" * 300, "é" * 200, "\U0001f600" * 80),
)
INTEGERS = (0, 1, 2, -1, 3, 80, 65_535, 65_536, 2**31 - 1, -(2**31))
LONG_INTEGERS = (*INTEGERS, 2**31, 2**63 - 1, -(2**63))
TIMES = (
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
    "2026-01-01T00:00:00Z",
    "1969-12-31T23:59:59Z",
)
LOOPBACK = ("", "127.99.0.1", "127.0.0.1", "::1", "no address", "127.99.0.1:80")
"""A random probe may connect to loopback only."""


def without_rules(crd: Json) -> Json:
    """The CRD with its types only, like Kruise's."""

    def strip(schema: Any) -> Any:
        if isinstance(schema, list):
            return [strip(each) for each in schema]
        if isinstance(schema, dict):
            return {key: strip(value) for key, value in schema.items() if key not in BOUNDS}
        return schema

    bare = copy.deepcopy(crd)
    for version in bare["spec"]["versions"]:
        version["schema"] = strip(version["schema"])
    return bare


def random_value(schema: Json, random: Random) -> Any:
    """A value of the schema's type."""
    if schema.get("x-kubernetes-int-or-string"):
        return random.choice([random.choice(INTEGERS), random.choice(TEXTS)])
    match schema.get("type"):
        case "object" if "properties" in schema:
            return _record(schema, random)
        case "object":
            values = schema.get("additionalProperties") or {"type": "string"}
            keys = random.sample(TEXTS, random.randrange(4))
            return {key: random_value(values, random) for key in keys}
        case "array":
            return [random_value(schema["items"], random) for _ in range(random.randrange(4))]
        case "integer":
            wide = schema.get("format") == "int64"
            return random.choice(LONG_INTEGERS if wide else INTEGERS)
        case "boolean":
            return random.choice([True, False])
        case "string" if schema.get("format") == "date-time":
            return random.choice(TIMES)
        case _:
            return random.choice(TEXTS)


def _record(schema: Json, random: Random) -> Json:
    required = set(schema.get("required", ()))
    made = {}
    for name, each in schema["properties"].items():
        if name in required or random.random() < 0.5:
            made[name] = random.choice(LOOPBACK) if name == "IP" else random_value(each, random)
    return made


def _spec_of(crd: Json, *path: str) -> Json:
    found = without_rules(crd)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for name in path:
        found = found["properties"][name]
    return dict(found)


MARKER_SPEC = _spec_of(marker_crd(), "spec")
_CLOSED = kruise_crds()[1]
ENTRY = _spec_of(_CLOSED, "spec", "podProbes")["items"]
POD_STATUS = _spec_of(_CLOSED, "status", "podProbeStatuses")["items"]


def random_marker(name: str, random: Random, *, app: str) -> Json:
    """A marker that selects the pods `app` in seven of ten cases."""
    spec = random_value(MARKER_SPEC, random)
    if random.random() < 0.7:
        spec["selector"] = {"matchLabels": {"app": app}}
    spec["probes"] = [
        random_value(MARKER_SPEC["properties"]["probes"]["items"], random) for _ in range(3)
    ]
    return {
        "apiVersion": "apps.kruise.io/v1alpha1",
        "kind": "PodProbeMarker",
        "metadata": {"name": name},
        "spec": spec,
    }


MALFORMED_PROBES: tuple[Json, ...] = ({"exec": 5}, {"periodSeconds": "1"}, {"httpGet": []})
"""The schema of a NodePodProbe's `probe` is open."""


def random_entry(random: Random, *, uid: str) -> Json:
    """An entry of NodePodProbe.spec; in most cases with that uid and the container `main`."""
    entry: Json = random_value(ENTRY, random)
    entry["IP"] = random.choice(LOOPBACK)
    if random.random() < 0.7:
        entry["uid"] = uid
    for each in entry.get("probes") or ():
        if random.random() < 0.7:
            each["containerName"] = "main"
        if random.random() < 0.2:
            each["probe"] = random.choice(MALFORMED_PROBES)
    return entry


def random_results(random: Random, *, uid: str, marker: str) -> Json:
    """An entry of NodePodProbe.status."""
    found: Json = random_value(POD_STATUS, random)
    if random.random() < 0.7:
        found["uid"] = uid
    for each in found.get("probeStates") or ():
        if random.random() < 0.5:
            each["name"] = f"{marker}#{random.choice(TEXTS)}"
    return found


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[EmbeddedCluster]:
    """An API server that checks types and no rules."""
    crds = [without_rules(each) for each in all_crds()]
    async with embedded_cluster(tmp_path, crds=crds, validators={}) as cluster:
        yield cluster


@pytest.fixture
def random() -> Random:
    seed = secrets.randbelow(2**32)
    sys.stdout.write(f"seed {seed}\n")
    return Random(seed)


async def test_d12_random_markers_and_results_stop_no_manager_and_delay_no_other(
    cluster: EmbeddedCluster, random: Random
) -> None:
    api, hollow = cluster.api, cluster.hollow
    await hollow.add_nodes(2)
    await hollow.add_pods(4, nodes=2)
    uid = api.pods.current(pod_name(0), "default")["metadata"]["uid"]
    accepted = []
    async with cluster.manager() as manager:
        await hollow.add_marker(probe(), name="good")
        daemons = cluster.daemons
        for batch in range(BATCHES):
            for number in range(EACH):
                marker = random_marker(f"random-{batch}-{number}", random, app="web")
                try:
                    await api.create(_markers(), marker)
                    accepted.append(marker["metadata"]["name"])
                except ApiError:
                    continue
            status = ("True", "Succeeded") if batch % 2 else ("False", "Failed")
            daemons.result_of = partial(_result, status[1])
            for number in range(2):
                report = await api.node_pod_probes.until(
                    "asks for the good one", _asks_for_good, name=node_name(number)
                )
                results = daemons.status_of(report)["podProbeStatuses"]
                others = [random_results(random, uid=uid, marker="good") for _ in range(EACH)]
                path = f"{node_pod_probe_path(node_name(number))}/status"
                for entries in ("malformed", [1], [*others, *results]):
                    await api.merge(path, {"status": {"podProbeStatuses": entries}})
            await api.pods.wait(
                f"batch {batch}: the good marker works",
                lambda status=status: all(
                    condition(each, CONDITION).get("status") == status[0] for each in api.pods.all()
                ),
            )
        assert manager.running, manager.tail()
        sys.stdout.write(f"{len(accepted)} accepted\n")
        assert len(accepted) > EACH, "most random objects have the right types"
        for name in [*accepted, "good"]:
            await hollow.remove_marker(name)
        for name in [*accepted, "good"]:
            await api.markers.until_gone(name, "default")
        assert manager.running, manager.tail()
        assert not manager.has_logged("Traceback"), manager.tail()


def _result(state: str, _pod: str, _probe: str) -> tuple[str, str]:
    return state, ""


def _markers() -> str:
    return "/apis/apps.kruise.io/v1alpha1/namespaces/default/podprobemarkers"


def _asks_for_good(report: Json) -> bool:
    entries = report["spec"].get("podProbes") or ()
    return any(each["name"] == "good#healthy" for entry in entries for each in entry["probes"])


async def test_d12_random_entries_stop_no_daemon_and_delay_no_other_probe(
    cluster: EmbeddedCluster, random: Random
) -> None:
    api = cluster.api
    node = node_name(0)
    scripted = ScriptedRuntime()
    scripted.start("uid-1", "main", ip="127.99.0.1")
    path = node_pod_probe_path(node)
    await cluster.hollow.add_node_pod_probe(node)
    async with cluster.daemon(node, scripted) as daemon:
        await daemon.ready()
        for batch in range(BATCHES):
            word = f"batch {batch}"
            scripted.on_exec("print", word, script=succeed(word.encode()))
            good = {
                **{"name": "pod", "namespace": "default", "uid": "uid-1", "IP": ""},
                "probes": [_printing(word)],
            }
            others = [random_entry(random, uid="uid-1") for _ in range(EACH)]
            await api.merge(f"{path}/status", {"status": {"podProbeStatuses": [{"name": 1}]}})
            await api.merge(path, {"spec": {"podProbes": [*others, good]}})
            await api.node_pod_probes.until(
                word,
                lambda found, word=word: _message(found) == word,
                name=node,
            )
        assert daemon.running, daemon.tail()
        assert not daemon.has_logged("Traceback"), daemon.tail()


def _printing(word: str) -> Json:
    return {
        "name": "good#word",
        "containerName": "main",
        "probe": {"exec": {"command": ["print", word]}},
    }


def _message(node_pod_probe: Json) -> str:
    return results_of(node_pod_probe).get(("uid-1", "good#word"), ("", ""))[1]
