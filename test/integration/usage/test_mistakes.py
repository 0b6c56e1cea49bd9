"""A user's twelve usual mistakes: one `status` or `explain` names each of them, with a true cause and one remedy."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from integration.usage_namespace import UsageNamespace
from support.hollow import marker_object, probe
from support.programs import until
from support.shell import Ran, run
from support.tables import load_table
from support.wire import Json, typed

CONDITION = "example.com/checked"


def pod(command: Sequence[str] = ("sleep", "1000"), gate: str = "", paused: bool = False) -> Json:
    container = {
        "name": "main",
        "image": "none",
        "command": list(command),
        "ports": [{"name": "game", "containerPort": 7000}],
    }
    gates = [{"conditionType": gate}] if gate else []
    return typed(
        "Pod",
        metadata={
            "name": "web",
            "labels": {"app": "web"},
            "annotations": _pause(paused),
        },
        spec={"containers": [container], "readinessGates": gates},
    )


def marker(
    name: str = "marker",
    *,
    app: str = "web",
    container: str = "main",
    paused: bool = False,
    policies: Sequence[Json] = (),
    **handler: Json,
) -> Json:
    checked = probe(
        "checked",
        containerName=container,
        probe={"periodSeconds": 1, **(handler or {"exec": {"command": ["true"]}})},
        podConditionType=CONDITION,
        markerPolicy=list(policies),
    )
    made = marker_object(checked, name=name, app=app)
    made["metadata"]["annotations"] = _pause(paused)
    return made


def _pause(paused: bool) -> dict[str, str]:
    return {"kruise-probe.io/paused": "true"} if paused else {}


MISTAKES = load_table(
    Path(__file__).parents[2] / "data" / "mistakes.yaml",
    {"pod": lambda fields: pod(**fields), "marker": lambda fields: marker(**fields)},
)


@pytest.mark.parametrize("row", MISTAKES.values(), ids=MISTAKES)
async def test_one_command_names_the_mistake(ns: UsageNamespace, tmp_path: Path, row: Json) -> None:
    named = row["names"]
    command = f"kruise-probe {row['command']} -n {ns.namespace}"
    ran = Ran(None, "", "")

    async def is_named() -> bool:
        nonlocal ran
        ran = await run(command, kubeconfig=ns.playground.kubeconfig, folder=tmp_path)
        return all(text in ran.out for text in named)

    await ns.apply_objects(row["objects"])
    try:
        await until("the mistake is named", is_named)
    except AssertionError:
        raise AssertionError(f"not named: {named}\n{ran}") from None
    assert (ran.code, ran.err) == (0, "")
