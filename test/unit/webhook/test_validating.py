"""Validation by the webhook: the table of markers on creation, and which parts of an update are validated."""

import base64
import json
from typing import Any

import msgspec
import pytest
from support.cases import cases
from support.marker_table import GOOD, INVALID, VALID, Row, edited
from support.wire import Json

from kruise_probe.api.v1alpha1 import MAX_MARKS
from kruise_probe.webhook.admission import (
    MAX_VALUES,
    AdmissionRequest,
    AdmissionResponse,
    BadReview,
    decode_review,
    encode_review,
    review_marker,
)


def marker(spec: Json, **metadata: Any) -> Json:
    return {"metadata": {"name": "m", "namespace": "n", **metadata}, "spec": spec}


def review(
    operation: str,
    new: Json | None,
    old: Json | None = None,
    **more: Any,
) -> AdmissionRequest:
    request = {
        "uid": "u",
        "operation": operation,
        "name": "m",
        "object": new,
        "oldObject": old,
        **more,
    }
    return decode_review(envelope(request))


def envelope(request: Json, version: str = "v1", kind: str = "AdmissionReview") -> bytes:
    wire = {
        "apiVersion": f"admission.k8s.io/{version}",
        "kind": kind,
        "request": request,
    }
    return json.dumps(wire).encode()


def encoded(request: AdmissionRequest, response: AdmissionResponse) -> Json:
    found: Json = json.loads(encode_review(request, response))["response"]
    return found


def response(request: AdmissionRequest) -> Json:
    found = encoded(request, review_marker(request))
    assert found["uid"] == "u"
    return found


def creation(spec: Json) -> Json:
    """The response to a new marker."""
    return response(review("CREATE", marker(spec)))


def update(new: Json, old: Json) -> Json:
    """The response to a change of the spec."""
    return response(review("UPDATE", marker(new), marker(old)))


def causes(found: Json) -> list[Json]:
    listed: list[Json] = found["status"]["details"]["causes"]
    return listed


def fields(found: Json) -> list[str]:
    """The fields that are named as causes."""
    return [cause["field"] for cause in causes(found)]


