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
POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


class Session(NamedTuple):
    """A playground that runs, as its kubeconfig describes it."""

    kubeconfig: Path
    folder: Path
    server: str
    authority: str
    token: str

    def send(self, path: str, *, body: Any = None, **headers: str) -> tuple[int, str]:
        """The code and the body of an answer."""
        context = None
        if self.server.startswith("https"):
            context = ssl.create_default_context(cadata=self.authority)
        request = urllib.request.Request(
            self.server + path,
            headers={"Content-Type": "application/json", **headers},
            data=None if body is None else json.dumps(body).encode(),
        )
        try:
            with urllib.request.urlopen(request, timeout=10, context=context) as answer:
                return answer.status, answer.read().decode()
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
            line = next(each for each in process.stdout if "export KUBECONFIG=" in each)
            kubeconfig = Path(line.partition("export KUBECONFIG=")[2].split()[0])
            yield session_of(kubeconfig)
        finally:
            process.terminate()
            process.wait(60)


def session_of(kubeconfig: Path) -> Session:
    config = yaml.safe_load(kubeconfig.read_text())
    cluster = config["clusters"][0]["cluster"]
    user = config["users"][0]["user"]
    authority = base64.b64decode(cluster.get("certificate-authority-data", "")).decode()
    return Session(
        kubeconfig, kubeconfig.parent, cluster["server"], authority, user.get("token", "")
    )


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with playground(tmp_path_factory.mktemp("p") / "t") as running:
        yield running


@cases(
    "authorization",
    no_token={},
    wrong_token={"Authorization": "Bearer wrong"},
    empty_token={"Authorization": "Bearer "},
    basic={"Authorization": "Basic YTpi"},
)
@pytest.mark.parametrize("path", [PODS, "/version", "/nowhere", f"{PODS}?watch=1"])
def test_a_request_without_a_token_of_the_session_is_refused(
    session: Session, path: str, authorization: dict[str, str]
) -> None:
    code, body = session.send(path, **authorization)
    assert code == 401
    assert json.loads(body)["reason"] == "Unauthorized"


def test_a_pod_is_created_with_the_token_and_not_without(session: Session) -> None:
    assert session.send(PODS, body=POD)[0] == 401
    authorization = {"Authorization": f"Bearer {session.token}"}
    assert session.send(f"{PODS}/p", **authorization)[0] == 404
    assert session.send(PODS, body=POD, **authorization)[0] == 201


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
def test_health_needs_no_token(session: Session, path: str) -> None:
    assert session.send(path) == (200, "ok")


def test_nothing_of_the_session_is_open_to_other_users(session: Session) -> None:
    assert stat.S_IMODE(session.folder.stat().st_mode) == 0o700
    open_files = {
        str(each.relative_to(session.folder)): oct(stat.S_IMODE(each.stat().st_mode))
        for each in session.folder.iterdir()
        if each.name.endswith("kubeconfig") or each.is_socket()
        if stat.S_IMODE(each.stat().st_mode) & 0o077
    }
    assert open_files == {}
    assert any(each.is_socket() for each in session.folder.iterdir())


def test_no_token_is_on_a_command_line(session: Session) -> None:
    tokens = [
        yaml.safe_load(each.read_text())["users"][0]["user"].get("token", "")
        for each in session.folder.glob("*kubeconfig")
    ]
    assert all(tokens)
    lines = [content_of(each) for each in Path("/proc").glob("[0-9]*/cmdline")]
    assert any(b"kruise" in line for line in lines)
    assert not [line for line in lines for token in tokens if token.encode() in line]


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
        assert session.token != other.token
        authorization = {"Authorization": f"Bearer {session.token}"}
        assert other.send(PODS, **authorization)[0] == 401
        crossed = other._replace(authority=session.authority)
        with pytest.raises(urllib.error.URLError, match="certificate verify failed"):
            crossed.send(PODS, **authorization)


@pytest.mark.parametrize("there", ["file", "link"])
def test_kubeconfig_out_never_writes_through_what_is_there(tmp_path: Path, there: str) -> None:
    out = tmp_path / "out"
    target = tmp_path / "target"
    if there == "link":
        out.symlink_to(target)
    else:
        out.write_text("mine")
    ended = subprocess.run(
        [*COMMAND, f"--kubeconfig-out={out}"], capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 1
    assert "remove it, or name another file" in ended.stderr
    assert out.is_symlink() if there == "link" else out.read_text() == "mine"
    assert not target.exists()


def test_kubeconfig_out_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with playground(tmp_path / "t", f"--kubeconfig-out={out}"):
        assert stat.S_IMODE(out.stat().st_mode) == 0o600
        assert session_of(out).token
    assert not out.exists()


def test_a_folder_in_which_others_may_rename_is_not_used(tmp_path: Path) -> None:
    home = tmp_path / "t"
    with playground(home, mode=0o777) as running:
        assert home not in running.folder.parents
