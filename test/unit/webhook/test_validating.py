"""Validation by the webhook: the table of markers on creation, and which parts of an update are validated."""

import base64
import copy
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
    operation: str, new: Json | None, old: Json | None = None, **more: Any
) -> AdmissionRequest:
    request = {"uid": "u", "operation": operation, "name": "m", "object": new, "oldObject": old}
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    return decode_review(json.dumps({**body, "request": {**request, **more}}).encode())


def response(request: AdmissionRequest) -> Json:
    found: Json = json.loads(encode_review(request, review_marker(request)))["response"]
    assert found["uid"] == "u"
    return found


@pytest.mark.parametrize("row", [pytest.param(row, id=row.id) for row in VALID])
def test_a_valid_marker_is_allowed(row: Row) -> None:
    found = response(review("CREATE", marker(row.spec)))
    found.pop("warnings", None)

    assert found == {"uid": "u", "allowed": True}


@pytest.mark.parametrize("row", [pytest.param(row, id=row.id) for row in INVALID])
def test_an_invalid_marker_is_denied_and_the_field_named(row: Row) -> None:
    found = response(review("CREATE", marker(row.spec)))

    assert found["allowed"] is False
    assert found["status"]["code"] == 422
    assert row.field in {cause["field"] for cause in causes(found)}
    assert all(cause["message"] for cause in causes(found))


def test_b13_a_field_without_effect_gets_one_warning() -> None:
    field = "probes.0.probe.terminationGracePeriodSeconds"
    found = response(review("CREATE", marker(edited(field, 5))))
    assert found["allowed"] is True
    (warning,) = found["warnings"]
    assert warning.startswith("spec.probes[0].probe.terminationGracePeriodSeconds has no effect")


OLD_BAD = edited("probes.0.podConditionType", "Ready")
OLD_RESERVED = edited("probes.0.markerPolicy.0.labels", {"pod-template-hash": "x"})
OLD_PATH = edited("probes.0.probe", {"httpGet": {"port": 1, "path": "/50%"}})
OLD_ENDLESS = edited("probes.0.probe.timeoutSeconds", 7200)


@cases(
    "new old allowed",
    label_on_an_old_one=(marker(OLD_BAD, labels={"a": "b"}), OLD_BAD, True),
    finalizer_of_an_old_one=(marker(OLD_BAD, finalizers=[]), OLD_BAD, True),
    reserved=(marker(OLD_RESERVED, labels={"a": "b"}), OLD_RESERVED, True),
    endless=(marker(OLD_ENDLESS, finalizers=[]), OLD_ENDLESS, True),
    broken_escape=(marker(OLD_PATH, labels={"a": "b"}), OLD_PATH, True),
    invalid_one_is_corrected=(marker(GOOD), OLD_BAD, True),
    valid_one_becomes_invalid=(marker(OLD_BAD), GOOD, False),
    selector_changed=(marker(edited("selector.matchLabels", {"app": "x"})), GOOD, False),
    probe_renamed=(marker(edited("probes.0.name", "Busy")), GOOD, True),
)
def test_only_changed_parts_of_an_update_are_validated(new: Json, old: Json, allowed: bool) -> None:
    assert response(review("UPDATE", new, marker(old)))["allowed"] is allowed


def causes(found: Json) -> list[Json]:
    listed: list[Json] = found["status"]["details"]["causes"]
    return listed


def test_a_denial_with_very_many_errors_is_short() -> None:
    labels = {f"-{n}": "x" * 100 for n in range(MAX_MARKS)}
    found = response(review("CREATE", marker(edited("probes.0.markerPolicy.0.labels", labels))))
    assert len(causes(found)) == 21
    assert len(json.dumps(found)) < 20_000


def test_an_update_lists_new_errors_behind_many_old_ones() -> None:
    """Errors of the unchanged selector take none of the places."""
    selector = {"selector": {"matchLabels": {f"-{n}": "x" for n in range(100)}}}
    new = edited("probes.0.name", "a#b") | selector
    old = GOOD | selector
    found = response(review("UPDATE", marker(new), marker(old)))
    assert [each["field"] for each in causes(found)] == ["spec.probes[0].name"]