def rows(table: tuple[Row, ...]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("row", table, ids=[row.id for row in table])


@rows(VALID)
def test_a_valid_marker_is_allowed(row: Row) -> None:
    found = creation(row.spec)
    found.pop("warnings", None)

    assert found == {"uid": "u", "allowed": True}


@rows(INVALID)
def test_an_invalid_marker_is_denied_and_the_field_named(row: Row) -> None:
    found = creation(row.spec)

    assert found["allowed"] is False
    assert found["status"]["code"] == 422
    assert row.field in fields(found)
    assert all(cause["message"] for cause in causes(found))


def test_b13_a_field_without_effect_gets_one_warning() -> None:
    field = "probes.0.probe.terminationGracePeriodSeconds"
    found = creation(edited(field, 5))
    assert found["allowed"] is True
    (warning,) = found["warnings"]
    assert warning.startswith("spec.probes[0].probe.terminationGracePeriodSeconds has no effect")


LABELS = {"a": "b"}
OLD_BAD = edited("probes.0.podConditionType", "Ready")
OLD_RESERVED = edited("probes.0.markerPolicy.0.labels", {"pod-template-hash": "x"})
OLD_PATH = edited("probes.0.probe", {"httpGet": {"port": 1, "path": "/50%"}})
OLD_ENDLESS = edited("probes.0.probe.timeoutSeconds", 7200)


@cases(
    "new old allowed",
    label_on_an_old_one=(marker(OLD_BAD, labels=LABELS), OLD_BAD, True),
    finalizer_of_an_old_one=(marker(OLD_BAD, finalizers=[]), OLD_BAD, True),
    reserved=(marker(OLD_RESERVED, labels=LABELS), OLD_RESERVED, True),
    endless=(marker(OLD_ENDLESS, finalizers=[]), OLD_ENDLESS, True),
    broken_escape=(marker(OLD_PATH, labels=LABELS), OLD_PATH, True),
    invalid_one_is_corrected=(marker(GOOD), OLD_BAD, True),
    valid_one_becomes_invalid=(marker(OLD_BAD), GOOD, False),
    selector_changed=(marker(edited("selector.matchLabels", {"app": "x"})), GOOD, False),
    probe_renamed=(marker(edited("probes.0.name", "Busy")), GOOD, True),
)
def test_only_changed_parts_of_an_update_are_validated(new: Json, old: Json, allowed: bool) -> None:
    assert response(review("UPDATE", new, marker(old)))["allowed"] is allowed


def test_a_denial_with_very_many_errors_is_short() -> None:
    labels = {f"-{n}": "x" * 100 for n in range(MAX_MARKS)}
    found = creation(edited("probes.0.markerPolicy.0.labels", labels))
    assert len(causes(found)) == 21
    assert len(json.dumps(found)) < 20_000


def test_an_update_lists_new_errors_behind_many_old_ones() -> None:
    """Errors of the unchanged selector take none of the places."""
    selector = {"selector": {"matchLabels": {f"-{n}": "x" for n in range(100)}}}
    new = edited("probes.0.name", "a#b") | selector
    old = GOOD | selector
    assert fields(update(new, old)) == ["spec.probes[0].name"]


@cases(
    "request_",
    delete=review("DELETE", None, marker(OLD_BAD)),
    status=review("UPDATE", marker(OLD_BAD), None, subResource="status"),
)
def test_requests_that_do_not_change_the_spec_are_allowed(request_: AdmissionRequest) -> None:
    assert response(request_)["allowed"]


def test_a_field_of_a_wrong_type_is_denied_and_named() -> None:
    found = creation(edited("probes.0.probe", {"exec": {"command": "/idle.sh"}}))

    assert found["allowed"] is False
    assert "$.spec.probes[0].probe.exec.command" in found["status"]["message"]


def test_an_object_of_too_many_values_is_not_decoded() -> None:
    def status(commas: int) -> Any:
        raw = msgspec.Raw(b"[%s0]" % (b"0," * commas))
        request = msgspec.structs.replace(review("CREATE", None), object=raw)
        return response(request)["status"]

    refused = status(MAX_VALUES + 1)
    assert status(MAX_VALUES)["code"] == 422
    assert refused["code"] == 413
    assert f"more than {MAX_VALUES} values" in refused["message"]


def test_items_of_a_list_that_is_too_long_are_not_validated() -> None:
    selector = {"matchLabels": {f"-{n}": "x" for n in range(10_000)}}
    found = creation({**GOOD, "selector": selector})
    assert fields(found) == ["spec.selector.matchLabels"] * 2
    _, last = causes(found)
    assert "there may be more errors" in last["message"]


CREATE = {"uid": "u", "operation": "CREATE"}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[1]",
        b'{"request":{"uid":1}}',
        pytest.param(envelope(CREATE, version="v1beta1"), id="another-version"),
        pytest.param(envelope(CREATE, kind="TokenReview"), id="another-kind"),
    ],
)
def test_a_body_that_is_not_a_review_is_an_error(body: bytes) -> None:
    with pytest.raises(BadReview, match="not an AdmissionReview"):
        decode_review(body)


def test_warnings_are_truncated_to_256_characters() -> None:
    long = AdmissionResponse(warnings=["x" * 5000])
    found = encoded(review("UPDATE", marker(GOOD)), long)

    assert found["allowed"]
    assert found["warnings"] == ["x" * 256]


BAD = edited("probes.0.containerName", "")
TWICE_BAD = edited("probes.0", {**BAD["probes"][0], "name": ""})


@cases(
    "old",
    of_another_schema={**marker(GOOD), "spec": {"probes": "none"}},
    of_too_many_values={**marker(BAD), "x": [1] * (MAX_VALUES + 2)},
)
def test_an_old_marker_that_is_not_read_excuses_no_error(old: Json) -> None:
    assert update(BAD, BAD)["allowed"] is True
    assert response(review("UPDATE", marker(BAD), old))["allowed"] is False
    assert response(review("UPDATE", marker(GOOD), old))["allowed"] is True


def test_a_denial_brackets_several_errors_and_not_one() -> None:
    single = creation(BAD)
    several = creation(TWICE_BAD)

    assert "is invalid: spec.probes[0]" in single["status"]["message"]
    message = several["status"]["message"]
    assert "is invalid: [spec.probes[0]" in message
    assert message.endswith("]")
    assert len(causes(single)) == 1
    assert len(causes(several)) == 2


def test_a_patch_is_a_json_patch_in_base64() -> None:
    patch = [{"op": "add", "path": "/metadata/annotations", "value": {"a": "b"}}]
    found = encoded(
        review("CREATE", marker(GOOD)),
        AdmissionResponse(patch=patch),
    )
    assert found["patchType"] == "JSONPatch"
    assert json.loads(base64.b64decode(found["patch"])) == patch
