"""Random histories of requests to an API server: which steps there are, and what they send.

A step is data: it names objects by letters, and versions and uids by what a client would know of them, so that the same step
can be sent to two servers.
"""

import time
from dataclasses import dataclass
from typing import Any

from contract.contract_api import MERGE, STRATEGIC
from hypothesis import strategies as st
from support.wire import Json

NAMES = ("a", "b", "c", "d")
CUSTOM = ("podprobemarkers", "nodepodprobes")
CLUSTER_SCOPED = ("nodepodprobes",)
KINDS = ("pods", "leases", "events", *CUSTOM)
"""Without nodes and ReplicaSets, which controllers of the real cluster change."""
SENTINELS: tuple[Json, ...] = ({"l": "x"}, {})


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


def rarely(
    usual: st.SearchStrategy[Any], unusual: st.SearchStrategy[Any]
) -> st.SearchStrategy[Any]:
    return st.one_of(*[usual] * 6, unusual)


LABELS = rarely(
    st.sampled_from([None, {}, {"l": "x"}, {"l": "y"}, {"l": "x", "m": "z"}, {"n/o": ""}]),
    st.sampled_from([{"-l": "x"}, {"l": "-x"}, {"l": "x" * 64}, {"l": None}, {"": "x"}]),
)
FINALIZERS = rarely(
    st.sampled_from([None, None, None, [], ["a.b/c"], ["a.b/c", "d.e/f"]]),
    st.sampled_from([["bad name/x"], ["a.b/c", "a.b/c"]]),
)
METADATA = st.fixed_dictionaries(
    {},
    optional={
        "labels": LABELS,
        "annotations": st.sampled_from([None, {}, {"a": "1"}, {"a": "2", "b/c": ""}, {"-": "x"}]),
        "finalizers": FINALIZERS,
        "generation": st.just(7),
        "creationTimestamp": st.just(None),
        "managedFields": st.just([]),
    },
)

PROBES = st.builds(
    lambda handler, more: {**handler, **more},
    st.sampled_from(
        [
            {"exec": {"command": ["true"]}},
            {"tcpSocket": {"port": 80}},
            {"httpGet": {"port": 80, "path": "/x", "scheme": "HTTPS"}},
            {"grpc": {"port": 1}},
        ]
    ),
    st.fixed_dictionaries(
        {},
        optional={
            "periodSeconds": st.sampled_from([0, 1, -1, 5]),
            "timeoutSeconds": st.sampled_from([None, 3]),
            "unknown": st.just(1),
        },
    ),
)
CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"name": rarely(st.sampled_from(["c", "d"]), st.sampled_from(["", "C"]))},
        optional={
            "image": st.sampled_from(["i", "i:1", "j:latest", ""]),
            "command": st.sampled_from([[], ["x"], None]),
            "env": st.sampled_from(
                [[], [{"name": "A", "value": "1"}], [{"name": "A"}, {"name": "B", "value": "2"}]]
            ),
            "ports": st.sampled_from(
                [
                    [{"containerPort": 80}],
                    [{"containerPort": 80, "name": "http"}],
                ]
            ),
            "imagePullPolicy": st.sampled_from(["Always", "Sometimes", ""]),
            "readinessProbe": PROBES,
            "livenessProbe": PROBES,
        },
    ),
    min_size=1,
    max_size=2,
)
NODES = st.builds(lambda: f"nowhere-{int(time.monotonic()) // 10}")
"""Nodes that do not exist. Kubernetes deletes the pods of a Node that it has missed for 40 s (podgc)."""
POD_SPECS = st.one_of(
    st.just({"containers": [{"name": "c", "image": "i"}]}),
    st.builds(lambda node: {"containers": [{"name": "c", "image": "i"}], "nodeName": node}, NODES),
    st.fixed_dictionaries(
        {"containers": CONTAINERS},
        optional={
            "nodeName": NODES,
            "restartPolicy": st.sampled_from(["Always", "Never", "Sometimes"]),
            "terminationGracePeriodSeconds": st.sampled_from([0, 5]),
            "readinessGates": st.just([{"conditionType": "a.b/c"}]),
            "nodeSelector": st.sampled_from([{}, {"a": "b"}]),
            "hostname": st.sampled_from(["h", ""]),
            "containerz": st.just([]),
        },
    ),
).map(
    lambda spec: {
        **spec,
        "schedulerName": "nobody",
        "automountServiceAccountToken": False,
    }
)
CONDITIONS = st.lists(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["Ready", "a.b/c"]), "status": st.sampled_from(["True", "False"])},
        optional={
            "reason": st.sampled_from(["R", ""]),
            "lastTransitionTime": st.sampled_from([None, "2026-01-02T03:04:05Z"]),
        },
    ),
    max_size=2,
    unique_by=lambda each: each["type"],
)
POD_STATUS = st.fixed_dictionaries(
    {},
    optional={
        "phase": st.sampled_from(["Running", "Pending", "Succeeded"]),
        "message": st.sampled_from(["m", ""]),
        "conditions": CONDITIONS,
    },
)
MICRO_TIMES = st.sampled_from(["2026-01-02T03:04:05.123456Z", None])
PROBE_KEYS = (lambda each: each["name"], lambda each: each["podConditionType"])
"""The playground names the probe that has the key of another one; CEL names the list."""
PROBE_ENTRIES = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["p", "q"]),
        "containerName": st.just("c"),
        "podConditionType": st.sampled_from(["a.b/c", "a.b/d"]),
        "probe": st.sampled_from(
            [{"exec": {"command": ["true"]}}, {"tcpSocket": {"port": 1}}, {"httpGet": {"port": 80}}]
        ),
    }
)

