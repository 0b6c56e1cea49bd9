from prometheus_client.core import CollectorRegistry

from kruise_probe.api.keys import NamespacedName, ProbeKey, ProbeName
from kruise_probe.daemon.metrics import ProbeCollector, ProbeSeries


def series(probe: str = "m#p", uid: str = "uid") -> ProbeSeries:
    made = ProbeSeries(
        ProbeKey(uid, "main", ProbeName.parse(probe)), NamespacedName("shop", "web-0")
    )
    made.type = "exec"
    return made


def registry_of(*all_series: ProbeSeries) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(ProbeCollector(lambda: iter(all_series)))
    return registry


NAMES = {"probe_type": "custom", "container": "main", "pod": "web-0", "namespace": "shop", "probe": "m#p"}  # fmt: skip


def test_b21_totals_and_durations_have_kubelets_names() -> None:
    one = series()
    one.succeeded(0.03)
    one.succeeded(20.0)
    one.failed += 1
    registry = registry_of(one)

    def total(result: str) -> float | None:
        labels = {**NAMES, "pod_uid": "uid", "result": result}
        return registry.get_sample_value("prober_probe_total", labels)

    assert (total("successful"), total("failed"), total("unknown")) == (2, 1, None)
    duration = "prober_probe_duration_seconds"
    assert registry.get_sample_value(f"{duration}_count", NAMES) == 2
    assert registry.get_sample_value(f"{duration}_sum", NAMES) == 20.03
    assert registry.get_sample_value(f"{duration}_bucket", {**NAMES, "le": "0.025"}) == 0
    assert registry.get_sample_value(f"{duration}_bucket", {**NAMES, "le": "0.05"}) == 1
    assert registry.get_sample_value(f"{duration}_bucket", {**NAMES, "le": "10.0"}) == 1
    assert registry.get_sample_value(f"{duration}_bucket", {**NAMES, "le": "+Inf"}) == 2


def test_two_pods_of_one_name_give_no_duplicate_series() -> None:
    old, new = series(uid="old"), series(uid="new")
    old.succeeded(1.0)
    new.succeeded(1.0)
    samples = [
        (sample.name, tuple(sorted(sample.labels.items())))
        for family in registry_of(old, new).collect()
        for sample in family.samples
    ]
    assert len(samples) == len(set(samples))


def test_more_probes_than_a_portion_are_all_exported() -> None:
    all_series = [series(f"m#{number}") for number in range(101)]
    for each in all_series:
        each.failed += 1
    registry = registry_of(*all_series)
    for number in range(101):
        labels = {**NAMES, "probe": f"m#{number}", "pod_uid": "uid", "result": "failed"}
        assert registry.get_sample_value("prober_probe_total", labels) == 1
