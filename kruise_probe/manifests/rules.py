"""CEL rules for the CRDs: the rules of `api.validation` that a JSON schema cannot express.

The rules use only what Kubernetes 1.30 has: no `format` library and no two-variable macros. The API server estimates
the worst-case cost of all rules and rejects a CRD above its cost budget. Therefore:

- Regular expressions are used only where the text and its list are bounded.
- Rules count a command's characters; `api.validation` counts its bytes.
- Ports have no rules but schema bounds (`schema.port`): before 1.33, the estimate assumes that the text of an
  int-or-string is unbounded.

A rule about the items of a list reports the field of the list; its message names the item.

Source: apiextensions/v1 ValidationRule; apiserver pkg/cel/library for what a call costs.
"""

import json
from collections.abc import Collection, Iterable
from typing import Final

from kruise_probe.api import extraction, labels, probe_validation, reserved, validation
from kruise_probe.api.names import DELETION_COST_ANNOTATION
from kruise_probe.api.reserved import ReservedKeys

CelRule = dict[str, str]

_DNS_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_ANY_CASE_DNS_LABEL: Final = "[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?"
_NAME: Final = f"[A-Za-z0-9]([-A-Za-z0-9_.]{{0,{labels.MAX_NAME_PART - 2}}}[A-Za-z0-9])?"

# Not FieldValueDuplicate: the API server omits the message of such a rule.
REQUIRED: Final = "FieldValueRequired"
FORBIDDEN: Final = "FieldValueForbidden"


def _rule(
    expression: str, message: str, *, field: str = "", reason: str = "", item: str = ""
) -> CelRule:
    """Build a rule; `item` is a CEL expression for a message prefix that names the item."""
    rule = {"rule": expression, "message": message}
    if item:
        rule["messageExpression"] = f"{item} + {_literal(message)}"
    if reason:
        rule["reason"] = reason
    if field:
        rule["fieldPath"] = field
    return rule


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _list(texts: Iterable[str]) -> str:
    return "[" + ", ".join(_literal(text) for text in texts) + "]"


def _json_list(texts: Iterable[str]) -> str:
    """Format a JSON list as the chart's template does."""
    return json.dumps(sorted(texts), separators=(",", ":"))


def _is_reserved(row: ReservedKeys) -> str:
    """CEL: whether the row covers the key `k`, as in `ReservedKeys.covers`."""
    conditions = [f"k.startsWith({_literal(each)})" for each in row.prefixes]
    if row.keys:
        conditions.append(f"k in {_list(row.keys)}")
    if row.domains:
        domains = "|".join(each.replace(".", "[.]") for each in row.domains)
        found = f"k.matches('^([^/]*[.])?({domains})/')"
        conditions.append(
            " && ".join(
                [found, *(f"!k.startsWith({_literal(each + '/')})" for each in row.exceptions)]
            )
        )
    return " || ".join(conditions)


def _not_reserved(
    table: Iterable[ReservedKeys], remedy: str, *, keys: str, allowed: str = ""
) -> Iterable[CelRule]:
    """Rules, one per row: none of `keys` is reserved, unless the CEL expression `allowed` is true for `k`."""
    for row in table:
        condition = f"!({_is_reserved(row)})"
        if allowed:
            condition = f"{allowed} || {condition}"
        yield _each(keys, condition, row.error(remedy), reason=FORBIDDEN)


def _is_key(key: str, *, dns_label: str = _DNS_LABEL) -> str:
    """CEL: whether the variable `key` is a qualified name."""
    pattern = f"^({dns_label}(\\\\.{dns_label})*/)?{_NAME}$"
    return f"{key}.indexOf('/') <= {labels.MAX_PREFIX} && {key}.matches('{pattern}')"


def _is_value(value: str) -> str:
    return f"{value} == '' || {value}.matches('^{_NAME}$')"


def _first_invalid(items: str, condition: str) -> str:
    """CEL: the first item of a list, or key of a map, for which `condition` on `k` is false, in quotes."""
    return f"'\"' + {items}.filter(k, !({condition}))[0] + '\": '"


def _each(keys: str, condition: str, message: str, *, reason: str = "") -> CelRule:
    """A rule: `condition` on `k` is true for each of `keys`, a CEL expression for a list or a map."""
    return _rule(
        f"{keys}.all(k, {condition})", message, reason=reason, item=_first_invalid(keys, condition)
    )


_TEXT: Final = "[self].filter(t, t != '')"
"""CEL: a text as a list of keys, which has no key if the text is empty."""


def _label_keys(keys: str) -> CelRule:
    return _each(keys, _is_key("k"), labels.KEY)


