"""The command `migrate --check`, against an API server without Kruise."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest_asyncio
from support.playground import ControlledPlayground
from support.shell import Ran, run
from support.usage_namespace import UsageNamespace

MARKER = """
apiVersion: apps.kruise.io/v1alpha1
kind: PodProbeMarker
metadata: {name: game}
spec:
  selector: {matchLabels: {app: game}}
  probes:
  - name: idle
    containerName: main
    probe: {exec: {command: [sh, -c, "exit 1"]}}
    podConditionType: example.com/idle
"""


@pytest_asyncio.fixture(loop_scope="session")
async def migrate(
    playground: ControlledPlayground, ns: UsageNamespace, tmp_path: Path
) -> Callable[[str], Awaitable[Ran]]:
    await ns.apply(MARKER)

    async def command(arguments: str) -> Ran:
        script = f"kruise-probe migrate {arguments}"
        return await run(script, kubeconfig=playground.kubeconfig, folder=tmp_path)

    return command


async def test_it_reports_the_markers_of_a_namespace_and_the_steps(
    migrate: Callable[[str], Awaitable[Ran]], ns: UsageNamespace
) -> None:
    ran = await migrate(f"--check -n {ns.namespace}")
    assert (ran.code, ran.err) == (0, "")
    assert f"{ns.namespace}/game: ok\n" in ran.out
    assert "kruise-controller-manager: not installed" in ran.out
    assert ran.out.endswith("1 marker, 0 refused.\n")


async def test_the_json_has_the_same_for_programs(
    migrate: Callable[[str], Awaitable[Ran]], ns: UsageNamespace
) -> None:
    ran = await migrate(f"--check -n {ns.namespace} -o json")
    view = json.loads(ran.out)
    assert [each["name"] for each in view["markers"]] == ["game"]
    assert view["steps"]


async def test_without_check_the_command_line_is_wrong(
    migrate: Callable[[str], Awaitable[Ran]],
) -> None:
    ran = await migrate("")
    assert ran.code == 2
    assert "add --check" in ran.err


async def test_a_kind_that_the_user_may_not_list_is_a_note(
    migrate: Callable[[str], Awaitable[Ran]], playground: ControlledPlayground, ns: UsageNamespace
) -> None:
    faults = playground.server.faults
    faults.fail(
        code=403, reason="Forbidden", message="forbidden", verb="list",
        resource="nodepodprobes", times=None,
    )  # fmt: skip
    try:
        ran = await migrate(f"--check -n {ns.namespace}")
    finally:
        faults.heal()
    assert ran.code == 0
    assert "Note: no permission to list nodepodprobes" in ran.out
