"""CPU seconds, memory and sockets of processes, from the kernel."""

import os
import socket
import struct
from contextlib import suppress
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far, its ended children not included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def family_cpu_seconds(name: str) -> float:
    """User and system time of all processes of this name, and of their ended children."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            found, _, fields = path.read_text().partition("(")[2].rpartition(")")
            if found == name:
                ticks += sum(map(int, fields.split()[11:15]))
    return ticks / _TICKS


def resident_mb(pid: int) -> float:
    return _status_kb(pid, "VmRSS") / 1024


def peak_resident_mb(pid: int) -> float:
    """The most since the start or the last `reset_peak`."""
    return _status_kb(pid, "VmHWM") / 1024


def reset_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def listener_pid(path: str) -> int:
    """The process that listens on a unix socket."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    pid: int = struct.unpack("iII", credentials)[0]
    return pid


def _status_kb(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1])
    return 0
