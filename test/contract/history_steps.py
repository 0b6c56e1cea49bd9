"""Random histories of requests to an API server: which steps there are, and what they send.

A step is data: it names objects by letters, and versions and uids by what a client would know of them, so that the same step
can be sent to two servers. Most bodies are valid, so that most steps find an object to change.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

from contract.contract_api import MERGE, STRATEGIC
from support.wire import Json

NAMES = ("a", "b")
CUSTOM = ("podprobemarkers", "nodepodprobes")
CLUSTER_SCOPED = ("nodepodprobes",)
KINDS = ("pods", "leases", "events", *CUSTOM)
"""Without nodes and ReplicaSets, which controllers of the real cluster change."""
SENTINELS: tuple[Json, ...] = ({"l": "x"}, {})
STEPS = 20
"""Of a history, after its creations."""
FORMS = (MERGE, STRATEGIC)
UNUSUAL = 0.1
"""The share of unusual values."""


@dataclass(frozen=True)
class HistoryStep:
    """One request.

    Attributes:
        version: the resourceVersion that the body has: "" for none, or `current` or `stale`.
        uid: the same for the uid: `right` or `wrong`.
    """

    verb: str
    kind: str
    name: str = ""
    body: Any = None
    form: str = "application/json"
    query: tuple[tuple[str, str], ...] = ()
    subresource: str = ""
    version: str = ""
    uid: str = ""

    def __repr__(self) -> str:
        parts = [f"{self.verb} {self.kind}/{self.name}/{self.subresource}".rstrip("/")]
        parts += [f"?{'&'.join(map('='.join, self.query))}"] if self.query else []
        parts += [f"{self.form.split('/')[1]} {self.body}"] if self.body is not None else []
        parts += [f"{key}={value}" for key in ("version", "uid") if (value := getattr(self, key))]
        return " ".join(parts)


class Values(NamedTuple):
    """The values of a field; the unusual ones are mostly invalid."""

    usual: Sequence[Any]
    unusual: Sequence[Any] = ()


METADATA = {
    "labels": Values(
        [{"l": "x"}, {"l": "y"}, {"l": "x", "m": "z"}, {"n/o": ""}, {"l": None}, {}, None],
        [{"-l": "x"}, {"l": "-x"}, {"l": "x" * 64}, {"": "x"}],
    ),
    "annotations": Values([{"a": "1"}, {"a": "2", "b/c": ""}, {}, None], [{"-": "x"}]),
    "finalizers": Values(
        [["a.b/c"], ["a.b/c", "d.e/f"], [], None], [["bad name/x"], ["a.b/c", "a.b/c"]]
    ),
    "generation": Values([7]),
    "creationTimestamp": Values([None]),
    "managedFields": Values([[]]),
}


def pod_spec(*, container: Json | None = None, **fields: Any) -> Json:
    first = {"name": "c", "image": "i", **(container or {})}
    unscheduled = {"schedulerName": "nobody", "automountServiceAccountToken": False}
    return {"containers": [first], **unscheduled, **fields}


def pod_status(**fields: Any) -> Json:
    return {"phase": "Running", **fields}


READY = {"type": "Ready", "status": "True", "lastTransitionTime": None}
OTHER = {"type": "a.b/c", "status": "False"}


def probes(*names: str) -> list[Json]:
    return [
        {
            "name": each,
            "containerName": "c",
            "podConditionType": f"a.b/{each}",
            "probe": {"httpGet": {"port": 80}} if each == "q" else {"exec": {"command": ["true"]}},
        }
        for each in names
    ]


def marker_spec(key: str, *names: str, **more: Any) -> Json:
    return {"selector": {"matchLabels": {key: "b"}}, "probes": probes(*names), **more}


TIME, MICRO_TIME = "2026-01-02T03:04:05Z", "2026-01-02T03:04:05.123456Z"
PARTS: dict[str, dict[str, Values]] = {
    "pods": {
        "spec": Values(
            [
                *(pod_spec(), pod_spec(nodeName="{node}"), pod_spec(container={"image": "j:1"})),
                pod_spec(nodeName="{node}", terminationGracePeriodSeconds=5),
                pod_spec(readinessGates=[{"conditionType": "a.b/c"}], restartPolicy="Never"),
                pod_spec(container={"command": ["x"], "env": [{"name": "A", "value": "1"}]}),
            ],
            [
                *(pod_spec(containers=[]), pod_spec(container={"name": "C"})),
                *(pod_spec(container={"image": ""}), pod_spec(restartPolicy="Sometimes")),
                *(pod_spec(containerz=[]), pod_spec(container={"imagePullPolicy": "Sometimes"})),
                pod_spec(container={"livenessProbe": {"grpc": {"port": 1}, "periodSeconds": -1}}),
            ],
        ),
        "status": Values(
            [
                *(pod_status(), pod_status(message="m"), pod_status(message="")),
                *(pod_status(phase="Succeeded"), pod_status(conditions=[READY])),
                pod_status(conditions=[OTHER, READY]),
                pod_status(conditions=[{**OTHER, "reason": "R", "lastTransitionTime": TIME}]),
            ]
        ),
    },
    "leases": {
        "spec": Values(
            [
                *({}, {"holderIdentity": "x"}, {"holderIdentity": "", "leaseDurationSeconds": 15}),
                {"leaseTransitions": 1, "renewTime": MICRO_TIME, "acquireTime": None},
            ],
            [{"leaseDurationSeconds": 0}, {"leaseTransitions": -1}],
        )
    },
    "events": {
        "involvedObject": Values([{"namespace": "{ns}"}, {"namespace": "{ns}", "name": "p"}]),
        "reason": Values(["R", ""]),
        "count": Values([1, 2]),
        "lastTimestamp": Values([TIME, None]),
    },
    "podprobemarkers": {
        "spec": Values(
            [marker_spec("a", "p"), marker_spec("a", "q"), marker_spec("a", "p", "q")],
            [marker_spec("c", "p"), marker_spec("a"), marker_spec("a", "p", unknown={"a": None})],
        ),
        "status": Values([{"matchedPods": 1}, {"matchedPods": 2}, {"zzz": 1}, {}]),
    },
    "nodepodprobes": {
        "spec": Values([{"podProbes": []}, {}, {"podProbes": None}]),
        "status": Values([{"podProbeStatuses": []}, {}]),
    },
}
HEADS: dict[str, Json] = {
    "leases": {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"},
    "podprobemarkers": {"apiVersion": "apps.kruise.io/v1alpha1", "kind": "PodProbeMarker"},
    "nodepodprobes": {"apiVersion": "apps.kruise.io/v1alpha1", "kind": "NodePodProbe"},
}
VALIDATION = Values([()], [(("fieldValidation", each),) for each in ("Strict", "Ignore")])
LABEL_SELECTORS = Values(
    ["", "l=x", "l!=x", "l", "!l", "l in (x,y)", "l notin (x)", "l=x,m", "l="],
    ["l=x,", "-l=x", "l in x", "l=-x-"],
)
FIELD_SELECTORS = Values(
    ["", "", "metadata.name=a", "metadata.name!=a"], ["metadata.name=a,", "foo=bar", "a"]
)
DELETE_OPTIONS = Values(
    [None, {}, {"propagationPolicy": "Background"}],
    [
        *({"preconditions": {"uid": "x"}}, {"preconditions": {"resourceVersion": "1"}}),
        {"kind": "Pod", "apiVersion": "v1"},
    ],
)
VERBS = ("patch", "patch", "patch", "patch", "update", "update", "create", "get", "list", "delete")


class HistoryMaker:
    """Makes one history, by its seed."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._node = f"nowhere-{int(time.monotonic())}-{seed}"
        """Does not exist. Kubernetes deletes the pods of a Node that it has missed for 40 s (podgc)."""

    def history(self) -> list[HistoryStep]:
        """Steps on one or two kinds; they begin with creations, so that most of them find an object."""
        kinds = self._random.sample(KINDS, self._random.choice((1, 2)))
        first = [self._step("create", kind, name) for kind in kinds for name in NAMES]
        verbs = self._random.choices(VERBS, k=STEPS)
        return first + [
            self._step(verb, self._random.choice(kinds), self._random.choice(NAMES))
            for verb in verbs
        ]

    def _step(self, verb: str, kind: str, name: str) -> HistoryStep:
        one = self._random.choice
        if verb == "get":
            return HistoryStep(verb, kind, name)
        if verb == "list":
            selectors = {"labelSelector": LABEL_SELECTORS, "fieldSelector": FIELD_SELECTORS}
            query = tuple((key, self._one(each)) for key, each in selectors.items())
            return HistoryStep(verb, kind, query=tuple(each for each in query if each[1]))
        if verb == "delete":
            grace = one([(), (), (("gracePeriodSeconds", "0"),)])
            return HistoryStep(verb, kind, name, self._one(DELETE_OPTIONS), query=grace)
        writing = one([(), (("fieldManager", "a"),), (("fieldManager", "b"),)])
        writing += self._one(VALIDATION)
        if verb == "create":
            body = {key: self._one(each) for key, each in PARTS[kind].items()}
            body |= {**HEADS.get(kind, {}), "metadata": self._some(METADATA)}
            return HistoryStep(verb, kind, name, body, query=writing)
        subresource = one(["", "status"]) if "status" in PARTS[kind] else ""
        # A real server creates a Lease or an Event that an update does not find.
        form, uid = "application/json", ""
        if verb == "patch" or kind in ("leases", "events"):
            verb, uid = "patch", self._one(Values(["", "right"], ["wrong"]))
            form = self._one(Values([MERGE], [STRATEGIC])) if kind in CUSTOM else one(FORMS)
        version = one(["", "", "current", "stale"])
        body = self._changes(kind)
        return HistoryStep(verb, kind, name, body, form, writing, subresource, version, uid)

    def _changes(self, kind: str) -> Json:
        """A merge patch; null removes a part, but the object of an event is in the event's namespace."""
        changed = self._some({"metadata": Values([METADATA]), **PARTS[kind]})
        if "metadata" in changed:
            changed["metadata"] = self._some(METADATA)
        for key in changed:
            if key != "involvedObject" and self._random.random() < UNUSUAL:
                changed[key] = None
        return changed

    def _one(self, values: Values) -> Any:
        unusual = values.unusual and self._random.random() < UNUSUAL
        return self._filled(self._random.choice(values.unusual if unusual else values.usual))

    def _some(self, fields: Mapping[str, Values]) -> Json:
        """An object with one of these fields, or with any number of them."""
        names = [self._random.choice(list(fields))]
        if self._random.random() < 0.4:
            names = [each for each in fields if self._random.random() < 0.5]
        return {each: self._one(fields[each]) for each in names}

    def _filled(self, value: Any) -> Any:
        if isinstance(value, dict) and value.get("nodeName"):
            return {**value, "nodeName": self._node}
        return value
