"""Who may read /metrics, how often the API server reviews tokens, and a flood of unknown tokens."""

import asyncio
import json
from typing import Any

import pytest
from support.cases import cases

from kruise_probe.api.errors import ConnectionFailed
from kruise_probe.serving.authorization import (
    ALLOWED_SECONDS,
    DENIED_SECONDS,
    HOLD_SECONDS,
    MAX_CACHED,
    MAX_REVIEWS,
    REVIEW_SECONDS,
    MetricsGuard,
)
from kruise_probe.wire.requests import HttpRequest, HttpResponse

TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
PROMETHEUS = "system:serviceaccount:monitoring:prometheus"
BARRED = "barred"
ATTRIBUTES = {
    "uid": "1",
    "groups": ["g"],
    "extra": {"pod": ["p"]},
}
"""Of every user."""


class Reviewer:
    """An API server that knows these tokens, and which users may read metrics."""

    def __init__(self) -> None:
        self.users = {
            "good": PROMETHEUS,
            "weak": "somebody",
            "barred": BARRED,
        }
        self.readers = {PROMETHEUS, BARRED}
        self.posts: list[dict[str, Any]] = []
        self.in_flight = 0
        self.peak = 0
        self.seconds = 0.0
        self.fails = False
        self.proxy_body = b""

    async def post(self, method: str, target: str, body: bytes) -> bytes:
        assert method == "POST"
        spec = json.loads(body)["spec"]
        self.posts.append(spec)
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.in_flight -= 1
        if self.fails:
            raise ConnectionFailed("connection refused")
        answer = {"status": self._status(target, spec)}
        return self.proxy_body or json.dumps(answer).encode()

    def _status(self, target: str, spec: dict[str, Any]) -> dict[str, Any]:
        if target == TOKEN_REVIEWS:
            user = self.users.get(spec["token"])
            if user is None:
                return {"user": {}, "error": "unknown"}
            return {"authenticated": True, "user": {"username": user, **ATTRIBUTES}}
        assert target == ACCESS_REVIEWS
        return {
            "allowed": spec["user"] in self.readers,
            "denied": spec["user"] == BARRED,
        }


async def metrics(request: HttpRequest) -> HttpResponse:
    return HttpResponse.of_text("metrics")


@pytest.fixture
def reviewer() -> Reviewer:
    return Reviewer()


@pytest.fixture
def guard(reviewer: Reviewer) -> MetricsGuard:
    guard = MetricsGuard(metrics)
    guard.connect(reviewer.post)
    return guard


GOOD = "Bearer good"


def scrape(authorization: str = GOOD) -> HttpRequest:
    headers = {"authorization": authorization} if authorization else {}
    return HttpRequest("GET", "/metrics", headers=headers)


async def status_of_scrape(guard: MetricsGuard) -> int:
    """The status for a token that may read metrics."""
    response = await guard(scrape())
    return response.status


TOKENS = {
    "may-read": (GOOD, 200, "metrics"),
    "scheme-in-lower-case": ("bearer  good", 200, "metrics"),
    "without-a-token": ("", 401, "requires a bearer token"),
    "empty-token": ("Bearer ", 401, "requires a bearer token"),
    "another-scheme": ("Basic good", 401, "requires a bearer token"),
    "unknown-token": ("Bearer wrong", 401, "rejected the bearer token"),
    "may-not-read": ("Bearer weak", 403, "kruise-probe-metrics-reader"),
    "allowed-and-denied": ("Bearer barred", 403, "kruise-probe-metrics-reader"),
}


@cases("authorization status says", **TOKENS)
async def test_only_tokens_of_users_who_may_read_metrics_pass(
    guard: MetricsGuard,
    authorization: str,
    status: int,
    says: str,
) -> None:
    response = await guard(scrape(authorization))

    assert response.status == status
    assert says in response.body.decode()
    assert ("WWW-Authenticate" in response.headers) == (status == 401)


async def test_access_review_names_the_whole_user(guard: MetricsGuard, reviewer: Reviewer) -> None:
    await guard(scrape())

    access = {"path": "/metrics", "verb": "get"}
    token_review, access_review = reviewer.posts
    assert token_review == {"token": "good"}
    assert access_review == {"user": PROMETHEUS, **ATTRIBUTES, "nonResourceAttributes": access}


async def test_decisions_are_cached_for_a_short_time(
    guard: MetricsGuard, reviewer: Reviewer
) -> None:
    for authorization, lifetime, posts in (
        (GOOD, ALLOWED_SECONDS, 2),
        ("Bearer weak", DENIED_SECONDS, 2),
        ("Bearer wrong", DENIED_SECONDS, 1),
    ):
        reviewer.posts.clear()
        for _ in range(3):
            await guard(scrape(authorization))
        assert len(reviewer.posts) == posts
        await asyncio.sleep(lifetime)
        await guard(scrape(authorization))
        assert reviewer.posts == reviewer.posts[:posts] * 2


async def test_without_a_review_no_token_is_accepted_and_the_failure_is_not_cached(
    reviewer: Reviewer,
) -> None:
    guard = MetricsGuard(metrics)
    assert await status_of_scrape(guard) == 503, "there is no client yet"

    guard.connect(reviewer.post)
    reviewer.fails = True
    response = await guard(scrape())
    assert response.status == 503
    assert b"connection refused" in response.body

    reviewer.fails = False
    reviewer.proxy_body = b'{"message":"ok"}'
    assert await status_of_scrape(guard) == 503

    reviewer.proxy_body = b""
    assert await status_of_scrape(guard) == 200


async def test_a_review_has_a_deadline(
    guard: MetricsGuard, reviewer: Reviewer, looptime: float
) -> None:
    reviewer.seconds = 60
    response = await guard(scrape())

    assert response.status == 503
    assert b"no response within 5 s" in response.body
    assert looptime == REVIEW_SECONDS


async def test_a_flood_of_unknown_tokens_causes_few_reviews(
    guard: MetricsGuard, reviewer: Reviewer, looptime: float
) -> None:
    """A token that was allowed before stays allowed, also after its decision has expired and a review failed."""
    assert await status_of_scrape(guard) == 200
    await asyncio.sleep(ALLOWED_SECONDS)
    reviewer.fails = True
    assert await status_of_scrape(guard) == 503
    reviewer.fails = False
    reviewer.posts.clear()
    reviewer.seconds = 0.01
    statuses: set[int] = set()
    began = float(looptime)
    for second in range(100):
        async with asyncio.TaskGroup() as tasks:
            requests = [scrape(f"Bearer {second}-{number}") for number in range(50)]
            flood = [tasks.create_task(guard(request)) for request in requests]
            scraped = tasks.create_task(guard(scrape()))
        statuses |= {task.result().status for task in flood}
        assert scraped.result().status == 200
        await asyncio.sleep(0.9)

    assert statuses == {401, 503}
    assert reviewer.peak <= MAX_REVIEWS + 1, "one more for the known token"
    seconds = looptime - began
    assert seconds > ALLOWED_SECONDS
    renewals = 2 * (seconds / ALLOWED_SECONDS + 1)
    unknown = MAX_REVIEWS * (seconds / HOLD_SECONDS + 1)
    assert len(reviewer.posts) <= unknown + renewals
    assert len(guard._decisions) <= MAX_CACHED
    await asyncio.sleep(DENIED_SECONDS)
    assert len(guard._decisions) == 1, "an expired denial makes no token known"
