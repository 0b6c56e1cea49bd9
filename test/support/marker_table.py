"""A table of valid and invalid markers, on which the decoder, the API server's CEL rules and the webhook must agree."""

import copy
from collections.abc import Iterator
from typing import Any, NamedTuple

Json = dict[str, Any]

GOOD: Json = {
    "selector": {"matchLabels": {"app": "game"}},
    "probes": [
        {
            "name": "Idle",
            "containerName": "main",
            "probe": {"exec": {"command": ["/idle.sh"]}},
            "podConditionType": "game.io/idle",
            "markerPolicy": [{"state": "Succeeded", "labels": {"idle": "true"}}],
        }
    ],
}
PROBE = "probes.0.probe"
AT = "spec.probes[0]"


class Row(NamedTuple):
    """A marker's spec; `field` is the invalid field, empty for a valid marker.

    `server_field` is where the API server says so, when a rule in CEL can name the list only, not the item.
    """

    id: str
    spec: Json
    field: str = ""
    server_field: str = ""

    @property
    def expected_of_server(self) -> str:
        return self.server_field or self.field


def edited(path: str, value: Any) -> Json:
    """GOOD with the value at a dotted path replaced; None removes it."""
    document = copy.deepcopy(GOOD)
    at: Any = document
    *parents, last = [int(part) if part.isdecimal() else part for part in path.split(".")]
    for part in parents:
        at = at[part]
    if value is None:
        del at[last]
    else:
        at[last] = value
    return document


def another(**changes: Any) -> list[Json]:
    """Two probes: GOOD's, and the same with changes."""
    second = {**GOOD["probes"][0], **changes}
    return [GOOD["probes"][0], {key: each for key, each in second.items() if each is not None}]


def expression(operator: str, *values: str, key: str = "tier") -> Json:
    return {
        "key": key,
        "operator": operator,
        **({"values": list(values)} if values else {}),
    }


def policy(state: str = "Failed", **more: Any) -> Json:
    return {"state": state, **(more or {"labels": {"a": "b"}})}


