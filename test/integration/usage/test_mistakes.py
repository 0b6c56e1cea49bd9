"""A user's twelve usual mistakes: one `status` or `explain` names each of them, with a true cause and one remedy."""

from pathlib import Path

import yaml
from integration.usage_namespace import UsageNamespace
from support.cases import cases
from support.hollow import marker_object, probe
from support.programs import until
from support.shell import Ran, run
from support.wire import Json, typed

CONDITION = "example.com/checked"
WRITE_CRLF = r"printf '#!/bin/sh\r\nexit 0\r\n' > check.sh; chmod +x check.sh; exec sleep 1000"


def pod(*command: str, gate: str = "", paused: bool = False) -> Json:
    container = {
        "name": "main",
        "image": "none",
        "command": list(command or ("sleep", "1000")),
        "ports": [{"name": "game", "containerPort": 7000}],
    }
    return typed(
        "Pod",
        metadata={"name": "web", "labels": {"app": "web"}, "annotations": _pause(paused)},
        spec={
            "containers": [container],
            "readinessGates": [{"conditionType": gate}] if gate else [],
        },
    )


def marker(
    name: str = "marker", *, app: str = "web", container: str = "main", paused: bool = False,
    policies: tuple[Json, ...] = (), **handler: Json,
) -> Json:  # fmt: skip
    checked = probe(
        "checked",
        containerName=container,
        probe={"periodSeconds": 1, **(handler or {"exec": {"command": ["true"]}})},
        podConditionType=CONDITION,
        markerPolicy=list(policies),
    )
    made = marker_object(checked, name=name, app=app)
    return {**made, "metadata": {"name": name, "annotations": _pause(paused)}}


def script(text: str) -> Json:
    return {"command": ["sh", "-c", text]}


def _pause(paused: bool) -> dict[str, str]:
    return {"kruise-probe.io/paused": "true"} if paused else {}


SEVEN = {
    "state": "Succeeded",
    "labels": {"players": "0"},
    "fromMessage": [{"label": "players", "regex": "players: ([0-9]+)"}],
}

EXPLAIN, STATUS = "explain web", "status"


MISTAKES = {
    "selector": (
        [pod(), marker(app="wbe")],
        STATUS, ["NoPods", "closest is pod web", "did you mean 'web'?", "the selector requires app=wbe, but the pod has app=web", "write app=web in the file and run kubectl replace --force -f FILE", ":\n       kubectl get pods -n"],
    ),
    "container": (
        [pod(), marker(container="mian")],
        EXPLAIN, ["no container mian, only main. Did you mean 'main'? (ContainerNotFound)", "-> correct containerName"],
    ),
    "port-name": (
        [pod(), marker(tcpSocket={"port": "gme"})],
        EXPLAIN, ["no port named gme, only game. Did you mean 'game'? (PortNameUnknown)", "-> correct the port's name"],
    ),
    "port-without-listener": (
        [pod(), marker(tcpSocket={"port": 7999})],
        EXPLAIN, ["connect: connection refused;", "-> nothing listens on this port", "if something should, correct the port"],
    ),
    "port-without-listener-in-status": (
        [pod(), marker(tcpSocket={"port": 7999})],
        STATUS, ["hint: Failed  web (checked)", "nothing listens on this port"],
    ),
    "pipe": (
        [pod(), marker(exec=script("idel.sh | wc -l"))],
        STATUS, ["hint: Succeeded  web (checked)", "the exit code is that of wc, which is 0 also if idel.sh fails; write: out=$(idel.sh ...) || exit 1; echo"],
    ),
    "one-string": (
        [pod(), marker(exec={"command": ["cat mood; grep -q 'fine day' mood"]})],
        EXPLAIN, ["""run it in a shell: ["sh", "-c", "cat mood; grep -q 'fine day' mood"]"""],
    ),
    "program": (
        [pod(), marker(exec={"command": ["idel.sh"]})],
        EXPLAIN, ['"idel.sh": executable file not found', "(ExecImpossible)", "-> the container has no such program: correct its name"],
    ),
    "program-in-a-script": (
        [pod(), marker(exec=script("idel.sh --now"))],
        EXPLAIN, ["idel.sh: not found;", "-> the container has no such program: correct its name, or add it"],
    ),
    "crlf": (
        [pod("sh", "-c", WRITE_CRLF), marker(exec={"command": ["./check.sh"]})],
        EXPLAIN, ["exec ./check.sh: no such file", "-> the file exists, but not the interpreter", "CRLF line ends; write it with LF"],
    ),
    "crlf-in-a-script": (
        [pod("sh", "-c", WRITE_CRLF), marker(exec=script("./check.sh"))],
        EXPLAIN, ["./check.sh: not found;", "-> the container has no such file, or no interpreter", "CRLF line ends"],
    ),
    "slow-script": (
        [pod(), marker(exec=script("sleep 60"))],
        EXPLAIN, ["times out after 1 s", "make the command faster, or raise timeoutSeconds (default 1)"],
    ),
    "pattern": (
        [pod(), marker(exec=script("echo players: seven"), policies=(SEVEN,))],
        EXPLAIN, ["regex 'players: ([0-9]+)' finds no valid value in the message \"players: seven\" (ValueInvalid)", "-> correct regex"],
    ),
    "two-claims": (
        [pod(), marker("a"), marker("b")],
        EXPLAIN, ["belongs to probe 'checked' of PodProbeMarker", "(ClaimedByAnother)", "-> write another condition type or key in one of the two probes"],
    ),
    "paused-marker": (
        [pod(), marker(paused=True)],
        STATUS,
        ["ProbePaused", "this PodProbeMarker has the annotation", "-> remove the annotation to resume:\n       kubectl annotate podprobemarker marker -n"],
    ),
    "paused-pod": ([pod(paused=True), marker()], EXPLAIN, ["(ProbePaused)", "kubectl annotate pod web -n"]),
    "gate-closed": (
        [pod(gate=CONDITION), marker(exec=script("echo full; exit 1"))],
        EXPLAIN, ["is False, written by marker#checked (GateClosed)", "the pod becomes Ready when this probe succeeds", "Failed: full"],
    ),
    "crash-loop": (
        [pod("sh", "-c", "echo no config >&2; exit 3"), marker()],
        EXPLAIN, ["container main is not running: CrashLoopBackOff", "exit code 3: no config", " kubectl logs web -n test-", " -c main\n"],
    ),
}  # fmt: skip


@cases("objects command named", **MISTAKES)
async def test_one_command_names_the_mistake(
    ns: UsageNamespace, tmp_path: Path, objects: list[Json], command: str, named: list[str]
) -> None:
    await ns.apply(yaml.safe_dump_all(objects))
    printed: list[Ran] = []

    async def is_named() -> bool:
        line = f"kruise-probe {command} -n {ns.namespace}"
        printed.append(await run(line, kubeconfig=ns.playground.kubeconfig, folder=tmp_path))
        return all(each in printed[-1].out for each in named)

    try:
        await until("the mistake is named", is_named)
    except AssertionError:
        raise AssertionError(f"not named: {named}\n{printed[-1].out}{printed[-1].err}") from None
    assert (printed[-1].code, printed[-1].err) == (0, "")
