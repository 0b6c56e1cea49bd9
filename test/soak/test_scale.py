"""Many nodes whose daemons write in every period, on a real API server, while a marker is edited."""

from pathlib import Path

from soak.forms import forms
from support import programs
from support.background import background
from support.control_plane import ControlPlane, staged
from support.hollow import probe
from support.output import print_line
from support.patience import PATIENCE_SECONDS
from support.programs import ALONE
from support.proxy import faulty_proxy

NODES, PODS = 250, 1_000
SHORT_NODES, SHORT_PODS = 25, 100


@forms(short="100-pods-one-edit", long="1000-pods-ten-edits")
async def test_a1_marker_edited_while_messages_change_meets_no_conflict(
    control_plane: ControlPlane, short: bool, tmp_path: Path
) -> None:
    nodes, pods = (SHORT_NODES, SHORT_PODS) if short else (NODES, PODS)
    ticks = iter(range(10**9))
    async with staged(control_plane, "scale") as stage:
        await stage.hollow.add_nodes(nodes)
        await stage.hollow.add_pods(pods, nodes=nodes)
        stage.daemons.result_of = lambda pod, name: ("Succeeded", f"tick {next(ticks)}")
        reports = stage.api.node_pod_probes

        def all_ask(seconds: int) -> bool:
            asked = [
                each["probe"].get("periodSeconds")
                for report in reports.all()
                for entry in report["spec"].get("podProbes") or ()
                for each in entry["probes"]
            ]
            return asked == [seconds] * pods

        async with faulty_proxy(control_plane.config()) as proxy:
            kubeconfig = proxy.write_kubeconfig(tmp_path)
            async with programs.running("manager", kubeconfig, tmp_path, ALONE):
                await stage.hollow.add_marker(probe())
                await reports.wait("all nodes ask", lambda: all_ask(1), seconds=PATIENCE_SECONDS)
                async with background(stage.daemons.write_without_end()):
                    for seconds in range(2, 3 if short else 12):
                        edited = probe()
                        edited["probe"]["periodSeconds"] = seconds
                        await stage.hollow.edit_marker(edited)
                        await reports.wait(
                            f"edit {seconds} is everywhere",
                            lambda seconds=seconds: all_ask(seconds),
                            seconds=PATIENCE_SECONDS,
                        )
        conflicts = proxy.count(lambda seen: seen.code == 409)
        print_line(
            f"{nodes} nodes, {pods} pods: {stage.daemons.writes} statuses, {dict(conflicts)} conflicts"
        )
        assert not conflicts
        assert stage.daemons.refused == []