KEYS = {
    "plain": "a",
    "upper-case": "MyName",
    "with-prefix": "example.com/a",
    "dots-and-dashes": "a.b-c_d",
    "longest-name": "n" * 63,
    "longest-prefix": f"{'p' * 63}.{'q' * 63}.{'r' * 63}.{'s' * 61}/n",
    "digits": "1",
    "prefix-of-digits": "1.2/3",
    "longest-of-all": f"{'p' * 253}/{'n' * 63}",
}
BAD_KEYS = {
    "empty": "",
    "starts-with-dash": "-a",
    "ends-with-dot": "a.",
    "space": "a b",
    "two-slashes": "a/b/c",
    "empty-prefix": "/a",
    "empty-name": "a.example/",
    "prefix-in-upper-case": "Example.com/a",
    "prefix-with-underscore": "a_b/c",
    "prefix-ends-with-dash": "a-/c",
    "prefix-with-empty-part": "a..b/c",
    "name-of-64": "n" * 64,
    "prefix-of-254": f"{'p' * 254}/n",
    "letter-of-another-script": "ключ",
    "trailing-newline": "a\n",
}
BAD_VALUES = {
    "value-of-64": "v" * 64,
    "value-with-space": "a b",
    "value-starting-with-dot": ".a",
    "value-ending-with-dash": "a-",
    "value-with-slash": "a/b",
    "value-with-newline": "a\n",
    "value-of-another-script": "да",
}
PATTERNS = {
    "group": r"players=(\d+)",
    "named-group": r"(?P<role>primary|replica)",
    "flags": "(?i)role",
    "of-256": "x" * 256,
    "unicode-class": r"\pL+",
    "empty": "",
    "any-text": "привет",
}
BAD_PATTERNS = {
    "unclosed": "(a",
    "look-ahead": "(?=a)",
    "backreference": r"(a)\1",
    "repeat-of-nothing": "*",
    "repeat-1001": "a{1001}",
    "of-257": "x" * 257,
    "python-group-end": r"\Z",
}
COST = "controller.kubernetes.io/pod-deletion-cost"
BAD_COSTS = (
    *("", "low", "+1", "01", "00", "1.0", " 1", "1\n", "1_0", "-", "--1", "0x1", "\u0661"),
    *("2147483648", "-2147483649", "-99999999999", "9" * 30),
)
RESERVED_LABELS = (
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "statefulset.kubernetes.io/pod-name",
    "apps.kubernetes.io/pod-index",
    "batch.kubernetes.io/job-name",
    "sub.app.kubernetes.io/name",
    "k8s.io/a",
    "kueue.x.k8s.io/queue-name",
    "pod-template-hash",
    "controller-revision-hash",
    "pod-template-generation",
    "controller-uid",
    "job-name",
    "apps.kruise.io/cloneset-instance-id",
    "apps.kruise.io/controller-revision-hash",
    "apps.kruise.io/subset-name",
    "lifecycle.apps.kruise.io/state",
    "istio.io/dataplane-mode",
    "security.istio.io/tlsMode",
    "linkerd.io/control-plane-ns",
    "kuma.io/mesh",
    "consul.hashicorp.com/connect-inject-status",
)
FREE_LABELS = (
    "app.kubernetes.io/component",
    "example.com/kubernetes.io",
    "kubernetes.io",
    "notkubernetes.io/a",
    "notistio.io/a",
    "kubernetes.io.example/a",
    "x-k8s.io/a",
    "example.com/pod-template-hash",
    "unavailable-pod.kruise.io/draining",
    "apps.kruise.io/specified-delete",
    "game.kruise.io/state",
)
RESERVED_ANNOTATIONS = (
    "kruise-probe.io/paused",
    "kruise.io/podprobe",
    "kruise.io/podprobemarker-list",
    "kruise.io/podprobe-of-tomorrow",
    "kubectl.kubernetes.io/last-applied-configuration",
    "kubernetes.io/config.mirror",
    "kubernetes.io/config.source",
    "container.apparmor.security.beta.kubernetes.io/main",
    "container.seccomp.security.alpha.kubernetes.io/main",
    "seccomp.security.alpha.kubernetes.io/pod",
    "scheduler.alpha.kubernetes.io/critical-pod",
    "apps.kruise.io/inplace-update-grace",
    "apps.kruise.io/inplace-update-state",
    "ambient.istio.io/redirection",
    "config.linkerd.io/opaque-ports",
    "cni.projectcalico.org/podIP",
    "k8s.ovn.org/pod-networks",
    "policy.cilium.io/no-track-port",
    "k8s.v1.cni.cncf.io/network-status",
    "vpc.amazonaws.com/pod-ips",
    "kuma.io/sidecar-injected",
    "consul.hashicorp.com/connect-service",
)
FREE_ANNOTATIONS = (
    "cluster-autoscaler.kubernetes.io/safe-to-evict",
    "karpenter.sh/do-not-disrupt",
    "kubernetes.io/description",
    "notistio.io/a",
    "notcilium.io/a",
    "kubectl.kubernetes.io/default-container",
    "pub.kruise.io/no-protect",
    "prometheus.io/scrape",
    "pod-template-hash",
)
KRUISE_CONDITIONS = (
    "InPlaceUpdateReady",
    "KruisePodReady",
    "SidecarSetUpgradable",
    "SidecarTerminated",
)
NATIVE = (
    "PodScheduled",
    "PodReadyToStartContainers",
    "Initialized",
    "ContainersReady",
    "Ready",
    "DisruptionTarget",
    "PodResizePending",
    "PodResizeInProgress",
    "AllContainersRestarting",
)
NUMBERS = (
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
    "terminationGracePeriodSeconds",
)
PATHS = (
    *(
        "/healthz",
        "healthz",
        "/a%2Fb%20",
        "/a?x=50%",
        "?x=1",
        "/a:b",
        "a/b:c",
        "/a b",
        "/ä",
        "///a",
    ),
    *("/a//b", "/a?b:c", "?//b", "#a", "/a#b%20"),
)
BAD_PATHS = (
    *(
        "/50%",
        "/a%2",
        "/%zz",
        "/a%2%2Fb",
        "a%",
        "/a#b%",
        "/a?b#%zz",
        "/a\tb",
        "/a?b\n",
        "/\x7f",
        "\0",
    ),
    *(
        "http://other/a",
        "https:",
        "localhost:8080/a",
        "a:b",
        ":a",
        "127.0.0.1:80",
        "a:?b",
        "//other/a",
        "//",
        "//?a",
    ),
)
EXEC: Json = {"exec": {"command": ["true"]}}
HTTP: Json = {"httpGet": {"port": 80}}
TCP: Json = {"tcpSocket": {"port": 80}}
GRPC: Json = {"grpc": {"port": 80}}
HANDLERS = {"exec": EXEC, "httpGet": HTTP, "tcpSocket": TCP, "grpc": GRPC}


