"""Tokens name users; files with secrets are made for their owner alone."""

import ssl
import stat
from pathlib import Path

import pytest

from kruise_probe_playground.access import ADMIN, DAEMON, new_access
from kruise_probe_playground.apiserver.authentication import User, user_of
from kruise_probe_playground.apiserver.failures import Failure
from kruise_probe_playground.private_files import create_private, fill_private

TOKENS = {"secret": User("daemon", ("agents",))}


@pytest.mark.parametrize(
    "header",
    [
        pytest.param("Bearer other", id="another-token"),
        pytest.param("Bearer ", id="empty-token"),
        pytest.param("Basic secret", id="another-scheme"),
        pytest.param("secret", id="no-scheme"),
        pytest.param("", id="no-header"),
    ],
)
def test_requests_without_a_known_token_fail(header: str) -> None:
    with pytest.raises(Failure) as refused:
        user_of(header, TOKENS)
    assert refused.value.code == 401


@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
def test_bearer_token_identifies_its_user(scheme: str) -> None:
    assert user_of(f"{scheme} secret", TOKENS).name == "daemon"


def test_every_user_is_in_system_authenticated() -> None:
    assert TOKENS["secret"].info["groups"] == ["agents", "system:authenticated"]


async def test_each_session_has_new_tokens_and_a_new_certificate() -> None:
    one, other = new_access(), new_access()
    assert len(one.tokens) == len({each.name for each in one.tokens.values()})
    assert not {*one.tokens} & {*other.tokens}
    assert one.tls.authority != other.tls.authority
    assert one.tokens[one.token(ADMIN)] == ADMIN
    config = one.config("https://127.0.0.1:1", DAEMON)
    assert config.credentials.authorization() == f"Bearer {one.token(DAEMON)}"
    assert config.tls
    assert config.tls.verify_mode is ssl.CERT_REQUIRED


def test_private_file_is_new_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    file = tmp_path / "file"
    create_private(file)
    fill_private(file, "secret")
    assert file.read_text() == "secret"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        create_private(file, "other")
    assert file.read_text() == "secret"


def test_private_file_is_never_written_through_a_symlink(tmp_path: Path) -> None:
    target = tmp_path / "target"
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(FileExistsError):
        create_private(tmp_path / "link", "secret")
    with pytest.raises(OSError, match="link"):
        fill_private(tmp_path / "link", "secret")
    assert not target.exists()
