"""`try` as a user runs it: files, markers of the cluster, exit codes, and nothing that writes."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.builders import marker_wire, pod_wire, policy_wire, probe_wire
from support.cases import cases
from support.kubeconfig import kubeconfig
from support.scripted_pod import ScriptedPod, exited, serving_pod, status
from support.shell import Ran, run
from support.wire import Json

IDLE = policy_wire("Succeeded", labels={"idle": "true"}, annotations={"example.com/cost": "-5"})
BUSY = policy_wire("Failed", labels={"busy": "true"})


def running(**more: Any) -> Json:
    wire = pod_wire("web-0", **more)
    wire["status"]["containerStatuses"] = [{"name": "main", "state": {"running": {}}}]
    return wire


async def try_it(
    folder: Path, arguments: str, file: Json | str | None = None, **more: Any
) -> tuple[Ran, ScriptedPod]:
    """Run `kruise-probe try ARGUMENTS` against a scripted API server; `file` becomes marker.yaml."""
    more.setdefault(
        "pod",
        running(labels={"app": "web", "busy": "true"}),
    )
    more.setdefault("execute", exited(0, b"full\x1b[2J\n"))
    if file is not None:
        text = file if isinstance(file, str) else yaml.safe_dump(file)
        (folder / "marker.yaml").write_text(text)
    async with serving_pod(ScriptedPod(**more)) as pod:
        path = folder / "config"
        kubeconfig(
            path,
            cluster={"server": pod.url},
            user={},
            context={},
        )
        ran = await run(f"kruise-probe try {arguments}", kubeconfig=path, folder=folder)
        return ran, pod


def with_policies(name: str = "web", **more: Any) -> Json:
    return marker_wire(
        name,
        probes=[probe_wire(policies=[IDLE, BUSY])],
        **more,
    )


async def test_output_has_state_message_and_marks_of_each_probe(tmp_path: Path) -> None:
    ran, _ = await try_it(tmp_path, "web-0", markers=[with_policies()])
    assert (ran.code, ran.err) == (0, "")
    first, probe, *fields = ran.out.splitlines()
    assert first == "default/web-0 on node-1: 1 of 1 probe succeeded"
    assert probe.startswith("  healthy  Succeeded in 0.")
    assert fields == [
        "    condition    example.com/healthy=True",
        "    labels       idle=true, busy-",
        "    annotations  example.com/cost=-5",
        "    message      full",
    ]


async def test_json_has_the_marks_and_null_for_removed_ones(tmp_path: Path) -> None:
    ran, _ = await try_it(tmp_path, "pod/web-0 ppm/web -o json", markers=[with_policies()])
    (attempt,) = json.loads(ran.out)["attempts"]
    assert attempt.pop("durationSeconds") > 0
    assert attempt == {
        "marker": "web",
        "probe": "healthy",
        "containerName": "main",
        "check": "exec true",
        "state": "Succeeded",
        "message": "full",
        "podConditionType": "example.com/healthy",
        "conditionStatus": "True",
        "labels": {"idle": "true", "busy": None},
        "annotations": {"example.com/cost": "-5"},
        "remedy": "",
        "notes": [],
    }


async def test_requests_only_read_and_open_streams(tmp_path: Path) -> None:
    _, pod = await try_it(tmp_path, "web-0 --as jane --as-group ops", markers=[with_policies()])
    paths = [request.path.rpartition("/")[2] for request in pod.requests]
    assert paths == ["podprobemarkers", "web-0", "exec"]
    for request in pod.requests:
        assert request.method == "GET"
        assert request.headers.get("Impersonate-User") == "jane"
        assert request.headers.get("Impersonate-Group") == "ops"


FORBIDDEN = {"exec": (403, status(403, "Forbidden", "no"))}


@cases(
    "responses state",
    failed=({"execute": exited(1)}, "Failed"),
    unknown=({"execute": None, "refusals": FORBIDDEN}, "Unknown"),
)
async def test_exit_code_is_1_if_a_probe_does_not_succeed(
    tmp_path: Path, responses: Json, state: str
) -> None:
    ran, _ = await try_it(
        tmp_path,
        "web-0",
        markers=[with_policies()],
        **responses,
    )
    assert ran.code == 1
    assert state in ran.out


async def test_file_is_tried_as_if_it_were_applied(tmp_path: Path) -> None:
    older = marker_wire(
        "older",
        probes=[probe_wire("mine", policies=[IDLE], condition="")],
    )
    file = with_policies("newer")
    del file["metadata"]["namespace"]
    ran, _ = await try_it(
        tmp_path,
        "web-0 -f marker.yaml",
        file,
        markers=[older],
    )
    assert ran.code == 0
    assert "note         label 'idle' of probe 'healthy' belongs to probe 'mine'" in ran.out
    assert "-> write another condition type or key in one of the two probes" in ran.out
    assert "healthy=True" in ran.out
    assert "busy-" in ran.out
    assert "idle=" not in ran.out


async def test_file_replaces_the_marker_of_the_same_name(tmp_path: Path) -> None:
    stored = marker_wire(probes=[probe_wire("stored")])
    ran, _ = await try_it(
        tmp_path,
        "web-0 -f - < marker.yaml",
        with_policies(),
        markers=[stored],
    )
    assert ran.code == 0
    assert "stored" not in ran.out


async def test_one_marker_of_a_stream_of_json_is_tried(tmp_path: Path) -> None:
    emoji = with_policies("web")
    emoji["metadata"]["annotations"] = {"about": "😀"}
    stream = f"{json.dumps(with_policies('other'))}\n{json.dumps(emoji)}\n"

    ran, _ = await try_it(tmp_path, "web-0 web -f - < marker.yaml", stream)

    assert (ran.code, ran.err) == (0, "")
    assert "healthy=True" in ran.out


@pytest.mark.parametrize(
    ("code", "note"), [(403, "no podprobemarkers here"), (404, "the CRDs are not installed")]
)
async def test_file_needs_no_permission_for_markers_and_no_crds(
    tmp_path: Path, code: int, note: str
) -> None:
    refused = {"podprobemarkers": (code, status(code, "", "no podprobemarkers here"))}
    ran, _ = await try_it(
        tmp_path,
        "web-0 -f marker.yaml",
        with_policies(),
        refusals=refused,
    )
    assert ran.code == 0
    assert f"note: {note}; unknown: whether other markers own" in ran.out


PROBE_WITH_HOST = probe_wire(handler={"httpGet": {"port": 80, "host": "example.com"}})
WRONG_TYPE = with_policies()
WRONG_TYPE["spec"]["probes"] = 3
FILE = "web-0 -f marker.yaml"


@cases(
    "arguments file code error",
    no_pod=("", None, 2, "Missing argument 'POD'"),
    another_kind=("deployment/web", None, 2, "try takes a pod"),
    no_file=(
        "web-0 -f missing.yaml",
        None,
        1,
        "missing.yaml:1:1: the file cannot be read: No such file",
    ),
    no_yaml=(FILE, "a: [", 1, "marker.yaml:1:5: "),
    no_marker=(FILE, "a: b", 1, "there is no PodProbeMarker"),
    another_name=(
        "web-0 wbe -f marker.yaml",
        with_policies(),
        1,
        "no PodProbeMarker wbe. Did you mean 'web'?",
    ),
    several_markers=(
        FILE,
        yaml.safe_dump_all([with_policies("a"), with_policies("b")]),
        1,
        "several PodProbeMarkers; name one of a, b",
    ),
    host_is_set=(
        FILE,
        marker_wire(probes=[PROBE_WITH_HOST]),
        1,
        "spec.probes[0].probe.httpGet.host: Forbidden: may not be set",
    ),
    wrong_type=(FILE, WRONG_TYPE, 1, "spec.probes: must be a list, but is the number 3"),
    another_namespace=(
        f"{FILE} -n games",
        with_policies(),
        2,
        "in namespace default, and -n is games",
    ),
    no_such_pod=("wbe-0", None, 1, "pod default/wbe-0 does not exist. Did you mean 'web-0'?"),
    not_selected=("web-0", None, 1, "no PodProbeMarker selects pod default/web-0"),
    no_such_marker=("web-0 web", None, 1, "PodProbeMarker default/web does not exist"),
    file_does_not_select=(
        FILE,
        with_policies(selector={"matchLabels": {"app": "api"}}),
        1,
        "does not select pod default/web-0: ",
    ),
)
async def test_what_cannot_be_tried_is_one_sentence(
    tmp_path: Path, arguments: str, file: Json | str | None, code: int, error: str
) -> None:
    ran, _ = await try_it(tmp_path, arguments, file)
    assert (ran.code, ran.out) == (code, "")
    assert error in ran.err
    assert len(ran.err.splitlines()) == 1
