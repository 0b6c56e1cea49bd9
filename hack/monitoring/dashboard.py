"""The Grafana dashboard: shows why results are late or missing.

Other controllers expose the same metric names, so every query selects the jobs of `$job`: those that expose a metric
of our own. `$__rate_interval` is a variable of Grafana.

Source: Grafana's dashboard JSON model, schema version 39.
"""

from typing import Any, Final, NamedTuple

Json = dict[str, Any]

TITLE: Final = "kruise-probe"
SIDECAR_LABEL: Final = {"grafana_dashboard": "1"}
"""Label by which Grafana's sidecar finds ConfigMaps, with the default settings of its charts."""

_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH: Final = 24
_OWN_METRIC: Final = "kruise_probe_loop_lag_seconds"
"""A metric that only manager and daemon expose."""

JOBS: Final = 'job=~"$job"'


class PromQuery(NamedTuple):
    """A PromQL query and the legend of its series."""

    expression: str
    legend: str = "__auto"


class Panel(NamedTuple):
    """A panel: a single value (`stat`) or a graph."""

    title: str
    description: str
    unit: str
    queries: tuple[PromQuery, ...]
    kind: str = "timeseries"

    @property
    def size(self) -> tuple[int, int]:
        return (6, 4) if self.kind == "stat" else (8, 8)


def _stat(title: str, description: str, expression: str) -> Panel:
    return Panel(title, description, "short", (PromQuery(expression),), "stat")


def _rate(metric: str, by: str, legend: str, more: str = "") -> PromQuery:
    selector = f"{{{JOBS}{more}}}"
    return PromQuery(f"sum by ({by}) (rate({metric}{selector}[$__rate_interval]))", legend)


def _quantile(quantile: str, histogram: str, by: str = "", legend: str = "") -> PromQuery:
    grouped = f"sum by (le{by and ', '}{by}) (rate({histogram}_bucket{{{JOBS}}}[$__rate_interval]))"
    return PromQuery(
        f"histogram_quantile({quantile}, {grouped})", legend or f"p{quantile.removeprefix('0.')}"
    )


PANELS: Final = (
    _stat(
        "Leading managers",
        "Must be 1. With 0, no results are written to pods.",
        f'sum(leader_election_master_status{{{JOBS}, name="kruise-probe-manager"}})',
    ),
    _stat(
        "Stale daemons",
        "Nodes whose daemon does not renew its Lease; their conditions are Unknown.",
        f"max(kruise_probe_daemons_stale{{{JOBS}}})",
    ),
    _stat(
        "Probes",
        "Running probes of all daemons that are scraped.",
        f"sum(kruise_probe_probes{{{JOBS}}})",
    ),
    _stat("Daemons", "Daemons that are scraped.", f"count(kruise_probe_exec_in_flight{{{JOBS}}})"),
    Panel(
        "Probes by state",
        "Unknown: no result, because the container does not run or the probe cannot run.",
        "short",
        (PromQuery(f"sum by (state) (kruise_probe_probes{{{JOBS}}})", "{{state}}"),),
    ),
    Panel(
        "Result to condition",
        "Time from a changed result in a NodePodProbe until its condition is written to the pod.",
        "s",
        (
            _quantile("0.50", "kruise_probe_result_to_condition_seconds"),
            _quantile("0.99", "kruise_probe_result_to_condition_seconds"),
        ),
    ),
    Panel(
        "Results per second",
        "Results of all probes, by result.",
        "ops",
        (_rate("prober_probe_total", "result", "{{result}}", ', probe_type="custom"'),),
    ),
    Panel(
        "Slowest probes",
        "Duration of the ten slowest probes, 99th percentile.",
        "s",
        (
            PromQuery(
                f"topk(10, {_quantile('0.99', 'prober_probe_duration_seconds', 'namespace, pod, probe').expression})",
                "{{namespace}}/{{pod}} {{probe}}",
            ),
        ),
    ),
    Panel(
        "Missed ticks",
        "Ticks at which a probe did not run, because the previous attempt was in flight. Look for commands that hang.",
        "ops",
        (_rate("kruise_probe_ticks_missed_total", "instance", "{{instance}}"),),
    ),
    Panel(
        "Commands",
        "Commands of exec probes in flight, and the time they waited for a place.",
        "short",
        (
            PromQuery(f"sum(kruise_probe_exec_in_flight{{{JOBS}}})", "in flight"),
            _quantile(
                "0.99", "kruise_probe_exec_queue_seconds", legend="queue time p99, in seconds"
            ),
            PromQuery(
                f"sum(kruise_probe_exec_queued_probes{{{JOBS}}})", "Unknown, queued for too long"
            ),
        ),
    ),
    Panel(
        "Workqueue depth",
        "Keys in the manager's queues.",
        "short",
        (PromQuery(f"sum by (name) (workqueue_depth{{{JOBS}}})", "{{name}}"),),
    ),
    Panel(
        "Workqueue latency",
        "Time that a key waits in a queue, 99th percentile.",
        "s",
        (_quantile("0.99", "workqueue_queue_duration_seconds", "name", "{{name}}"),),
    ),
    Panel(
        "Reconciles per second",
        "Reconciles of the manager, by controller and result.",
        "ops",
        (
            _rate(
                "controller_runtime_reconcile_total",
                "controller, result",
                "{{controller}} {{result}}",
            ),
        ),
    ),
    Panel(
        "Requests to the API server",
        "Requests of manager and daemons, by method and status code.",
        "reqps",
        (_rate("rest_client_requests_total", "job, method, code", "{{job}} {{method}} {{code}}"),),
    ),
    Panel(
        "Status writes",
        "Writes of NodePodProbe status by all daemons.",
        "ops",
        (
            _rate("kruise_probe_status_writes_total", "job", "written"),
            _rate("kruise_probe_status_write_failures_total", "job", "failed"),
        ),
    ),
    Panel(
        "Event loop",
        "The longest delay of the last 15 seconds. Above 5 seconds, a process is not ready.",
        "s",
        (PromQuery(f"max by (instance) ({_OWN_METRIC}{{{JOBS}}})", "{{instance}}"),),
    ),
)


def dashboard() -> Json:
    """Build the JSON to import in Grafana, where users select the data source and the jobs."""
    variables = [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
        {
            "name": "job",
            "label": "Job",
            "type": "query",
            "datasource": _SOURCE,
            "query": {"query": f"label_values({_OWN_METRIC}, job)", "refId": "job"},
            "refresh": 2,
            "multi": True,
            "includeAll": True,
        },
    ]
    return {
        "uid": TITLE,
        "title": TITLE,
        "tags": [TITLE],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": variables},
        "panels": _panels(),
    }


def _panels() -> list[Json]:
    """Build the panels, placed left to right and row by row."""
    placed: list[Json] = []
    x = y = 0
    for number, panel in enumerate(PANELS, 1):
        width, height = panel.size
        position = {"x": x, "y": y, "w": width, "h": height}
        placed.append(_panel(panel, number, position))
        x += width
        if x + width > _WIDTH:
            x, y = 0, y + height
    return placed


def _panel(panel: Panel, number: int, position: Json) -> Json:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": _SOURCE,
        "gridPos": position,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": _SOURCE,
                "expr": query.expression,
                "legendFormat": query.legend,
            }
            for index, query in enumerate(panel.queries)
        ],
    }
