"""Paths and queries."""

import pytest

from kruise_probe.playground.apiserver.failures import Failure
from kruise_probe.playground.apiserver.requests import (
    ResourcePath,
    parse_list_query,
    parse_path,
    parse_revision,
)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/api/v1/pods", ResourcePath("", "v1", "", "pods", "", "")),
        ("/api/v1/namespaces", ResourcePath("", "v1", "", "namespaces", "", "")),
        ("/api/v1/namespaces/n", ResourcePath("", "v1", "", "namespaces", "n", "")),
        ("/api/v1/namespaces/n/status", ResourcePath("", "v1", "", "namespaces", "n", "status")),
        (
            "/api/v1/namespaces/n/finalize",
            ResourcePath("", "v1", "", "namespaces", "n", "finalize"),
        ),
        ("/api/v1/namespaces/n/pods", ResourcePath("", "v1", "n", "pods", "", "")),
        ("/api/v1/namespaces/n/pods/p/status", ResourcePath("", "v1", "n", "pods", "p", "status")),
        ("/apis/g/v1/things/a%3Ab", ResourcePath("g", "v1", "", "things", "a:b", "")),
    ],
)
def test_paths_are_taken_apart(path: str, expected: ResourcePath) -> None:
    assert parse_path(path) == expected


@pytest.mark.parametrize("path", ["/api", "/api/v1", "/apis/g/v1", "/x/y/z", "/api/v1/pods/a/b/c"])
def test_other_paths_are_about_no_resource(path: str) -> None:
    assert parse_path(path) is None


def test_a_query_is_read() -> None:
    query = parse_list_query(
        {
            "resourceVersion": "7",
            "limit": "5",
            "watch": "1",
            "allowWatchBookmarks": "true",
            "sendInitialEvents": "false",
            "timeoutSeconds": "3",
        }
    )
    assert (query.revision, query.limit, query.watch, query.bookmarks) == (7, 5, True, True)
    assert query.send_initial_events is False
    assert query.timeout_seconds == 3.0


@pytest.mark.parametrize("text", ["x", "-1", "1.5"])
def test_a_version_is_a_whole_number(text: str) -> None:
    with pytest.raises(Failure) as refused:
        parse_revision(text)
    assert refused.value.code == 400
