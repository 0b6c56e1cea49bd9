"""The commands for people need no Linux: they run where modules, files, signals and packages of Linux are missing."""

import json
from pathlib import Path

from integration.usage.test_mistakes import marker, pod
from integration.usage_namespace import UsageNamespace
from support.cases import cases
from support.shell import run

# Python imports it at its start. psutil and asyncio choose their parts by sys.platform.
ANOTHER_SYSTEM = """
import asyncio
import builtins
import io
import signal
import sys
import sysconfig

MISSING = {"fcntl", "resource", "termios", "tty", "pwd", "grp", "pty", "syslog", "cryptography"}

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in MISSING:
            raise ModuleNotFoundError(name)

really_open = builtins.open

def opened(file, *args, **kwargs):
    if str(file).startswith("/proc"):
        raise FileNotFoundError(file)
    return really_open(file, *args, **kwargs)

for name in MISSING & sys.modules.keys():
    del sys.modules[name]
sys.meta_path.insert(0, Finder)
builtins.open = io.open = opened
for name in ("SIGALRM", "SIGHUP", "setitimer", "ITIMER_REAL"):
    delattr(signal, name)

class Proactor(asyncio.SelectorEventLoop):
    "The default loop of Windows waits for no socket of others, and for no signal."
    def add_reader(self, *args):
        raise NotImplementedError
    add_writer = add_signal_handler = add_reader

asyncio.DefaultEventLoopPolicy._loop_factory = Proactor
sysconfig.get_config_vars()  # its file has the name of the platform
sys.platform = "another"
really_open(f"{__file__}.done", "w").close()
"""


@cases(
    "command code said",
    status=("status marker", 0, "1 succeeded"),
    explain=("explain web", 0, "1 of 1 probes work"),
    lint=("lint -f marker.yaml", 1, 'Invalid value: "→中"'),
    try_command=("try web marker", 0, "Succeeded"),
    try_port=("try web -f port.yaml", 1, "connect: connection refused"),
)
async def test_a_command_runs_on_a_system_that_is_not_linux(
    ns: UsageNamespace, tmp_path: Path, command: str, code: int, said: str
) -> None:
    (tmp_path / "sitecustomize.py").write_text(ANOTHER_SYSTEM)
    (tmp_path / "marker.yaml").write_text(json.dumps(marker(app="→中")))
    (tmp_path / "port.yaml").write_text(json.dumps(marker(httpGet={"port": 7999})))
    await ns.apply_objects([pod(), marker()])
    await ns.explained("web", "", probe="checked")
    is_lint = command.startswith("lint")
    if not is_lint:
        command += f" -n {ns.namespace}"

    ran = await run(
        f"PYTHONPATH={tmp_path} PYTHONIOENCODING=cp1252 kruise-probe {command}",
        kubeconfig=ns.playground.kubeconfig,
        folder=tmp_path,
    )

    assert (tmp_path / "sitecustomize.py.done").exists()
    assert ran.code == code
    assert is_lint or ran.err == ""
    assert said in ran.out
