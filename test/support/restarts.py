"""What restarts must not change, on a playground: the end state of a history of edits with a kill at any point, and the
results of steady probes while the daemon is killed or its runtime is unavailable."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

from support.hollow import marker_object
from support.playground import ControlledPlayground
from support.programs import address_of, fetch, sum_of, until
from support.raw_api import marker_path, pod_path
from support.watched import WatchedObjects, annotations, condition, labels, results_of

from kruise_probe.api.keys import NamespacedName

Json = dict[str, Any]

HISTORY_SECONDS = 2.0
"""About the duration of the edits; a kill happens at a random time in it."""

STATE = {"exec": {"command": ["sh", "-c", "cat state; grep -q good state"]}}
REFUSED = {"tcpSocket": {"port": 9}}
IDLE = ["sh", "-c", "while :; do sleep 1; done"]


class Kill(NamedTuple):
    """The killed processes, the time of the kill, and the time until their restart."""

    who: tuple[str, ...]
    at_seconds: float
    away_seconds: float


def random_kill(random: Random) -> Kill:
    who = random.choice([("manager",), ("daemon",), ("manager", "daemon")])
    return Kill(who, random.uniform(0, HISTORY_SECONDS), random.choice([0, 0.1, 1.0]))


async def strike(playground: ControlledPlayground, kill: Kill) -> None:
    await asyncio.sleep(kill.at_seconds)
    if "manager" in kill.who:
        await playground.kill_manager()
    if "daemon" in kill.who:
        await playground.kill_daemon()
    await asyncio.sleep(kill.away_seconds)
    playground.start_manager()
    playground.start_daemon()


def marked(name: str, how: Json, value: str = "good") -> Json:
    policies = [
        {"state": "Succeeded", "labels": {f"{name}/state": value}},
        {"state": "Failed", "annotations": {f"{name}/state": "bad"}},
    ]
    return {
        "name": name,
        "containerName": "main",
        "probe": how,
        "podConditionType": f"{name}/checked",
        "markerPolicy": policies,
    }


class EditHistory:
    """A fixed series of edits in a new namespace, at random intervals."""

    PODS = ("one", "two")

    def __init__(
        self,
        playground: ControlledPlayground,
        watched: WatchedObjects,
        namespace: str,
        random: Random,
    ) -> None:
        self._playground = playground
        self._watched = watched
        self._namespace = namespace
        self._random = random

    async def make(self) -> None:
        api, namespace = self._playground.api, self._namespace
        await api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        for name in self.PODS:
            container = {"name": "main", "image": "none", "command": IDLE}
            meta = {"name": name, "labels": {"app": "web"}}
            body = {"metadata": meta, "spec": {"containers": [container]}}
            await api.create(f"/api/v1/namespaces/{namespace}/pods", body)
        for name in self.PODS:
            await self._watched.pods.until(
                "runs",
                lambda pod: pod["status"].get("podIP"),
                name=name,
                namespace=namespace,
            )
            self._write_state(name, "good")

    def _write_state(self, pod: str, text: str) -> None:
        node = self._playground.node_of(pod, self._namespace)
        container = node.container(self._namespace, pod, "main") if node else None
        assert container
        (container.folder / "state").write_text(text)

    async def run(self) -> None:
        api = self._playground.api
        for step in (
            lambda: self._put("first", marked("first", STATE)),
            lambda: self._put("second", marked("second", REFUSED)),
            lambda: self._label("two", "other"),
            self._break_one,
            lambda: self._edit("first", marked("first", STATE, "edited")),
            lambda: self._label("two", "web"),
            lambda: api.delete(marker_path("second", self._namespace)),
        ):
            await step()
            await asyncio.sleep(self._random.uniform(0, 2 * HISTORY_SECONDS / 7))

    async def _put(self, name: str, probe: Json) -> None:
        body = marker_object(probe, name=name)
        await self._playground.api.create(marker_path("", self._namespace).rstrip("/"), body)

    async def _edit(self, name: str, probe: Json) -> None:
        change = {"spec": {"probes": [probe]}}
        await self._playground.api.merge(marker_path(name, self._namespace), change)

    async def _label(self, pod: str, app: str) -> None:
        change = {"metadata": {"labels": {"app": app}}}
        await self._playground.api.merge(pod_path(pod, self._namespace), change)

    async def _break_one(self) -> None:
        self._write_state("one", "broken")

    def end(self) -> Json:
        """The expected end state."""
        return {
            "pods": {
                "one": {
                    "conditions": {"first/checked": ("False", "broken")},
                    "labels": {"app": "web"},
                    "annotations": {"first/state": "bad"},
                },
                "two": {
                    "conditions": {"first/checked": ("True", "good")},
                    "labels": {"app": "web", "first/state": "edited"},
                    "annotations": {},
                },
            },
            "entries": {"one": ["first#first"], "two": ["first#first"]},
            "results": {
                "one": {"first#first": ("Failed", "broken")},
                "two": {"first#first": ("Succeeded", "good")},
            },
            "markers": {"first": (2, 1, 1, 0, 0)},
        }

    def look(self) -> Json:
        """The current state."""
        pods, entries, results = {}, {}, {}
        for name in self.PODS:
            pod = self._watched.pods.newest(name, self._namespace) or {"metadata": {}}
            conditions = pod.get("status", {}).get("conditions") or ()
            pods[name] = {
                "conditions": {
                    each["type"]: (each["status"], each.get("message"))
                    for each in conditions
                    if each["type"].endswith("/checked")
                },
                "labels": labels(pod),
                "annotations": annotations(pod),
            }
        for report in self._watched.node_pod_probes.all():
            for entry in report["spec"].get("podProbes") or ():
                if entry["namespace"] == self._namespace:
                    entries[entry["name"]] = [each["name"] for each in entry["probes"]]
            for entry in (report.get("status") or {}).get("podProbeStatuses") or ():
                if entry["namespace"] == self._namespace:
                    results[entry["name"]] = {
                        each["name"]: (each["state"], each.get("message"))
                        for each in entry["probeStates"]
                    }
        keys = ("matchedPods", "succeeded", "failed", "unknown", "nodesBehind")
        markers = {
            each["metadata"]["name"]: tuple(each.get("status", {}).get(key) for key in keys)
            for each in self._watched.markers.all()
            if each["metadata"]["namespace"] == self._namespace
        }
        return {"pods": pods, "entries": entries, "results": results, "markers": markers}

    def differs(self) -> Json:
        """The differences between the current and the expected state."""
        look, end = self.look(), self.end()
        return {
            key: {"is": look[key], "should be": end[key]} for key in end if look[key] != end[key]
        }

    async def clean(self) -> None:
        for name in self.PODS:
            await self._playground.api.delete(pod_path(name, self._namespace), grace_seconds=0)
        await self._playground.api.delete(marker_path("first", self._namespace))


async def history_with_a_kill(
    playground: ControlledPlayground, watched: WatchedObjects, namespace: str, random: Random
) -> Kill:
    """One history with one kill; returns when the end state is as without the kill.

    Raises:
        AssertionError: it does not come to that.
    """
    kill = random_kill(random)
    history = EditHistory(playground, watched, namespace, random)
    await history.make()
    async with asyncio.TaskGroup() as group:
        group.create_task(strike(playground, kill))
        group.create_task(history.run())
    await watched.wait_while(f"the end of {namespace} after {kill}", history.differs)
    await history.clean()
    return kill


class SteadyProbes:
    """Ten probes of each pod with constant results, half of them Failed."""

    PER_POD = 10

    def __init__(
        self, playground: ControlledPlayground, watched: WatchedObjects, *, pods: int = 10
    ) -> None:
        self._playground = playground
        self._watched = watched
        self._steady = 0
        self._pods = [f"steady-{number}" for number in range(pods)]

    @contextlib.asynccontextmanager
    async def standing(self) -> Any:
        """Creates them, and waits until nothing has been written for two seconds."""
        api = self._playground.api
        with contextlib.ExitStack() as stack:
            for name in self._pods:
                container = {"name": "main", "image": "none", "command": IDLE}
                meta = {"name": name, "labels": {"app": "steady"}}
                body = {"metadata": meta, "spec": {"containers": [container]}}
                await api.create("/api/v1/namespaces/default/pods", body)
            for name in self._pods:
                pod = await self._watched.pods.until(
                    "runs",
                    lambda each: each["status"].get("podIP"),
                    name=name,
                    namespace="default",
                )
                stack.enter_context(_listening(pod["status"]["podIP"], 7000))
            await api.create(
                marker_path("").rstrip("/"),
                marker_object(
                    *(self._probe(number) for number in range(self.PER_POD)),
                    name="steady",
                    app="steady",
                ),
            )
            await self._watched.pods.wait("all have conditions", self._complete)
            await self._quiet()
            self._steady = len(self._reports())
            yield
            await api.delete(marker_path("steady"))
            for name in self._pods:
                await api.delete(pod_path(name), grace_seconds=0)

    def _reports(self) -> list[Json]:
        return self._watched.node_pod_probes.history[NamespacedName("", "node-0")]

    def flaps(self) -> list[str]:
        """The results in the NodePodProbe that have changed since."""
        steady, *later = [results_of(each) for each in self._reports()[self._steady - 1 :]]
        return [
            f"{key}: {steady.get(key)}, then {states.get(key)}"
            for states in later
            for key in sorted(steady.keys() | states.keys())
            if steady.get(key) != states.get(key)
        ]

    def _probe(self, number: int) -> Json:
        good = number % 2 == 0
        if number < 6:
            how: Json = {"tcpSocket": {"port": 7000 if good else 9}}
        else:
            how = {"exec": {"command": ["true" if good else "false"]}}
        how |= {"periodSeconds": 2, "timeoutSeconds": 10, "failureThreshold": 2}
        return marked(f"p{number}", how)

    def _complete(self) -> bool:
        found = [self._watched.pods.newest(name, "default") for name in self._pods]
        return all(
            pod and condition(pod, f"p{number}/checked").get("status") == str(number % 2 == 0)
            for pod in found
            for number in range(self.PER_POD)
        )

    async def _quiet(self) -> None:
        seen: list[dict[str, int]] = [{}, {}]

        async def no_news() -> bool:
            await asyncio.sleep(2.0)
            seen.append(self.writes())
            return seen[-1] == seen[-2] == seen[-3]

        await until("nothing is written any more", no_news)

    def writes(self) -> dict[str, int]:
        """Number of writes by verb and resource, without Leases."""
        found: dict[str, int] = {}
        for (verb, resource, _), count in self._playground.server.faults.requests.items():
            if verb in ("create", "update", "patch", "delete") and "leases" not in resource:
                found[f"{verb} {resource}"] = found.get(f"{verb} {resource}", 0) + count
        return found

    def writes_since(self, before: dict[str, int]) -> dict[str, int]:
        now = self.writes()
        return {key: n - before.get(key, 0) for key, n in now.items() if n != before.get(key, 0)}

    async def probed_again(self) -> None:
        """Returns when every probe has run again."""
        await self._until_probes(await self._probes() + len(self._pods) * self.PER_POD)

    async def _probes(self) -> float:
        return sum_of("prober_probe_total", (await fetch(self._url("metrics")))[1])

    async def _until_probes(self, total: float) -> None:
        async def so_many() -> bool:
            return await self._probes() >= total

        await until(f"{total:g} probes since its start", so_many)

    async def until_runtime_is(self, *, ready: bool) -> None:
        """Returns when the daemon reports it."""

        async def says_so() -> bool:
            return ((await fetch(self._url("readyz")))[0] == 200) == ready

        await until(f"the daemon is ready: {ready}", says_so)

    def _url(self, path: str) -> str:
        address = address_of(self._playground.daemons["node-0"].log, f"/{path}")
        return f"http://{address}/{path}"

    async def restart_the_daemon(self, times: int) -> dict[str, int]:
        """Kills and starts it; every fifth time it stops with SIGTERM. Returns the writes meanwhile."""
        before = self.writes()
        for number in range(times):
            if number % 5 == 4:
                await self._playground.restart_daemon()
            else:
                await self._playground.kill_daemon()
                self._playground.start_daemon()
            await self._until_probes(len(self._pods) * self.PER_POD)
        return self.writes_since(before)

    async def take_the_runtime_away(self, seconds: float) -> dict[str, int]:
        """Returns the writes until every probe has run again."""
        before = self.writes()
        node = self._playground.nodes[0]
        node.stop_runtime()
        await self.until_runtime_is(ready=False)
        await asyncio.sleep(seconds)
        node.start_runtime()
        await self.until_runtime_is(ready=True)
        await self.probed_again()
        return self.writes_since(before)


@contextlib.contextmanager
def _listening(ip: str, port: int) -> Iterator[None]:
    """Accepts connections; the backlog holds all connections of a test."""
    with socket.create_server((ip, port), backlog=4096) as listener:
        loop = asyncio.get_running_loop()
        listener.setblocking(False)

        def take() -> None:
            with contextlib.suppress(BlockingIOError):
                while True:
                    listener.accept()[0].close()

        loop.add_reader(listener, take)
        try:
            yield
        finally:
            loop.remove_reader(listener)
