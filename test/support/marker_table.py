"""A table of valid and invalid markers, on which the decoder, the API server's CEL rules and the webhook must agree."""

import copy
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from typing import Any, NamedTuple

from support.wire import Json

from kruise_probe.api import reserved
from kruise_probe.api.reserved import ReservedKeys

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
POLICIES = "probes.0.markerPolicy"
CONDITION = "probes.0.podConditionType"
LABELS = "selector.matchLabels"


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


LONGEST_KEY = f"{'p' * 253}/{'n' * 63}"
KEYS = (
    *("a", "MyName", "example.com/a", "a.b-c_d", "1", "1.2/3", "n" * 63, LONGEST_KEY),
    f"{'p' * 63}.{'q' * 63}.{'r' * 63}.{'s' * 61}/n",
)
BAD_KEYS = (
    *("-a", "a.", "a b", "a/b/c", "/a", "a.example/", "a_b/c", "a-/c", "a..b/c", "ключ", "a\n"),
    *("n" * 64, f"{'p' * 254}/n"),
)
BAD_LABEL_KEYS = ("Example.com/a", *BAD_KEYS)
"""An annotation may have upper case in its prefix."""
BAD_VALUES = ("a b", ".a", "a-", "a/b", "a\n", "да")
LONG_VALUE = "v" * 64
"""Its length is a rule of the schema, which names the value itself."""
PATTERNS = (
    *(r"players=(\d+)", r"(?P<role>primary|replica)", "(?i)role", r"\pL+", "", "привет"),
    "x" * 256,
)
BAD_PATTERNS = ("(a", "(?=a)", r"(a)\1", "*", "a{1001}", r"\Z", "x" * 257)
COST = "controller.kubernetes.io/pod-deletion-cost"
BAD_COSTS = (
    *("", "low", "+1", "01", "00", "1.0", " 1", "1\n", "1_0", "-", "--1", "0x1", "\u0661"),
    *("2147483648", "-2147483649", "-99999999999", "9" * 30),
)


def _covered(table: Iterable[ReservedKeys]) -> list[str]:
    """A key for each part of a table of reserved keys, two for a domain."""
    return [
        key
        for row in table
        for key in (
            *row.keys,
            *(f"{each}x" for each in row.prefixes),
            *(key for each in row.domains for key in (f"{each}/a", f"sub.app.{each}/a")),
        )
    ]


def _beside(table: Iterable[ReservedKeys]) -> list[str]:
    """Keys that look like those of a domain of the table, and its exceptions."""
    exempt = [f"{each}/a" for row in table for each in row.exceptions]
    domains = [each for row in table for each in row.domains]
    alike = ("{}", "not{}/a", "{}.example/a", "example.com/{}")
    return [*exempt, *(form.format(each) for each in domains for form in alike)]


RESERVED_LABELS = _covered(reserved.LABELS)
FREE_LABELS = (
    *_beside(reserved.LABELS),
    *("x-k8s.io/a", "example.com/pod-template-hash", "unavailable-pod.kruise.io/draining"),
    *("apps.kruise.io/specified-delete", "game.kruise.io/state"),
)
RESERVED_ANNOTATIONS = _covered(reserved.ANNOTATIONS)
FREE_ANNOTATIONS = (
    *("Example.com/a", "pod-template-hash", "prometheus.io/scrape", "karpenter.sh/do-not-disrupt"),
    *("cluster-autoscaler.kubernetes.io/safe-to-evict", "kubernetes.io/description"),
    *("kubectl.kubernetes.io/default-container", "pub.kruise.io/no-protect"),
    *_beside(reserved.ANNOTATIONS),
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
    *("/healthz", "healthz", "/a%2Fb%20", "/a?x=50%", "?x=1", "/a:b", "a/b:c", "/a b", "/ä"),
    *("///a", "/a//b", "/a?b:c", "?//b", "#a", "/a#b%20"),
)
BAD_PATHS = (
    *("/50%", "/a%2", "/%zz", "/a%2%2Fb", "a%", "/a#b%", "/a?b#%zz", "/a\tb", "/a?b\n", "/\x7f"),
    *("\0", "http://other/a", "https:", "localhost:8080/a", "a:b", ":a", "127.0.0.1:80", "a:?b"),
    *("//other/a", "//", "//?a"),
)
EXEC: Json = {"exec": {"command": ["true"]}}
HTTP: Json = {"httpGet": {"port": 80}}
TCP: Json = {"tcpSocket": {"port": 80}}
GRPC: Json = {"grpc": {"port": 80}}
HANDLERS = {"exec": EXEC, "httpGet": HTTP, "tcpSocket": TCP, "grpc": GRPC}


