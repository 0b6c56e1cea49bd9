"""The histogram that queues, probes and commands share."""

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram

from kruise_probe.api.histogram import DurationHistogram

BOUNDS = (0.1, 1.0, 10.0)


@given(st.lists(st.sampled_from([0.0, 0.05, 0.1, 0.5, 1.0, 10.0, 11.0])))
def test_a_histogram_counts_like_the_librarys(durations: list[float]) -> None:
    registry = CollectorRegistry()
    expected = Histogram(
        "expected",
        "",
        buckets=BOUNDS,
        registry=registry,
    )
    ours = DurationHistogram(BOUNDS)
    for duration in durations:
        ours.observe(duration)
        expected.observe(duration)

    assert ours.buckets() == [
        (bound, registry.get_sample_value("expected_bucket", {"le": bound}))
        for bound in ("0.1", "1.0", "10.0", "+Inf")
    ]
    assert abs(ours.total_seconds - sum(durations)) < 1e-9
