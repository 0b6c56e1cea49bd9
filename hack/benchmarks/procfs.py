"""CPU seconds, memory and sockets of processes, from the kernel."""

import os
import socket
import struct
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far, its ended children not included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


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
