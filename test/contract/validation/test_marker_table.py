"""The table of markers against API servers alone: no manager, no webhook."""

from collections.abc import Awaitable, Callable, Collection
from typing import Any

import msgspec
import pytest
from contract.contract_api import COPIES, DEFINITIONS, Api, ApiResponse, in_own_group
from support import programs
from support.marker_table import INCOMPLETE, INVALID, VALID, Row, edited, policy
from support.wire import typed

from kruise_probe.api.labels import DELETION_COST
from kruise_probe.api.problems import CEL_BOUNDS, ErrorKind, Problem
from kruise_probe.api.reserved import MAX_ALLOWED_LABELS
from kruise_probe.api.v1alpha1 import PodProbeMarkerSpec
from kruise_probe.api.validation import marker_errors
from kruise_probe.manifests.crds import marker_crd

Answers = dict[str, ApiResponse]
REASONS = {ErrorKind.REQUIRED, ErrorKind.FORBIDDEN}
"""Those that a CEL rule gives; others are Invalid."""


def marker(spec: dict[str, Any], name: str = "m") -> dict[str, Any]:
    return typed("PodProbeMarker", metadata={"name": name}, spec=spec)


@pytest.fixture(scope="session")
def answers(with_api: Any) -> Answers:
    """What the server says to each row, by the row's id."""
    found: Answers = {}

    async def ask(api: Api) -> None:
        path = api.path("podprobemarkers")
        for number, row in enumerate((*VALID, *INVALID, *INCOMPLETE)):
            found[row.id] = await api.post(path, marker(row.spec, f"m{number}"))

    with_api(ask)
    return found


@pytest.mark.parametrize("row", [pytest.param(row, id=row.id) for row in VALID])
def test_a_good_marker_is_taken(answers: Answers, row: Row) -> None:
    assert answers[row.id].code == 201, answers[row.id]


@pytest.mark.parametrize("row", [pytest.param(row, id=row.id) for row in (*INVALID, *INCOMPLETE)])
def test_a_bad_marker_is_refused_and_the_field_named(answers: Answers, row: Row, kind: str) -> None:
    answer = answers[row.id]

    assert answer.code == 422, answer
    fields = {cause["field"] for cause in answer.body["details"]["causes"]}
    expected = {row.expected_of_server} if kind == "real" else {row.field, row.expected_of_server}
    assert expected & fields, answer


def errors_of(row: Row) -> list[Problem]:
    """What the decoder says about the row's field, except limits, which the schema checks."""
    errors = marker_errors(msgspec.convert(row.spec, PodProbeMarkerSpec))
    return [each for each in errors if each.path == row.field and each.reason not in CEL_BOUNDS]


@pytest.mark.parametrize("kind", ["real"], indirect=True, scope="session")
@pytest.mark.parametrize("row", [pytest.param(row, id=row.id) for row in INVALID if errors_of(row)])
def test_a_rule_gives_the_reason_of_the_decoder(answers: Answers, row: Row) -> None:
    """A rule that fails instead of being false has another reason and message."""
    errors, causes = errors_of(row), answers[row.id].body["details"]["causes"]
    causes = [each for each in causes if each["field"] == row.expected_of_server]
    messages = [each["message"] for each in causes]
    if any("in body should" in each for each in messages):
        return  # a bound of the schema
    reasons = {each.cause["reason"] for each in errors if each.reason in REASONS}

    assert reasons <= {each["reason"] for each in causes}, causes
    assert row.field.endswith(".regex") or not any("evaluating rule" in each for each in messages)
    for key in {each.key for each in errors if each.key and each.key.isprintable()}:
        named = (f'"{key}"', DELETION_COST)  # that rule is about one key only
        assert row.server_field or any(each in text for each in named for text in messages)