def _good_selectors() -> Iterator[Row]:
    for name, key in KEYS.items():
        yield Row(f"selector-key-{name}", edited("selector", {"matchLabels": {key: "x"}}))
        exists = {"matchExpressions": [expression("Exists", key=key)]}
        yield Row(f"selector-expression-key-{name}", edited("selector", exists))
    for value in ("", "v" * 63, "a.b-c_d", "1"):
        yield Row(
            f"selector-value-{value[:8] or 'empty'}",
            edited("selector", {"matchLabels": {"a": value}}),
        )
    values = expression("In", "", "v" * 63, "a.b-c_d", "1")
    yield Row("selector-expression-values", edited("selector", {"matchExpressions": [values]}))
    for each in (
        expression("In", "a"),
        expression("NotIn", "a", ""),
        expression("Exists"),
        expression("DoesNotExist", key="a.example/b"),
        {**expression("Exists"), "values": []},
    ):
        name = f"selector-{each['operator']}-{len(each.get('values', 'none'))}"
        yield Row(name, edited("selector", {"matchExpressions": [each]}))
    yield Row("selector-of-32", edited("selector.matchLabels", {f"k{n}": "v" for n in range(32)}))


def _good_probes() -> Iterator[Row]:
    yield Row("as-it-is", GOOD)
    yield Row("largest-of-all", _largest())
    yield Row("condition-only", edited("probes.0.markerPolicy", None))
    yield Row("policy-only", edited("probes.0.podConditionType", None))
    yield Row("empty-condition-with-policy", edited("probes.0.podConditionType", ""))
    yield Row(
        "two-probes", edited("probes", another(name="other", podConditionType="game.io/other"))
    )
    yield Row(
        "two-probes-without-condition",
        edited(
            "probes",
            [
                {**each, "name": f"n{index}", "podConditionType": ""}
                for index, each in enumerate(another())
            ],
        ),
    )
    yield Row(
        "probes-32",
        edited(
            "probes",
            [
                {**GOOD["probes"][0], "name": f"n{n}", "podConditionType": f"a.example/{n}"}
                for n in range(32)
            ],
        ),
    )
    yield Row(
        "two-probes-one-without-condition",
        edited("probes", another(name="other", podConditionType=None)),
    )
    yield Row("shortest-name", edited("probes.0.name", "n"))
    yield Row("shortest-container-name", edited("probes.0.containerName", "c"))
    yield Row("longest-name", edited("probes.0.name", "n" * 253))
    yield Row("longest-container-name", edited("probes.0.containerName", "c" * 63))
    yield Row("condition-without-prefix", edited("probes.0.podConditionType", "KruiseProbeHealthy"))
    yield Row("condition-longest", edited("probes.0.podConditionType", KEYS["longest-of-all"]))
    both = [policy("Succeeded"), policy("Failed", annotations={"a": "b"})]
    yield Row("policy-of-each-state", edited("probes.0.markerPolicy", both))
    yield Row("policy-of-unknown", edited("probes.0.markerPolicy", [policy("Unknown")]))
    yield Row("policies-3", edited("probes.0.markerPolicy", [*both, policy("Unknown")]))
    yield from _good_values()
    for cost in ("0", "10", "-0", "-007", f"-{'0' * 5000}5", "2147483647", "-2147483648"):
        yield Row(
            f"policy-deletion-cost-{cost[:12]}",
            edited("probes.0.markerPolicy", [policy(annotations={COST: cost})]),
        )
    text = "не число\n" * 10
    yield Row(
        "annotation-of-any-text",
        edited("probes.0.markerPolicy", [policy(annotations={"a": text, "b": ""})]),
    )
    keys = {KEYS["longest-of-all"]: "x"}
    longest_keys = policy(labels=keys, annotations=keys)
    yield Row("policy-longest-keys", edited("probes.0.markerPolicy", [longest_keys]))
    longest = policy(annotations={"a": "x" * 8192})
    yield Row("annotation-of-8192", edited("probes.0.markerPolicy", [longest]))
    yield Row(
        "annotation-prefix-in-upper-case",
        edited("probes.0.markerPolicy", [policy(annotations={"Example.com/a": ""})]),
    )
    yield Row(
        "policy-of-32-labels",
        edited(
            "probes.0.markerPolicy",
            [policy(labels={f"k{n}": "" for n in range(32)})],
        ),
    )
    for key in FREE_LABELS:
        yield Row(
            f"policy-label-{key}", edited("probes.0.markerPolicy", [policy(labels={key: "x"})])
        )
    for key in FREE_ANNOTATIONS:
        yield Row(
            f"policy-annotation-{key}",
            edited("probes.0.markerPolicy", [policy(annotations={key: "x"})]),
        )
    yield Row(
        "condition-of-another-case", edited("probes.0.podConditionType", "inPlaceUpdateReady")
    )
    yield Row(
        "policy-key-of-another-selector",
        edited("probes.0.markerPolicy", [policy(labels={"app2": "x"})]),
    )