LABEL_VALUES: Final = _rule(
    f"self.all(k, {_is_value('self[k]')})",
    labels.LABEL_VALUE,
    item="'value of ' + " + _first_invalid("self", _is_value("self[k]")),
)
LABELS: Final = (_label_keys("self"), LABEL_VALUES)


def policy_labels(allowed: Collection[str]) -> tuple[CelRule, ...]:
    """Rules for the labels of a policy; `allowed` are reserved keys that it may write."""
    return (*LABELS, *_reserved_labels("self", allowed))


def from_message_label(allowed: Collection[str]) -> tuple[CelRule, ...]:
    """Rules for a label whose value is from the message; see `policy_labels`."""
    return (_label_keys(_TEXT), *_reserved_labels(_TEXT, allowed))


def _reserved_labels(keys: str, allowed: Collection[str]) -> Iterable[CelRule]:
    return _not_reserved(
        reserved.LABELS,
        reserved.USE_ANOTHER_LABEL,
        keys=keys,
        allowed=f"k in {_json_list(allowed)}",
    )


def _annotation_keys(keys: str) -> tuple[CelRule, ...]:
    return (
        _each(keys, _is_key("k", dns_label=_ANY_CASE_DNS_LABEL), labels.KEY),
        *_not_reserved(reserved.ANNOTATIONS, reserved.USE_ANOTHER_KEY, keys=keys),
    )


_COST = f"self[{_literal(DELETION_COST_ANNOTATION)}]"
ANNOTATIONS: Final = (
    *_annotation_keys("self"),
    _rule(
        f"!({_literal(DELETION_COST_ANNOTATION)} in self) || "
        f"({_COST}.matches('^({labels.COST_PATTERN})$') && "
        f"int({_COST}) >= {labels.MIN_COST} && int({_COST}) <= {labels.MAX_COST})",
        labels.DELETION_COST,
    ),
)

SELECTOR: Final = (
    _rule(
        "(has(self.matchLabels) && self.matchLabels.size() > 0) || "
        "(has(self.matchExpressions) && self.matchExpressions.size() > 0)",
        validation.SELECTOR_EMPTY,
        reason=REQUIRED,
    ),
    _rule("self == oldSelf", validation.SELECTOR_IMMUTABLE),
)
SELECTOR_EXPRESSION: Final = (
    _rule(
        "!(self.operator in ['In', 'NotIn']) || (has(self.values) && self.values.size() > 0)",
        validation.VALUES_NEEDED,
        field=".values",
        reason=REQUIRED,
    ),
    _rule(
        "!(self.operator in ['Exists', 'DoesNotExist']) || !has(self.values) || self.values.size() == 0",
        validation.VALUES_EXCESS,
        field=".values",
        reason=FORBIDDEN,
    ),
)
SELECTOR_KEY: Final = _rule(_is_key("self"), labels.KEY)
SELECTOR_VALUES: Final = _rule(f"self.all(v, {_is_value('v')})", labels.LABEL_VALUE)

_SELECTOR_HAS_KEY = (
    "((has(self.selector.matchLabels) && k in self.selector.matchLabels) || "
    "(has(self.selector.matchExpressions) && self.selector.matchExpressions.exists(e, e.key == k)))"
)
SPEC: Final = (
    _rule(
        "self.probes.all(p, !has(p.markerPolicy) || p.markerPolicy.all(m, !has(m.labels) || "
        f"m.labels.all(k, !{_SELECTOR_HAS_KEY})))",
        f"a key of markerPolicy.labels {validation.OWN_SELECTOR_KEY}",
        field=".probes",
        reason=FORBIDDEN,
    ),
    _rule(
        "self.probes.all(p, !has(p.markerPolicy) || p.markerPolicy.all(m, !has(m.fromMessage) || "
        f"m.fromMessage.all(v, !has(v.label) || [v.label].all(k, !{_SELECTOR_HAS_KEY}))))",
        f"a label of markerPolicy.fromMessage {validation.OWN_SELECTOR_KEY}",
        field=".probes",
        reason=FORBIDDEN,
    ),
)

