"""The table of markers against API servers alone: no manager, no webhook."""

from operator import attrgetter

import msgspec
import pytest
from contract.contract_api import Api, ApiResponse, Session, named
from contract.marker_copies import MarkerCopy
from support.marker_table import INCOMPLETE, INVALID, VALID, Row, edited, policy
from support.wire import Json

from kruise_probe.api.labels import DELETION_COST
from kruise_probe.api.problems import CEL_BOUNDS, ErrorKind, Problem
from kruise_probe.api.reserved import MAX_ALLOWED_LABELS
from kruise_probe.api.v1alpha1 import PodProbeMarkerSpec
from kruise_probe.api.validation import marker_errors
from kruise_probe.manifests.crds import marker_crd

Answers = dict[str, ApiResponse]
REASONS = {ErrorKind.REQUIRED, ErrorKind.FORBIDDEN}
"""Those that a CEL rule gives; others are Invalid."""


def marker(spec: Json, name: str = "m") -> Json:
    return {**named("PodProbeMarker", name), "spec": spec}


def rows_of(*rows: Row) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "row",
        rows,
        ids=attrgetter("id"),
    )


real_server_only = pytest.mark.parametrize(
    "kind",
    ["real"],
    indirect=True,
    scope="session",
)


@pytest.fixture(scope="session")
def answers(with_api: Session) -> Answers:
    """The server's response to each row, by the row's id."""
    found: Answers = {}

    async def ask(api: Api) -> None:
        path = api.path("podprobemarkers")
        for number, row in enumerate((*VALID, *INVALID, *INCOMPLETE)):
            found[row.id] = await api.post(
                path,
                marker(row.spec, f"m{number}"),
            )

    with_api(ask)
    return found


@rows_of(*VALID)
def test_a_good_marker_is_taken(answers: Answers, row: Row) -> None:
    assert answers[row.id].code == 201, answers[row.id]


@rows_of(*INVALID, *INCOMPLETE)
def test_a_bad_marker_is_refused_and_the_field_named(answers: Answers, row: Row, kind: str) -> None:
    answer = answers[row.id]

    assert answer.code == 422, answer
    fields = {field for _, field in answer.causes}
    expected = {row.expected_of_server}
    if kind == "embedded":
        expected.add(row.field)
    assert expected & fields, answer


def errors_of(row: Row) -> list[Problem]:
    """The decoder's errors on the row's field, without limits, which the schema checks."""
    errors = marker_errors(msgspec.convert(row.spec, PodProbeMarkerSpec))
    return [error for error in errors if error.path == row.field and error.reason not in CEL_BOUNDS]


@real_server_only
@rows_of(*filter(errors_of, INVALID))
def test_a_rule_gives_the_reason_of_the_decoder(answers: Answers, row: Row) -> None:
    """A rule that fails instead of being false has another reason and message."""
    errors = errors_of(row)
    causes = [
        cause
        for cause in answers[row.id].body["details"]["causes"]
        if cause["field"] == row.expected_of_server
    ]
    messages = "\n".join(cause["message"] for cause in causes)
    if "in body should" in messages:
        return  # a bound of the schema
    reasons = {error.cause["reason"] for error in errors if error.reason in REASONS}

    assert reasons <= {cause["reason"] for cause in causes}, causes
    if not row.field.endswith(".regex"):
        assert "evaluating rule" not in messages
    if row.server_field:
        return
    for error in errors:
        if error.key and error.key.isprintable():
            # The rule on the deletion cost is about that key only.
            assert f'"{error.key}"' in messages or DELETION_COST in messages


def test_http_get_is_completed_and_numbers_are_not(with_api: Session) -> None:
    """Null is as absent."""

    async def create(api: Api) -> None:
        null = {
            "httpGet": {"port": 80, "scheme": None},
            "periodSeconds": None,
        }
        spec = edited("probes.0.probe", null)

        created = await api.create("podprobemarkers", marker(spec))

        probe = created.body["spec"]["probes"][0]["probe"]
        assert probe == {
            "httpGet": {
                "port": 80,
                "path": "/",
                "scheme": "HTTP",
            }
        }

    with_api(create)


LABELS = {f"k{number}": "v" for number in range(32)}
ANNOTATIONS = {f"a{number}": "v" for number in range(31)}
BEFORE_THE_RULES = {
    "native-condition": edited("probes.0.podConditionType", "Ready"),
    "reserved-label": edited("probes.0.markerPolicy.0.labels", {"pod-template-hash": "x"}),
    "endless-timeout": edited("probes.0.probe.timeoutSeconds", 7200),
    "broken-escape": edited("probes.0.probe", {"httpGet": {"port": 1, "path": "/50%"}}),
    "header-name": edited(
        "probes.0.probe",
        {
            "httpGet": {
                "port": 1,
                "httpHeaders": [{"name": "a_b", "value": ""}],
            }
        },
    ),
    "state-twice": edited("probes.0.markerPolicy", [policy(), policy()]),
    "126-keys": edited(
        "probes.0.markerPolicy",
        [
            policy(state, labels=LABELS, annotations=ANNOTATIONS)
            for state in ("Succeeded", "Failed")
        ],
    ),
    "long-command": edited("probes.0.probe.exec.command", ["sh", "-c", "x" * 30_000]),
}


@real_server_only
@pytest.mark.parametrize(
    "spec",
    BEFORE_THE_RULES.values(),
    ids=BEFORE_THE_RULES,
)
def test_a_marker_from_before_the_rules_stays_editable(with_api: Session, spec: Json) -> None:
    """The playground's API server has no ratcheting validation."""

    async def upgrade(api: Api) -> None:
        copy = MarkerCopy(api)
        bare = marker_crd()
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        bare["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema
        async with copy.installed(bare):
            await copy.until(spec, 201)
            present = (await api.get(copy.path)).body
            ruled = copy.renamed(marker_crd())["spec"]
            assert (await api.put(copy.path, {**present, "spec": ruled})).code == 200
            await copy.until(spec, 422, dryRun="All")

            labelled = await api.merge(f"{copy.objects}/m", {"metadata": {"labels": {"a": "b"}}})
            same_probes = await api.merge(f"{copy.objects}/m", {"spec": spec})

            assert labelled.code == 200, labelled
            assert same_probes.code == 200, same_probes

    with_api(upgrade)


@real_server_only
def test_the_definition_opens_the_keys_that_it_was_made_with(with_api: Session) -> None:
    """With as many keys as may be opened, and long ones: CEL's cost budget has room for them."""
    long_keys = [f"{'k' * 50}.kubernetes.io/{number:060}" for number in range(31)]
    allowed = ["pod-template-hash", *long_keys]
    assert len(allowed) == MAX_ALLOWED_LABELS

    def writing(*keys: str) -> Json:
        return edited("probes.0.markerPolicy.0.labels", dict.fromkeys(keys, "x"))

    async def install(api: Api) -> None:
        copy = MarkerCopy(api)
        async with copy.installed(marker_crd(allowed)):
            await copy.until(writing(*allowed), 201, dryRun="All")
            refused = await copy.create(writing("controller-revision-hash"), dryRun="All")
            assert refused.code == 422, refused
            (cause,) = refused.body["details"]["causes"]
            reserved = '"controller-revision-hash": is reserved: controllers identify'
            assert reserved in cause["message"]

    with_api(install)
