"""A histogram of durations that a collector turns into samples.

Source: prometheus/client_golang's Histogram, but without registration and lock: its series end with its owner.
"""

from bisect import bisect_left


class DurationHistogram:
    """Counts durations by bucket. A collector turns it into samples at each scrape."""

    __slots__ = ("_bounds", "counts", "total_seconds")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        """`bounds` are the upper bounds of the buckets in seconds, ascending, without infinity."""
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total_seconds = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(self._bounds, seconds)] += 1
        self.total_seconds += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Return each bucket's bound and cumulative count, as `HistogramMetricFamily` expects them."""
        cumulative = 0
        found = list[tuple[str, float]]()
        for bound, count in zip(
            (*self._bounds, "+Inf"),
            self.counts,
            strict=True,
        ):
            cumulative += count
            found.append((str(bound), cumulative))
        return found