def _field_of(path: str) -> str:
    """A dotted path as the API server writes it: `spec.probes[0].name`."""
    return "spec." + re.sub(r"\.(\d+)", r"[\1]", path)


def _good(path: str, values: Mapping[str, Any]) -> Iterator[Row]:
    """GOOD with each of these values at the path; None removes what is there."""
    return (Row(f"{path}-{name}", edited(path, value)) for name, value in values.items())


def _bad(
    path: str, values: Mapping[str, Any], within: str = "", server_field: str = ""
) -> Iterator[Row]:
    """As `_good`; the invalid field is the one at the path, or `within` it."""
    for name, value in values.items():
        yield Row(
            f"{path}{within}-{name}", edited(path, value), _field_of(path) + within, server_field
        )


def _each(values: Iterable[Any]) -> dict[str, Any]:
    """Values that are their own names."""
    return {f"{number}-{each!r}"[:60]: each for number, each in enumerate(values)}


def _by(expressions: Mapping[str, Json]) -> dict[str, Json]:
    """Selectors of one expression."""
    return {name: {"matchExpressions": [each]} for name, each in expressions.items()}


def _policies(**of: Mapping[str, Any]) -> dict[str, list[Json]]:
    """Lists of one policy, for Failed, with each of these values of a field."""
    ((field, values),) = of.items()
    return {f"{field}-{name}": [policy(**{field: each})] for name, each in values.items()}


def _options(handler: str, option: str, values: Iterable[Any], **more: Any) -> dict[str, Json]:
    """Handlers of one kind with each of these values of an option; they have a port if they need one."""
    more = {"port": 1, **more} if handler != "exec" else more
    return {
        f"{handler}-{option}-{name}": {handler: {**more, option: value}}
        for name, value in _each(values).items()
    }


def _numbered(count: int) -> list[Json]:
    """So many probes."""
    return [
        {**GOOD["probes"][0], "name": f"n{n}", "podConditionType": f"a.example/{n}"}
        for n in range(count)
    ]


def _good_selectors() -> Iterator[Row]:
    yield from _good(LABELS, _each({key: "x"} for key in KEYS))
    values = ("", "v" * 63, "a.b-c_d", "1")
    yield from _good(LABELS, {f"value-{each[:8]}": {"a": each} for each in values})
    yield from _good(LABELS, {"of-32": {f"k{n}": "v" for n in range(32)}})
    keys = (expression("Exists", key=key) for key in KEYS)
    expressions = (
        expression("In", *values),
        expression("In", "a"),
        expression("NotIn", "a", ""),
        expression("Exists"),
        expression("DoesNotExist", key="a.example/b"),
        {**expression("Exists"), "values": []},
    )
    yield from _good("selector", _by(_each((*keys, *expressions))))


def _good_probes() -> Iterator[Row]:
    yield Row("as-it-is", GOOD)
    yield Row("largest-of-all", _largest())
    yield from _good(POLICIES, {"condition-only": None})
    yield from _good("probes.0.name", {"shortest": "n", "longest": "n" * 253})
    yield from _good("probes.0.containerName", {"shortest": "c", "longest": "c" * 63})
    conditions = ("", "KruiseProbeHealthy", "inPlaceUpdateReady", LONGEST_KEY)
    yield from _good(CONDITION, {"absent": None, **_each(conditions)})
    yield from _good("probes.0.whenTerminating", _each(("", "Keep", "Probe")))
    without = [
        {**each, "name": f"n{n}", "podConditionType": ""} for n, each in enumerate(another())
    ]
    yield from _good(
        "probes",
        {
            "two": another(name="other", podConditionType="game.io/other"),
            "two-without-condition": without,
            "one-without-condition": another(name="other", podConditionType=None),
            "32": _numbered(32),
        },
    )