def _good_values() -> Iterator[Row]:
    def row(name: str, *values: Json, **more: Any) -> Row:
        policies = [policy(fromMessage=list(values), **more)]
        return Row(f"value-{name}", edited("probes.0.markerPolicy", policies))

    yield row("of-label", {"label": "a"})
    yield row("of-annotation", {"annotation": "a", "label": ""})
    yield row("of-label-with-empty-annotation", {"label": "a", "annotation": ""})
    yield row("of-two-annotations", *({"annotation": each, "label": ""} for each in "ab"))
    yield row("of-two-labels", *({"label": each, "annotation": ""} for each in "ab"))
    longest = KEYS["longest-of-all"]
    yield row("of-longest-keys", {"label": longest}, {"annotation": longest})
    by_expression = edited("probes.0.markerPolicy", [policy(fromMessage=[{"label": "a"}])])
    selector = {"matchExpressions": [expression("Exists")]}
    yield Row("value-of-label-with-expressions", {**by_expression, "selector": selector})
    yield row("of-both-kinds", {"label": "a"}, {"annotation": "a"})
    yield row("with-static-value", {"label": "a"}, labels={"a": "b"})
    yield row("of-8", *({"label": f"k{n}"} for n in range(8)))
    yield row("annotation-prefix-in-upper-case", {"annotation": "Example.com/a"})
    for key in FREE_LABELS:
        yield row(f"label-{key}", {"label": key})
    for key in FREE_ANNOTATIONS:
        yield row(f"annotation-{key}", {"annotation": key})
    yield row("deletion-cost", {"annotation": COST, "regex": "[0-9]+"})
    for name, pattern in PATTERNS.items():
        yield row(f"pattern-{name}", {"label": "a", "regex": pattern})


def _largest() -> Json:
    """Every list at its maximum, which uses the most of the API server's CEL budget."""
    marks = {
        "labels": {f"{'p' * 60}.example/{n:060}": "v" * 63 for n in range(32)},
        "annotations": {
            COST: "-2147483648",
            **{f"{'p' * 60}.example/{n:060}": "v" for n in range(31)},
        },
        "fromMessage": [
            {"label": f"{'p' * 60}.example/{n:060}", "regex": "players=([0-9]+)"} for n in range(8)
        ],
    }
    headers = [{"name": f"X-{n:060}", "value": "v" * 20} for n in range(32)]
    probes = [
        {
            "name": f"{n:0200}",
            "containerName": "c" * 63,
            "probe": {"httpGet": {"port": "a" * 15, "httpHeaders": headers, "path": "/%20" * 1024}},
            "podConditionType": f"{'p' * 200}/{n}",
            "markerPolicy": [policy(each, **marks) for each in ("Succeeded", "Failed", "Unknown")],
        }
        for n in range(32)
    ]
    values = [f"{n:063}" for n in range(32)]
    selector = {
        "matchLabels": {f"{'s' * 60}.example/{n:060}": "v" * 63 for n in range(32)},
        "matchExpressions": [expression("In", *values, key=f"e.example/{n}") for n in range(32)],
    }
    return {"selector": selector, "probes": probes}


