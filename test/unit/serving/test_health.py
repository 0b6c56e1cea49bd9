"""Health checks and their responses."""

import asyncio

import pytest

from kruise_probe.serving.health import CHECK_SECONDS, Checks


def healthy() -> str | None:
    return None


def broken() -> str | None:
    return "not connected"


def raising() -> str | None:
    raise ValueError("bug")


async def slow() -> str | None:
    await asyncio.sleep(1)
    return "slow"


async def hanging() -> str | None:
    await asyncio.get_running_loop().create_future()
    return None


async def test_the_report_has_the_format_of_kubernetes() -> None:
    checks = Checks()
    checks.add("caches", healthy)
    checks.add("runtime", broken)
    report = await checks.report()

    assert not report.healthy
    assert report.text("readyz") == (
        "[+]caches ok\n[-]runtime failed: not connected\nreadyz check failed\n"
    )


async def test_an_endpoint_without_checks_is_healthy() -> None:
    report = await Checks().report()

    assert report.healthy
    assert report.text("healthz") == "healthz check passed\n"


@pytest.mark.parametrize(
    ("check", "problem"),
    [
        pytest.param(raising, "ValueError: bug", id="raises"),
        pytest.param(slow, "slow", id="asynchronous"),
        pytest.param(hanging, "no result within 2 s", id="hangs"),
    ],
)
async def test_a_failing_check_is_one_line(check: object, problem: str) -> None:
    checks = Checks()
    checks.add("it", check)  # type: ignore[arg-type]  # a table of sync and async ones
    (result,) = (await checks.report()).results

    assert result.problem == problem


async def test_checks_that_hang_share_one_deadline() -> None:
    checks = Checks()
    for number in range(10):
        checks.add(f"c{number}", hanging)
    begun = asyncio.get_running_loop().time()
    await checks.report()

    assert asyncio.get_running_loop().time() - begun == pytest.approx(CHECK_SECONDS)


async def test_a_check_can_be_excluded_and_replaced() -> None:
    checks = Checks()
    checks.add("a", broken)
    checks.add("b", broken)
    checks.add("b", healthy)

    assert (await checks.report(exclude=frozenset({"a"}))).healthy