def _good_policies() -> Iterator[Row]:
    both = [policy("Succeeded"), policy("Failed", annotations={"a": "b"})]
    lists = {"of-each-state": both, "of-unknown": [policy("Unknown")]}
    yield from _good(POLICIES, {**lists, "three": [*both, policy("Unknown")]})
    longest = {LONGEST_KEY: "x"}
    costs = ("0", "10", "-0", "-007", f"-{'0' * 5000}5", "2147483647", "-2147483648")
    annotations = {
        "of-any-text": {"a": "не число\n" * 10, "b": ""},
        "of-8192": {"a": "x" * 8192},
        **{f"cost-{each[:12]}": {COST: each} for each in costs},
        **{each: {each: "x"} for each in FREE_ANNOTATIONS},
    }
    yield from _good(POLICIES, _policies(annotations=annotations))
    labels = {"32": {f"k{n}": "" for n in range(32)}, "of-another-selector": {"app2": "x"}}
    labels |= {each: {each: "x"} for each in FREE_LABELS}
    yield from _good(POLICIES, _policies(labels=labels))
    yield from _good(POLICIES, {"longest-keys": [policy(labels=longest, annotations=longest)]})


def _good_values() -> Iterator[Row]:
    several = {
        "two-annotations": [{"annotation": each, "label": ""} for each in "ab"],
        "two-labels": [{"label": each, "annotation": ""} for each in "ab"],
        "longest-keys": [{"label": LONGEST_KEY}, {"annotation": LONGEST_KEY}],
        "of-both-kinds": [{"label": "a"}, {"annotation": "a"}],
        "of-8": [{"label": f"k{n}"} for n in range(8)],
    }
    single = (
        {"label": "a"},
        {"annotation": "a", "label": ""},
        {"label": "a", "annotation": ""},
        {"annotation": COST, "regex": "[0-9]+"},
        *({"annotation": each} for each in FREE_ANNOTATIONS),
        *({"label": each} for each in FREE_LABELS),
        *({"label": "a", "regex": each} for each in PATTERNS),
    )
    several |= {f"single-{name}": [each] for name, each in _each(single).items()}
    yield from _good(POLICIES, _policies(fromMessage=several))
    static = policy(fromMessage=[{"label": "a"}], labels={"a": "b"})
    yield from _good(POLICIES, {"with-static-value": [static]})
    spec = edited(POLICIES, [policy(fromMessage=[{"label": "a"}])])
    yield Row("value-with-expressions", {**spec, "selector": _by({"": expression("Exists")})[""]})


def _largest() -> Json:
    """Every list at its maximum, and 100 keys, which use the most of the API server's CEL budget."""
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
    probes: list[Json] = [
        {
            "name": f"{n:0200}",
            "containerName": "c" * 63,
            "probe": {"httpGet": {"port": "a" * 15, "httpHeaders": headers, "path": "/%20" * 1024}},
            "podConditionType": f"{'p' * 200}/{n}",
        }
        for n in range(32)
    ]
    probes[0] |= {
        "markerPolicy": [
            policy("Succeeded", **marks),
            policy("Failed", labels={f"k{n}": "v" for n in range(28)}),
        ]
    }
    values = [f"{n:063}" for n in range(32)]
    selector = {
        "matchLabels": {f"{'s' * 60}.example/{n:060}": "v" * 63 for n in range(32)},
        "matchExpressions": [expression("In", *values, key=f"e.example/{n}") for n in range(32)],
    }
    return {"selector": selector, "probes": probes}