def _good_handlers() -> Iterator[Row]:
    for name, handler in HANDLERS.items():
        yield Row(f"handler-{name}", edited(PROBE, handler))
        yield Row(f"handler-{name}-zeros", edited(PROBE, {**handler, **dict.fromkeys(NUMBERS, 0)}))
    largest = dict.fromkeys(NUMBERS, 2**31 - 1) | {"timeoutSeconds": 3600}
    yield Row("largest-numbers", edited(PROBE, {**EXEC, **largest}))
    for port in (1, 65535, "http", "a", "a-1", "1-a", "8080-a", "a" * 15, "1a", "a-b-c"):
        yield Row(f"tcp-port-{port}", edited(PROBE, {"tcpSocket": {"port": port}}))
        yield Row(f"http-port-{port}", edited(PROBE, {"httpGet": {"port": port}}))
    yield Row("http1", edited(PROBE, {"httpGet": {"port": 1, "protocol": "HTTP1"}}))
    for scheme in ("HTTP", "HTTPS", ""):
        yield Row(
            f"scheme-{scheme or 'empty'}", edited(PROBE, {"httpGet": {"port": 1, "scheme": scheme}})
        )
    for mode in ("TLS", "Plaintext", ""):
        yield Row(f"mode-{mode or 'empty'}", edited(PROBE, {"grpc": {"port": 65535, "mode": mode}}))
    yield Row("longest-service", edited(PROBE, {"grpc": {"port": 1, "service": "s" * 4096}}))
    yield Row("grpc-service", edited(PROBE, {"grpc": {"port": 1, "service": "a.b.C"}}))
    yield Row("empty-host", edited(PROBE, {"httpGet": {"port": 1, "host": ""}}))
    yield Row("empty-path", edited(PROBE, {"httpGet": {"port": 1, "path": ""}}))
    yield Row("longest-path", edited(PROBE, {"httpGet": {"port": 1, "path": "/" * 4096}}))
    for path in PATHS:
        yield Row(f"path-{path}", edited(PROBE, {"httpGet": {"port": 1, "path": path}}))
    for header in ("Host", "X-Header-Name", "-", "1"):
        headers = [{"name": header, "value": "Wert é\tx"}]
        yield Row(
            f"header-{header}", edited(PROBE, {"httpGet": {"port": 1, "httpHeaders": headers}})
        )
    for name, value in (("N" * 253, ""), ("A", "v" * 4096)):
        headers = [{"name": name, "value": value}]
        yield Row(
            f"longest-header-{len(value)}",
            edited(PROBE, {"httpGet": {"port": 1, "httpHeaders": headers}}),
        )
    yield Row("longest-word", edited(PROBE, {"exec": {"command": ["a" * 8192]}}))
    command = ["sh", "-c", "", "echo 'é\n'"]
    yield Row("command-of-any-text", edited(PROBE, {"exec": {"command": command}}))
    yield Row("command-of-128", edited(PROBE, {"exec": {"command": ["a"] * 128}}))
    yield Row(
        "command-of-8192-bytes", edited(PROBE, {"exec": {"command": ["sh", "-c", "a" * 8188]}})
    )


def _bad_selectors() -> Iterator[Row]:
    yield Row("selector-absent", edited("selector", None), "spec.selector")
    yield Row("selector-empty", edited("selector", {}), "spec.selector")
    yield Row(
        "selector-of-nothing",
        edited("selector", {"matchLabels": {}, "matchExpressions": []}),
        "spec.selector",
    )
    at = "spec.selector.matchLabels"
    for name, key in BAD_KEYS.items():
        yield Row(f"selector-bad-key-{name}", edited("selector", {"matchLabels": {key: "x"}}), at)
    for name, value in BAD_VALUES.items():
        too_long = f"{at}.a" if len(value) > 63 else ""
        yield Row(
            f"selector-bad-{name}",
            edited("selector", {"matchLabels": {"a": value}}),
            at,
            too_long,
        )
    yield Row(
        "selector-of-33", edited("selector.matchLabels", {f"k{n}": "v" for n in range(33)}), at
    )
    at = "spec.selector.matchExpressions"
    for name, key in BAD_KEYS.items():
        exists = {"matchExpressions": [expression("Exists", key=key)]}
        yield Row(f"selector-expression-bad-key-{name}", edited("selector", exists), f"{at}[0].key")
    for name, value in BAD_VALUES.items():
        bad = {"matchExpressions": [expression("In", "a", value)]}
        too_long = f"{at}[0].values[1]" if len(value) > 63 else ""
        yield Row(
            f"selector-expression-bad-{name}",
            edited("selector", bad),
            f"{at}[0].values",
            too_long,
        )
    for bad, field in (
        (expression("Is", "a"), "[0].operator"),
        (expression("In"), "[0].values"),
        ({**expression("NotIn"), "values": []}, "[0].values"),
        (expression("Exists", "a"), "[0].values"),
        (expression("DoesNotExist", "a"), "[0].values"),
        (expression("In", "a b"), "[0].values"),
        (expression("In", *(f"v{n}" for n in range(33))), "[0].values"),
        (expression("Exists", key="-"), "[0].key"),
        (expression("Exists", key="A.example/b"), "[0].key"),
    ):
        name = f"selector-bad-{bad['operator']}-{bad['key']}-{len(bad.get('values', 'none'))}"
        name += f"-{bad.get('values', ['-'])[:1]}"
        yield Row(name, edited("selector", {"matchExpressions": [bad]}), at + field)
    yield Row(
        "selector-of-33-expressions",
        edited("selector", {"matchExpressions": [expression("Exists")] * 33}),
        at,
    )