def test_http_get_is_completed_and_numbers_are_not(with_api: Any) -> None:
    """Null is as absent."""

    async def create(api: Api) -> None:
        null = {"httpGet": {"port": 80, "scheme": None}, "periodSeconds": None}
        spec = edited("probes.0.probe", null)

        created = await api.create("podprobemarkers", marker(spec))

        probe = created.body["spec"]["probes"][0]["probe"]
        assert probe == {"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}}

    with_api(create)


BEFORE_THE_RULES = {
    "native-condition": edited("probes.0.podConditionType", "Ready"),
    "reserved-label": edited("probes.0.markerPolicy.0.labels", {"pod-template-hash": "x"}),
    "endless-timeout": edited("probes.0.probe.timeoutSeconds", 7200),
    "broken-escape": edited("probes.0.probe", {"httpGet": {"port": 1, "path": "/50%"}}),
    "header-name": edited(
        "probes.0.probe", {"httpGet": {"port": 1, "httpHeaders": [{"name": "a_b", "value": ""}]}}
    ),
    "state-twice": edited("probes.0.markerPolicy", [policy(), policy()]),
    "126-keys": edited(
        "probes.0.markerPolicy",
        [
            policy(
                state,
                labels=dict.fromkeys(map("k{}".format, range(32)), "v"),
                annotations=dict.fromkeys(map("a{}".format, range(31)), "v"),
            )
            for state in ("Succeeded", "Failed")
        ],
    ),
    "long-command": edited("probes.0.probe.exec.command", ["sh", "-c", "x" * 30_000]),
}


@pytest.mark.parametrize("kind", ["real"], indirect=True, scope="session")
@pytest.mark.parametrize(
    "spec", [pytest.param(each, id=name) for name, each in BEFORE_THE_RULES.items()]
)
def test_a_marker_from_before_the_rules_stays_editable(with_api: Any, spec: dict[str, Any]) -> None:
    """In a group of its own, so that the cluster's markers keep their CRD; the playground's server ratchets nothing."""

    async def upgrade(api: Api) -> None:
        group = f"{api.unique}.example.com"
        path = f"{DEFINITIONS}/{COPIES}.{group}"
        objects = f"/apis/{group}/v1alpha1/namespaces/{api.namespace}/{COPIES}"
        old = {**marker(spec), "apiVersion": f"{group}/v1alpha1"}
        try:
            assert (await api.post(DEFINITIONS, in_group(group, with_rules=False))).code == 201
            await until(lambda: api.post(objects, old), code=201)
            present = (await api.get(path)).body
            ruled = in_group(group, with_rules=True)["spec"]
            assert (await api.put(path, {**present, "spec": ruled})).code == 200
            await until(lambda: api.post(objects, old, dryRun="All"), code=422)

            labelled = await api.merge(f"{objects}/m", {"metadata": {"labels": {"a": "b"}}})
            same_probes = await api.merge(f"{objects}/m", {"spec": old["spec"]})

            assert labelled.code == 200, labelled
            assert same_probes.code == 200, same_probes
        finally:
            await api.delete(path)

    with_api(upgrade)


@pytest.mark.parametrize("kind", ["real"], indirect=True, scope="session")
def test_the_definition_opens_the_keys_that_it_was_made_with(with_api: Any) -> None:
    """In a group of its own, with as many keys as may be opened, and long ones: CEL's cost budget has room for them."""

    async def install(api: Api) -> None:
        group = f"{api.unique}.example.com"
        objects = f"/apis/{group}/v1alpha1/namespaces/{api.namespace}/{COPIES}"
        allowed = ["pod-template-hash", *(f"{'k' * 50}.kubernetes.io/{n:060}" for n in range(31))]
        assert len(allowed) == MAX_ALLOWED_LABELS

        def writing(*keys: str) -> dict[str, Any]:
            spec = edited("probes.0.markerPolicy.0.labels", dict.fromkeys(keys, "x"))
            return {**marker(spec), "apiVersion": f"{group}/v1alpha1"}

        crd = in_group(group, with_rules=True, allowed_labels=allowed)
        created = await api.post(DEFINITIONS, crd)
        assert created.code == 201, created
        try:
            await until(lambda: api.post(objects, writing(*allowed), dryRun="All"), code=201)
            refused = await api.post(objects, writing("controller-revision-hash"), dryRun="All")
            assert refused.code == 422, refused
            (cause,) = refused.body["details"]["causes"]
            assert (
                '"controller-revision-hash": is reserved: controllers identify' in cause["message"]
            )
        finally:
            await api.delete(f"{DEFINITIONS}/{COPIES}.{group}")

    with_api(install)


def in_group(
    group: str, *, with_rules: bool, allowed_labels: Collection[str] = ()
) -> dict[str, Any]:
    """The marker's CRD under another group; without rules it is as bare as Kruise's."""
    crd = marker_crd(allowed_labels)
    if not with_rules:
        schema: dict[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema
    return in_own_group(crd, group)


async def until(ask: Callable[[], Awaitable[ApiResponse]], *, code: int) -> None:
    """A CRD is served, and a changed one obeyed, some moments after it is written."""

    async def answers() -> bool:
        return (await ask()).code == code

    await programs.until(f"it answers {code}", answers)
