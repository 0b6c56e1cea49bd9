"""E13: other users of the machine can neither use a playground's API server nor read or replace its files."""

import base64
import json
import os
import ssl
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from support.cases import cases

COMMAND = (sys.executable, "-m", "kruise_probe", "playground", "--no-sample")
PODS = "/api/v1/namespaces/default/pods"
POD = {
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}


class Session(NamedTuple):
    """A playground that runs, as its kubeconfig describes it."""

    folder: Path
    server: str
    authority: str
    token: str

    @property
    def bearer(self) -> str:
        return f"Bearer {self.token}"

    def send(self, path: str, authorization: str = "", *, body: Any = None) -> tuple[int, str]:
        """Code and body of the response."""
        context = None
        if self.server.startswith("https"):
            context = ssl.create_default_context(cadata=self.authority)
        request = urllib.request.Request(
            self.server + path,
            headers={"Content-Type": "application/json"},
            data=None if body is None else json.dumps(body).encode(),
        )
        if authorization:
            request.add_header("Authorization", authorization)
        try:
            with urllib.request.urlopen(request, timeout=10, context=context) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


@contextmanager
def playground(home: Path, *arguments: str, mode: int = 0o700) -> Iterator[Session]:
    """Runs one with its temporary files below `home`."""
    home.mkdir()
    home.chmod(mode)
    with subprocess.Popen(
        [*COMMAND, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(home)},
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout
            export = next(line for line in process.stdout if "export KUBECONFIG=" in line)
            kubeconfig, *_ = export.partition("export KUBECONFIG=")[2].split()
            yield session_of(Path(kubeconfig))
        finally:
            process.terminate()
            process.wait(60)


def session_of(kubeconfig: Path) -> Session:
    config = yaml.safe_load(kubeconfig.read_text())
    cluster = config["clusters"][0]["cluster"]
    authority = cluster.get("certificate-authority-data", "")
    return Session(
        folder=kubeconfig.parent,
        server=cluster["server"],
        authority=base64.b64decode(authority).decode(),
        token=config["users"][0]["user"].get("token", ""),
    )


def mode_of(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with playground(tmp_path_factory.mktemp("p") / "t") as running:
        yield running


@cases(
    "authorization",
    no_token="",
    wrong_token="Bearer wrong",
    empty_token="Bearer ",
    basic="Basic YTpi",
)
@pytest.mark.parametrize("path", [PODS, "/version", "/nowhere", f"{PODS}?watch=1"])
def test_a_request_without_a_token_of_the_session_is_refused(
    session: Session, path: str, authorization: str
) -> None:
    code, body = session.send(path, authorization)
    assert code == 401
    assert json.loads(body)["reason"] == "Unauthorized"


def test_a_pod_is_created_with_the_token_and_not_without(session: Session) -> None:
    assert session.send(PODS, body=POD)[0] == 401
    assert session.send(f"{PODS}/p", session.bearer)[0] == 404
    assert session.send(PODS, session.bearer, body=POD)[0] == 201


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
def test_health_needs_no_token(session: Session, path: str) -> None:
    assert session.send(path) == (200, "ok")


def test_nothing_of_the_session_is_open_to_other_users(session: Session) -> None:
    assert mode_of(session.folder) == 0o700
    sockets = [file for file in session.folder.iterdir() if file.is_socket()]
    assert sockets
    for file in (*sockets, *session.folder.glob("*kubeconfig")):
        assert not mode_of(file) & 0o077, file


def test_no_token_is_on_a_command_line(session: Session) -> None:
    lines = [content_of(file) for file in Path("/proc").glob("[0-9]*/cmdline")]
    assert any(b"kruise" in line for line in lines)
    kubeconfigs = list(session.folder.glob("*kubeconfig"))
    assert kubeconfigs
    for kubeconfig in kubeconfigs:
        token = session_of(kubeconfig).token.encode()
        assert token
        assert not [line for line in lines if token in line]


def content_of(file: Path) -> bytes:
    """Empty if the process has ended."""
    try:
        return file.read_bytes()
    except OSError:
        return b""


def test_a_token_and_a_certificate_are_good_for_one_session(
    session: Session, tmp_path: Path
) -> None:
    with playground(tmp_path / "t") as other:
        assert other.send(PODS, session.bearer)[0] == 401
        crossed = other._replace(authority=session.authority)
        with pytest.raises(urllib.error.URLError, match="certificate verify failed"):
            crossed.send(PODS, session.bearer)


@pytest.mark.parametrize("there", ["file", "link"])
def test_kubeconfig_out_never_writes_through_what_is_there(tmp_path: Path, there: str) -> None:
    out = tmp_path / "out"
    target = tmp_path / "target"
    if there == "link":
        out.symlink_to(target)
    else:
        out.write_text("mine")
    command = [*COMMAND, f"--kubeconfig-out={out}"]
    ended = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 1
    assert "remove it, or name another file" in ended.stderr
    assert out.is_symlink() if there == "link" else out.read_text() == "mine"
    assert not target.exists()


def test_kubeconfig_out_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with playground(tmp_path / "t", f"--kubeconfig-out={out}"):
        assert mode_of(out) == 0o600
        assert session_of(out).token
    assert not out.exists()


def test_a_folder_in_which_others_may_rename_is_not_used(tmp_path: Path) -> None:
    home = tmp_path / "t"
    with playground(home, mode=0o777) as running:
        assert home not in running.folder.parents