def _bad_probes() -> Iterator[Row]:
    yield Row("probes-absent", edited("probes", None), "spec.probes")
    yield Row("probes-empty", edited("probes", []), "spec.probes")
    many = [
        {**GOOD["probes"][0], "name": f"n{n}", "podConditionType": f"a.example/{n}"}
        for n in range(33)
    ]
    yield Row("probes-33", edited("probes", many), "spec.probes")
    yield Row("name-empty", edited("probes.0.name", ""), f"{AT}.name")
    yield Row("name-with-hash", edited("probes.0.name", "a#b"), f"{AT}.name")
    yield Row("name-of-254", edited("probes.0.name", "n" * 254), f"{AT}.name")
    yield Row(
        "name-twice",
        edited("probes", another(podConditionType="game.io/b")),
        "spec.probes[1].name",
        "spec.probes",
    )
    yield Row("container-empty", edited("probes.0.containerName", ""), f"{AT}.containerName")
    yield Row("container-of-64", edited("probes.0.containerName", "c" * 64), f"{AT}.containerName")
    bare = {"name": "a", "containerName": "b", "probe": EXEC}
    yield Row("neither-condition-nor-policy", edited("probes.0", bare), AT)
    yield Row(
        "empty-condition-and-no-policy",
        edited("probes.0", {**bare, "podConditionType": "", "markerPolicy": []}),
        AT,
    )
    yield Row(
        "condition-twice",
        edited("probes", another(name="b")),
        "spec.probes[1].podConditionType",
        "spec.probes",
    )
    for name in (*NATIVE, *KRUISE_CONDITIONS):
        yield Row(
            f"condition-{name}",
            edited("probes.0.podConditionType", name),
            f"{AT}.podConditionType",
        )
    for name, key in BAD_KEYS.items():
        if key:
            yield Row(
                f"condition-bad-{name}",
                edited("probes.0.podConditionType", key),
                f"{AT}.podConditionType",
            )


def _bad_policies() -> Iterator[Row]:
    at = f"{AT}.markerPolicy"

    def row(name: str, policies: list[Json], field: str, server_field: str = "") -> Row:
        return Row(f"policy-{name}", edited("probes.0.markerPolicy", policies), field, server_field)

    yield row("state-true", [policy("True")], f"{at}[0].state")
    yield row("state-empty", [policy("")], f"{at}[0].state")
    yield row("state-twice", [policy(), policy()], f"{at}[1].state", at)
    four = [policy(), policy("Succeeded"), policy("Unknown"), policy()]
    yield row("four", four, at)
    yield row("empty", [{"state": "Failed"}], f"{at}[0]")
    yield row("of-empty-maps", [policy(labels={}, annotations={}, fromMessage=[])], f"{at}[0]")
    yield row("second-empty", [policy(), {"state": "Succeeded"}], f"{at}[1]")
    for name, key in BAD_KEYS.items():
        yield row(f"label-key-{name}", [policy(labels={key: "x"})], f"{at}[0].labels")
        if "upper-case" not in name:
            yield row(
                f"annotation-key-{name}", [policy(annotations={key: "x"})], f"{at}[0].annotations"
            )
    for name, value in BAD_VALUES.items():
        too_long = f"{at}[0].labels.a" if len(value) > 63 else ""
        yield row(f"label-{name}", [policy(labels={"a": value})], f"{at}[0].labels", too_long)
    yield row("of-33-labels", [policy(labels={f"k{n}": "" for n in range(33)})], f"{at}[0].labels")
    yield row(
        "of-33-annotations",
        [policy(annotations={f"k{n}": "" for n in range(33)})],
        f"{at}[0].annotations",
    )
    yield row(
        "annotation-of-8193",
        [policy(annotations={"a": "x" * 8193})],
        f"{at}[0].annotations[a]",
        f"{at}[0].annotations.a",
    )
    yield row(
        "own-selector-key", [policy(labels={"app": "other"})], f"{at}[0].labels", "spec.probes"
    )
    for name in RESERVED_LABELS:
        yield row(f"reserved-{name}", [policy(labels={name: "x"})], f"{at}[0].labels")
    for name in RESERVED_ANNOTATIONS:
        yield row(f"reserved-{name}", [policy(annotations={name: "x"})], f"{at}[0].annotations")
    for cost in BAD_COSTS:
        bad = [policy(), policy("Succeeded", annotations={COST: cost, "a": "b"})]
        yield row(f"deletion-cost-{cost!r}", bad, f"{at}[1].annotations")
    selector = {"matchExpressions": [expression("In", "a", key="app")]}
    own = edited("probes.0.markerPolicy", [policy(labels={"app": "b"})])
    yield Row(
        "policy-own-selector-expression",
        {**own, "selector": selector},
        f"{at}[0].labels",
        "spec.probes",
    )


