"""The validation rules; the API server and the webhook are tested with the same table."""

from urllib.parse import unquote_to_bytes

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st
from support.marker_table import GOOD, edited

from kruise_probe.api.meta import HostPort
from kruise_probe.api.problems import MAX_ERRORS, Problem, first_errors
from kruise_probe.api.v1alpha1 import PodProbeMarkerSpec
from kruise_probe.api.validation import marker_errors
from kruise_probe.daemon.probers.urls import url_of_action


def spec_with(path: str, value: object) -> PodProbeMarkerSpec:
    return msgspec.convert(edited(path, value), PodProbeMarkerSpec)


def errors_of(path: str, value: object) -> list[Problem]:
    """The errors of a good marker with this value."""
    return first_errors(marker_errors(spec_with(path, value)))


def test_selector_is_immutable() -> None:
    old = msgspec.convert(GOOD, PodProbeMarkerSpec)
    new = spec_with("selector.matchLabels", {"app": "other"})

    (error,) = marker_errors(new, old)

    assert error.path == "spec.selector"
    assert "immutable" in str(error)
    assert not list(marker_errors(old, old))


def test_errors_have_the_api_server_format() -> None:
    (error,) = errors_of("probes.0.name", "a#b")

    assert str(error).startswith('spec.probes[0].name: Invalid value: "a#b": must not contain')
    assert error.cause["reason"] == "FieldValueInvalid"


def test_policy_state_is_unique_per_probe() -> None:
    policy = {"state": "Succeeded", "labels": {"a": "b"}}

    (error,) = errors_of("probes.0.markerPolicy", [policy, policy])

    assert error.path == "spec.probes[0].markerPolicy[1].state"
    assert error.message.endswith(": must be unique in this markerPolicy")


def test_a_range_of_status_codes_is_not_reversed() -> None:
    """CEL cannot check it within its cost limit: a value that is a number or a text counts as long as a whole request."""
    probe = GOOD["probes"][0] | {
        "probe": {"httpGet": {"port": 1}},
        "successWhen": {"statusCodes": [503, "200-200", "299-200", "500-200"]},
    }
    errors = errors_of("probes.0", probe)

    assert {error.path for error in errors} == {
        "spec.probes[0].successWhen.statusCodes[2]",
        "spec.probes[0].successWhen.statusCodes[3]",
    }


@given(st.text(st.sampled_from("/:?#%2Fz@[a\t ä"), max_size=12))
@example("%2F")
@example("///")
@example("%2F ")
def test_valid_path_is_sent_as_written(path: str) -> None:
    if errors_of("probes.0.probe", {"httpGet": {"port": 1, "path": path}}):
        return

    url = url_of_action("HTTP", HostPort("h", 1), path)
    sent, _, sent_query = url.target.partition("?")
    without_fragment, _, _ = path.partition("#")
    written, _, query = without_fragment.partition("?")

    path_bytes = unquote_to_bytes(written)
    assert unquote_to_bytes(sent) in (path_bytes, b"/" + path_bytes)
    assert sent_query == query


def test_at_most_twenty_errors_are_listed() -> None:
    keys = [f"-{number}" for number in range(1000)]
    errors = errors_of(
        "probes.0.markerPolicy.0.labels",
        dict.fromkeys(keys, "x"),
    )
    assert len(errors) == MAX_ERRORS + 1
    assert "more errors are not listed" in errors[-1].message
    few = keys[:MAX_ERRORS]
    errors = errors_of(
        "probes.0.markerPolicy.0.labels",
        dict.fromkeys(few, "x"),
    )
    assert [error.value for error in errors] == few


def test_long_value_is_shortened_in_the_error() -> None:
    errors = errors_of("probes.0.podConditionType", "x" * 10_000)

    assert errors
    assert all(len(str(error)) < 1000 for error in errors)
