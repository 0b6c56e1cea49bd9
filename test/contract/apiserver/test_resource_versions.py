"""Resource versions that clients send: malformed ones, those of objects that do not exist, and those of the future."""

from typing import Any

import pytest
from support.contract_api import Api, node_pod_probe

INITIAL_EVENTS = {
    "sendInitialEvents": "true",
    "resourceVersionMatch": "NotOlderThan",
    "allowWatchBookmarks": "true",
}


def lease(name: str, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, **metadata},
    }


@pytest.mark.parametrize(
    "version", ["abc", "-1", "1e3", str(1 << 64), pytest.param("9" * 5000, id="5000-digits")]
)
async def test_a_malformed_version_is_an_internal_error_except_of_lists(
    api: Api, version: str
) -> None:
    path = api.path("leases", "l")
    assert (await api.get(api.path("leases"), resourceVersion=version)).code == 400
    async with api.watch(api.path("leases"), resourceVersion=version) as stream:
        assert stream.code == 500
    new = await api.put(path, lease("l", resourceVersion=version))
    await api.create("leases", lease("l"))
    got = await api.get(path, resourceVersion=version)
    replaced = await api.put(path, lease("l", resourceVersion=version))
    patched = await api.merge(path, {"metadata": {"resourceVersion": version}})
    for failed in (new, got, replaced, patched):
        assert (failed.code, "reason" in failed.body) == (500, False), failed


@pytest.mark.parametrize("version", [None, "", "0" * 30])
async def test_no_version_is_that_of_any_object(api: Api, version: str | None) -> None:
    path = api.path("configmaps", "c")
    new = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    body = {**new, "metadata": {"name": "c", "resourceVersion": version}}
    assert (await api.post(api.path("configmaps"), body)).code == 201
    assert (await api.put(path, body)).code == 200
    patched = await api.merge(path, {"metadata": {"resourceVersion": version}, "data": {"a": "b"}})
    assert patched.code == 200, patched


async def test_version_zero_does_not_allow_to_replace_a_lease(api: Api) -> None:
    path = api.path("leases", "l")
    await api.create("leases", lease("l"))
    for refused in (
        await api.put(path, lease("l", resourceVersion="0")),
        await api.merge(path, {"metadata": {"resourceVersion": "0"}}),
    ):
        assert (refused.code, refused.causes) == (
            422,
            {("FieldValueInvalid", "metadata.resourceVersion")},
        )


async def test_a_creation_with_a_version_fails_unless_it_is_malformed(api: Api) -> None:
    for resource, body in (("leases", lease("l")), ("nodepodprobes", node_pod_probe(api.unique))):
        body["metadata"]["labels"] = {"contract": api.unique}
        body["metadata"]["resourceVersion"] = "5"
        refused = await api.post(api.path(resource), body)
        assert (refused.code, "reason" in refused.body) == (500, False), refused
        body["metadata"]["resourceVersion"] = "abc"
        assert (await api.post(api.path(resource), body)).meta["resourceVersion"] != "abc"


async def test_a_dry_run_of_a_creation_keeps_the_sent_version(api: Api) -> None:
    sent = lease("l", resourceVersion="5")
    for answer in (
        await api.put(api.path("leases", "l"), sent, dryRun="All"),
        await api.post(api.path("leases"), sent, dryRun="All"),
    ):
        assert (answer.code, answer.revision) == (201, "5")
    without = await api.put(api.path("leases", "l"), lease("l"), dryRun="All")
    assert (without.code, "resourceVersion" in without.meta) == (201, False)


async def test_a_watch_from_the_future_with_initial_events_fails_in_its_stream(api: Api) -> None:
    query: dict[str, Any] = {"resourceVersion": 10**15, **INITIAL_EVENTS}
    async with api.watch(api.path("leases"), **query) as stream:
        assert stream.code == 200
        event = await stream.line()
    assert (event["type"], event["object"]["code"]) == ("ERROR", 504)
    assert event["object"]["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


async def test_a_watch_from_the_future_without_them_is_silent(api: Api) -> None:
    async with api.watch(api.path("leases"), resourceVersion=10**15, timeoutSeconds=2) as stream:
        await api.create("leases", lease("l"))
        assert (stream.code, await stream.rest()) == (200, [])
