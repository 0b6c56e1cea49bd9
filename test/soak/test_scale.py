"""Many nodes whose daemons write in every period, on a real API server, while a marker is edited."""

from itertools import count
from pathlib import Path

from soak.forms import forms
from support import programs
from support.background import background
from support.control_plane import ControlPlane, staged
from support.hollow import probe
from support.output import print_line
from support.programs import ALONE
from support.proxy import faulty_proxy

NODES = 250
PODS = 1_000
SHORT_NODES = 25
SHORT_PODS = 100


@forms(short="100-pods-one-edit", long="1000-pods-ten-edits")
async def test_a1_marker_edited_while_messages_change_meets_no_conflict(
    control_plane: ControlPlane, short: bool, tmp_path: Path
) -> None:
    nodes = SHORT_NODES if short else NODES
    pods = SHORT_PODS if short else PODS
    edits = 1 if short else 10
    ticks = count()
    async with staged(control_plane, "scale") as stage:
        hollow = stage.hollow
        await hollow.add_nodes(nodes)
        await hollow.add_pods(pods, nodes=nodes)
        stage.daemons.result_of = lambda pod, name: ("Succeeded", f"tick {next(ticks)}")
        reports = stage.api.node_pod_probes

        def periods() -> list[int]:
            found: list[int] = []
            for report in reports.all():
                for entry in report["spec"].get("podProbes") or ():
                    found += [listed["probe"].get("periodSeconds") for listed in entry["probes"]]
            return found

        async def all_have(seconds: int) -> None:
            await reports.wait(
                f"a period of {seconds} s for every pod", lambda: periods() == [seconds] * pods
            )

        async with faulty_proxy(control_plane.config()) as proxy:
            kubeconfig = proxy.write_kubeconfig(tmp_path)
            async with programs.running("manager", kubeconfig, tmp_path, ALONE):
                await hollow.add_marker(probe())
                await all_have(1)
                async with background(stage.daemons.write_without_end()):
                    for seconds in range(2, 2 + edits):
                        edited = probe()
                        edited["probe"]["periodSeconds"] = seconds
                        await hollow.edit_marker(edited)
                        await all_have(seconds)
        conflicts = proxy.count(lambda seen: seen.code == 409)
        print_line(
            f"{nodes} nodes, {pods} pods: {stage.daemons.writes} statuses, {dict(conflicts)} conflicts"
        )
        assert not conflicts
        assert stage.daemons.refused == []