def _bad_values() -> Iterator[Row]:
    at = f"{AT}.markerPolicy[0].fromMessage"

    def row(name: str, *values: Json, field: str, server_field: str = "") -> Row:
        spec = edited("probes.0.markerPolicy", [policy(fromMessage=list(values))])
        return Row(f"value-{name}", spec, f"{at}{field}", server_field)

    yield row("without-key", {"regex": "a"}, field="[0]")
    yield row("of-empty-keys", {"label": "", "annotation": ""}, field="[0]")
    yield row("of-two-keys", {"label": "a", "annotation": "a"}, field="[0]")
    yield row("label-twice", {"label": "a"}, {"label": "a"}, field="[1].label", server_field=at)
    same = {"annotation": "a"}
    yield row("annotation-twice", same, same, field="[1].annotation", server_field=at)
    yield row("of-9", *({"label": f"k{n}"} for n in range(9)), field="")
    own = {"label": "app"}
    yield row("own-selector-key", own, field="[0].label", server_field="spec.probes")
    by_expression = edited("probes.0.markerPolicy", [policy(fromMessage=[own])])
    by_expression["selector"] = {"matchExpressions": [expression("Exists", key="app")]}
    yield Row("value-own-selector-expression", by_expression, f"{at}[0].label", "spec.probes")
    for name, key in BAD_KEYS.items():
        if key:
            yield row(f"label-key-{name}", {"label": key}, field="[0].label")
        if key and "upper-case" not in name:
            yield row(f"annotation-key-{name}", {"annotation": key}, field="[0].annotation")
    for key in RESERVED_LABELS:
        yield row(f"reserved-{key}", {"label": key}, field="[0].label")
    for key in RESERVED_ANNOTATIONS:
        yield row(f"reserved-{key}", {"annotation": key}, field="[0].annotation")
    for name, pattern in BAD_PATTERNS.items():
        yield row(f"pattern-{name}", {"label": "a", "regex": pattern}, field="[0].regex")


def _probe_row(name: str, probe: Json, field: str) -> Row:
    return Row(name, edited(PROBE, probe), f"{AT}.probe{field}")


def _bad_headers() -> Iterator[Row]:
    headers = ".httpGet.httpHeaders"
    for name in ("", "A B", "a:b", "é", "a\n", "(x)", "X_Name", "a.b", "!#$%&'*+.^`|~-"):
        bad = [{"name": name, "value": ""}]
        yield _probe_row(
            f"bad-header-{name!r}",
            {"httpGet": {"port": 1, "httpHeaders": bad}},
            f"{headers}[0].name",
        )
    long_name = [{"name": "N" * 254, "value": ""}]
    yield _probe_row(
        "header-name-long", {"httpGet": {"port": 1, "httpHeaders": long_name}}, f"{headers}[0].name"
    )
    many = [{"name": "A", "value": ""}] * 33
    yield _probe_row("headers-33", {"httpGet": {"port": 1, "httpHeaders": many}}, headers)
    long = [{"name": "A", "value": "v" * 4097}]
    yield _probe_row(
        "header-value-long", {"httpGet": {"port": 1, "httpHeaders": long}}, f"{headers}[0].value"
    )
    for character in ("\n", "\r", "\0", "\x08", "\x1f", "\x7f"):
        bad = [{"name": "A", "value": "a"}, {"name": "B", "value": f"token{character}"}]
        yield _probe_row(
            f"header-value-with-{character!r}",
            {"httpGet": {"port": 1, "httpHeaders": bad}},
            f"{headers}[1].value",
        )


