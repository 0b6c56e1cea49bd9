"""A manager whose gate is off does nothing, in good health: its Deployment must become available all the same."""

from pathlib import Path

import pytest
from support import programs
from support.kubeconfig import kubeconfig
from support.sockets import closed_port


@pytest.mark.parametrize("gates", ["PodProbeMarkerGate=false", "AllBeta=false"])
async def test_a_manager_whose_gate_is_off_is_ready(gates: str, tmp_path: Path) -> None:
    """Nothing listens at the API server's address, and the manager sends no requests to it."""
    path = tmp_path / "kubeconfig"
    flags = (programs.ALONE, f"--feature-gates={gates}")
    with closed_port() as port:
        kubeconfig(path, cluster={"server": f"http://127.0.0.1:{port}"})
        async with programs.running("manager", path, tmp_path, *flags) as manager:
            await manager.ready()
            code, _ = await manager.terminate()

    assert code == 0
    assert not manager.has_logged("watch failed")
