"""The Grafana dashboard, for late or missing results.

Many controllers expose Go's metric names, so every query is held to the jobs that `$job` offers: those that expose
a metric of our own. `$__rate_interval` is Grafana's.

Source: Grafana's dashboard JSON model, schema version 39.
"""

from typing import Any, Final, NamedTuple

Json = dict[str, Any]

TITLE: Final = "kruise-probe"
SIDECAR_LABEL: Final = {"grafana_dashboard": "1"}
"""Label by which Grafana's sidecar finds ConfigMaps, with the default settings of its charts."""

_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH: Final = 24
_JOBS: Final = "kruise_probe_loop_lag_seconds"
"""A metric that only manager and daemon expose."""

JOB: Final = 'job=~"$job"'


class Query(NamedTuple):
    """A PromQL query and the legend of its series."""

    expression: str
    legend: str = "__auto"


class Panel(NamedTuple):
    """A panel: a single value (`stat`) or a graph."""

    title: str
    description: str
    unit: str
    queries: tuple[Query, ...]
    kind: str = "timeseries"

    @property
    def size(self) -> tuple[int, int]:
        return (6, 4) if self.kind == "stat" else (8, 8)


def _stat(title: str, description: str, expression: str) -> Panel:
    return Panel(title, description, "short", (Query(expression),), "stat")


def _rate(metric: str, by: str, legend: str = "", more: str = "") -> Query:
    chosen = f"{{{JOB}{more}}}"
    return Query(f"sum by ({by}) (rate({metric}{chosen}[$__rate_interval]))", legend or "__auto")


def _quantile(quantile: str, histogram: str, by: str = "", legend: str = "") -> Query:
    grouped = f"sum by (le{by and ', '}{by}) (rate({histogram}_bucket{{{JOB}}}[$__rate_interval]))"
    return Query(
        f"histogram_quantile({quantile}, {grouped})", legend or f"p{quantile.removeprefix('0.')}"
    )


PANELS: Final = (
    _stat(
        "Managers that lead",
        "1 is right; 0: no results reach pods.",
        f'sum(leader_election_master_status{{{JOB}, name="kruise-probe-manager"}})',
    ),
    _stat(
        "Silent daemons",
        "Nodes whose conditions are Unknown, as nobody probes there.",
        f"max(kruise_probe_agents_stale{{{JOB}}})",
    ),
    _stat("Probes", "Of all daemons that are scraped.", f"sum(kruise_probe_probes{{{JOB}}})"),
    _stat("Daemons", "Those that are scraped.", f"count(kruise_probe_exec_in_flight{{{JOB}}})"),
    Panel(
        "Probes by state",
        "Unknown is no verdict: not running, not created, no way to run the command.",
        "short",
        (Query(f"sum by (state) (kruise_probe_probes{{{JOB}}})", "{{state}}"),),
    ),
    Panel(
        "Result to condition",
        "From a changed result in a NodePodProbe to the pod that shows it.",
        "s",
        (
            _quantile("0.50", "kruise_probe_result_to_condition_seconds"),
            _quantile("0.99", "kruise_probe_result_to_condition_seconds"),
        ),
    ),
    Panel(
        "Results per second",
        "By what probes said.",
        "ops",
        (_rate("prober_probe_total", "result", "{{result}}", ', probe_type="custom"'),),
    ),
    Panel(
        "Slowest probes",
        "How long the ten slowest take, at the 99th percentile.",
        "s",
        (
            Query(
                f"topk(10, {_quantile('0.99', 'prober_probe_duration_seconds', 'namespace, pod, probe').expression})",
                "{{namespace}}/{{pod}} {{probe}}",
            ),
        ),
    ),
    Panel(
        "Missed ticks",
        "Probes whose last run was still under way. Look for commands that hang.",
        "ops",
        (_rate("kruise_probe_ticks_missed_total", "instance", "{{instance}}"),),
    ),
    Panel(
        "Commands",
        "Running in containers now, and how long they waited for a place.",
        "short",
        (
            Query(f"sum(kruise_probe_exec_in_flight{{{JOB}}})", "in flight"),
            _quantile("0.99", "kruise_probe_exec_queue_seconds", legend="waited, p99 in seconds"),
            Query(
                f"sum(kruise_probe_exec_queued_probes{{{JOB}}})", "Unknown, as they wait too long"
            ),
        ),
    ),
    Panel(
        "Waiting in the manager",
        "Keys in its queues.",
        "short",
        (Query(f"sum by (name) (workqueue_depth{{{JOB}}})", "{{name}}"),),
    ),
    Panel(
        "Wait in the manager",
        "From queued to taken up, at the 99th percentile.",
        "s",
        (_quantile("0.99", "workqueue_queue_duration_seconds", "name", "{{name}}"),),
    ),
    Panel(
        "Reconciles per second",
        "What the manager did, and what failed.",
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
        "By answer.",
        "reqps",
        (_rate("rest_client_requests_total", "job, method, code", "{{job}} {{method}} {{code}}"),),
    ),
    Panel(
        "Status writes",
        "Of NodePodProbes, by all daemons.",
        "ops",
        (
            _rate("kruise_probe_status_writes_total", "job", "written"),
            _rate("kruise_probe_status_write_failures_total", "job", "failed"),
        ),
    ),
    Panel(
        "Event loop",
        "The longest delay of the last 15 seconds; beyond five a process is not ready.",
        "s",
        (Query(f"max by (instance) ({_JOBS}{{{JOB}}})", "{{instance}}"),),
    ),
)


def dashboard() -> Json:
    """Build the JSON to import in Grafana; data source and jobs are selected there."""
    variables = [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
        {
            "name": "job",
            "label": "Job",
            "type": "query",
            "datasource": _SOURCE,
            "query": {"query": f"label_values({_JOBS}, job)", "refId": "job"},
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
        "panels": _placed(),
    }


def _placed() -> list[Json]:
    """Place panels left to right, row by row."""
    placed: list[Json] = []
    x = y = 0
    for number, panel in enumerate(PANELS, 1):
        width, height = panel.size
        place = {"x": x, "y": y, "w": width, "h": height}
        placed.append(_drawn(panel, number, place))
        x += width
        if x + width > _WIDTH:
            x, y = 0, y + height
    return placed


def _drawn(panel: Panel, number: int, place: Json) -> Json:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": _SOURCE,
        "gridPos": place,
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
