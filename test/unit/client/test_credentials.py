"""Tokens and certificates that another process replaces."""

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from kruise_probe.client.credentials import (
    ConfigError,
    KubeconfigUser,
    ReloadedCredentials,
    StaticCredentials,
    TokenFile,
)


def replace(path: Path, token: str) -> None:
    """As kubelet does: a new file under the old name."""
    new = path.with_suffix(".new")
    new.write_text(token)
    os.replace(new, path)


async def test_replaced_token_is_used_within_a_minute(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one\n")
    token = TokenFile(path)
    assert token.authorization() == "Bearer one"
    replace(path, "two")
    await asyncio.sleep(59)
    early = token.authorization()
    await asyncio.sleep(2)

    assert (early, token.authorization()) == ("Bearer one", "Bearer two")


async def test_token_file_is_not_checked_for_every_request(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    token = TokenFile(path)
    token.authorization()
    path.unlink()

    assert [token.authorization() for _ in range(100)] == ["Bearer one"] * 100


async def test_token_file_is_reloaded_at_once_after_401(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    token = TokenFile(path)
    rejected = token.authorization()
    replace(path, "two")

    assert await token.renew(rejected)
    assert token.authorization() == "Bearer two"


async def test_token_file_is_read_after_401_even_if_it_looks_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    token = TokenFile(path)
    rejected, before = token.authorization(), path.stat()
    path.write_text("two")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    assert await token.renew(rejected)


async def test_unchanged_token_is_not_retried(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    token = TokenFile(path)

    assert not await token.renew(token.authorization())


async def test_request_with_old_token_is_retried_with_new_one(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("two")

    assert await TokenFile(path).renew("Bearer one")


async def test_unreadable_token_file_keeps_the_last_token(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    token = TokenFile(path)
    token.authorization()
    for content in (b"", b"\xff\xfe"):
        path.write_bytes(content)
        await asyncio.sleep(61)
        assert token.authorization() == "Bearer one"


async def test_static_credentials_are_not_retried() -> None:
    assert not await StaticCredentials("Bearer x").renew("Bearer x")
    assert StaticCredentials().authorization() is None


async def test_requests_with_401_share_one_reload() -> None:
    runs = 0

    def plugin() -> KubeconfigUser:
        nonlocal runs
        runs += 1
        return KubeconfigUser(f"Bearer {runs}")

    credentials = ReloadedCredentials(KubeconfigUser("Bearer 0"), plugin)
    async with asyncio.TaskGroup() as tasks:
        renewals = [tasks.create_task(credentials.renew("Bearer 0")) for _ in range(10)]

    assert all(each.result() for each in renewals)
    assert (runs, credentials.authorization()) == (1, "Bearer 1")


async def test_requests_with_401_share_a_reload_without_new_credentials() -> None:
    runs = 0

    def plugin() -> KubeconfigUser:
        nonlocal runs
        runs += 1
        return KubeconfigUser("Bearer 0")

    credentials = ReloadedCredentials(KubeconfigUser("Bearer 0"), plugin)
    async with asyncio.TaskGroup() as tasks:
        renewals = [tasks.create_task(credentials.renew("Bearer 0")) for _ in range(6)]

    assert not any(each.result() for each in renewals)
    assert runs == 1
    await credentials.renew("Bearer 0")
    assert runs == 2


class Slow:
    """A plugin that ends when it is let go."""

    def __init__(self) -> None:
        self.runs = 0
        self.let_go = threading.Event()

    def __call__(self) -> KubeconfigUser:
        self.runs += 1
        assert self.let_go.wait(20)
        return KubeconfigUser(f"Bearer {self.runs}")


async def test_slow_reload_serves_the_next_request() -> None:
    plugin = Slow()
    credentials = ReloadedCredentials(KubeconfigUser("Bearer 0"), plugin)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(30):
            await credentials.renew("Bearer 0")
    waiting = asyncio.create_task(credentials.renew("Bearer 0"))
    await asyncio.sleep(0)
    plugin.let_go.set()

    assert await waiting
    assert (plugin.runs, credentials.authorization()) == (1, "Bearer 1")


async def test_close_cancels_the_reload_and_its_waiters_return_false() -> None:
    plugin = Slow()
    credentials = ReloadedCredentials(KubeconfigUser("Bearer 0"), plugin)
    waiting = asyncio.create_task(credentials.renew("Bearer 0"))
    await asyncio.sleep(0)
    others = asyncio.all_tasks() - {waiting, asyncio.current_task()}
    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    credentials.close()

    assert not await waiting
    assert errors == []
    assert all(each.cancelled() for each in others)
    plugin.let_go.set()
    assert await credentials.renew("Bearer 0")


async def test_unexpected_reload_error_is_logged_and_retried() -> None:
    found: list[KubeconfigUser] = []
    credentials = ReloadedCredentials(KubeconfigUser("Bearer 0"), lambda: found[0])
    with capture_logs() as logs:
        assert not await credentials.renew("Bearer 0")
    found.append(KubeconfigUser("Bearer 1"))

    assert [each["log_level"] for each in logs] == ["error"]
    assert await credentials.renew("Bearer 0")


async def test_failed_reload_returns_false() -> None:
    def plugin() -> KubeconfigUser:
        raise ConfigError("the plugin failed")

    credentials = ReloadedCredentials(KubeconfigUser("Bearer 0"), plugin)

    assert not await credentials.renew("Bearer 0")
    assert credentials.authorization() == "Bearer 0"


async def test_certificate_changes_with_its_content() -> None:
    """There is no header to compare; a request that was sent before the change is sent again without another look."""
    found = KubeconfigUser(None, "client.pem", None, b"one")
    presented: list[bytes] = []
    credentials = ReloadedCredentials(
        found, lambda: found, lambda identity: presented.append(identity.content)
    )
    assert not await credentials.renew(None, credentials.version)
    before = credentials.version
    found = found._replace(content=b"two")

    assert [await credentials.renew(None, before) for _ in range(3)] == [True] * 3
    assert credentials.version == before + 1
    assert not await credentials.renew(None, credentials.version)
    assert presented == [b"two"]


async def test_unusable_certificate_returns_false() -> None:
    def present(_: KubeconfigUser) -> None:
        raise ConfigError("the key is another's")

    credentials = ReloadedCredentials(
        KubeconfigUser(None, "client.pem", None, b"one"),
        lambda: KubeconfigUser(None, "client.pem", None, b"two"),
        present,
    )

    assert not await credentials.renew(None, 0)
    assert not await credentials.renew(None, 0)


async def test_a_certificate_file_is_compared_once_a_minute(tmp_path: Path) -> None:
    """A proxy may answer an expired certificate with a TLS alert instead of a 401."""
    file = tmp_path / "client.pem"
    file.write_text("one")
    presented = asyncio.Queue[bytes]()

    def read() -> KubeconfigUser:
        return KubeconfigUser.read(None, str(file), None)

    credentials = ReloadedCredentials(read(), read, lambda user: presented.put_nowait(user.content))
    credentials.authorization()
    file.write_text("two")
    await asyncio.sleep(59)
    credentials.authorization()
    await asyncio.sleep(0)
    assert presented.empty()
    await asyncio.sleep(1)
    credentials.authorization()
    assert await presented.get() == b"two"
    assert credentials.version == 1