PARTS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "pods": {"spec": POD_SPECS, "status": POD_STATUS},
    "leases": {
        "spec": st.fixed_dictionaries(
            {},
            optional={
                "holderIdentity": st.sampled_from(["", "x", "y"]),
                "leaseDurationSeconds": st.sampled_from([15, 0, -1]),
                "leaseTransitions": st.sampled_from([0, 1, -1]),
                "renewTime": MICRO_TIMES,
                "acquireTime": MICRO_TIMES,
            },
        )
    },
    "events": {
        "involvedObject": st.sampled_from(
            [{"namespace": "{ns}"}, {"namespace": "{ns}", "name": "p"}]
        ),
        "reason": st.sampled_from(["R", ""]),
        "count": st.sampled_from([1, 2]),
        "lastTimestamp": st.sampled_from(["2026-01-02T03:04:05Z", None]),
    },
    "podprobemarkers": {
        "spec": st.fixed_dictionaries(
            {
                "selector": st.sampled_from(
                    [{"matchLabels": {"a": "b"}}, {"matchLabels": {"c": "d"}}]
                )
            },
            optional={
                "probes": st.lists(PROBE_ENTRIES, max_size=2, unique_by=PROBE_KEYS),
                "unknown": st.just({"a": None}),
            },
        ),
        "status": st.sampled_from([{}, {"matchedPods": 1}, {"zzz": 1}]),
    },
    "nodepodprobes": {
        "spec": st.sampled_from([{}, {"podProbes": []}, {"podProbes": None}]),
        "status": st.sampled_from([{}, {"podProbeStatuses": []}]),
    },
}
HAVE_STATUS = frozenset({"pods", *CUSTOM})
API_VERSIONS = {
    "leases": ("coordination.k8s.io/v1", "Lease"),
    "podprobemarkers": ("apps.kruise.io/v1alpha1", "PodProbeMarker"),
    "nodepodprobes": ("apps.kruise.io/v1alpha1", "NodePodProbe"),
}
MANAGERS = st.sampled_from([(), (("fieldManager", "a"),), (("fieldManager", "b"),)])
WRITING = st.builds(
    lambda manager, more: (*manager, *more),
    MANAGERS,
    rarely(
        st.just(()),
        st.sampled_from([(("fieldValidation", each),) for each in ("Strict", "Ignore")]),
    ),
)
LABEL_SELECTORS = ("", "l=x", "l!=x", "l", "!l", "l in (x,y)", "l notin (x)", "l=x,m", "l=")
BAD_LABEL_SELECTORS = ("l=x,", "-l=x", "l in x", "l=-x-")
READING = st.builds(
    lambda labels, fields: tuple(
        each for each in (("labelSelector", labels), ("fieldSelector", fields)) if each[1]
    ),
    rarely(st.sampled_from(LABEL_SELECTORS), st.sampled_from(BAD_LABEL_SELECTORS)),
    rarely(
        st.just(""),
        st.sampled_from(
            ["metadata.name=a", "metadata.name!=a", "metadata.name=a,", "foo=bar", "a"]
        ),
    ),
)


