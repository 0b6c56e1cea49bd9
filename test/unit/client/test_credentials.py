"""Credentials that other processes replace: tokens, certificates, CAs, and what a kubeconfig's plugin prints."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from support.cases import cases

from kruise_probe.client.credentials import COMPARE_SECONDS, AuthInfo, ConfigError, Credentials


def of_token(path: Path) -> Credentials:
    """Credentials that follow a file with the token `one`."""
    path.write_text("one")
    credentials = Credentials()
    credentials.follow_token(path)
    return credentials


def of_plugin(plugin: Any) -> Credentials:
    return Credentials(AuthInfo("Bearer 0"), load=plugin)


async def test_replaced_token_is_used_within_a_second(tmp_path: Path) -> None:
    token = tmp_path / "token"
    credentials = of_token(token)
    credentials.authorization()
    token.write_text("two\n")
    await asyncio.sleep(COMPARE_SECONDS - 1)
    assert credentials.authorization() == "Bearer one"
    await asyncio.sleep(1)
    assert credentials.authorization() == "Bearer two"
    assert credentials.version == 0, "connections stay"


@cases(
    "content renewed",
    new=(b"two", True),
    same=(b"one", False),
    gone=(None, False),
    binary=(b"\xff", False),
    blank=(b" \n", False),
    zeroed=(b"\0\0\0", False),
    two_lines=(b"two\nthree\n", False),
)
async def test_after_a_401_the_token_file_is_read_at_once(
    tmp_path: Path, content: bytes | None, renewed: bool
) -> None:
    token = tmp_path / "token"
    credentials = of_token(token)
    credentials.authorization()
    token.unlink()
    if content is not None:
        token.write_bytes(content)

    assert await credentials.renew("Bearer one", 0) == renewed
    assert credentials.authorization() == ("Bearer two" if renewed else "Bearer one")
    assert await credentials.renew("Bearer old", 0), "another request has renewed it"


async def test_a_request_that_was_refused_waits_for_a_valid_token_file(tmp_path: Path) -> None:
    token = tmp_path / "token"
    credentials = of_token(token)
    token.write_bytes(b"")
    with capture_logs() as logs:
        waiting = [asyncio.create_task(credentials.renew("Bearer one", 0)) for _ in range(3)]
        await asyncio.sleep(10)
        assert credentials.authorization() == "Bearer one"
        token.write_text("two")
        await asyncio.sleep(1)
    assert all(task.result() for task in waiting)
    assert [line["file"] for line in logs] == [str(token)]


async def test_fixed_credentials_are_not_retried() -> None:
    assert not await Credentials(AuthInfo("Bearer a")).renew("Bearer a", 0)


@pytest.mark.parametrize("renewed", [True, False])
async def test_requests_that_fail_together_share_one_reload(renewed: bool) -> None:
    runs = 0

    def plugin() -> AuthInfo:
        nonlocal runs
        runs += 1
        return AuthInfo("Bearer 1" if renewed else "Bearer 0")

    credentials = of_plugin(plugin)
    async with asyncio.TaskGroup() as tasks:
        renewals = [tasks.create_task(credentials.renew("Bearer 0", 0)) for _ in range(6)]

    assert [renewal.result() for renewal in renewals] == [renewed] * 6
    assert runs == 1


class Slow:
    """A plugin that ends when it is let go."""

    def __init__(self) -> None:
        self.runs = 0
        self.let_go = threading.Event()

    def __call__(self) -> AuthInfo:
        self.runs += 1
        assert self.let_go.wait(20)
        return AuthInfo(f"Bearer {self.runs}")


async def test_slow_reload_serves_the_next_request() -> None:
    plugin = Slow()
    credentials = of_plugin(plugin)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(30):
            await credentials.renew("Bearer 0", 0)
    waiting = asyncio.create_task(credentials.renew("Bearer 0", 0))
    await asyncio.sleep(0)
    plugin.let_go.set()

    assert await waiting
    assert plugin.runs == 1
    assert credentials.authorization() == "Bearer 1"


def test_event_loops_of_several_threads_share_one_reload() -> None:
    plugin = Slow()
    credentials = of_plugin(plugin)
    renewed: list[bool] = []

    def renew() -> None:
        renewed.append(asyncio.run(credentials.renew("Bearer 0", 0)))

    threads = [threading.Thread(target=renew) for _ in range(2)]
    for thread in threads:
        thread.start()
    plugin.let_go.set()
    for thread in threads:
        thread.join()
    assert renewed == [True, True]
    assert plugin.runs == 1


@cases("error level", expected=(ConfigError("no"), "warning"), bug=(ValueError("no"), "error"))
async def test_failed_reload_is_logged_and_tried_again(error: Exception, level: str) -> None:
    failures = [error]

    def plugin() -> AuthInfo:
        if failures:
            raise failures.pop()
        return AuthInfo("Bearer 1")

    credentials = of_plugin(plugin)
    with capture_logs() as logs:
        assert not await credentials.renew("Bearer 0", 0)
    assert [line["log_level"] for line in logs] == [level]
    assert credentials.authorization() == "Bearer 0"
    assert await credentials.renew("Bearer 0", 0)
