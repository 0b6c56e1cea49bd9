"""The histogram that queues, probes and commands share."""

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram

from kruise_probe.histogram import DurationHistogram

BOUNDS = (0.1, 1.0, 10.0)
SECONDS = st.lists(st.sampled_from([0.0, 0.05, 0.1, 0.5, 1.0, 10.0, 11.0]))


@given(SECONDS, SECONDS)
def test_the_sum_of_two_histograms_counts_like_the_librarys(
    first: list[float], second: list[float]
) -> None:
    registry = CollectorRegistry()
    expected = Histogram("expected", "", buckets=BOUNDS, registry=registry)
    parts = DurationHistogram(BOUNDS), DurationHistogram(BOUNDS)
    for durations, part in zip((first, second), parts, strict=True):
        for each in durations:
            part.observe(each)
            expected.observe(each)
    parts[0].add(parts[1])

    assert parts[0].buckets() == [
        (bound, registry.get_sample_value("expected_bucket", {"le": bound}))
        for bound in ("0.1", "1.0", "10.0", "+Inf")
    ]
    assert abs(parts[0].total_seconds - sum(first) - sum(second)) < 1e-9
