"""Flags of the daemon that its environment may set."""

import pytest

from kruise_probe.cli.daemon import daemon


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("unix:///a,unix:///b", id="comma"),
        pytest.param("unix:///a unix:///b", id="space"),
        pytest.param(" unix:///a , unix:///b,", id="both"),
    ],
)
def test_commas_and_spaces_separate_endpoints_of_the_environment(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRUISE_PROBE_CRI_ENDPOINT", text)

    params = daemon.make_context("daemon", ["--node-name=a"]).params

    assert params["cri_endpoint"] == ("unix:///a", "unix:///b")