def _bad_handlers() -> Iterator[Row]:
    row = _probe_row

    yield row("no-handler", {}, "")
    yield row("no-handler-but-numbers", {"periodSeconds": 1}, "")
    names = list(HANDLERS)
    for index, first in enumerate(names):
        for second in names[index + 1 :]:
            yield row(f"{first}-and-{second}", HANDLERS[first] | HANDLERS[second], f".{second}")
    yield row("no-command", {"exec": {}}, ".exec.command")
    yield row("empty-command", {"exec": {"command": []}}, ".exec.command")
    yield row("command-of-129", {"exec": {"command": ["a"] * 129}}, ".exec.command")
    yield row("command-word-long", {"exec": {"command": ["a" * 8193]}}, ".exec.command[0]")
    long = ["sh", "-c", "a" * 8189]
    yield row("command-of-8193-bytes", {"exec": {"command": long}}, ".exec.command")
    long = ["a" * 65] * 127
    yield row("command-of-127-long-words", {"exec": {"command": long}}, ".exec.command")
    for host in ("127.0.0.1", "x", "::1", "metadata.example"):
        yield row(f"http-host-{host}", {"httpGet": {"port": 1, "host": host}}, ".httpGet.host")
        yield row(f"tcp-host-{host}", {"tcpSocket": {"port": 1, "host": host}}, ".tcpSocket.host")
    for port in (0, -1, 65536, 2**31, "", "HTTP", "a--b", "-a", "a-", "80", "a" * 16, "a_b", "é"):
        yield row(f"tcp-bad-port-{port}", {"tcpSocket": {"port": port}}, ".tcpSocket.port")
        yield row(f"http-bad-port-{port}", {"httpGet": {"port": port}}, ".httpGet.port")
    for port in (0, -1, 65536):
        yield row(f"grpc-bad-port-{port}", {"grpc": {"port": port}}, ".grpc.port")
    for mode in ("mTLS", "tls", "PLAINTEXT"):
        yield row(f"bad-mode-{mode}", {"grpc": {"port": 1, "mode": mode}}, ".grpc.mode")
    yield row("http2", {"httpGet": {"port": 1, "protocol": "HTTP2"}}, ".httpGet.protocol")
    for scheme in ("http", "FTP", "HTTPS "):
        yield row(
            f"bad-scheme-{scheme}", {"httpGet": {"port": 1, "scheme": scheme}}, ".httpGet.scheme"
        )
    for path in BAD_PATHS:
        yield row(f"bad-path-{path!r}", {"httpGet": {"port": 1, "path": path}}, ".httpGet.path")
    yield row("path-long", {"httpGet": {"port": 1, "path": "/" * 4097}}, ".httpGet.path")
    yield row("service-long", {"grpc": {"port": 1, "service": "s" * 4097}}, ".grpc.service")
    for number in NUMBERS:
        yield row(f"negative-{number}", {**EXEC, number: -1}, f".{number}")
        yield row(f"huge-{number}", {**EXEC, number: 2**31}, f".{number}")
    yield row("timeoutSeconds-3601", {**EXEC, "timeoutSeconds": 3601}, ".timeoutSeconds")


def _incomplete() -> Iterator[Row]:
    for name in ("name", "containerName", "probe"):
        yield Row(f"{name}-absent", edited(f"probes.0.{name}", None), f"{AT}.{name}")
    at = "spec.selector.matchExpressions[0]"
    for name, present in (("key", "operator"), ("operator", "key")):
        selector = {"matchExpressions": [{present: "Exists"}]}
        yield Row(f"expression-without-{name}", edited("selector", selector), f"{at}.{name}")
    without_state = edited("probes.0.markerPolicy", [{"labels": {"a": "b"}}])
    yield Row("policy-without-state", without_state, f"{AT}.markerPolicy[0].state")
    for name in ("httpGet", "tcpSocket", "grpc"):
        yield _probe_row(f"{name}-without-port", {name: {}}, f".{name}.port")
    for name, present in (("name", "value"), ("value", "name")):
        headers = [{present: "A"}]
        yield _probe_row(
            f"header-without-{name}",
            {"httpGet": {"port": 1, "httpHeaders": headers}},
            f".httpGet.httpHeaders[0].{name}",
        )


VALID: tuple[Row, ...] = (*_good_selectors(), *_good_probes(), *_good_handlers())
INVALID: tuple[Row, ...] = (
    *_bad_selectors(),
    *_bad_probes(),
    *_bad_policies(),
    *_bad_values(),
    *_bad_handlers(),
    *_bad_headers(),
)
ROWS = (*VALID, *INVALID)
INCOMPLETE: tuple[Row, ...] = tuple(_incomplete())
"""Markers without a required field, which only the schema refuses: the decoder cannot read them."""
