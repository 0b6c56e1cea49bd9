"""Every query of the dashboard finds something in what a manager and a daemon really expose."""

import json
import math
from collections.abc import Iterable
from pathlib import Path

import yaml
from integration.usage_namespace import NEEDS_PROMTOOL, UsageNamespace
from prometheus_client.parser import text_string_to_metric_families
from support import programs
from support.hollow import CONDITION
from support.playground import ControlledPlayground
from support.shell import run
from support.wire import Json

ROOT = Path(__file__).parents[3]
DASHBOARD = json.loads((ROOT / "config/prometheus/dashboard.json").read_text())
QUERIES = [query["expr"] for panel in DASHBOARD["panels"] for query in panel["targets"]]


async def exposed(address: str, *wanted: str) -> str:
    """The metrics there, once all of `wanted` are in them."""
    found = ""

    async def has_all() -> bool:
        nonlocal found
        _, found = await programs.fetch(f"http://{address}/metrics")
        return all(text in found for text in wanted)

    await programs.until(f"{address} exposes {wanted}", has_all)
    return found


def series_of(text: str, **target: str) -> Iterable[dict[str, str]]:
    """The series for promtool: each sample has the same value for ten minutes."""
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = {**target, **sample.labels}
            selector = ",".join(f'{name}="{value}"' for name, value in labels.items())
            number = "0" if math.isnan(sample.value) else f"{sample.value:g}"
            yield {"series": f"{sample.name}{{{selector}}}", "values": f"{number}+0x10"}


def finds_something(query: str) -> Json:
    """A test of promtool: the query finds a series after nine minutes."""
    expression = query.replace("$job", ".+").replace("$__rate_interval", "5m")
    return {
        "expr": f"count({expression}) > bool 0",
        "eval_time": "9m",
        "exp_samples": [{"labels": "{}", "value": 1}],
    }


@NEEDS_PROMTOOL
async def test_every_query_finds_what_is_exposed(
    playground: ControlledPlayground, ns: UsageNamespace, tmp_path: Path
) -> None:
    await ns.pod("seen")
    await ns.marker()
    await ns.shows(
        "seen",
        lambda pod: CONDITION in str(pod["status"]),
    )
    node = playground.node_of("seen", ns.namespace)
    daemon = programs.address_of(playground.daemons[node.name].log, "/metrics")
    # The playground's own manager takes part in no election.
    flags = (f"--namespace={ns.namespace}", f"--leader-election-id=dashboard-{ns.namespace}")
    async with programs.running(
        "manager",
        playground.kubeconfig,
        tmp_path,
        *flags,
    ) as program:
        await program.ready()
        manager = program.address("/metrics")
        leads = f'leader_election_master_status{{name="dashboard-{ns.namespace}"}} 1'
        of_manager = await exposed(manager, leads, "controller_runtime_reconcile_total{")
        of_daemon = await exposed(daemon, f'namespace="{ns.namespace}"')
    shown = [
        *series_of(of_manager, job="managers", instance=manager),
        *series_of(of_daemon, job="daemons", instance=daemon),
    ]
    for series in shown:
        series["series"] = series["series"].replace(
            'name="dashboard-', 'name="kruise-probe-manager", was="'
        )
    test = {
        "interval": "1m",
        "input_series": shown,
        "promql_expr_test": [finds_something(query) for query in QUERIES],
    }
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump({"tests": [test]}))

    command = "promtool test rules tests.yaml"
    ran = await run(command, kubeconfig=playground.kubeconfig, folder=tmp_path)

    assert ran.code == 0, ran.out + ran.err


def test_every_panel_has_queries_of_the_chosen_job() -> None:
    assert all(panel["targets"] for panel in DASHBOARD["panels"])
    assert all('job=~"$job"' in query for query in QUERIES)