def _good_handlers() -> Iterator[Row]:
    zeros = dict.fromkeys(NUMBERS, 0)
    largest = dict.fromkeys(NUMBERS, 2**31 - 1) | {"timeoutSeconds": 3600}
    yield from _good(PROBE, HANDLERS)
    yield from _good(PROBE, {f"{name}-0": {**each, **zeros} for name, each in HANDLERS.items()})
    yield from _good(PROBE, {"largest-numbers": {**EXEC, **largest}})
    ports = (1, 65535, "http", "a", "a-1", "1-a", "8080-a", "a" * 15, "1a", "a-b-c")
    for handler in ("tcpSocket", "httpGet"):
        yield from _good(PROBE, _options(handler, "port", ports))
    yield from _good(PROBE, _options("grpc", "mode", ("TLS", "Plaintext", ""), port=65535))
    yield from _good(PROBE, _options("grpc", "service", ("s" * 4096, "a.b.C")))
    headers = [(each, "Wert é\tx") for each in ("Host", "X-Header-Name", "-", "1")]
    headers += [("N" * 253, ""), ("A", "v" * 4096)]
    options: dict[str, list[Any]] = {
        "protocol": ["HTTP1"],
        "scheme": ["HTTP", "HTTPS", ""],
        "host": [""],
        "path": ["", "/" * 4096, *PATHS],
        "httpHeaders": [[{"name": name, "value": value}] for name, value in headers],
    }
    for option, values in options.items():
        yield from _good(PROBE, _options("httpGet", option, values))
    commands = (
        ["a" * 8192],
        ["sh", "-c", "", "echo 'é\n'"],
        ["a"] * 128,
        ["sh", "-c", "a" * 8188],
    )
    yield from _good(PROBE, _options("exec", "command", commands))


def _bad_selectors() -> Iterator[Row]:
    nothing: Json = {"matchLabels": {}, "matchExpressions": []}
    yield from _bad("selector", {"absent": None, "empty": {}, "of-nothing": nothing})
    yield from _bad(LABELS, _each({key: "x"} for key in ("", *BAD_LABEL_KEYS)))
    yield from _bad(LABELS, {f"value-{each!r}": {"a": each} for each in BAD_VALUES})
    too_long = {"value-of-64": {"a": LONG_VALUE}}
    yield from _bad(LABELS, too_long, server_field="spec.selector.matchLabels.a")
    yield from _bad(LABELS, {"of-33": {f"k{n}": "v" for n in range(33)}})
    keys = _each(expression("Exists", key=key) for key in ("", "-", *BAD_LABEL_KEYS))
    yield from _bad("selector", _by(keys), ".matchExpressions[0].key")
    values = _each(expression("In", "a", value) for value in BAD_VALUES)
    values |= {
        "In-none": expression("In"),
        "NotIn-none": {**expression("NotIn"), "values": []},
        "Exists-one": expression("Exists", "a"),
        "DoesNotExist-one": expression("DoesNotExist", "a"),
        "In-invalid": expression("In", "a b"),
        "In-33": expression("In", *(f"v{n}" for n in range(33))),
    }
    yield from _bad("selector", _by(values), ".matchExpressions[0].values")
    at = "spec.selector.matchExpressions[0].values[1]"
    too_long = _by({"values-of-64": expression("In", "a", LONG_VALUE)})
    yield from _bad("selector", too_long, ".matchExpressions[0].values", at)
    yield from _bad("selector", _by({"Is": expression("Is", "a")}), ".matchExpressions[0].operator")
    many = {"of-33-expressions": {"matchExpressions": [expression("Exists")] * 33}}
    yield from _bad("selector", many, ".matchExpressions")


def _bad_probes() -> Iterator[Row]:
    yield from _bad("probes", {"absent": None, "empty": [], "33": _numbered(33)})
    labelled = [
        {**each, "markerPolicy": [policy(labels={f"k{n}": "v" for n in range(26)})]}
        for each in _numbered(4)
    ]
    yield from _bad("probes", {"104-keys": labelled})
    yield from _bad("probes.0.name", {"empty": "", "with-hash": "a#b", "of-254": "n" * 254})
    yield from _bad("probes.0.containerName", {"empty": "", "of-64": "c" * 64})
    names, conditions = another(podConditionType="game.io/b"), another(name="b")
    yield from _bad("probes", {"name-twice": names}, "[1].name", "spec.probes")
    yield from _bad("probes", {"twice": conditions}, "[1].podConditionType", "spec.probes")
    bare = {"name": "a", "containerName": "b", "probe": EXEC}
    empty = {**bare, "podConditionType": "", "markerPolicy": []}
    yield from _bad("probes.0", {"neither-condition-nor-policy": bare, "both-are-empty": empty})
    yield from _bad("probes.0.whenTerminating", _each(("probe", "Never")))
    yield from _bad(CONDITION, _each((*_covered(reserved.CONDITIONS), *BAD_LABEL_KEYS)))