def whole(kind: str) -> st.SearchStrategy[Json]:
    version, name = API_VERSIONS.get(kind, ("v1", ""))
    typed = {"apiVersion": version, "kind": name} if name else {}
    # A real server checks the metadata of an event only if its object is valid.
    least = {"involvedObject": {"namespace": "{ns}"}} if kind == "events" else {}
    return st.fixed_dictionaries({"metadata": METADATA}, optional=PARTS[kind]).map(
        lambda body: {**typed, **least, **body}
    )


def changes(kind: str) -> st.SearchStrategy[Json]:
    """A merge patch; null removes a part, but the object of an event is in the event's namespace."""
    parts = {
        key: each if key == "involvedObject" else rarely(each, st.none())
        for key, each in {**PARTS[kind], "metadata": METADATA}.items()
    }
    return st.fixed_dictionaries({}, optional=parts)


def steps_of(kind: str) -> st.SearchStrategy[HistoryStep]:
    name = st.sampled_from(NAMES)
    place = st.just(kind)
    version = st.sampled_from(["", "", "current", "stale"])
    subresource = st.sampled_from(["", "", "status"] if kind in HAVE_STATUS else [""])
    create = st.builds(HistoryStep, st.just("create"), place, name, whole(kind), query=WRITING)
    patches = [
        st.builds(
            HistoryStep,
            st.just("patch"),
            place,
            name,
            changes(kind),
            st.just(form),
            WRITING,
            subresource,
            version,
            st.sampled_from(["", "", "right", "wrong"]),
        )
        for form in (MERGE, STRATEGIC)
    ]
    others = [
        st.builds(HistoryStep, st.just("get"), place, name),
        st.builds(HistoryStep, st.just("list"), place, query=READING),
        st.builds(
            HistoryStep,
            st.just("delete"),
            place,
            name,
            rarely(
                st.sampled_from([None, {}, {"propagationPolicy": "Background"}]),
                st.sampled_from(
                    [
                        {"kind": "Pod", "apiVersion": "v1"},
                        {"preconditions": {"uid": "x"}},
                        {"preconditions": {"resourceVersion": "1"}},
                    ]
                ),
            ),
            query=st.sampled_from([(), (), (("gracePeriodSeconds", "0"),)]),
        ),
    ]
    update = st.builds(
        HistoryStep,
        st.just("update"),
        place,
        name,
        changes(kind),
        query=WRITING,
        subresource=subresource,
        version=version,
    )
    # A real server creates a Lease or an Event that an update does not find.
    updates = [] if kind in ("leases", "events") else [update]
    return st.one_of(create, *patches, *updates, *others)


@st.composite
def histories(draw: st.DrawFn, most: int) -> list[HistoryStep]:
    """Steps on one to three kinds; they begin with creations, so that most of them find an object."""
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=2, unique=True))
    first = [
        draw(st.builds(HistoryStep, st.just("create"), st.just(kind), st.just(name), whole(kind)))
        for kind in kinds
        for name in NAMES[:2]
    ]
    steps = st.one_of([steps_of(each) for each in kinds])
    return first + draw(st.lists(steps, min_size=1, max_size=most))
