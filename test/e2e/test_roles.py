"""Hand-overs of real databases: PostgreSQL with streaming replication, and Redis with a replica, by the markers of the page Roles.

The pods have the node's own programs. KRUISE_PROBE_HANDOVERS=40 makes so many, and compares their times with the limit.
"""

import os
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from support.cases import cases
from support.kubectl import Kubectl, KubectlWatch
from support.output import print_line
from support.pages import block
from support.programs import address_of, sum_of
from support.real_node import busybox_pod
from support.target import condition, labels, status_of
from support.wire import Json, typed

from kruise_probe.api.times import utc_now

pytestmark = pytest.mark.on_the_node

HANDOVERS = int(os.environ.get("KRUISE_PROBE_HANDOVERS", "2"))
LATE = HANDOVERS // 20
"""How many may take longer than the limit."""
PERIOD_SECONDS = 1.0
MARGIN_SECONDS = 0.3
ROLE = "db.example.com/role"
CONDITION = "db.example.com/primary"
NAMES = ("db-0", "db-1")
POSTGRES_PROGRAMS = "".join(map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin"))[-1:]))


class Database(NamedTuple):
    """A program with a primary and a replica. The scripts run in its pod; it runs while there is no /tmp/stopped.

    Attributes:
        promote: makes the replica at this address a primary, and returns when it was one, by the monotonic clock.
    """

    heading: str
    server: str
    begin: str
    follow: str
    stop: str
    promote: Callable[[str], float]


def promote_postgres(address: str) -> float:
    wait = "perform pg_promote(false); while pg_is_in_recovery() loop perform pg_sleep(0.002); end loop;"
    now = "select extract(epoch from clock_timestamp())"
    client = (f"{POSTGRES_PROGRAMS}/psql", "-h", address, "-U", "postgres", "-qXAt")
    done = subprocess.check_output([*client, "-c", f"do $$ begin {wait} end $$", "-c", now])
    return time.monotonic() - (utc_now().timestamp() - float(done))


def promote_redis(address: str) -> float:
    now = time.monotonic()
    subprocess.check_output(["redis-cli", "-h", address, "replicaof", "no", "one"])
    return now


POSTGRES = Database(
    "PostgreSQL: streaming replication",
    server="postgres -D /tmp/data -k /tmp -c listen_addresses='*' -c fsync=off",
    begin="initdb -D /tmp/data -A trust -U postgres -N --locale=C"
    " && echo host all,replication all all trust >> /tmp/data/pg_hba.conf; rm /tmp/stopped; until pg_isready -q; do sleep 0.1; done",
    follow="rm -rf /tmp/data; pg_basebackup -h $0 -D /tmp/data -R -c fast; rm /tmp/stopped; until pg_isready -q; do sleep 0.1; done",
    stop="touch /tmp/stopped; pg_ctl -D /tmp/data -m immediate stop || true",
    promote=promote_postgres,
)
REDIS = Database(
    "Redis: one master",
    server="redis-server --protected-mode no --save '' --dir /tmp --repl-diskless-sync-delay 0",
    begin="rm /tmp/stopped; until redis-cli ping; do sleep 0.1; done",
    follow="rm /tmp/stopped; until redis-cli replicaof $0 6379; do sleep 0.1; done;"
    " until redis-cli info replication | grep master_link_status:up; do sleep 0.1; done",
    stop="touch /tmp/stopped; redis-cli shutdown nosave || true",
    promote=promote_redis,
)


def database_pod(name: str, database: Database, app: str) -> Json:
    loop = f"touch /tmp/stopped; while true; do [ -e /tmp/stopped ] || {database.server}; sleep 0.1; done"
    folders = {"usr": "/usr", "lib": "/usr/lib", "lib64": "/usr/lib64"}
    pod = busybox_pod(
        name,
        "sh",
        "-c",
        loop,
        labels={"app": app},
        volumes=[{"name": to, "hostPath": {"path": of}} for to, of in folders.items()],
    )
    pod["spec"]["containers"][0] |= {
        "name": "db",
        "env": [
            {"name": "PATH", "value": f"{POSTGRES_PROGRAMS}:/usr/bin:/bin"},
            {"name": "PGHOST", "value": "/tmp"},
            {"name": "PGUSER", "value": "postgres"},
        ],
        "securityContext": {"runAsUser": 65534},
        "volumeMounts": [
            {
                "name": to,
                "mountPath": f"/{to}",
                "readOnly": True,
            }
            for to in folders
        ],
    }
    return pod


def is_primary(pod: Json) -> bool:
    return labels(pod).get(ROLE) == "primary"


def is_held_off(pod: Json) -> bool:
    return condition(pod, CONDITION).get("reason") == "NotHolder"


class Scene:
    """A primary and a replica, their marker and the Service of the role."""

    def __init__(self, kubectl: Kubectl, database: Database, pods: KubectlWatch) -> None:
        self.database = database
        self.pods = pods
        self._kubectl = kubectl
        (self.marker,) = block("roles.md", database.heading).documents
        self.probe = self.marker["spec"]["probes"][0]

    def begin(self) -> None:
        (app,) = self.marker["spec"]["selector"]["matchLabels"].values()
        service = typed(
            "Service",
            metadata={"name": "primary"},
            spec={
                "selector": {"app": app, ROLE: "primary"},
                "ports": [{"port": 5432}],
            },
        )
        pods = [database_pod(name, self.database, app) for name in NAMES]
        self._kubectl.apply(*pods, service)
        for name in NAMES:
            self.until(
                name,
                "runs",
                lambda pod: pod["status"].get("phase") == "Running",
            )
        primary, replica = NAMES
        self.run(primary, self.database.begin)
        self.run(
            replica,
            self.database.follow,
            self.address(primary),
        )
        self.apply_marker()
        self.until(primary, "is the primary", is_primary)

    def apply_marker(self) -> None:
        self._kubectl.apply(self.marker)

    def address(self, name: str) -> str:
        address: str = self.pods.newest[name]["status"]["podIP"]
        return address

    def run(self, name: str, script: str, *arguments: str) -> None:
        command = ("exec", name, "--", "sh", "-ec", script)
        self._kubectl.run(*command, *arguments)

    def until(self, name: str, what: str, holds: Callable[[Json], bool]) -> None:
        self.pods.until(
            f"{name} {what}",
            lambda newest: name in newest and holds(newest[name]),
        )

    def until_condition(self, name: str, status: str) -> None:
        """The condition is True while the pod claims the role."""
        self.until(
            name,
            f"has {CONDITION} {status}",
            lambda pod: status_of(pod, CONDITION) == status,
        )

    def hand_over(self, old: str, new: str) -> float:
        """Promote the replica while the old primary still claims the role. Return the seconds until the label."""
        changed_at = self.database.promote(self.address(new))
        self.until(new, "is the primary", is_primary)
        seen_at = next(at for at, pod in reversed(self.pods.versions) if is_primary(pod))
        self.until(old, "is held off", is_held_off)
        return seen_at - changed_at

    def rejoin(self, old: str, new: str) -> None:
        self.run(old, self.database.stop)
        self.run(
            old,
            self.database.follow,
            self.address(new),
        )
        self.until_condition(old, "False")

    def come_back(self, old: str) -> None:
        """The old primary stops, and claims the role again when it has started."""
        self.run(old, self.database.stop)
        self.until_condition(old, "False")
        self.run(old, "rm /tmp/stopped")
        self.until_condition(old, "True")


@cases("database", postgres=POSTGRES, redis=REDIS)
def test_one_pod_has_the_role_in_each_hand_over(
    database: Database, admin: Kubectl, product: dict[str, Path]
) -> None:
    with (
        admin.new_namespace("e2e-roles") as kubectl,
        kubectl.watch("pods") as pods,
        kubectl.watch("endpointslices", "-l=kubernetes.io/service-name=primary") as slices,
    ):
        scene = Scene(kubectl, database, pods)
        scene.begin()
        took: list[float] = []
        old, new = NAMES
        for _ in range(HANDOVERS):
            took.append(scene.hand_over(old, new))
            scene.rejoin(old, new)
            old, new = new, old
        _ = scene.hand_over(old, new)
        if epoch := scene.probe["exclusive"].pop("epoch", None):
            scene.come_back(old)
            scene.until(old, "is held off", is_held_off)
            assert is_primary(pods.newest[new]), "its epoch is higher"
            scene.apply_marker()
        scene.come_back(old)
        scene.until(old, "has the role without an epoch", is_primary)
        if epoch:
            scene.probe["exclusive"]["epoch"] = epoch
            scene.apply_marker()
            scene.until(new, "has the role with the higher epoch", is_primary)
        assert_never_two(pods, slices)
    judge_times(took, product)


def assert_never_two(pods: KubectlWatch, slices: KubectlWatch) -> None:
    holders: set[str] = set()
    changes = 0
    for _, pod in pods.versions:
        name = pod["metadata"]["name"]
        if not is_primary(pod):
            holders.discard(name)
        elif name not in holders:
            holders.add(name)
            changes += 1
        assert len(holders) <= 1, holders
    sizes = [len(version["endpoints"] or ()) for _, version in slices.versions]
    assert max(sizes) == 1
    assert changes > HANDOVERS
    assert sizes.count(1) > HANDOVERS


def judge_times(took: list[float], product: dict[str, Path]) -> None:
    """Limit: the period, an attempt, and what kruise-probe takes."""
    listed = ", ".join(f"{hand_over:.2f}" for hand_over in sorted(took))
    print_line(f"{len(took)} hand-overs took {listed} s")
    if not product or HANDOVERS < 40:
        return
    address = address_of(product["daemon"], "/metrics")
    with urllib.request.urlopen(f"http://{address}/metrics") as page:
        text = page.read().decode()
    seconds = sum_of("prober_probe_duration_seconds_sum", text)
    attempts = sum_of("prober_probe_duration_seconds_count", text)
    print_line(f"an attempt takes {seconds / attempts:.3f} s")
    limit = PERIOD_SECONDS + seconds / attempts + MARGIN_SECONDS
    late = [hand_over for hand_over in took if hand_over > limit]
    assert len(late) <= LATE, limit