def _bad_policies() -> Iterator[Row]:
    at = _field_of(POLICIES)
    yield from _bad(POLICIES, {each: [policy(each)] for each in ("True", "")}, "[0].state")
    yield from _bad(POLICIES, {"state-twice": [policy(), policy()]}, "[1].state", at)
    four = [policy(), policy("Succeeded"), policy("Unknown"), policy()]
    yield from _bad(POLICIES, {"four": four})
    empty = [policy(labels={}, annotations={}, fromMessage=[])]
    yield from _bad(POLICIES, {"empty": [{"state": "Failed"}], "of-empty-maps": empty}, "[0]")
    yield from _bad(POLICIES, {"second-empty": [policy(), {"state": "Succeeded"}]}, "[1]")
    labels = {
        "33": {f"k{n}": "" for n in range(33)},
        **_each({key: "x"} for key in ("", *BAD_LABEL_KEYS, *RESERVED_LABELS)),
        **{f"value-{each!r}": {"a": each} for each in BAD_VALUES},
    }
    yield from _bad(POLICIES, _policies(labels=labels), "[0].labels")
    annotations = {
        "33": {f"k{n}": "" for n in range(33)},
        **_each({key: "x"} for key in ("", *BAD_KEYS, *RESERVED_ANNOTATIONS)),
    }
    yield from _bad(POLICIES, _policies(annotations=annotations), "[0].annotations")
    long = _policies(labels={"value-of-64": {"a": LONG_VALUE}})
    yield from _bad(POLICIES, long, "[0].labels", f"{at}[0].labels.a")
    long = _policies(annotations={"of-8193": {"a": "x" * 8193}})
    yield from _bad(POLICIES, long, "[0].annotations[a]", f"{at}[0].annotations.a")
    costs = {
        f"cost-{name}": [policy(), policy("Succeeded", annotations={COST: each, "a": "b"})]
        for name, each in _each(BAD_COSTS).items()
    }
    yield from _bad(POLICIES, costs, "[1].annotations")
    own = _policies(labels={"own-selector-key": {"app": "other"}})
    yield from _bad(POLICIES, own, "[0].labels", "spec.probes")
    spec = edited(POLICIES, [policy(labels={"app": "b"})])
    spec |= _by({"selector": expression("In", "a", key="app")})
    yield Row("policy-own-selector-expression", spec, f"{at}[0].labels", "spec.probes")


def _bad_values() -> Iterator[Row]:
    at = f"{_field_of(POLICIES)}[0].fromMessage"

    def bad(field: str, *rows: tuple[Json, ...], server_field: str = "") -> Iterator[Row]:
        values = _each(map(list, rows))
        yield from _bad(
            POLICIES, _policies(fromMessage=values), f"[0].fromMessage{field}", server_field
        )

    keys = ({"regex": "a"}, {"label": "", "annotation": ""}, {"label": "a", "annotation": "a"})
    yield from bad("[0]", *((each,) for each in keys))
    for kind in ("label", "annotation"):
        yield from bad(f"[1].{kind}", ({kind: "a"}, {kind: "a"}), server_field=at)
    yield from bad("", tuple({"label": f"k{n}"} for n in range(9)))
    yield from bad("[0].label", ({"label": "app"},), server_field="spec.probes")
    labels = (*BAD_LABEL_KEYS, *RESERVED_LABELS)
    yield from bad("[0].label", *(({"label": each},) for each in labels))
    annotations = (*BAD_KEYS, *RESERVED_ANNOTATIONS)
    yield from bad("[0].annotation", *(({"annotation": each},) for each in annotations))
    yield from bad("[0].regex", *(({"label": "a", "regex": each},) for each in BAD_PATTERNS))
    spec = edited(POLICIES, [policy(fromMessage=[{"label": "app"}])])
    spec |= _by({"selector": expression("Exists", key="app")})
    yield Row("value-own-selector-expression", spec, f"{at}[0].label", "spec.probes")


