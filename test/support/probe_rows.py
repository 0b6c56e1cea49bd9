"""Servers and probes of them, and the verdicts of the kubelet's own prober.

`test/contract/probers` compares the verdicts in test/data/kubelet-verdicts.jsonl with those of the real kubelet, and the unit
tests of our probers with ours. Messages are compared if users match them: a failing status, a refused connection, a timeout.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path

from support.scripted_server import Script, ScriptedServer, answering, silent
from support.tables import load_table
from support.wire import Json

DATA = Path(__file__).parents[1] / "data"
VERDICTS_FILE = DATA / "kubelet-verdicts.jsonl"
ROWS: dict[str, Json] = load_table(DATA / "probes.yaml", {})
LATE_SECONDS = 4.0
"""Timeout of a probe that must connect and then wait in vain, also on a slow machine."""
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def server_of(row: Json) -> Callable[[ScriptedServer], Script]:
    """What the server of a row does."""
    if "silent" in row:
        return silent()
    if "hops" in row:
        return answering(lambda request: _hop(request, row["hops"]))
    if "redirect" in row:
        moved = _response(row.get("status", 302), f"Location: {row['redirect']}")
        return answering(lambda request: moved if request.startswith("GET / ") else OK)
    if "status" in row:
        return answering(_response(row["status"]))
    answer = row["answer"].encode("latin-1") if "answer" in row else OK
    return answering(answer, stays_open=row.get("stays_open", False))


def _hop(request: str, hops: int) -> bytes:
    hop = int(request.split()[1][1:] or 0)
    return OK if hop == hops else _response(302, f"Location: /{hop + 1}")


def _response(status: int, *headers: str) -> bytes:
    lines = (f"HTTP/1.1 {status} X", "Content-Length: 4", *headers, "", "body")
    return "\r\n".join(lines).encode()


MATCHED = ("HTTP probe failed with statuscode", "connection refused", "Client.Timeout", "timeout: ")


def probe_of(row: Json, server: ScriptedServer) -> Json:
    """The probe of a row. The path is what the API server fills in."""
    handler = {"port": server.port, "path": "/", **row.get("action", {})}
    return {row.get("kind", "httpGet"): handler}


def verdict(result: str, message: str, server: ScriptedServer) -> Json:
    """A verdict as the file has it: without the server's port, and with the message only if users match it."""
    requests = list(map(_shown, server.requests))
    server.requests = []
    if message.startswith("Probe terminated redirects"):
        result = "warning"
    text = re.sub(r"127\.0\.0\.1:\d+->", "", message).strip()
    if not any(words in text for words in MATCHED):
        text = ""
    found = {"result": result, "message": text, "requests": requests}
    encoded = json.dumps(found, ensure_ascii=False)
    return dict(json.loads(re.sub(rf"\b{server.port}\b", "PORT", encoded)))


def _shown(request: str) -> list[str]:
    """The request line, and the headers with lower-case names, sorted."""
    line, *headers = request.strip().split("\r\n")
    shown = []
    for header in headers:
        name, _, value = header.partition(":")
        shown.append(name.lower() + value)
    return [line, *sorted(shown)]


def verdicts() -> dict[str, Json]:
    """The verdicts of the kubelet by the names of the rows."""
    found = map(json.loads, VERDICTS_FILE.read_text().splitlines())
    return {verdict.pop("row"): verdict for verdict in found}