PROBES: Final = (
    _rule(
        "self.all(p, self.exists_one(q, q.name == p.name))",
        f"name {validation.UNIQUE}",
    ),
    _rule(
        "self.all(p, !has(p.podConditionType) || p.podConditionType == '' || self.exists_one(q, "
        "has(q.podConditionType) && q.podConditionType == p.podConditionType))",
        f"podConditionType {validation.UNIQUE}",
    ),
)
PROBE_NAME: Final = _rule("!self.contains('#')", validation.NAME_WITH_HASH)
CONTAINER_PROBE: Final = _rule(
    "(has(self.podConditionType) && self.podConditionType != '') || "
    "(has(self.markerPolicy) && self.markerPolicy.size() > 0)",
    validation.NO_OUTPUT,
    reason=REQUIRED,
)
CONDITION_TYPE: Final = (
    *(
        _rule(f"!(self in {_list(row.keys)})", row.error(reserved.USE_ANOTHER_CONDITION))
        for row in reserved.CONDITIONS
    ),
    _rule(f"self == '' || ({_is_key('self')})", labels.KEY),
)
POLICIES: Final = _rule(
    "self.all(m, self.exists_one(n, n.state == m.state))",
    f"state {validation.UNIQUE_STATE}",
    item="(self[0].state == self[1].state ? '[1]: ' : '[2]: ')",
)
POLICY: Final = _rule(
    "(has(self.labels) && self.labels.size() > 0) || (has(self.annotations) && self.annotations.size() > 0)"
    " || (has(self.fromMessage) && self.fromMessage.size() > 0)",
    validation.POLICY_EMPTY,
    reason=REQUIRED,
)
FROM_MESSAGE: Final = tuple(
    _rule(
        f"self.all(v, !has(v.{key}) || v.{key} == '' || self.exists_one(w, has(w.{key}) && w.{key} == v.{key}))",
        f"{key} {validation.UNIQUE_KEY}",
    )
    for key in ("label", "annotation")
)
MESSAGE_VALUE: Final = _rule(
    "(has(self.label) && self.label != '') != (has(self.annotation) && self.annotation != '')",
    validation.ONE_KEY,
    reason=REQUIRED,
)
FROM_MESSAGE_ANNOTATION: Final = _annotation_keys(_TEXT)
# Go's regular expressions are RE2's. An invalid one is an error of the rule, and the API server refuses the marker.
PATTERN: Final = _rule("''.matches(self) || !''.matches(self)", extraction.SYNTAX)

HANDLERS: Final = (
    _rule(
        "has(self.exec) || has(self.httpGet) || has(self.tcpSocket) || has(self.grpc)",
        probe_validation.HANDLER_NEEDED,
        reason=REQUIRED,
    ),
    *(
        _rule(
            f"!has(self.{later}) || !({' || '.join(f'has(self.{each})' for each in earlier)})",
            f"{probe_validation.HANDLER_EXCESS}; keep one of {', '.join(earlier)} and {later}",
            field=f".{later}",
            reason=FORBIDDEN,
        )
        for later, earlier in (
            ("httpGet", ("exec",)),
            ("tcpSocket", ("exec", "httpGet")),
            ("grpc", ("exec", "httpGet", "tcpSocket")),
        )
    ),
)
COMMAND: Final = (
    _rule(
        "has(self.command) && self.command.size() > 0",
        probe_validation.COMMAND_NEEDED,
        field=".command",
        reason=REQUIRED,
    ),
    _rule(
        f"!has(self.command) || self.command.map(w, w.size()).sum() <= {probe_validation.MAX_COMMAND_BYTES}",
        probe_validation.COMMAND_TOO_LONG,
        field=".command",
    ),
)
HOST: Final = _rule("self == ''", probe_validation.HOST, reason=FORBIDDEN)
SCHEME: Final = _rule("self in ['', 'HTTP', 'HTTPS']", probe_validation.SCHEME)
MODE: Final = _rule("self in ['', 'Plaintext', 'TLS']", probe_validation.MODE)
HEADER_NAME: Final = _rule(
    f"self.matches({_literal(f'^{probe_validation.HEADER_NAME_PATTERN}$')})",
    probe_validation.HEADER_NAME,
)
# HEADER_VALUE_CONTROL_PATTERN as RE2 writes it: more than 20 characters are over the cost budget.
_HEADER_VALUE_CONTROL: Final = "[^\\t[:^cntrl:]]"
HEADER_VALUE: Final = _rule(
    f"!self.matches({_literal(_HEADER_VALUE_CONTROL)})", probe_validation.HEADER_VALUE
)
PATH: Final = (
    _rule(
        f"!self.matches({_literal(probe_validation.PATH_CONTROL_PATTERN)})",
        probe_validation.PATH_CONTROL,
    ),
    _rule(
        f"self.matches({_literal(f'^{probe_validation.PATH_PATTERN}$')})",
        probe_validation.PATH_ESCAPE,
    ),
    _rule(
        f"!self.matches({_literal(probe_validation.PATH_HOST_PATTERN)})",
        probe_validation.PATH_START,
    ),
)