def _bad_headers() -> Iterator[Row]:
    def bad(within: str, *lists: list[Json]) -> Iterator[Row]:
        rows = _options("httpGet", "httpHeaders", lists)
        return _bad(PROBE, rows, f".httpGet.httpHeaders{within}")

    names = ("", "A B", "a:b", "é", "a\n", "(x)", "X_Name", "a.b", "!#$%&'*+.^`|~-", "N" * 254)
    yield from bad("[0].name", *([{"name": each, "value": ""}] for each in names))
    yield from bad("", [{"name": "A", "value": ""}] * 33)
    yield from bad("[0].value", [{"name": "A", "value": "v" * 4097}])
    first, characters = {"name": "A", "value": "a"}, ("\n", "\r", "\0", "\x08", "\x1f", "\x7f")
    second = ({"name": "B", "value": f"token{each}"} for each in characters)
    yield from bad("[1].value", *([first, each] for each in second))


def _bad_handlers() -> Iterator[Row]:
    yield from _bad(PROBE, {"no-handler": {}, "no-handler-but-numbers": {"periodSeconds": 1}})
    for first, second in combinations(HANDLERS, 2):
        two = HANDLERS[first] | HANDLERS[second]
        yield from _bad(PROBE, {f"{first}-and": two}, f".{second}")
    commands: list[list[str]] = [[], ["a"] * 129, ["sh", "-c", "a" * 8189], ["a" * 65] * 127]
    rows = {**_options("exec", "command", commands), "no-command": {"exec": {}}}
    yield from _bad(PROBE, rows, ".exec.command")
    yield from _bad(PROBE, _options("exec", "command", [["a" * 8193]]), ".exec.command[0]")
    ports = (0, -1, 65536, 2**31, "", "HTTP", "a--b", "-a", "a-", "80", "a" * 16, "a_b", "é")
    for handler in ("tcpSocket", "httpGet"):
        hosts = _options(handler, "host", ("127.0.0.1", "x", "::1", "metadata.example"))
        yield from _bad(PROBE, hosts, f".{handler}.host")
        yield from _bad(PROBE, _options(handler, "port", ports), f".{handler}.port")
    for handler, option, values in (
        ("grpc", "port", (0, -1, 65536)),
        ("grpc", "mode", ("mTLS", "tls", "PLAINTEXT")),
        ("grpc", "service", ("s" * 4097,)),
        ("httpGet", "protocol", ("HTTP2",)),
        ("httpGet", "scheme", ("http", "FTP", "HTTPS ")),
        ("httpGet", "path", (*BAD_PATHS, "/" * 4097)),
    ):
        yield from _bad(PROBE, _options(handler, option, values), f".{handler}.{option}")
    for number in NUMBERS:
        wrong = {f"{each}": {**EXEC, number: each} for each in (-1, 2**31)}
        yield from _bad(PROBE, wrong, f".{number}")
    yield from _bad(PROBE, {"3601": {**EXEC, "timeoutSeconds": 3601}}, ".timeoutSeconds")


def _incomplete() -> Iterator[Row]:
    for name in ("name", "containerName", "probe"):
        yield from _bad(f"probes.0.{name}", {"absent": None})
    for name, present in (("key", "operator"), ("operator", "key")):
        rows = _by({"incomplete": {present: "Exists"}})
        yield from _bad("selector", rows, f".matchExpressions[0].{name}")
    yield from _bad(POLICIES, {"without-state": [{"labels": {"a": "b"}}]}, "[0].state")
    for name in ("httpGet", "tcpSocket", "grpc"):
        yield from _bad(PROBE, {"without-port": {name: {}}}, f".{name}.port")
    for name, present in (("name", "value"), ("value", "name")):
        rows = _options("httpGet", "httpHeaders", [[{present: "A"}]])
        yield from _bad(PROBE, rows, f".httpGet.httpHeaders[0].{name}")


VALID: tuple[Row, ...] = (
    *_good_selectors(),
    *_good_probes(),
    *_good_policies(),
    *_good_values(),
    *_good_handlers(),
)
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
