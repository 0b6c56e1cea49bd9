"""Alert rules of the documentation, as a PrometheusRule for the Prometheus operator."""

from typing import Any, Final, NamedTuple

from kruise_probe.manifests.rbac import NAME_LABEL, PRODUCT


class Alert(NamedTuple):
    """One alert rule; `minutes` is how long the expression must be true."""

    name: str
    expression: str
    minutes: int
    severity: str
    summary: str


ALERTS: Final = (
    Alert(
        "KruiseProbeNoManager",
        'absent(leader_election_master_status{name="kruise-probe-manager"} == 1)',
        2,
        "critical",
        "No kruise-probe manager leads. Results no longer reach pods.",
    ),
    Alert(
        "KruiseProbeAgentsSilent",
        "max(kruise_probe_daemons_stale) > 0",
        5,
        "warning",
        "Daemons of some nodes do not renew their Leases. Conditions of their pods are Unknown.",
    ),
    Alert(
        "KruiseProbeReconcilesFail",
        'sum by (controller) (rate(controller_runtime_reconcile_errors_total{controller=~"podprobemarker|nodepodprobe|podmarks|daemons"}[5m])) > 0.1',
        10,
        "warning",
        "Reconciles of the manager fail repeatedly. Its log names the object.",
    ),
    Alert(
        "KruiseProbeSlow",
        "histogram_quantile(0.99, sum by (le) (rate(kruise_probe_result_to_condition_seconds_bucket[5m]))) > 5",
        10,
        "warning",
        "Results take more than 5 s from NodePodProbe to pod.",
    ),
    Alert(
        "KruiseProbeTicksMissed",
        "sum by (instance) (rate(kruise_probe_ticks_missed_total[10m])) > 1",
        15,
        "warning",
        "Probes of a node miss their period. Look for commands that hang.",
    ),
    Alert(
        "KruiseProbeExecQueued",
        "sum by (instance) (kruise_probe_exec_queued_probes) > 0",
        10,
        "warning",
        "Commands of some pods occupy the exec places of a node. Other exec probes there are Unknown.",
    ),
    Alert(
        "KruiseProbeProbesLeftOut",
        "max by (reason) (kruise_probe_probes_left_out) > 0",
        10,
        "warning",
        "A limit keeps probes from running. The Degraded condition of their markers names it.",
    ),
)


def alert_groups() -> list[dict[str, Any]]:
    """Build the groups of a rule file."""
    rules = [
        {
            "alert": each.name,
            "expr": each.expression,
            "for": f"{each.minutes}m",
            "labels": {"severity": each.severity},
            "annotations": {"summary": each.summary},
        }
        for each in ALERTS
    ]
    return [{"name": PRODUCT, "rules": rules}]


def prometheus_rule(namespace: str) -> dict[str, Any]:
    """Build the PrometheusRule."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": PRODUCT, "namespace": namespace, "labels": {NAME_LABEL: PRODUCT}},
        "spec": {"groups": alert_groups()},
    }