@cases(
    "request_",
    delete=review("DELETE", None, marker(OLD_BAD)),
    status=review("UPDATE", marker(OLD_BAD), None, subResource="status"),
)
def test_requests_that_do_not_change_the_spec_are_allowed(request_: AdmissionRequest) -> None:
    assert response(request_)["allowed"]


def test_a_field_of_a_wrong_type_is_denied_and_named() -> None:
    spec = copy.deepcopy(GOOD)
    spec["probes"][0]["probe"] = {"exec": {"command": "/idle.sh"}}

    found = response(review("CREATE", marker(spec)))

    assert found["allowed"] is False
    assert "$.spec.probes[0].probe.exec.command" in found["status"]["message"]


def test_an_object_of_too_many_values_is_not_decoded() -> None:
    def status(commas: int) -> Json:
        raw = msgspec.Raw(b"[%s0]" % (b"0," * commas))
        found: Json = response(msgspec.structs.replace(review("CREATE", None), object=raw))
        return found["status"]  # type: ignore[no-any-return]

    assert status(MAX_VALUES)["code"] == 422
    assert status(MAX_VALUES + 1)["code"] == 413
    assert f"more than {MAX_VALUES} values" in status(MAX_VALUES + 1)["message"]


def test_items_of_a_list_that_is_too_long_are_not_validated() -> None:
    selector = {"matchLabels": {f"-{n}": "x" for n in range(10_000)}}
    found = causes(response(review("CREATE", marker({**GOOD, "selector": selector}))))
    assert [each["field"] for each in found] == ["spec.selector.matchLabels"] * 2
    assert "there may be more errors" in found[1]["message"]


def envelope(version: str, kind: str) -> bytes:
    request = {"uid": "u", "operation": "CREATE"}
    wire = {"apiVersion": f"admission.k8s.io/{version}", "kind": kind, "request": request}
    return json.dumps(wire).encode()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[1]",
        b'{"request":{"uid":1}}',
        pytest.param(envelope("v1beta1", "AdmissionReview"), id="another-version"),
        pytest.param(envelope("v1", "TokenReview"), id="another-kind"),
    ],
)
def test_a_body_that_is_not_a_review_is_an_error(body: bytes) -> None:
    with pytest.raises(BadReview, match="not an AdmissionReview"):
        decode_review(body)


def test_warnings_are_truncated_to_256_characters() -> None:
    long = AdmissionResponse(warnings=["x" * 5000])
    found = msgspec.json.decode(encode_review(review("UPDATE", marker(GOOD)), long))["response"]

    assert found["allowed"]
    assert found["warnings"] == ["x" * 256]


BAD = {**GOOD, "probes": [{**GOOD["probes"][0], "containerName": ""}]}


@cases(
    "old",
    of_another_schema={**marker(GOOD), "spec": {"probes": "none"}},
    of_too_many_values={**marker(BAD), "x": [1] * (MAX_VALUES + 2)},
)
def test_an_old_marker_that_is_not_read_excuses_no_error(old: Json) -> None:
    assert response(review("UPDATE", marker(BAD), marker(BAD)))["allowed"] is True
    assert response(review("UPDATE", marker(BAD), old))["allowed"] is False
    assert response(review("UPDATE", marker(GOOD), old))["allowed"] is True


def test_a_denial_brackets_several_errors_and_not_one() -> None:
    two = {**GOOD, "probes": [{**GOOD["probes"][0], "containerName": "", "name": ""}]}
    single, several = (response(review("CREATE", marker(each)))["status"] for each in (BAD, two))

    assert "is invalid: spec.probes[0]" in single["message"]
    assert "is invalid: [spec.probes[0]" in several["message"]
    assert several["message"].endswith("]")
    assert (len(single["details"]["causes"]), len(several["details"]["causes"])) == (1, 2)


def test_a_patch_is_a_json_patch_in_base64() -> None:
    patch = [{"op": "add", "path": "/metadata/annotations", "value": {"a": "b"}}]
    encoded = encode_review(review("CREATE", marker(GOOD)), AdmissionResponse(patch=patch))
    found = json.loads(encoded)["response"]
    assert found["patchType"] == "JSONPatch"
    assert json.loads(base64.b64decode(found["patch"])) == patch
